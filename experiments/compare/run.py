"""``acclimate compare``: reads the task, starts engines, runs rounds, analyses, reports."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from acclimate.experiments.compare.arms import CONTROLLED
from acclimate.experiments.compare.cells import build_cells, promised_cells
from acclimate.experiments.compare.drafting import drafter_figures
from acclimate.experiments.compare.engines import EngineProcess
from acclimate.experiments.compare.findings import complete_cells, find
from acclimate.experiments.compare.options import CompareOptions, Task, read_task
from acclimate.experiments.compare.plan import Plan, make_plan
from acclimate.experiments.compare.progress import Progress
from acclimate.experiments.compare.promised import answer_tokens
from acclimate.experiments.compare.report import print_report
from acclimate.experiments.compare.rounds import Traffic, run_rounds
from acclimate.experiments.compare.rows import CellRow, RowsWriter
from acclimate.experiments.compare.warm_up import engine_names, k0_times, teach, warm_up
from acclimate.experiments.compare.worker import EngineSpec
from acclimate.experiments.drafters.choices import drafter
from acclimate.experiments.figures import Figure, Meta, print_figures, write_figures
from acclimate.experiments.testbed import model_path
from acclimate.integrations.shared_pages import SharedPages
from acclimate.integrations.vllm.closed_loop import Job

_HOME = Path("acclimate-out/compare")
_MAX_MODEL_LEN = 2_048
_LEAST_SEQS = 16
_WIDTH = 130  # of tables that go to a file
# What is left of the budget for an estimate that was too low.
_SPARE = 0.9


def run_compare(
    options: CompareOptions, *, out: Path | None = None, json: Path | None = None
) -> list[Figure]:
    """Compare arms, show the tables, and keep rows and figures in ``out``.

    Parameters
    ----------
    options
        What to do.
    out
        New folder for raw rows (see `acclimate.experiments.compare.rows`), figures and engine logs;
        by default one that is named after the time.
    json
        A second place for the figures.

    Raises
    ------
    ValueError
        The options do not fit together; no engine was started.
    RuntimeError
        An engine failed, or the run was stopped before every arm had run once.
    """
    from rich.console import Console

    started_s = time.monotonic()
    task = read_task(options)
    out = out or _HOME / time.strftime("%Y%m%d-%H%M%S")
    plain = {
        k: str(v) if isinstance(v, Path) else v for k, v in dataclasses.asdict(options).items()
    }
    writer = RowsWriter(out, plain | {"arm_names": [arm.name for arm in task.arms]})
    meta = Meta("compare", engine="vllm", seed=options.seed)
    progress = Progress(Console(stderr=True))
    rows: list[CellRow] = []

    def take(row: CellRow) -> None:
        writer.add(row)
        rows.append(row)

    measured: list[Figure] = []
    try:
        with _stoppable(), progress, _engines(task, out, progress.say) as engines:
            traffic, plan = _prepare(task, engines, progress, started_s, measured)
            until_s = started_s + 60 * options.max_minutes
            done = run_rounds(
                engines,
                task.arms,
                plan,
                traffic,
                seed=options.seed,
                go_on=_budget(plan, until_s, progress),
                on_row=take,
                on_order=progress.order,
            )
            progress.finished(done, plan)
    except KeyboardInterrupt:
        progress.say(f"stopped {progress.where or 'before the first round'}; rows are in {out}")
    if not complete_cells(rows, [arm.name for arm in task.arms]):
        raise RuntimeError(
            f"every arm must have run once to say anything, got stopped before: {out}"
        )
    found = find(rows, task.arms, max_depth=options.depth, seed=options.seed)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    print_report(found, console)
    drafting = drafter_figures(options.drafter, found, rows)
    print_figures(drafting, title=f"drafter {options.drafter}", console=console)
    figures = [*found.figures(), *drafting, *measured, Figure("rounds", found.rounds)]
    for path in (out / "figures.json", json):
        if path is not None:
            write_figures(path, figures, meta)
    minutes = (time.monotonic() - started_s) / 60
    progress.say(f"took {minutes:.1f} minutes; rows and figures are in {out}")
    return figures


def _prepare(
    task: Task,
    engines: dict[str, EngineProcess],
    progress: Progress,
    started_s: float,
    measured: list[Figure],
) -> tuple[Traffic, Plan]:
    """Warm up, take k0's capacity, and plan the rounds."""
    options = task.options
    jobs = _jobs(task, engines[CONTROLLED], progress.say)
    controlled, most = engines[CONTROLLED], max(task.concurrencies)
    if drafter(options.drafter).taught:
        progress.say("k0 answers every prompt once, to teach the drafter")
        teach(controlled, task.arms, jobs, most, on_order=progress.order)
    paces = warm_up(engines, task.arms, jobs, task.concurrencies, on_order=progress.order)
    capacity_per_s = max(pace.requests_per_s for pace in paces.values())
    measured.append(Figure("capacity/k0", capacity_per_s, unit="requests/s"))
    measured += [Figure(f"shared_weights/{name}", e.weights.part) for name, e in engines.items()]
    plain = None
    if task.scales:
        plain = k0_times(controlled, task.arms, jobs, most, on_order=progress.order)
        measured.append(Figure("slo/k0_tpot_ms", 1e3 * plain.tpot_s, unit="ms"))
        measured.append(Figure("slo/k0_ttft_ms", 1e3 * plain.ttft_s, unit="ms"))
        progress.say(
            f"at {most} k0 takes {1e3 * plain.tpot_s:.1f} ms per token, and at most "
            f"{plain.ttft_s:.2f} s to the first for nine in ten; targets are multiples"
        )
    cells = (
        promised_cells(most, task.scales)
        if task.scales
        else build_cells(task.concurrencies, task.rates, task.domains if options.by_domain else ())
    )
    spent_s = time.monotonic() - started_s
    plan = make_plan(
        cells,
        prompts=Counter(job.truth for job in jobs),
        paces=paces,
        capacity_per_s=capacity_per_s,
        arms=len(task.arms),
        rounds=options.rounds,
        budget_s=_SPARE * (60 * options.max_minutes - spent_s),
        told=sum(arm.told for arm in task.arms),
    )
    progress.plan(plan, capacity_per_s, spent_s)
    return Traffic(jobs, capacity_per_s, task.arrivals, task.recorded_s, plain), plan


