"""Drafters by name: what comes with the package, what was trained here, and what is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from acclimate.experiments import testbed
from acclimate.experiments.drafters import choices
from acclimate.experiments.drafters.choices import BACKOFF, PACKAGED, drafter, drafter_names
from acclimate.integrations.ngram_files import load_backoff
from acclimate.integrations.vllm.backoff_proposer import FILES_VARIABLE, read_files


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(testbed, "home", lambda: tmp_path)
    return tmp_path / "drafters"


def test_packaged_models_can_be_read_and_are_small() -> None:
    paths = sorted(PACKAGED.glob("*.npz"))
    assert [path.name for path in paths] == ["backoff-code.npz", "backoff-general.npz"]
    assert sum(path.stat().st_size for path in paths) < 10_000_000
    for path in paths:
        model, header = load_backoff(path)
        assert header.model == "smollm2"
        assert path.stem == f"{BACKOFF}-{header.variant}"
        assert model.draft(model.tables.tokens[:5].astype(int), 3)[0].shape == (3,)


def test_the_named_variant_drafts_first_and_the_others_are_loaded_too() -> None:
    general, code = drafter("backoff"), drafter("backoff-code")
    assert general.swappable == ("general", "code")
    assert code.swappable == ("code", "general")
    assert list(read_files(code.environment[FILES_VARIABLE])) == ["code", "general"]
    assert code.engine_args()["worker_extension_cls"].endswith("VariantExtension")
    assert drafter("ngram").swappable == ()


def test_what_was_trained_here_goes_before_what_is_packaged(home: Path) -> None:
    home.mkdir()
    (home / "backoff-general.npz").write_bytes(b"")
    (home / "eagle-general").mkdir()
    assert "eagle" not in drafter_names()
    (home / "eagle-general" / "config.json").write_text("{}")
    assert drafter_names() == ("ngram", "backoff", "backoff-code", "eagle")
    files = read_files(drafter("backoff").environment[FILES_VARIABLE])
    assert files["general"] == str(home / "backoff-general.npz")
    assert drafter("eagle").engine_args() == {
        "method": "eagle3", "draft_model": str(home / "eagle-general"),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["eagle", "backoff-poetry", "medusa", ""])
def test_unknown_drafters_are_refused_with_those_at_hand(name: str) -> None:
    with pytest.raises(
        ValueError, match="drafter must be one of ngram, backoff, backoff-code, got"
    ):
        drafter(name)


def test_an_engine_without_a_drafter_does_not_speculate(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, object]] = []
    monkeypatch.setattr(choices, "start_engine", lambda model, **args: started.append(args))
    monkeypatch.setenv(FILES_VARIABLE, "")
    choices.start_drafting("m", None, max_depth=2)
    choices.start_drafting("m", drafter("ngram"), max_depth=2)
    assert [args["method"] for args in started] == [None, "ngram"]
