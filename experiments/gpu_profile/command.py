"""``acclimate testbed profile-gpu``: measures step times on a GPU, and writes tables of them."""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

import acclimate
from acclimate.experiments.gpu_profile.plan import DRAFT, TARGET, PassCell, ProfileGrid
from acclimate.experiments.gpu_profile.tables import ProfileTables

PROVENANCE_FILE = "provenance.json"
NO_GPU = "profile-gpu must have a CUDA GPU, got a machine without one; nothing else here needs it"

Measure = Callable[[PassCell], float]


def gpu_missing() -> bool:
    """Whether there is no GPU that can be measured here."""
    try:
        import torch
    except ModuleNotFoundError:
        return True
    return not torch.cuda.is_available()


def run_profile(
    *,
    out: Path,
    target: str,
    draft: str,
    minutes: float,
    grid: ProfileGrid | None = None,
    device: str = "cuda",
) -> ProfileTables:
    """Measure a target's and a drafter's passes, and write the tables with their provenance.

    Parameters
    ----------
    out
        Folder of the tables.
    target, draft
        Sizes, see `acclimate.experiments.gpu_profile.passes.SHAPES`.
    minutes
        Cells that are not reached by then are left out, and counted.
    grid
        What is measured.
    device
        Where.

    Raises
    ------
    ValueError
        There is no such size.
    """
    import torch

    from acclimate.experiments.gpu_profile.passes import PassTimer, random_llama

    grid = grid or ProfileGrid()
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    longest = max(grid.contexts) + max(grid.drafts) + 1
    timers = {
        role: PassTimer(random_llama(size, device=device, longest=longest))
        for role, size in ((TARGET, target), (DRAFT, draft))
    }
    console = Console(stderr=True)
    with console.status("measuring") as status:
        measured, failed = measure_cells(
            grid.cells(),
            lambda cell: timers[cell.role].milliseconds(cell),
            ends_s=time.monotonic() + 60.0 * minutes,
            told=status.update,
            out_of_memory=torch.cuda.OutOfMemoryError,
        )
    tables = ProfileTables.of(measured)
    paths = tables.write(out)
    provenance = {
        "command": f"testbed profile-gpu --target {target} --draft {draft}",
        "device": _device_name(device),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "version": acclimate.__version__,
        "started": started,
        "weights": "random",
        "graphs": device.startswith("cuda"),
        "attention": "with a mask of ancestors",
        "grid": dataclasses.asdict(grid),
        "measured": len(measured),
        "left_out": failed,
        "draft_share": tables.draft_share,
    }
    path = out / PROVENANCE_FILE
    path.write_bytes(msgspec.json.format(msgspec.json.encode(provenance), indent=2) + b"\n")
    shown = Console()
    for written in (*paths, path):
        shown.print(f"• {written}", highlight=False, soft_wrap=True)
    shown.print(
        f"• {len(measured)} cells measured, {sum(failed.values())} left out; for simulate: "
        f"--latency {out / 'latency.csv'} --draft-share {tables.draft_share:.3f}",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    return tables


def measure_cells(
    cells: Sequence[PassCell],
    measure: Measure,
    *,
    ends_s: float,
    told: Callable[[str], None] = lambda line: None,
    out_of_memory: type[Exception] = MemoryError,
) -> tuple[dict[PassCell, float], dict[str, int]]:
    """Return milliseconds by cell, and how many cells were left out for which reason.

    Parameters
    ----------
    cells
        In the order in which they are measured.
    measure
        Returns a cell's milliseconds.
    ends_s
        When to stop, on the monotonic clock.
    out_of_memory
        What ``measure`` raises for a cell that does not fit; others are measured all the same.
    """
    measured: dict[PassCell, float] = {}
    left_out = {"no time": 0, "no memory": 0}
    for cell in cells:
        if time.monotonic() > ends_s:
            left_out["no time"] += 1
            continue
        told(cell.name)
        try:
            measured[cell] = measure(cell)
        except out_of_memory:
            left_out["no memory"] += 1
    return measured, left_out


def _device_name(device: str) -> Any:
    import torch

    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    from acclimate.experiments.figures import describe_machine

    return describe_machine()
