"""Runs an experiment's cells, in this process or in several, with a progress bar."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import connection
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from acclimate.experiments.lab.cell_store import CellStore, Keyed

C = TypeVar("C")
R = TypeVar("R")
K = TypeVar("K", bound=Keyed)
Kept = TypeVar("Kept", bound=Keyed)
_AHEAD = 4  # cells handed to each process before it asks


class CellFailure(RuntimeError):
    """A cell failed; the message names it and says why."""


def core_count() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_missing(
    work: Callable[[K], Kept], store: CellStore[Kept], cells: Sequence[K], jobs: int | None
) -> None:
    """Run the cells that a store lacks, by default in a process for each core.

    Raises
    ------
    RuntimeError
        Cells failed, or somebody stopped it.
    """
    have = {row.key for row in store.rows}
    missing = [cell for cell in cells if cell.key not in have]
    try:
        run_cells(
            work,
            missing,
            jobs=core_count() if jobs is None else jobs,
            on_result=store.add,
            name_of=lambda cell: cell.key,
            done=len(cells) - len(missing),
        )
    except KeyboardInterrupt:
        raise RuntimeError(
            f"stopped with {len(store.rows)} of {len(cells)} cells done; "
            f"--out {store.folder} --resume goes on"
        ) from None


def run_cells(
    work: Callable[[C], R],
    cells: Sequence[C],
    *,
    jobs: int,
    on_result: Callable[[R], None],
    name_of: Callable[[C], str],
    done: int = 0,
) -> None:
    """Run every cell, and hand over each result as soon as it is there.

    Parameters
    ----------
    work
        A function of a module, since other processes import it.
    cells
        What to run; a cell must depend on nothing but itself.
    jobs
        Processes; with 1 everything runs in this one.
    on_result
        Called here, in the order in which cells end.
    name_of
        A cell's name for people.
    done
        Cells that were done before, for the progress bar.

    Raises
    ------
    CellFailure
        Some cells failed; all others were run and handed over.
    KeyboardInterrupt
        Somebody stopped it, from the keyboard or with a polite kill; running cells are lost.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be >= 1, got {jobs}")
    failures: list[str] = []
    with _stoppable(), _progress(done, done + len(cells)) as step:
        if jobs == 1 or len(cells) <= 1:
            results = _run_here(work, cells)
        else:
            results = _run_apart(work, cells, min(jobs, len(cells)))
        for cell, result, error in results:
            if error is not None:
                failures.append(f"{name_of(cell)}: {type(error).__name__}: {error}")
            else:
                on_result(result)
            step(name_of(cell))
    if failures:
        raise CellFailure(
            f"{len(failures)} of {len(cells)} cells failed and can be tried again with --resume; "
            f"the first: {failures[0]}"
        )


def _run_here(
    work: Callable[[C], R], cells: Sequence[C]
) -> Iterator[tuple[C, Any, Exception | None]]:
    for cell in cells:
        try:
            yield cell, work(cell), None
        except Exception as error:
            yield cell, None, error


def _run_apart(
    work: Callable[[C], R], cells: Sequence[C], jobs: int
) -> Iterator[tuple[C, Any, Exception | None]]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([work.__module__])
    executor = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin_worker)
    try:
        ahead = iter(cells)
        running: dict[Future[R], C] = {}
        while True:
            while len(running) < _AHEAD * jobs:
                cell = next(ahead, None)
                if cell is None:
                    break
                running[executor.submit(work, cell)] = cell
            if not running:
                break
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                cell = running.pop(future)
                error = future.exception()
                if error is None:
                    yield cell, future.result(), None
                elif isinstance(error, Exception):
                    yield cell, None, error
                else:
                    raise error
    finally:
        # What still runs after an interrupt is ended with its process, not waited for.
        for process in list((executor._processes or {}).values()):
            process.terminate()
        executor.shutdown(wait=True, cancel_futures=True)


def _begin_worker() -> None:
    """Leave interrupts to the parent, and end when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Treat a polite kill like an interrupt from the keyboard."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress(done: int, total: int) -> Iterator[Callable[[str], None]]:
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, TextColumn("{task.description}"), console=console, transient=True,
        disable=not console.is_terminal,
    ) as progress:  # fmt: skip
        task = progress.add_task("", total=total, completed=done)

        def step(name: str) -> None:
            progress.update(task, advance=1, description=name)

        yield step