@contextlib.contextmanager
def _engines(
    task: Task, out: Path, say: Callable[[str], None]
) -> Iterator[dict[str, EngineProcess]]:
    """Start the engines one after the other, and stop them all at the end, whatever happens."""
    options = task.options
    model = str(model_path(say))
    engines: dict[str, EngineProcess] = {}
    pages = _pages(options, say)
    depths = {arm.engine: arm.depth or 0 for arm in task.arms if arm.engine != CONTROLLED}
    try:
        for name in engine_names(task.arms):
            say(f"starting engine {name!r}")
            engines[name] = EngineProcess(
                EngineSpec(
                    name=name,
                    model=model,
                    depth=depths.get(name, options.depth),
                    controlled=name == CONTROLLED,
                    dtype=options.dtype,
                    max_num_seqs=max(*task.concurrencies, _LEAST_SEQS),
                    max_model_len=_MAX_MODEL_LEN,
                    seed=options.seed,
                    log=str(out / f"engine-{name}.log"),
                    drafter=options.drafter,
                    pages=pages.path if pages else "",
                    trace=str(options.trace) if options.trace and name == CONTROLLED else "",
                )
            )
            if pages:
                say(f"engine {name!r} {engines[name].weights.words}")
        yield engines
    finally:
        for engine in engines.values():
            engine.close()
        if pages:
            pages.close()


def _pages(options: CompareOptions, say: Callable[[str], None]) -> SharedPages | None:
    """Return memory for the weights of all engines; None if it is not wanted or cannot be had."""
    if options.own_weights:
        return None
    try:
        return SharedPages()
    except OSError as error:
        say(f"engines keep weights in memory of their own: {error}")
        return None


def _jobs(task: Task, engine: EngineProcess, say: Callable[[str], None]) -> tuple[Job, ...]:
    """Template the prompts; leave out, and count, those that are too long for the engine."""
    tokens = [
        answer_tokens(number, task.options.tokens) if task.scales else task.options.tokens
        for number in range(len(task.prompts))
    ]
    ids = engine.tokens([[{"role": "user", "content": p.turns[0]}] for p in task.prompts])
    # A drafter needs room for its drafts behind the last token.
    longest = _MAX_MODEL_LEN - max(tokens) - task.options.depth - 1
    jobs = tuple(
        Job(f"{number}-{prompt.question_id}", own, most, label=prompt.domain, truth=prompt.domain)
        for number, (prompt, own, most) in enumerate(zip(task.prompts, ids, tokens, strict=True))
        if len(own) <= longest
    )
    if not jobs:
        raise ValueError(f"prompts must be at most {longest} tokens, got none that is")
    if len(jobs) < len(ids):
        say(f"{len(ids) - len(jobs)} prompts left out: longer than {longest} tokens")
    return jobs


def _budget(plan: Plan, until_s: float, progress: Progress) -> Callable[[int], bool]:
    """Return whether to begin a round: the first always, later ones if they should end in time."""
    begun_s: list[float] = []

    def go_on(number: int) -> bool:
        now_s = time.monotonic()
        begun_s.append(now_s)
        if number == 0:
            return True
        took_s = now_s - begun_s[0]
        expected = sum(plan.round_s(earlier) for earlier in range(number)) or 1.0
        if now_s + plan.round_s(number) * took_s / expected <= until_s:
            return True
        progress.out_of_time(number, plan.rounds)
        return False

    return go_on


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Treat a polite kill like an interrupt from the keyboard."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
