"""The pictures of ``lab recalibration``: recovery, depth, regret and calibration over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from acclimate.controller.records import FloatArray
from acclimate.experiments.arms import NEED_TRUTH
from acclimate.experiments.lab.recalibration_findings import (
    ORACLE,
    OURS,
    ScenarioFinding,
    lag_s,
)
from acclimate.experiments.lab.recovery import CURVE_TOKENS, TOLERANCE
from acclimate.experiments.report.drawing import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    axes,
    heat,
    picture,
)
from acclimate.experiments.report.page import Picture

CLAIRVOYANT = "clairvoyant"
_LINES = {OURS: (BLUE, "-", 2.2), CLAIRVOYANT: (PURPLE, "--", 1.5), ORACLE: (BLACK, ":", 1.5)}


def overview(found: Sequence[ScenarioFinding]) -> Picture:
    names = sorted(
        {policy.policy for case in found for policy in case.policies} - {ORACLE},
        key=lambda name: float(np.mean([_regret(case, name) for case in found])),
    )
    values = [[_regret(case, name) for case in found] for name in names]
    texts = [[f"{value:.1f}" for value in row] for row in values]
    figure, (axis,) = axes(1, 1, 2.2 + 0.72 * len(found), 1.6 + 0.3 * len(names))
    high = float(np.nanquantile(values, 0.9)) if names else 1.0
    heat(axis, values, texts, names, [case.name for case in found],
         low=0.0, high=max(high, 0.1), colors="YlOrBr")  # fmt: skip
    axis.tick_params(axis="x", rotation=60)
    return picture(
        figure,
        "Regret in seconds by policy and scenario",
        "Regret in seconds of engine time, mean over seeds: one row per policy, the best on top, "
        "one column per scenario. Darker is worse. The oracle has none by definition.",
    )


def _regret(case: ScenarioFinding, policy: str) -> float:
    known = [p.regret_s.value for p in case.policies if p.policy == policy]
    return float("nan") if not known or known[0] is None else known[0]


def panels(case: ScenarioFinding) -> Picture:
    figure, (recovery, depth, regret, calibration) = axes(2, 2, 10.6, 6.6)
    rival = _rival(case)
    _draw_recovery(recovery, case, rival)
    _draw_depth(depth, case, rival)
    _draw_regret(regret, case, rival)
    _draw_calibration(calibration, case)
    since = "change" if case.changes else "start"
    others = f", orange {rival}, the best policy that knows no truth beside {OURS}" if rival else ""
    return picture(
        figure,
        f"Recovery, verified drafts, regret and calibration in {case.name}",
        f"Blue is {OURS}, purple {CLAIRVOYANT} (the same, told every change), black dots the oracle"
        f"{others}. Recovery: the largest error of predicted survival at any position by graded "
        f"tokens since the {since}, median over seeds with the middle half shaded; below the red line "
        "it counts as right. Depth over time: drafts verified per request and step, mean over seeds; "
        "red lines mark changes. Regret: how far each policy is behind the oracle in engine time; a "
        "flat line loses nothing, all other policies are grey. Calibration: tokens that were "
        "predicted to be accepted with some probability, and how many were; on the diagonal "
        "predictions mean what they say, larger dots are more tokens.",
    )


def _rival(case: ScenarioFinding) -> str:
    return next((p.policy for p in case.policies if p.policy not in (OURS, *NEED_TRUTH)), "")


def _line(policy: str, rival: str) -> tuple[str, str, float]:
    if policy == rival:
        return ORANGE, "-", 1.6
    return _LINES.get(policy, (GREY, "-", 0.9))


def _draw_recovery(axis: Any, case: ScenarioFinding, rival: str) -> None:
    axis.set_title("Recovery", loc="left", fontsize=11)
    axis.axhline(TOLERANCE, color=RED, lw=1, ls="--")
    for found in case.policies:
        if found.no_beliefs:
            continue
        curves = np.array(
            [[np.nan if e is None else e for e in row.error] for row in case.rows[found.policy]]
        )
        known = np.isfinite(curves).any(axis=0)
        if not known.any():
            continue
        tokens, curves = CURVE_TOKENS[known], curves[:, known]
        color, style, width = _line(found.policy, rival)
        if color == GREY:
            color = "#7b8794"
        axis.plot(tokens, np.nanmedian(curves, axis=0), style, color=color, lw=width,
                  label=found.policy)  # fmt: skip
        if found.policy == OURS:
            low, high = np.nanquantile(curves, [0.25, 0.75], axis=0)
            axis.fill_between(tokens, low, high, color=color, alpha=0.15, lw=0)
    axis.set_xlabel(f"graded tokens since the {'change' if case.changes else 'start'}")
    axis.set_ylabel("largest error of survival")
    axis.set_ylim(bottom=0)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(frameon=False, fontsize=8)
    else:
        axis.text(0.5, 0.5, "no policy here has beliefs", transform=axis.transAxes, ha="center")


def _draw_depth(axis: Any, case: ScenarioFinding, rival: str) -> None:
    axis.set_title("Depth over time", loc="left", fontsize=11)
    for policy in (rival, CLAIRVOYANT, ORACLE, OURS):
        if policy not in case.rows:
            continue
        verified = np.array(
            [[np.nan if v is None else v for v in row.verified] for row in case.rows[policy]]
        )
        color, style, width = _line(policy, rival)
        axis.plot(_edges(case, policy), _mean(verified), style, color=color, lw=width, label=policy)
    _mark_changes(axis, case)
    axis.set_xlabel("seconds")
    axis.set_ylabel("drafts verified\nper request and step")
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False, fontsize=8)


def _draw_regret(axis: Any, case: ScenarioFinding, rival: str) -> None:
    axis.set_title("Regret", loc="left", fontsize=11)
    oracle = {row.seed: row for row in case.rows[ORACLE]}
    shown = sorted(case.rows, key=lambda policy: policy in (OURS, rival, CLAIRVOYANT))
    top = 0.0
    for policy in shown:
        if policy == ORACLE:
            continue
        lag = np.mean([lag_s(row, oracle[row.seed]) for row in case.rows[policy]], axis=0)
        color, style, width = _line(policy, rival)
        if color != GREY:
            top = max(top, float(lag.max()))
        axis.plot(_edges(case, policy), lag, style, color=color, lw=width)
    _mark_changes(axis, case)
    axis.set_xlabel("seconds")
    axis.set_ylabel("seconds behind\nthe oracle")
    axis.set_ylim(top=max(3.0 * top, 0.5))


def _draw_calibration(axis: Any, case: ScenarioFinding) -> None:
    axis.set_title("Calibration", loc="left", fontsize=11)
    axis.plot([0, 1], [0, 1], color=GREY, lw=1)
    for found in case.policies:
        if found.no_beliefs:
            continue
        count, predicted, seen = np.sum([r.calibration for r in case.rows[found.policy]], axis=0)
        some = count > 0
        color, _, _ = _line(found.policy, "")
        axis.scatter(predicted[some] / count[some], seen[some] / count[some],
                     s=10 + 150 * count[some] / count.sum(), color=color, alpha=0.75,
                     label=found.policy, zorder=3 if found.policy == OURS else 2)  # fmt: skip
    axis.set_xlabel("acceptance predicted")
    axis.set_ylabel("acceptance seen")
    axis.set_xlim(0, 1)
    axis.set_ylim(0, 1)


def _mark_changes(axis: Any, case: ScenarioFinding) -> None:
    if case.changes:
        for begin_s in sorted({e.begin_s for row in case.rows[ORACLE] for e in row.episodes}):
            axis.axvline(begin_s, color=RED, lw=0.9, ls="--")


def _edges(case: ScenarioFinding, policy: str) -> FloatArray:
    edges: FloatArray = np.array(case.rows[policy][0].edge_s)
    return edges


def _mean(values: FloatArray) -> FloatArray:
    """Return the mean over rows where there is any, NaN elsewhere."""
    known = np.isfinite(values)
    total = np.where(known, values, 0.0).sum(axis=0)
    count = known.sum(axis=0)
    mean: FloatArray = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return mean
