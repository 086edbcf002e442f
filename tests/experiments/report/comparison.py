"""A comparison's folder, made of rounds whose speeds are known."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from tests.experiments.compare.scripted_engine import ScriptedEngine

from acclimate.experiments.compare.arms import parse_arms
from acclimate.experiments.compare.cells import build_cells, promised_cells
from acclimate.experiments.compare.plan import Pace, make_plan
from acclimate.experiments.compare.promised import PlainTimes
from acclimate.experiments.compare.rounds import Traffic, run_rounds
from acclimate.experiments.compare.rows import RowsWriter
from acclimate.experiments.compare.warm_up import engine_names
from acclimate.integrations.vllm.closed_loop import Job

_NAMES = "none,k0,k1,adaptive"
_STEP_S = {"k1": 0.04, "adaptive": 0.045}


def write_comparison(folder: Path, *, promised: bool = False) -> None:
    """Write what ``compare --out`` writes, or ``compare --slo --out``."""
    jobs = tuple(
        Job(f"{domain}{i}", (1,), 8 + i, label=domain, truth=domain)
        for domain in ("code", "prose")
        for i in range(4)
    )
    names = _NAMES.removeprefix("none,") if promised else _NAMES
    arms = parse_arms(names, max_depth=4)
    cells = promised_cells(4, (0.85, 1.1)) if promised else build_cells([1, 4], [], ())
    plan = make_plan(
        cells, prompts=Counter(job.truth for job in jobs),
        paces={1: Pace(20.0, 10.0, 0.5), 4: Pace(20.0, 10.0, 0.5)}, capacity_per_s=2.0,
        arms=len(arms), told=sum(arm.told for arm in arms), rounds=2, budget_s=1e9,
    )  # fmt: skip
    header = {"arms": names, "depth": 4, "seed": 0, "prompts": "prompts.jsonl"}
    writer = RowsWriter(folder, header)
    engine = ScriptedEngine({arm.name: _STEP_S.get(arm.name, 0.05) for arm in arms})
    run_rounds(
        dict.fromkeys(engine_names(arms), engine), arms, plan,
        Traffic(jobs, 2.0, "poisson", np.zeros(0), PlainTimes(0.05, 1.0)), seed=0, go_on=lambda number: True,
        on_row=writer.add,
    )  # fmt: skip
