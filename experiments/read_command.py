"""What ``acclimate read`` shows: the kind of a file, what was kept and dropped, and a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from acclimate.experiments.figures import Figure, Meta, write_figures
from acclimate.experiments.readers.arrivals import Arrivals
from acclimate.experiments.readers.azure import read_azure
from acclimate.experiments.readers.bench_serve import BenchRun, read_bench_serve
from acclimate.experiments.readers.burstgpt import read_burstgpt
from acclimate.experiments.readers.detect import Kind, detect
from acclimate.experiments.readers.latency_table import LatencyTable, read_latency_table
from acclimate.experiments.readers.mooncake import read_mooncake
from acclimate.experiments.readers.prometheus import SpecDecodeCounters, read_prometheus
from acclimate.experiments.readers.read import Read
from acclimate.experiments.readers.request_metrics import RequestAcceptance, read_request_metrics
from acclimate.experiments.readers.spec_bench import Prompt, read_spec_bench
from acclimate.experiments.readers.trace_summary import TraceSummary, read_trace_summary


def run_read(
    path: Path,
    *,
    before: Path | None = None,
    json: Path | None = None,
    console: Console | None = None,
) -> None:
    """Show what a file is and what of it can be used; write figures if asked.

    Parameters
    ----------
    before
        An earlier Prometheus dump of the same server: the counts since are shown.

    Raises
    ------
    ValueError
        The file is of no known kind, its reader refuses it, or ``before`` is given for another kind.
    """
    console = console or Console()
    kind = _kind(path)
    if before is not None and kind is not Kind.PROMETHEUS:
        raise ValueError(f"--before must go with a Prometheus dump, got {kind.described}")
    reader, summary = _READERS[kind]
    read = reader(path)
    value = read.value if before is None else read.value.since(read_prometheus(before).value)
    figures = list(summary(value))
    _show(path, kind, read, figures, console)
    if json is not None:
        counts = [
            Figure("read/kept", read.kept, unit="records"),
            *_counted("read/dropped", read.dropped),
            *_counted("read/noted", read.notes),
        ]
        write_figures(json, [*counts, *figures], Meta(command="read"))


def _kind(path: Path) -> Kind:
    sighting = detect(path)
    if sighting.kind is None:
        known = ", ".join(kind.value for kind in Kind)
        raise ValueError(f"{path.name} must be of a kind read here ({known}), got {sighting.words}")
    return sighting.kind


def _show(
    path: Path, kind: Kind, read: Read[Any], figures: Iterable[Figure], console: Console
) -> None:
    console.print(
        f"{path.name}: {kind.described}; {read.read} records read, {read.kept} kept, "
        f"{read.dropped.total()} dropped",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    for title, counts in (("dropped", read.dropped), ("kept, but", read.notes)):
        if counts:
            table = Table(title, "records")
            for reason, number in counts.most_common():
                table.add_row(reason, str(number))
            console.print(table)
    table = Table("summary", "value")
    for figure in figures:
        whole = isinstance(figure.value, int)
        text = f"{figure.value:,} {figure.unit}".rstrip() if whole else figure.text
        table.add_row(figure.name.removeprefix("read/"), text)
    console.print(table)


def _counted(prefix: str, counts: Counter[str]) -> list[Figure]:
    return [
        Figure(f"{prefix}/{reason.replace('/', ' ')}", number, unit="records")
        for reason, number in sorted(counts.items())
    ]


def _arrivals(value: Arrivals) -> list[Figure]:
    n = len(value)
    gaps_s = np.diff(value.arrival_s)
    mean_gap_s = float(gaps_s.mean()) if gaps_s.size else 0.0
    return [
        Figure("read/requests", n, unit="requests"),
        Figure("read/span_s", value.span_s, unit="s"),
        Figure("read/rate_per_s", value.rate_per_s, unit="1/s"),
        # 1 is Poisson; larger is burstier.
        Figure("read/gap_variation", float(gaps_s.std()) / mean_gap_s if mean_gap_s else None),
        _mean("read/prompt_tokens", value.prompt_tokens),
        _mean("read/output_tokens", value.output_tokens),
    ]


def _mean(name: str, values: Any) -> Figure:
    mean = float(np.mean(values)) if len(values) else None
    return Figure(f"{name}_mean", mean, unit="tokens", n=len(values))


def _acceptance(
    length: float | None, rate: float | None, survival: Iterable[float]
) -> list[Figure]:
    return [
        Figure("read/acceptance_length", length, unit="tokens"),
        Figure("read/acceptance_rate", rate),
        *(Figure(f"read/survival/{i}", float(s)) for i, s in enumerate(survival, start=1)),
    ]


def _request_metrics(value: RequestAcceptance) -> list[Figure]:
    return [
        Figure("read/requests", value.steps.size, unit="requests"),
        Figure("read/steps", int(value.steps.sum()), unit="steps"),
        *_acceptance(value.acceptance_length, value.acceptance_rate, value.survival),
    ]


def _prometheus(value: SpecDecodeCounters) -> list[Figure]:
    survival = value.survival
    return [
        Figure("read/engines", len(value.engines), unit="engines"),
        Figure("read/resets", value.resets, unit="series"),
        Figure("read/drafts", value.drafts, unit="drafts"),
        Figure("read/drafted_tokens", value.drafted_tokens, unit="tokens"),
        Figure("read/accepted_tokens", value.accepted_tokens, unit="tokens"),
        *_acceptance(
            value.acceptance_length, value.acceptance_rate, () if survival is None else survival
        ),
    ]


def _bench_serve(runs: tuple[BenchRun, ...]) -> list[Figure]:
    figures: list[Figure] = []
    for number, run in enumerate(runs, start=1):
        name = f"read/run{number}"
        figures += [
            Figure(f"{name}/completed", run.completed, unit="requests"),
            Figure(f"{name}/failed", run.failed, unit="requests"),
            Figure(f"{name}/tokens_per_s", run.output_tokens_per_s, unit="tokens/s"),
            *(Figure(f"{name}/{key}", ms, unit="ms") for key, ms in run.latency_ms.items()),
            Figure(f"{name}/acceptance_length", run.acceptance_length, unit="tokens"),
            Figure(f"{name}/acceptance_rate", run.acceptance_rate),
        ]
        if run.requests is not None:
            figures.append(Figure(f"{name}/kept", run.requests.kept, unit="requests"))
            figures += _counted(f"{name}/dropped", run.requests.dropped)
    return figures


def _spec_bench(prompts: tuple[Prompt, ...]) -> list[Figure]:
    domains = Counter(prompt.domain for prompt in prompts)
    return [
        Figure(f"read/prompts/{domain}", number, unit="prompts")
        for domain, number in domains.items()
    ]


def _latency(table: LatencyTable) -> list[Figure]:
    return [
        Figure("read/cells", table.ms.size, unit="cells"),
        Figure("read/batches", np.unique(table.batch).size, unit="values"),
        Figure("read/depths", np.unique(table.depth).size, unit="values"),
        Figure("read/ms_min", float(table.ms.min()) if table.ms.size else None, unit="ms"),
        Figure("read/ms_max", float(table.ms.max()) if table.ms.size else None, unit="ms"),
    ]


def _trace(value: TraceSummary) -> list[Figure]:
    rate = value.committed_tokens / value.span_s if value.span_s > 0 else None
    return [
        Figure("read/schema", value.header.schema),
        *(Figure(f"read/events/{kind}", n, unit="events") for kind, n in value.kinds.items()),
        *(Figure(f"read/depth/{k}", n, unit="steps") for k, n in sorted(value.depths.items())),
        Figure("read/gaps", len(value.gaps), unit="gaps"),
        Figure("read/lost", sum(gap.lost for gap in value.gaps), unit="events"),
        Figure("read/deleted_segments", value.deleted_segments, unit="segments"),
        Figure("read/committed_tokens", value.committed_tokens, unit="tokens"),
        Figure("read/tokens_per_s", rate, unit="tokens/s"),
        *_acceptance(value.acceptance_length, value.acceptance_rate, ()),
    ]


_READERS: dict[Kind, tuple[Callable[[Path], Read[Any]], Callable[[Any], list[Figure]]]] = {
    Kind.TRACE: (read_trace_summary, _trace),
    Kind.REQUEST_METRICS: (read_request_metrics, _request_metrics),
    Kind.PROMETHEUS: (read_prometheus, _prometheus),
    Kind.BENCH_SERVE: (read_bench_serve, _bench_serve),
    Kind.AZURE: (read_azure, _arrivals),
    Kind.MOONCAKE: (read_mooncake, _arrivals),
    Kind.BURSTGPT: (read_burstgpt, _arrivals),
    Kind.SPEC_BENCH: (read_spec_bench, _spec_bench),
    Kind.LATENCY: (read_latency_table, _latency),
}
