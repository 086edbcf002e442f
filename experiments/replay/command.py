"""What ``acclimate replay`` shows: the contents of a trace and the result of a verification."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

from acclimate.controller.events import PlanEvent, ReportEvent
from acclimate.controller.reports import ShadowReport
from acclimate.experiments.arms import replay_factories
from acclimate.experiments.figures import Figure, Meta, number_text, write_figures
from acclimate.experiments.replay.verify import PolicyFactory, verify
from acclimate.experiments.replay.verify_result import VerifyResult
from acclimate.integrations.trace_format import TraceHeader
from acclimate.integrations.trace_reader import read_trace


def run_replay(
    path: Path,
    *,
    verify: bool,
    policies: Iterable[str] = (),
    json: Path | None = None,
    console: Console | None = None,
) -> bool:
    """Show a trace, verify it if asked, write figures if asked.

    Parameters
    ----------
    policies
        ``NAME=MODULE:FACTORY`` of policies that the trace names and only the user knows; the
        peers of `acclimate.experiments.arms` are known.

    Returns
    -------
    bool
        False if a verification found a difference, or nothing to verify.

    Raises
    ------
    ValueError
        The file is no trace, or a policy cannot be imported.
    """
    console = console or Console()
    trace = read_trace(path)
    if verify:
        known = {**replay_factories(), **_factories(policies)}
        return _verify(path, trace.header, known, json, console)
    kinds: Counter[str] = Counter()
    depths: Counter[int] = Counter()
    shadow: ShadowReport | None = None
    for event in trace:
        kinds[str(event.__struct_config__.tag)] += 1
        if isinstance(event, PlanEvent):
            depths[event.decision.depth] += 1
        elif isinstance(event, ReportEvent) and event.report.shadow is not None:
            shadow = event.report.shadow
    _show_header(trace.header, console)
    _show_counts("events", kinds, console)
    _show_counts("decided depth", depths, console)
    if shadow is not None:
        console.print(_shadow_line(shadow), highlight=False, markup=False, soft_wrap=True)
    if trace.truncated_lines:
        console.print(f"{trace.truncated_lines} unfinished last line left out")
    if json is not None:
        counts = {f"replay/events/{kind}": count for kind, count in sorted(kinds.items())}
        figures = [Figure(name, count, unit="events") for name, count in counts.items()]
        if shadow is not None:
            figures.append(Figure("shadow/speed_ratio", shadow.speed_ratio, n=shadow.steps))
        write_figures(json, figures, _meta(trace.header))
    return True


def _verify(
    path: Path,
    header: TraceHeader,
    policies: dict[str, PolicyFactory],
    json: Path | None,
    console: Console,
) -> bool:
    result = verify(path, policies=policies)
    _show_header(header, console)
    _show_result(result, console)
    if json is not None:
        write_figures(json, result.figures(), _meta(header))
    return result.holds


def _show_header(header: TraceHeader, console: Console) -> None:
    engine = header.engine
    lost = f", {header.segment} earlier segments deleted" if header.segment else ""
    console.print(
        f"trace {header.trace} of {header.started}: {engine.engine} {engine.engine_version}, "
        f"{engine.method} on {engine.model}, depth up to {engine.capabilities.max_depth}{lost}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _shadow_line(shadow: ShadowReport) -> str:
    unknown = f"{shadow.unknown_steps} steps whose planned duration cannot be told are left out"
    if shadow.speed_ratio is None:
        return f"in the shadow, nothing can be said of the plans: {unknown}"
    return (
        f"in the shadow: over {shadow.steps} steps the plans would have made "
        f"{shadow.planned_tokens_per_s:.1f} decode tokens per second where the engine's own rule made "
        f"{shadow.tokens_per_s:.1f}, a ratio of {shadow.speed_ratio:.3f}; tokens rest on record, "
        f"time on a model learned from the same steps; {unknown}"
    )


def _show_counts(name: str, counts: Counter[str] | Counter[int], console: Console) -> None:
    if not counts:
        return
    table = Table(name, "count")
    for key, count in sorted(counts.items()):
        table.add_row(str(key), str(count))
    console.print(table)


def _show_result(result: VerifyResult, console: Console) -> None:
    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    percent = number_text(result.identical_share, ".4%")
    say(
        f"{result.decisions} decisions, {result.compared} recomputed, {result.identical} "
        f"identical ({percent}); {result.alarms} alarms, {result.identical_alarms} identical"
    )
    for name, count in sorted(result.policies.items()):
        say(f"  {name}: {count} recomputed")
    for reason, count in sorted(result.skipped.items()):
        say(f"  skipped, {reason}: {count}")
    if result.truncated_lines:
        say(f"  unfinished last lines left out: {result.truncated_lines}")
    if result.first_difference is not None:
        say(f"first difference: {result.first_difference}")
    elif not result.compared:
        say("nothing could be recomputed")


def _factories(texts: Iterable[str]) -> dict[str, PolicyFactory]:
    factories: dict[str, PolicyFactory] = {}
    for text in texts:
        name, equals, where = text.partition("=")
        module, colon, attribute = where.partition(":")
        if not (equals and colon):
            raise ValueError(f"--policy must be NAME=MODULE:FACTORY, got {text!r}")
        try:
            factories[name] = getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"policy {where!r} must be importable, got {error}") from error
    return factories


def _meta(header: TraceHeader) -> Meta:
    engine = f"{header.engine.engine} {header.engine.engine_version}"
    return Meta(command="replay", engine=engine, seed=header.seed)
