"""One figures file for every measurement: strict, finite, without the host's name."""

import io
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from acclimate.experiments.figures import (
    Figure,
    Meta,
    describe_machine,
    median_interval,
    print_figures,
    ratio_interval,
    write_figures,
)


def _written(path: Path, *figures: Figure) -> Any:
    write_figures(path, figures, Meta(command="bench soak", engine="vllm 0.32.0", seed=4))

    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def test_the_file_has_the_agreed_shape(tmp_path: Path) -> None:
    document = _written(
        tmp_path / "new" / "folder" / "out.json",
        Figure("overhead/16/median_ms", 0.1, 0.09, 0.12, unit="ms", n=2000),
        Figure("replay/identical_share", 1.0),
    )
    assert set(document) == {"meta", "figures"}
    assert set(document["meta"]) == {"command", "version", "engine", "machine", "seed", "started"}
    assert document["meta"]["command"] == "bench soak"
    assert document["figures"][0] == {
        "name": "overhead/16/median_ms",
        "value": 0.1,
        "low": 0.09,
        "high": 0.12,
        "unit": "ms",
        "n": 2000,
    }
    assert document["figures"][1]["low"] is None


@given(st.floats() | st.none())
def test_what_is_not_finite_becomes_null(value: float | None) -> None:
    figure = Figure("a", value, value, value)
    assert figure.value is None or np.isfinite(figure.value)
    assert figure.low == figure.value == figure.high


def test_numpy_numbers_are_written(tmp_path: Path) -> None:
    document = _written(tmp_path / "out.json", Figure("a", np.float32(0.5), np.float64(0.25)))
    assert document["figures"][0]["value"] == 0.5
    assert document["figures"][0]["low"] == 0.25


def test_a_name_twice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="figure names must be unique, got a/b twice"):
        _written(tmp_path / "out.json", Figure("a/b", 1.0), Figure("a/b", 2.0))


def test_the_machine_is_described_without_its_name() -> None:
    machine = describe_machine()
    assert "cores" in machine
    node = platform.node()
    assert not node or node not in machine


def test_the_interval_covers_the_median_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(40):
        figure = median_interval("m", rng.normal(1.0, 0.1, 40), rng)
        assert figure.low is not None and figure.high is not None
        covered += figure.low <= 1.0 <= figure.high
    assert covered >= 34


def test_few_or_equal_or_missing_measurements() -> None:
    rng = np.random.default_rng(0)
    assert median_interval("m", [], rng).value is None
    two = median_interval("m", [1.0, 2.0], rng)
    assert (two.value, two.low, two.n) == (1.5, None, 2)
    equal = median_interval("m", [3.0] * 5, rng, unit="ms")
    assert (equal.low, equal.high, equal.unit) == (3.0, 3.0, "ms")
    assert median_interval("m", [1.0, float("nan"), 2.0, 3.0], rng).n == 3


def test_an_interval_repeats_from_its_seed() -> None:
    values = np.random.default_rng(1).random(20)
    once, again = (median_interval("m", values, np.random.default_rng(2)) for _ in range(2))
    assert once == again


def test_ratios_are_paired_by_round() -> None:
    slow_rounds = [1.0, 10.0, 100.0, 1000.0]
    figure = ratio_interval(
        "r", [1.1 * speed for speed in slow_rounds], slow_rounds, np.random.default_rng(0)
    )
    assert figure.value == pytest.approx(1.1)
    assert figure.low == pytest.approx(1.1) and figure.high == pytest.approx(1.1)
    with pytest.raises(ValueError, match="rounds must be paired, got 1 and 2"):
        ratio_interval("r", [1.0], [1.0, 2.0], np.random.default_rng(0))


def test_the_table_shows_every_figure() -> None:
    console = Console(file=io.StringIO(), width=120)
    print_figures(
        [Figure("a/b", 1.23456, 1.0, 2.0, "ms", 7), Figure("c", None)], title="t", console=console
    )
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "a/b" in text and "1.235" in text and "1 … 2" in text and "ms" in text
    assert Figure("a", 1.5, 1.0, 2.0, "ms").text == "1.5 [1, 2] ms"
