"""What the cells of ``lab recalibration`` say: regret, tokens to recover, efficiency, who is first.

Everything is paired by seed with the oracle, which met the same requests and the same luck.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from acclimate.controller.records import FloatArray
from acclimate.experiments.arms import NEED_TRUTH
from acclimate.experiments.figures import Figure
from acclimate.experiments.lab.cell_store import Header
from acclimate.experiments.lab.intervals import censored_median, mean_over_seeds
from acclimate.experiments.lab.recalibration_cell import RecalibrationRow

OURS, ORACLE = "adaptive", "oracle"
SHAPE_TOLERANCE = 0.01
_SHAPE_WINDOW_BINS = 4
"""A shape counts as found when it is good on average over so many bins: single samples scatter."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFinding:
    """One policy in one scenario, over seeds.

    Parameters
    ----------
    regret_s
        Engine time beyond what the oracle needs for the same tokens.
    tokens_to_recover
        Median over seeds of graded tokens until beliefs are right; None where they mostly never
        were, or where there are none.
    recovered
        Share of changes after which they were.
    seconds_lost
        Engine time lost from a change until the shape is within 1 % of the oracle's; median.
    steady
        Speed in the last third of the time over the oracle's.
    switches, false_alarms, noticed
        Per run; tokens from a change to its alarm.
    no_beliefs
        Why there are no beliefs; empty where there are.
    """

    policy: str
    seeds: int
    regret_s: Figure
    tokens_to_recover: Figure
    recovered: Figure
    seconds_lost: Figure
    steady: Figure
    switches: Figure
    false_alarms: Figure
    noticed: Figure
    no_beliefs: str

    @property
    def figures(self) -> list[Figure]:
        """All of them; those that beliefs are needed for only where there are any."""
        always = [self.regret_s, self.steady, self.seconds_lost, self.switches, self.false_alarms]
        return [*always, *([] if self.no_beliefs else [self.tokens_to_recover, self.recovered])] + (
            [self.noticed] if self.noticed.n else []
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFinding:
    """All policies in one scenario, those with the least regret first."""

    name: str
    title: str
    note: str
    changes: bool
    policies: tuple[PolicyFinding, ...]
    behind: tuple[str, ...]
    rows: dict[str, list[RecalibrationRow]]

    def of(self, policy: str) -> PolicyFinding:
        """Return one policy's finding."""
        return next(found for found in self.policies if found.policy == policy)


def find_recalibration(header: Header, rows: Sequence[RecalibrationRow]) -> list[ScenarioFinding]:
    """Analyse the rows of ``lab recalibration``, whatever of it is there.

    Raises
    ------
    ValueError
        No scenario has been run by the oracle.
    """
    by_scenario: dict[str, dict[str, dict[int, RecalibrationRow]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for row in rows:
        by_scenario[row.scenario][row.policy][row.seed] = row
    about = header.settings["scenarios"]
    found = []
    for index, name in enumerate(about):
        if ORACLE in by_scenario[name]:
            rng = np.random.default_rng((int(header.settings["seed"]), index))
            found.append(_scenario(name, about[name], by_scenario[name], rng))
    if not found:
        raise ValueError(f"results must hold a scenario that {ORACLE} ran, got none")
    return found


def regret_s(row: RecalibrationRow, oracle: RecalibrationRow) -> float:
    """Return the engine time that a run took beyond the oracle's for the same tokens."""
    return float(lag_s(row, oracle)[-1])


def lag_s(row: RecalibrationRow, oracle: RecalibrationRow) -> FloatArray:
    """Return how far behind the oracle a run is in engine time, at the end of each bin.

    Where it has more tokens than the oracle ever had, the oracle's mean pace goes on.
    """
    tokens = np.array([0, *oracle.tokens_by], dtype=np.float64)
    busy_s = np.array([0.0, *oracle.busy_by_s])
    rising = np.concatenate([[True], np.diff(tokens) > 0])
    own = np.array(row.tokens_by, dtype=np.float64)
    needed_s = np.interp(own, tokens[rising], busy_s[rising])
    beyond = np.maximum(own - tokens[-1], 0.0)
    needed_s = needed_s + beyond * busy_s[-1] / max(tokens[-1], 1.0)
    # An engine that idles after its last token has not computed in vain.
    return np.asarray(np.array(row.busy_by_s) - needed_s, dtype=np.float64)


def steady_share(row: RecalibrationRow, oracle: RecalibrationRow) -> float | None:
    """Return the speed in the last third of the time over the oracle's; None without any."""
    speeds = []
    for run in (row, oracle):
        at = 2 * len(run.edge_s) // 3 - 1
        busy_s = run.busy_by_s[-1] - run.busy_by_s[at]
        if busy_s <= 0:
            return None
        speeds.append((run.tokens_by[-1] - run.tokens_by[at]) / busy_s)
    return speeds[0] / speeds[1] if speeds[1] else None


def seconds_lost(row: RecalibrationRow, oracle: RecalibrationRow) -> list[float]:
    """Return, per change, what inferior shapes cost until the shape is within 1 % of the oracle's.

    Infinite where it was not again before the next change, or the end.
    """
    own = np.array([np.nan if share is None else share for share in row.shape])
    # The median: where requests come or end, even the oracle has too few drafts at hand.
    best = float(np.median([share for share in oracle.shape if share is not None]))
    share = own / best
    edge_s = np.array(row.edge_s)
    width_s = np.diff(np.concatenate([[0.0], edge_s]))
    begins_s = sorted({episode.begin_s for episode in row.episodes})
    ends_s = [*begins_s[1:], float(edge_s[-1]) + 1.0]
    lost = []
    for begin_s, end_s in zip(begins_s, ends_s, strict=True):
        inside = np.flatnonzero((edge_s > begin_s) & (edge_s <= end_s) & np.isfinite(share))
        total = np.inf
        for first in range(inside.size - _SHAPE_WINDOW_BINS + 1):
            window = inside[first : first + _SHAPE_WINDOW_BINS]
            if share[window].mean() >= 1.0 - SHAPE_TOLERANCE:
                before = inside[:first]
                total = float((width_s[before] * np.maximum(1.0 - share[before], 0.0)).sum())
                break
        lost.append(total)
    return lost


def _scenario(
    name: str,
    about: dict[str, str],
    by_policy: dict[str, dict[int, RecalibrationRow]],
    rng: np.random.Generator,
) -> ScenarioFinding:
    oracle = by_policy[ORACLE]
    paired = {
        policy: [by_seed[seed] for seed in sorted(by_seed.keys() & oracle.keys())]
        for policy, by_seed in by_policy.items()
    }
    policies = [_policy(name, policy, rows, oracle, rng) for policy, rows in paired.items() if rows]
    policies.sort(key=lambda found: found.regret_s.value or 0.0)
    return ScenarioFinding(
        name=name,
        title=about["title"],
        note=about["note"],
        changes=any(row.changes for row in paired[ORACLE]),
        policies=tuple(policies),
        behind=tuple(_behind(policies, paired, oracle, rng)),
        rows=paired,
    )


def _policy(
    scenario: str,
    policy: str,
    rows: list[RecalibrationRow],
    oracle: dict[int, RecalibrationRow],
    rng: np.random.Generator,
) -> PolicyFinding:
    where = f"recalibration/{scenario}/{policy}"

    def mean(
        name: str, value: Callable[[RecalibrationRow], float | None], unit: str = ""
    ) -> Figure:
        values = [v for row in rows if (v := value(row)) is not None]
        return mean_over_seeds(f"{where}/{name}", values, rng, unit)

    def median(name: str, value: Callable[[RecalibrationRow], list[float]], unit: str) -> Figure:
        values = [_lower_median(v) for row in rows if (v := value(row))]
        return censored_median(f"{where}/{name}", values, rng, unit)

    return PolicyFinding(
        policy=policy,
        seeds=len(rows),
        regret_s=mean("regret_seconds", lambda row: regret_s(row, oracle[row.seed]), "s"),
        tokens_to_recover=median(
            "tokens_to_recover", lambda row: [] if row.no_beliefs else _recoveries(row), "tokens"
        ),
        recovered=mean("recovered_share", lambda row: float(np.isfinite(_recoveries(row)).mean())),
        seconds_lost=median("seconds_lost", lambda row: seconds_lost(row, oracle[row.seed]), "s"),
        steady=mean("steady_efficiency", lambda row: steady_share(row, oracle[row.seed])),
        switches=mean("switches", lambda row: row.switches),
        false_alarms=mean("false_alarms", lambda row: row.false_alarms),
        noticed=median("tokens_to_notice", _notices, "tokens"),
        no_beliefs=rows[0].no_beliefs,
    )


def _behind(
    policies: Sequence[PolicyFinding],
    paired: dict[str, list[RecalibrationRow]],
    oracle: dict[int, RecalibrationRow],
    rng: np.random.Generator,
) -> list[str]:
    """Return in a sentence each who is ahead of ours; the yardsticks know more and do not count."""
    known = {found.policy: found for found in policies if found.policy not in NEED_TRUTH}
    if OURS not in known:
        return []
    ours, told = known[OURS], []
    first = min(known.values(), key=lambda found: found.regret_s.value or 0.0)
    if first is not ours:
        theirs = {row.seed: regret_s(row, oracle[row.seed]) for row in paired[first.policy]}
        differences = [
            regret_s(row, oracle[row.seed]) - theirs[row.seed]
            for row in paired[OURS]
            if row.seed in theirs
        ]
        by = mean_over_seeds("difference", differences, rng, "s")
        sure = by.low is not None and by.low > 0
        told.append(
            f"regret: {first.policy} is ahead by {by.text}"
            + ("" if sure else ", which may be chance")
        )
    believers = [f for f in known.values() if f.tokens_to_recover.n and not f.no_beliefs]
    soonest = min(believers, key=lambda found: _or_never(found.tokens_to_recover), default=ours)
    if _or_never(soonest.tokens_to_recover) < _or_never(ours.tokens_to_recover):
        told.append(
            f"tokens to recover: {soonest.policy} is ahead with {soonest.tokens_to_recover.text} "
            f"against {recovery_text(ours)}"
        )
    return told


def recovery_text(found: PolicyFinding) -> str:
    """Return tokens to recover for people: with the interval, or why there are none."""
    if found.no_beliefs:
        return "no beliefs"
    figure = found.tokens_to_recover
    if figure.value is None:
        return "never" if figure.low is None else f"never (at best {figure.low:.0f})"
    if figure.low is None:
        return f"{figure.value:.0f}"
    high = "never" if figure.high is None else f"{figure.high:.0f}"
    return f"{figure.value:.0f} [{figure.low:.0f}, {high}]"


def _recoveries(row: RecalibrationRow) -> list[float]:
    """Return tokens to recover per change; changes after which nothing was graded do not count."""
    return [
        np.inf if episode.recovered is None else float(episode.recovered)
        for episode in row.episodes
        if episode.graded
    ] or [np.inf]


def _notices(row: RecalibrationRow) -> list[float]:
    return [float(episode.noticed) for episode in row.episodes if episode.noticed is not None]


def _lower_median(values: Sequence[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]


def _or_never(figure: Figure) -> float:
    return np.inf if figure.value is None else figure.value
