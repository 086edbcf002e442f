"""What ``acclimate replay TRACE --policy P`` shows: other policies on the same traffic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from acclimate.controller.config import ControlConfig
from acclimate.experiments.arms import arm_policy
from acclimate.experiments.counterfactual.answer import Answer, Arm
from acclimate.experiments.counterfactual.passes import read_passes
from acclimate.experiments.counterfactual.study import Study, arm_of
from acclimate.experiments.counterfactual.traffic import lookup_of
from acclimate.experiments.figures import Figure, Meta, number_text, write_figures
from acclimate.integrations.header import EngineHeader
from acclimate.integrations.trace_reader import read_trace


def run_counterfactual(
    path: Path,
    *,
    arms: Sequence[str],
    configs: Sequence[Path] = (),
    recorded: str | None = None,
    json: Path | None = None,
    seed: int = 0,
    console: Console | None = None,
) -> list[Figure]:
    """Serve a trace's traffic again with other policies, and compare with the recorded one.

    Parameters
    ----------
    path
        The trace, or one segment of it.
    arms
        Names as `experiments.arms.arm_policy` takes them.
    configs
        Configuration files; each is an arm with its own policy, called by the file's name.
    recorded
        Whose traffic is served again, by arm; see `Study`.
    json
        The figures file, if wanted.
    seed
        Draws what is not on record, and intervals.

    Raises
    ------
    ValueError
        The file is no trace, holds no whole pass of the recorded arm, or an arm is unknown.
    """
    console = console or Console()
    trace = read_trace(path)
    engine = trace.header.engine
    passes = read_passes(trace)
    config = ControlConfig.read(passes[-1].config) if passes else ControlConfig()
    wanted = [_named(name, config, engine) for name in arms]
    wanted += [_configured(file, engine) for file in configs]
    study = Study(passes, engine, recorded=recorded, seed=seed)
    answers = [study.answer(arm) for arm in wanted]
    rng = np.random.default_rng(seed)
    figures = study.figures()
    for answer in answers:
        figures += answer.figures(rng)
    _show(study, answers, figures, console)
    if json is not None:
        meta = Meta("replay", engine=f"{engine.engine} {engine.engine_version}", seed=seed)
        write_figures(json, figures, meta)
    return figures


def _named(name: str, config: ControlConfig, engine: EngineHeader) -> Arm:
    name = arm_of(name)
    arm_policy(name, config, engine.capabilities)  # an unknown name is refused before any work
    return Arm(name, lambda: arm_policy(name, config, engine.capabilities), config)


def _configured(path: Path, engine: EngineHeader) -> Arm:
    config = ControlConfig.read(path)
    name = arm_of(config.policy)
    arm_policy(name, config, engine.capabilities)
    return Arm(path.stem, lambda: arm_policy(name, config, engine.capabilities), config)


def _show(
    study: Study, answers: Sequence[Answer], figures: Sequence[Figure], console: Console
) -> None:
    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    of = {figure.name: figure.value for figure in figures}
    say(_what_is_recorded(study))
    say(_what_tokens_rest_on(study))
    say(
        f"time: rests on a latency curve learned from {sum(study.measured.values())} steps; the "
        f"recorded policy served again is {_signed(of['counterfactual/recorded/speed_error'])} "
        f"off its measured speed, {_signed(of['counterfactual/recorded/steps_error'])} off in "
        "steps"
    )
    table = Table(title=f"on the traffic that {study.policy} met; ratios above 1 are faster")
    table.add_column("arm", no_wrap=True)
    for column in ("tok/s", "ratio", "decode", "p99 TPOT", "loads seen"):
        table.add_column(column)
    known = any(answer.measured for answer in answers)
    if known:
        for column in ("measured", "error", "held out"):
            table.add_column(column)
    for answer in answers:
        name = f"counterfactual/{answer.arm}"
        cells = [
            answer.arm,
            f"{answer.predicted.arm.tokens_per_s:.1f}",
            f"{answer.predicted.ratio:.3f}",
            f"{answer.predicted.decode_ratio:.3f}",
            f"{1e3 * answer.tpot_p99_s:.0f} ms",
            f"{answer.measured_steps:.0%}",
        ]
        if known:
            cells += [
                number_text(of.get(f"{name}/measured_ratio"), ".3f"),
                _signed(of.get(f"{name}/ratio_error")),
                _signed(of.get(f"{name}/held_out_ratio_error")),
            ]
        table.add_row(*cells)
    console.print(table)
    for loop in ("closed", "open"):
        tails = [
            f"{answer.arm} {_signed(tail.error)}"
            for answer in answers
            for tail in answer.tails
            if tail.loop == loop
        ]
        if tails:
            say(f"p99 TPOT in {loop} loop is off its measured value by: {', '.join(tails)}")
    renewals = [
        f"{answer.arm} {_signed(of.get(f'counterfactual/{answer.arm}/renewal_ratio_error'))}"
        for answer in answers
        if answer.renewal is not None
    ]
    if renewals:
        say(f"the renewal approximation would be off in the ratio by: {', '.join(renewals)}")


def _what_is_recorded(study: Study) -> str:
    requests = sum(len(traffic.workload) for traffic in study.traffic)
    left_out = sum(traffic.left_out for traffic in study.traffic)
    closed = study.base[0].closed
    loop = "open loop, at the recorded times"
    if closed:
        most = max(int(t.seats.max()) for t in study.traffic if t.seats is not None)
        loop = f"closed loop, up to {most} at a time"
    lacking = f"; {left_out} that did not end are left out" if left_out else ""
    return (
        f"recorded: {study.policy}, {len(study.base)} passes, {requests} requests{lacking}; {loop}"
    )


def _what_tokens_rest_on(study: Study) -> str:
    share = study.record_share
    if share == 1.0:
        return (
            "tokens: on record for every request; what any chain policy commits at any offset is "
            "exact"
        )
    why = "the drafter is no n-gram lookup" if lookup_of(study.engine) is None else (
        "the trace lacks token hashes; record with trace.token_hashes"
    )  # fmt: skip
    return (
        f"tokens: renewal approximation, {share:.0%} on record ({why}): drafts are drawn from "
        "each domain's acceptance as logged"
    )


def _signed(value: float | None) -> str:
    return number_text(value, "+.1%")
