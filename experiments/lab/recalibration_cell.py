"""One cell of ``lab recalibration``: a policy in a scenario with a seed, and what came of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.policy import Policy
from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.arms import arm_policy
from acclimate.experiments.lab.recovery import Episode, RecoveryMeter, no_beliefs_because
from acclimate.experiments.lab.watched import WatchedPolicy
from acclimate.experiments.run_record import Run
from acclimate.experiments.simulation.scenario import Scenario
from acclimate.experiments.simulation.stage import Stage

BINS = 120
"""Over the time of a scenario; the last one takes what comes later."""

_UNDECLARED = "default"  # what policies call a class that nobody named


@dataclasses.dataclass(frozen=True, slots=True)
class RecalibrationCell:
    """What to run."""

    name: str
    scenario: Scenario
    policy: str
    seed: int

    @property
    def key(self) -> str:
        """Name of the cell."""
        return f"{self.name}/{self.policy}/seed{self.seed}"


class RecalibrationRow(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a cell.

    Parameters
    ----------
    tokens, busy_s
        Committed, and seconds in which the engine computed.
    no_beliefs
        Why the policy believes nothing of positions; empty where it does.
    episodes
        Per label and change; without a change in the scenario, the start is one.
    changes
        Whether the scenario has any.
    edge_s, tokens_by, busy_by_s
        At the end of each bin: wall time, and tokens and engine time up to it.
    verified
        Drafts verified per request in each bin; None where nothing decoded.
    shape
        Mean share of the best shape's pace in each bin; None without a sample.
    error
        Largest error of any position by tokens since a change (`recovery.CURVE_TOKENS`).
    calibration
        By tenths of predicted acceptance: graded tokens, and sums of predictions and outcomes.
    """

    key: str
    scenario: str
    policy: str
    seed: int
    tokens: int
    busy_s: float
    switches: int
    alarms: int
    false_alarms: int
    no_beliefs: str
    episodes: list[Episode]
    changes: bool
    edge_s: list[float]
    tokens_by: list[int]
    busy_by_s: list[float]
    verified: list[float | None]
    shape: list[float | None]
    error: list[float | None]
    calibration: list[list[float]]


def run_recalibration_cell(
    cell: RecalibrationCell, build: Callable[[Stage, ControlConfig], Policy] | None = None
) -> RecalibrationRow:
    """Run a cell; the same cell gives the same row.

    Parameters
    ----------
    build
        Makes the policy; by default the cell's name says which.

    Raises
    ------
    RuntimeError
        The policy failed.
    """
    stage = Stage.of(cell.scenario, seed=cell.seed)
    config = ControlConfig(seed=cell.seed)
    horizon_s = _horizon_s(stage)
    meter = _meter(stage, horizon_s)
    if build is None:
        policy = arm_policy(cell.policy, config, stage.capabilities, stage.truth)
    else:
        policy = build(stage, config)
    watched = WatchedPolicy(policy, meter, stage.capabilities, stage.truth)
    lines: list[str] = []
    run = stage.engine(watched, config=config, log=lines.append).run(
        until_s=cell.scenario.until_s, drain=stage.concurrency is None
    )
    if lines:
        raise RuntimeError(f"policy {cell.policy!r} must not fail in a simulation, got: {lines[0]}")
    return RecalibrationRow(
        key=cell.key,
        scenario=cell.name,
        policy=cell.policy,
        seed=cell.seed,
        tokens=run.totals.committed + run.totals.first_tokens,
        busy_s=run.totals.duration_ms / 1e3,
        switches=int(run.totals.switches),
        alarms=meter.alarms,
        false_alarms=meter.false_alarms,
        no_beliefs="" if meter.believes else no_beliefs_because(cell.policy),
        episodes=meter.episodes,
        changes=bool(stage.drafts.shifts),
        error=_rounded(meter.error_curve()),
        calibration=np.round(meter.calibration, 3).tolist(),
        **_bins(run, watched.shapes, horizon_s),
    )


