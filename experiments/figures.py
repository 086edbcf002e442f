"""The one figures file that every measuring command writes, its table, and its intervals."""

from __future__ import annotations

import dataclasses
import datetime
import math
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

import acclimate

if TYPE_CHECKING:
    from rich.console import Console


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """One measured number.

    Parameters
    ----------
    name
        A path such as ``overhead/16/median_ms``.
    value
        None where nothing could be measured; NaN and infinity become None.
    low, high
        95 % interval, or None.
    unit
        Empty for shares and ratios. Ratios are of speeds: above 1 is better.
    n
        Independent measurements behind the value.

    Examples
    --------
    >>> Figure("demo/ratio/adaptive/k0", 1.06, low=1.04, high=1.08, n=6).text
    '1.06 [1.04, 1.08]'
    >>> Figure("demo/headroom", float("nan")).value is None
    True
    """

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    n: int = 1

    def __post_init__(self) -> None:
        for field in ("value", "low", "high"):
            object.__setattr__(self, field, _finite(getattr(self, field)))

    @property
    def text(self) -> str:
        """The value with its interval and unit, for people."""
        text = interval_text(self, ".4g")
        return text if self.value is None else f"{text} {self.unit}".rstrip()


UNKNOWN = "-"
"""What stands in a table where a value is not known."""

FIGURE_HEAD = ("figure", "value", "95 % interval", "unit", "n")
"""Names of the columns of `figure_row`."""


def number_text(value: float | Figure | None, spec: str, *, unknown: str = UNKNOWN) -> str:
    """Return a number, or a figure's value, for a table; None and what is not finite is unknown.

    Parameters
    ----------
    spec
        As in an f-string.

    >>> number_text(0.256, ".0%"), number_text(float("nan"), ".1f"), number_text(None, ".1f")
    ('26%', '-', '-')
    """
    number = value.value if isinstance(value, Figure) else value
    return unknown if number is None or not math.isfinite(number) else format(number, spec)


def interval_text(figure: Figure | None, spec: str, *, unknown: str = UNKNOWN) -> str:
    """Return a figure's value with its interval, where it has one that shows, for a table.

    >>> interval_text(Figure("a", 1.061, low=1.04, high=1.08), ".1f")
    '1.1 [1.0, 1.1]'
    >>> interval_text(Figure("a", 2.0, low=2.0, high=2.0), ".1f"), interval_text(None, ".1f")
    ('2.0', '-')
    """
    text = number_text(figure, spec, unknown=unknown)
    if figure is None or None in (figure.value, figure.low, figure.high):
        return text
    low, high = number_text(figure.low, spec), number_text(figure.high, spec)
    return text if low == text == high else f"{text} [{low}, {high}]"


def figure_row(figure: Figure) -> list[str]:
    """Return a figure as a row of a table: name, value, interval, unit and n."""
    bounds = UNKNOWN
    if figure.low is not None and figure.high is not None:
        bounds = f"{figure.low:.4g} … {figure.high:.4g}"
    return [figure.name, number_text(figure, ".4g"), bounds, figure.unit, str(figure.n)]


@dataclasses.dataclass(frozen=True, slots=True)
class Meta:
    """Where figures come from; ``seed`` is None where nothing was drawn."""

    command: str
    engine: str = "none"
    seed: int | None = None
    version: str = acclimate.__version__
    machine: str = dataclasses.field(default_factory=lambda: describe_machine())
    started: str = dataclasses.field(
        default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    )


def write_figures(path: str | os.PathLike[str], figures: Iterable[Figure], meta: Meta) -> None:
    """Write ``{"meta": …, "figures": […]}`` as strict JSON, missing folders included.

    Raises
    ------
    ValueError
        Two figures share a name.
    """
    figures = list(figures)
    names = [figure.name for figure in figures]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"figure names must be unique, got {', '.join(twice)} twice")
    document = {
        "meta": dataclasses.asdict(meta),
        "figures": [dataclasses.asdict(figure) for figure in figures],
    }
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")


def print_figures(
    figures: Iterable[Figure], *, title: str | None = None, console: Console | None = None
) -> None:
    """Show figures as a table on a terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*FIGURE_HEAD, title=title)
    for figure in figures:
        table.add_row(*figure_row(figure))
    (console or Console()).print(table)


def median_interval(
    name: str,
    values: Sequence[float] | np.ndarray[Any, Any],
    rng: np.random.Generator,
    unit: str = "",
) -> Figure:
    """Return the median of independent measurements with its 95 % bootstrap interval.

    Percentile bootstrap: the corrected variants need a smooth statistic, which the median is not.
    With fewer than three measurements there is no interval. Measurements that depend on each
    other, such as steps in a row, make it too narrow: pass one value per round.

    Examples
    --------
    >>> figure = median_interval("a/b", [1.0, 2.0, 3.0], np.random.default_rng(0))
    >>> figure.value, figure.n, figure.low >= 1.0
    (2.0, 3, True)
    """
    sample = np.asarray(values, dtype=np.float64)
    sample = sample[np.isfinite(sample)]
    if sample.size == 0:
        return Figure(name, None, n=0, unit=unit)
    middle = float(np.median(sample))
    if sample.size < 3:
        return Figure(name, middle, n=int(sample.size), unit=unit)
    if np.ptp(sample) == 0:
        return Figure(name, middle, middle, middle, n=int(sample.size), unit=unit)
    from scipy.stats import bootstrap  # type: ignore[import-untyped]

    interval = bootstrap(
        (sample,), np.median, method="percentile", rng=rng, vectorized=True, n_resamples=2_000
    ).confidence_interval
    low, high = float(interval.low), float(interval.high)
    return Figure(name, middle, low, high, n=int(sample.size), unit=unit)


def ratio_interval(
    name: str,
    speeds: Sequence[float] | np.ndarray[Any, Any],
    baseline_speeds: Sequence[float] | np.ndarray[Any, Any],
    rng: np.random.Generator,
) -> Figure:
    """Return the median of ``speeds / baseline_speeds``, paired by round; above 1 is better.

    Raises
    ------
    ValueError
        The two differ in length.
    """
    above, below = np.asarray(speeds, np.float64), np.asarray(baseline_speeds, np.float64)
    if above.shape != below.shape:
        raise ValueError(f"rounds must be paired, got {above.size} and {below.size}")
    with np.errstate(divide="ignore", invalid="ignore"):
        return median_interval(name, above / below, rng)


def describe_machine() -> str:
    """Return processor, cores at hand and memory, without the name of the host."""
    model = platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = ""
    if hasattr(os, "sysconf"):
        total_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        memory = f", {total_bytes / 2**30:.0f} GiB"
    return f"{model}, {cores} cores{memory}"


def _finite(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return value.item() if isinstance(value, np.generic) else value
