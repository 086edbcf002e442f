"""The report of ``lab recalibration``: recovery, depth, regret and calibration by scenario."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from acclimate.experiments.arms import NEED_TRUTH, arm_follows
from acclimate.experiments.figures import UNKNOWN, interval_text, number_text
from acclimate.experiments.lab.cell_store import Header, read_cells
from acclimate.experiments.lab.recalibration_cell import RecalibrationRow
from acclimate.experiments.lab.recalibration_findings import (
    OURS,
    PolicyFinding,
    ScenarioFinding,
    find_recalibration,
    recovery_text,
)
from acclimate.experiments.lab.recovery import STREAK_TOKENS, TOLERANCE
from acclimate.experiments.report.page import Block, Items, Page, Section, Table, Text
from acclimate.experiments.report.recalibration_pictures import CLAIRVOYANT, overview, panels
from acclimate.experiments.report.stored import FIGURES_FILE, read_stored_figures
from acclimate.experiments.report.words import introduction

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
    blocks.append(overview(found))
    return blocks


def _summary(found: Sequence[ScenarioFinding]) -> Table:
    rows = []
    for case in found:
        if OURS not in case.rows:
            continue
        ours = case.of(OURS)
        peers = [p for p in case.policies if p.policy not in (OURS, *NEED_TRUTH)]
        first = peers[0] if peers else None
        told = case.of(CLAIRVOYANT) if CLAIRVOYANT in case.rows else None
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
            f"of {CLAIRVOYANT}", "steady")  # fmt: skip
    return Table(f"{OURS} in every scenario", head, rows)


def _scenario(case: ScenarioFinding) -> list[Block]:
    blocks: list[Block] = [Text([case.note])] if case.note else []
    if not case.changes:
        blocks.append(
            Text(["Acceptance does not change here: tokens to recover count from the cold start."])
        )
    blocks += [panels(case), _table(case)]
    return blocks


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