def change_episodes(stage: Stage, until_s: float) -> list[Episode]:
    """Return each label's changes in order of time; without any, the start as one.

    A change concerns a label if it concerns one of the domains behind it. It is complete when the
    last draft under the old law has been made.
    """
    of_domain = _labels(stage)
    episodes = []
    for shift in stage.drafts.shifts:
        concerned = dict.fromkeys(
            label for label, target in zip(of_domain, shift.regime_of, strict=True) if target >= 0
        )
        for point_s in shift.change_points_s(until_s):
            episodes += [
                Episode(label=label, begin_s=point_s, end_s=point_s + shift.over_s)
                for label in concerned
            ]
    if not episodes:
        episodes = [
            Episode(label=label, begin_s=0.0, end_s=0.0, cold=True) for label in set(of_domain)
        ]
    return sorted(episodes, key=lambda episode: (episode.begin_s, episode.label))


def _meter(stage: Stage, until_s: float) -> RecoveryMeter:
    of_domain = _labels(stage)
    labels = list(dict.fromkeys(of_domain))
    shares = np.array([domain.share for domain in stage.scenario.domains])
    # A label that stands for several domains has the mean of their requests.
    weight = np.array([[name == label for name in of_domain] for label in labels]) * shares
    weight = weight / weight.sum(axis=1, keepdims=True)
    laws = np.stack([regime.survival() for regime in stage.drafts.regimes])
    drafts = stage.drafts

    def truth(now_s: float) -> FloatArray:
        by_label: FloatArray = weight @ (drafts.weights(now_s) @ laws)
        return by_label

    number: IntArray = np.array([labels.index(name) for name in of_domain], dtype=np.int64)
    return RecoveryMeter(
        labels,
        number[stage.workload.domain_of],
        truth,
        change_episodes(stage, until_s),
        stage.capabilities.max_depth,
    )


def _labels(stage: Stage) -> list[str]:
    """Return what policies call the requests of each domain."""
    return [d.name if d.declared else _UNDECLARED for d in stage.scenario.domains]


def _horizon_s(stage: Stage) -> float:
    if stage.scenario.until_s is not None:
        return stage.scenario.until_s
    last_s = float(stage.workload.arrival_s[-1])
    return last_s if last_s > 0 else 60.0


def _bins(run: Run, shapes: list[tuple[float, float]], horizon_s: float) -> dict[str, Any]:
    """Return the columns of a row that run over time."""
    steps = run.steps
    if steps is None:
        raise RuntimeError("a run must keep its steps, got none")
    ended_s = steps.begun_s + steps.duration_ms / 1e3
    edge_s = np.linspace(0.0, horizon_s, BINS + 1)[1:]
    edge_s[-1] = max(float(edge_s[-1]), run.ended_s)
    steps_by = np.searchsorted(ended_s, edge_s, side="right")
    steps_by[-1] = len(steps)
    tokens = np.concatenate([[0], np.cumsum(steps.committed + steps.first_tokens, dtype=np.int64)])
    busy_s = np.concatenate([[0.0], np.cumsum(steps.duration_ms) / 1e3])
    at = np.searchsorted(edge_s, ended_s, side="left").clip(max=BINS - 1)
    verified = np.bincount(at, steps.verified, minlength=BINS)
    requests = np.bincount(at, steps.decode_requests, minlength=BINS)
    sampled = np.array(shapes).reshape(-1, 2)
    bin_of = np.searchsorted(edge_s, sampled[:, 0], side="left").clip(max=BINS - 1)
    shape = np.bincount(bin_of, sampled[:, 1], minlength=BINS)
    samples = np.bincount(bin_of, minlength=BINS)
    return {
        "edge_s": np.round(edge_s, 6).tolist(),
        "tokens_by": tokens[steps_by].tolist(),
        "busy_by_s": np.round(busy_s[steps_by], 6).tolist(),
        "verified": _rounded(_quotient(verified, requests)),
        "shape": _rounded(_quotient(shape, samples)),
    }


def _quotient(above: Any, below: Any) -> list[float | None]:
    return [float(a / b) if b else None for a, b in zip(above, below, strict=True)]


def _rounded(values: list[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 4) for value in values]
