"""The demo's figures, and the tables that a person reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from acclimate.controller.reports import SlotReport
from acclimate.experiments.demo.analysis import ADAPTIVE, Headroom, Speeds
from acclimate.experiments.demo.learning import Learning
from acclimate.experiments.demo.stream import CHAT
from acclimate.experiments.figures import (
    UNKNOWN,
    Figure,
    median_interval,
    number_text,
    ratio_interval,
)

if TYPE_CHECKING:
    from rich.console import Console


@dataclasses.dataclass(frozen=True, slots=True)
class Findings:
    """Everything that the report tells.

    Parameters
    ----------
    speeds, headroom, learning
        What was measured.
    slots
        The policy's own account at the end, by label.
    marginal_gain
        Realised minus required acceptance of marginal tokens, by concurrency; None for none.
    jobs, differing
        Jobs per pass, and those that did not get the same tokens in every pass.
    """

    speeds: Speeds
    headroom: Headroom
    learning: Learning
    slots: Mapping[str, SlotReport]
    marginal_gain: Mapping[int, float | None]
    jobs: int
    differing: tuple[str, ...]

    @property
    def concurrencies(self) -> tuple[int, ...]:
        """Return the concurrencies, ascending."""
        return tuple(self.marginal_gain)


def figures(found: Findings, rng: np.random.Generator) -> list[Figure]:
    """Return everything as figures; intervals are over rounds."""
    speeds, result = found.speeds, []
    best = speeds.best_static()
    for load in (None, *found.concurrencies):
        end = "" if load is None else f"/c{load}"
        mine = speeds.values[ADAPTIVE, load]
        there = best if load is None else speeds.best_static(load)
        others = {"k0": "k0", "best_static": there}
        others |= {arm: arm for arm in speeds.static_arms if arm != "k0"}
        for name, arm in others.items():
            baseline = speeds.values[arm, load]
            result.append(ratio_interval(f"demo/ratio/{ADAPTIVE}/{name}{end}", mine, baseline, rng))
        for arm in (*speeds.static_arms, ADAPTIVE):
            values = speeds.values[arm, load]
            result.append(median_interval(f"demo/speed/{arm}{end}", values, rng, "tok/s"))
    result.append(
        ratio_interval(
            f"demo/ratio_with_prompts/{ADAPTIVE}/k0",
            speeds.overall[ADAPTIVE],
            speeds.overall["k0"],
            rng,
        )
    )
    result.append(Figure("demo/headroom", found.headroom.ratio))
    for load, ratio in found.headroom.by_concurrency.items():
        result.append(Figure(f"demo/headroom/c{load}", ratio))
    for load, gain in found.marginal_gain.items():
        result.append(Figure(f"demo/marginal_gain/c{load}", gain, unit="tokens"))
    learning = found.learning
    # Where the arm was never right for long enough, what was graded is a lower bound.
    at_least = learning.shift_tokens if learning.recovery is None else None
    result.append(Figure("demo/tokens_to_recover", learning.recovery, low=at_least, unit="tokens"))
    result.append(Figure("demo/tokens_to_notice", learning.noticed, unit="tokens"))
    for label in _labels(learning):
        slot = found.slots.get(label)
        learned, seen, count = _acceptance(learning, label)
        result.append(Figure(f"demo/brier/{label}", slot.brier if slot else None, n=count))
        result.append(Figure(f"demo/acceptance/{label}/learned", learned, n=count))
        result.append(Figure(f"demo/acceptance/{label}/seen", seen, n=count))
    same = 1.0 - len(found.differing) / found.jobs
    result.append(Figure("demo/identical_tokens_share", same, n=found.jobs))
    return result


def print_report(found: Findings, measured: list[Figure], console: Console) -> None:
    """Show the tables, and what they come to, in sentences."""
    by_name = {figure.name: figure for figure in measured}
    console.print(_learning_table(found))
    console.print(_speed_table(found, by_name))
    best, best_depth = by_name[f"demo/ratio/{ADAPTIVE}/best_static"], found.speeds.best_static()
    lines = [
        (
            f"against k0: {by_name[f'demo/ratio/{ADAPTIVE}/k0'].text}; with prompts and stalls "
            f"{by_name[f'demo/ratio_with_prompts/{ADAPTIVE}/k0'].text}"
        ),
        f"against the best single depth ({best_depth}): {best.text}",
        "against the best depth at each concurrency: "
        + ", ".join(
            f"{load}: {by_name[f'demo/ratio/{ADAPTIVE}/best_static/c{load}'].text} "
            f"({found.speeds.best_static(load)})"
            for load in found.concurrencies
        ),
        f"headroom: {found.headroom.ratio:.3f} x k0, had every domain had its best depth at every "
        "concurrency ("
        + ", ".join(f"{load}: {r:.3f}" for load, r in found.headroom.by_concurrency.items())
        + "); from each depth's own counts and a line fitted to step times",
        "gain of tokens at the margin, per token: "
        + ", ".join(
            f"{load}: {number_text(gain, '+.3f')}" for load, gain in found.marginal_gain.items()
        ),
        _shift_line(found.learning),
        f"tokens identical in all passes: {found.jobs - len(found.differing)} of {found.jobs} jobs",
    ]
    for line in lines:
        console.print(f"• {line}", highlight=False, soft_wrap=True)


def _learning_table(found: Findings) -> object:
    from rich.table import Table

    table = Table(title="Acceptance per label; drafts verified / at hand, where there were any")
    table.add_column("label", no_wrap=True)
    for head in ("graded", "learned", "seen", "Brier"):
        table.add_column(head, justify="right")
    for load in found.concurrencies:
        table.add_column(f"at {load}", justify="right")
    for label in _labels(found.learning):
        learned, seen, count = _acceptance(found.learning, label)
        slot = found.slots.get(label)
        cells = []
        for load in found.concurrencies:
            sums = found.learning.chosen.get((label, load))
            cells.append(
                UNKNOWN if sums is None else f"{sums[2] / sums[0]:.1f}/{sums[1] / sums[0]:.1f}"
            )
        brier = number_text(None if slot is None else slot.brier, ".3f")
        table.add_row(label, str(count), f"{learned:.3f}", f"{seen:.3f}", brier, *cells)
    return table


def _speed_table(found: Findings, by_name: Mapping[str, Figure]) -> object:
    from rich.table import Table

    speeds = found.speeds
    rounds = speeds.values[ADAPTIVE, None].shape[0]
    table = Table(title=f"Decode tokens per second, median of {rounds} alternating rounds")
    table.add_column("arm")
    for load in found.concurrencies:
        table.add_column(f"at {load}", justify="right")
    table.add_column("stream", justify="right")
    table.add_column("adaptive / arm, 95 %", justify="right")
    for arm in (*speeds.static_arms, ADAPTIVE):
        ratio = by_name.get(f"demo/ratio/{ADAPTIVE}/{arm}")
        cells = [f"{speeds.median(arm, load):.0f}" for load in (*found.concurrencies, None)]
        table.add_row(arm, *cells, "" if ratio is None else ratio.text)
    return table


def _shift_line(learning: Learning) -> str:
    if learning.noticed is None:
        noticed = "not noticed"
    else:
        noticed = f"noticed after {learning.noticed} graded tokens"
    if learning.recovery is None:
        right = f"not right again within {learning.shift_tokens}"
    else:
        right = f"right again after {learning.recovery}"
    return (
        f"shift of “{CHAT}” in the first round: {noticed}, {right} (every survival within 0.05 of "
        "hindsight for 200 graded tokens)"
    )


def _labels(learning: Learning) -> list[str]:
    labels = {token.label for token in learning.tokens}
    return [*sorted(labels - {CHAT}), *(labels & {CHAT})]


def _acceptance(learning: Learning, label: str) -> tuple[float, float, int]:
    """Return mean prediction, mean outcome and number of a label's graded tokens."""
    tokens = [token for token in learning.of(label) if np.isfinite(token.predicted)]
    if not tokens:
        return float("nan"), float("nan"), 0
    learned = float(np.mean([token.predicted for token in tokens]))
    return learned, float(np.mean([token.right for token in tokens])), len(tokens)
