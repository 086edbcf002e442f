"""The report of ``lab recalibration``: recovery, depth, regret and calibration by scenario."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acclimate.controller.records import FloatArray
from acclimate.experiments.arms import NEED_TRUTH, arm_follows
from acclimate.experiments.figures import UNKNOWN, interval_text, number_text
from acclimate.experiments.lab.cell_store import Header, read_cells
from acclimate.experiments.lab.recalibration_cell import RecalibrationRow
from acclimate.experiments.lab.recalibration_findings import (
    ORACLE,
    OURS,
    PolicyFinding,
    ScenarioFinding,
    find_recalibration,
    lag_s,
    recovery_text,
)
from acclimate.experiments.lab.recovery import CURVE_TOKENS, STREAK_TOKENS, TOLERANCE
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
from acclimate.experiments.report.page import Block, Items, Page, Picture, Section, Table, Text
from acclimate.experiments.report.stored import FIGURES_FILE, read_stored_figures
from acclimate.experiments.report.words import introduction

_CLAIRVOYANT = "clairvoyant"
_LINES = {OURS: (BLUE, "-", 2.2), _CLAIRVOYANT: (PURPLE, "--", 1.5), ORACLE: (BLACK, ":", 1.5)}
_MEASURES = (
    (
        "regret s: seconds of engine time that the policy needed beyond an oracle, which knows the true "
        "acceptance and step times, for the same tokens of the same requests with the same luck; the "
        "smaller the better"
    ),
    (
        "tokens to recover: draft tokens whose fate became known from a change until the policy's "
        f"predicted survival of every position was within {TOLERANCE:g} of the truth and stayed so for "
        f"{STREAK_TOKENS} tokens; median over seeds; never: it was not before the run ended"
    ),
    (
        "s lost until shaped: engine time lost from a change until the chosen verify lengths are worth "
        "99 % of the oracle's; median over seeds"
    ),
    "steady: speed in the last third of the run over the oracle's, 1 is best",
    (
        "switches, false alarms: per run; an alarm is false unless it is the first of its traffic class "
        "since a change"
    ),
)


def recalibration_page(folder: Path) -> Page:
    """Return the report of a folder's results, whatever of them is there.

    Raises
    ------
    ValueError
        The folder holds no results of ``lab recalibration``.
    """
    header, rows = read_cells(folder, RecalibrationRow)
    found = find_recalibration(header, rows)
    meta, _ = read_stored_figures(folder / FIGURES_FILE)
    return Page(
        title="How soon is a policy right again?",
        lead="Policies of speculative decoding on a simulated engine whose traffic or drafter "
        "changes: how long each is wrong, and what that costs.",
        facts=_facts(header, rows, meta),
        sections=[
            introduction(
                "Acceptance changes: traffic moves on, a drafter is replaced, a temperature is "
                "raised. Here all of that happens in a simulated engine, where the truth is known. "
                "Every policy serves the same requests and meets the same luck, so that differences "
                "are the policies'. Values are means over seeds unless said otherwise, with 95 % "
                "bootstrap intervals over seeds in brackets."
            ),
            Section("How to read the measures", [Items(_MEASURES)]),
            Section("Result in brief", _brief(found)),
            *(Section(f"{case.name}: {case.title}", _scenario(case)) for case in found),
            Section("The policies", [_policies(found)]),
        ],
    )


def _facts(
    header: Header, rows: Sequence[RecalibrationRow], meta: dict[str, Any]
) -> list[tuple[str, str]]:
    settings = header.settings
    scenarios, policies = list(settings["scenarios"]), settings["policies"]
    expected = len(scenarios) * len(policies) * settings["seeds"]
    command = (
        f"acclimate {header.command} --scenarios {','.join(scenarios)} --policies "
        f"{','.join(policies)} --seeds {settings['seeds']} --seed {settings['seed']}"
    )
    return [
        ("command", command),
        ("runs", f"{len(rows)} of {expected}: scenarios x policies x {settings['seeds']} seeds"),
        ("engine", "simulated"),
        ("machine", str(meta.get("machine", "not recorded"))),
        ("version", f"acclimate {header.version}"),
        ("started", header.started),
    ]


def _brief(found: Sequence[ScenarioFinding]) -> list[Block]:
    behind = [f"{case.name}: {line}" for case in found for line in case.behind]
    blocks: list[Block] = []
    if any(OURS in case.rows for case in found):
        if behind:
            blocks.append(Text([f"Where {OURS} is not first, among policies that know no truth:"]))
            blocks.append(Items(behind, note=True))
        else:
            blocks.append(Text([f"{OURS} is first everywhere, among policies that know no truth."]))
        blocks.append(_summary(found))
    blocks.append(_overview(found))
    return blocks


def _summary(found: Sequence[ScenarioFinding]) -> Table:
    rows = []
    for case in found:
        if OURS not in case.rows:
            continue
        ours = case.of(OURS)
        peers = [p for p in case.policies if p.policy not in (OURS, *NEED_TRUTH)]
        first = peers[0] if peers else None
        told = case.of(_CLAIRVOYANT) if _CLAIRVOYANT in case.rows else None
        rows.append(
            [
                case.name,
                interval_text(ours.regret_s, ".2f"),
                UNKNOWN if first is None else _named_regret(first),
                recovery_text(ours),
                UNKNOWN if told is None else recovery_text(told),
                interval_text(ours.steady, ".3f"),
            ]
        )
    head = ("scenario", f"regret s of {OURS}", "regret s of the best other", "tokens to recover",
            f"of {_CLAIRVOYANT}", "steady")  # fmt: skip
    return Table(f"{OURS} in every scenario", head, rows)


def _overview(found: Sequence[ScenarioFinding]) -> Picture:
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


def _scenario(case: ScenarioFinding) -> list[Block]:
    blocks: list[Block] = [Text([case.note])] if case.note else []
    if not case.changes:
        blocks.append(
            Text(["Acceptance does not change here: tokens to recover count from the cold start."])
        )
    blocks += [_panels(case), _table(case)]
    return blocks


def _panels(case: ScenarioFinding) -> Picture:
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
        f"Blue is {OURS}, purple {_CLAIRVOYANT} (the same, told every change), black dots the oracle"
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
    for policy in (rival, _CLAIRVOYANT, ORACLE, OURS):
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
    shown = sorted(case.rows, key=lambda policy: policy in (OURS, rival, _CLAIRVOYANT))
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


def _table(case: ScenarioFinding) -> Table:
    head = ("policy", "regret s", "tokens to recover", "recovered", "s lost until shaped",
            "steady", "switches", "false alarms")  # fmt: skip
    rows = [_row(found) for found in case.policies]
    ours = frozenset(i for i, found in enumerate(case.policies) if found.policy == OURS)
    seeds = max(found.seeds for found in case.policies)
    return Table(f"All policies, the least regret first; {seeds} seeds", head, rows, strong=ours)


def _row(found: PolicyFinding) -> list[str]:
    return [
        found.policy,
        interval_text(found.regret_s, ".2f"),
        recovery_text(found),
        UNKNOWN if found.no_beliefs else number_text(found.recovered, ".0%"),
        interval_text(found.seconds_lost, ".2f", unknown="not again"),
        interval_text(found.steady, ".3f"),
        number_text(found.switches, ".0f"),
        UNKNOWN if found.no_beliefs else number_text(found.false_alarms, ".1f"),
    ]


def _named_regret(found: PolicyFinding) -> str:
    return f"{found.policy}: {interval_text(found.regret_s, '.2f')}"


def _policies(found: Sequence[ScenarioFinding]) -> Table:
    names = dict.fromkeys(policy.policy for case in found for policy in case.policies)
    reasons = {p.policy: p.no_beliefs for case in found for p in case.policies}
    rows = [[n, arm_follows(n) or _own(n), reasons[n] or "reports them"] for n in sorted(names)]
    return Table("What each policy is", ("policy", "follows", "beliefs"), rows)


def _own(name: str) -> str:
    return "this project's policy" if name == OURS else "a fixed depth"
