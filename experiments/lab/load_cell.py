"""One cell of ``lab load``: an arm on a known table at a known acceptance, and what it chose."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities, FloatArray
from acclimate.experiments.arms import arm_policy
from acclimate.experiments.run_record import Run
from acclimate.experiments.simulation.scenario import FOLDER, Scenario
from acclimate.experiments.simulation.stage import Stage
from acclimate.experiments.simulation.stalls import StalledTime
from acclimate.experiments.simulation.step_time import StepMakeUp
from acclimate.experiments.simulation.table_time import TableTime
from acclimate.experiments.simulation.truth import DrawnTruth
from acclimate.experiments.workload import Workload

TABLE = FOLDER / "f2.csv"
DEPTHS = (0, 1, 3, 5)
BATCHES = (1, 4, 16, 64, 256)
SURVIVALS: dict[str, tuple[float, ...]] = {
    "0.681": (0.681, 0.391, 0.204, 0.101, 0.051),
    "0.76": (0.76, 0.54, 0.39, 0.28, 0.21),
    "0.17": (0.17, 0.15, 0.12, 0.01, 0.01),
}
"""P(the first i drafts are all accepted) at positions 1 to 5, by the name of the row."""

BOUNDARIES = ("decodes", "prompts")
"""What swings a load between 4 and 5: short answers that come and go, or long prompts that join."""

NOISE = 0.05  # standard deviation of the logarithm of a step's time
STALL_SHARE, STALL_FACTOR = 0.01, 10.0
_OUTPUT_TOKENS = 200
# Between 4 and 5 requests verifying costs two and a half times as much.
_CLIFF = {4: (10.0, 10.4, 10.8, 11.2), 5: (11.0, 27.0, 31.0, 35.0)}
_CLIFF_SURVIVAL = (0.8, 0.6, 0.45)
_JOIN_EVERY_S = 0.2


class LoadCell(msgspec.Struct, frozen=True, kw_only=True):
    """What to run.

    Parameters
    ----------
    survival
        A row of `SURVIVALS`; empty at the boundary.
    batch
        Requests at all times; 0 at the boundary.
    boundary
        One of `BOUNDARIES`; empty for a cell of the table.
    noisy
        Whether steps scatter and stall as on a shared machine.
    until_s, warm_up_s
        Simulated seconds, and those at the beginning that do not count.
    """

    survival: str = ""
    batch: int = 0
    boundary: str = ""
    noisy: bool = False
    arm: str
    seed: int
    until_s: float
    warm_up_s: float

    @property
    def key(self) -> str:
        """Name of the cell."""
        where = f"boundary/{self.boundary}" if self.boundary else f"{self.survival}/{self.batch}"
        return f"{where}/{'noisy' if self.noisy else 'exact'}/{self.arm}/seed{self.seed}"


class LoadRow(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a cell, after its warm-up.

    Parameters
    ----------
    depth
        The depth of most steps in which a request decoded.
    shares
        Share of these steps per depth, from 0 on.
    tokens, seconds
        Committed tokens and engine time.
    switches
        Changes of the depth.
    """

    key: str
    cell: LoadCell
    depth: int
    shares: list[float]
    tokens: int
    seconds: float
    switches: int

    @property
    def tokens_per_s(self) -> float:
        """Speed after the warm-up."""
        return self.tokens / self.seconds


def run_load_cell(cell: LoadCell) -> LoadRow:
    """Run a cell; the same cell gives the same row."""
    stage = _boundary_stage(cell) if cell.boundary else _table_stage(cell)
    if cell.noisy:
        stalled = StalledTime(
            stage.step_time, share=STALL_SHARE, factor=STALL_FACTOR, seed=cell.seed
        )
        stage = dataclasses.replace(stage, step_time=stalled)
    config = ControlConfig(seed=cell.seed)
    lines: list[str] = []
    policy = arm_policy(cell.arm, config, stage.capabilities, stage.truth)
    run = stage.engine(policy, config=config, log=lines.append).run(
        until_s=cell.until_s, drain=False
    )
    if lines:
        raise RuntimeError(f"policy {cell.arm!r} must not fail in a simulation, got: {lines[0]}")
    return _row(cell, run, stage.capabilities)


def true_speeds(survival: str, batch: int) -> FloatArray:
    """Return tokens per second of a row of the table at each of `DEPTHS`, shape (4,).

    Examples
    --------
    >>> speeds = true_speeds("0.681", 16)
    >>> DEPTHS[int(speeds.argmax())], round(float(speeds.max() / speeds[0]), 2)
    (3, 1.65)
    """
    table = TableTime.read(TABLE)
    tokens = 1.0 + np.concatenate([[0.0], np.cumsum(SURVIVALS[survival])])
    return np.array(
        [
            1e3 * batch * tokens[depth] / table.step_ms(StepMakeUp(batch, batch * depth))
            for depth in DEPTHS
        ]
    )


def _table_stage(cell: LoadCell) -> Stage:
    fastest = float(true_speeds(cell.survival, cell.batch).max())
    enough = round(1.5 * fastest * cell.until_s / _OUTPUT_TOKENS) + 4 * cell.batch
    return Stage.of(
        Scenario.of(
            {
                "title": cell.key,
                "engine": _engine(5, DEPTHS, max(cell.batch, 1)),
                "arrivals": {"kind": "closed", "concurrency": cell.batch, "requests": enough},
                "lengths": {
                    "prompt_tokens": 1,
                    "output_tokens": {"mean": _OUTPUT_TOKENS, "variation": 0.5},
                },
                "step_time": {"table": str(TABLE), "noise": NOISE if cell.noisy else 0.0},
                "domains": [{"name": "chat", "survival": SURVIVALS[cell.survival]}],
            }
        ),
        seed=cell.seed,
    )


def _boundary_stage(cell: LoadCell) -> Stage:
    """Return four answers that never end, and a fifth request that comes and goes."""
    rows = [(n, k, ms) for n, times in _CLIFF.items() for k, ms in enumerate(times)]
    stage = Stage.of(
        Scenario.of(
            {
                "title": cell.key,
                "engine": {**_engine(3, (0, 1, 2, 3), 8), "token_budget": 512},
                "arrivals": {"kind": "closed", "concurrency": 1, "requests": 1},
                "step_time": {
                    "rows": rows,
                    "prefill_ms_per_token": 0.02,
                    "noise": NOISE if cell.noisy else 0.0,
                },
                "domains": [{"name": "chat", "survival": _CLIFF_SURVIVAL}],
            }
        ),
        seed=cell.seed,
    )
    joins = int(cell.until_s / _JOIN_EVERY_S)
    prompt, output = (1, 8) if cell.boundary == "decodes" else (1_500, 2)
    rng = np.random.default_rng(cell.seed)
    join_s = np.sort(rng.uniform(0.0, cell.until_s, size=joins))
    workload = Workload.open(
        np.concatenate([np.zeros(4), join_s]),
        prompt_tokens=np.concatenate([np.ones(4, np.int64), np.full(joins, prompt)]),
        output_tokens=np.concatenate([np.full(4, 1_000_000), np.full(joins, output)]),
        domain=("chat",),
    )
    drafts = type(stage.drafts)(stage.drafts.regimes, (0,), workload.domain_of, seed=cell.seed)
    return dataclasses.replace(
        stage,
        workload=workload,
        drafts=drafts,
        truth=DrawnTruth(drafts, stage.truth.step_time),
        concurrency=None,
    )


def _engine(max_depth: int, depths: tuple[int, ...], seats: int) -> dict[str, Any]:
    return {
        "max_depth": max_depth,
        "depths": depths,
        "uniform_only": True,
        "max_num_seqs": seats,
        "token_budget": 8_192,
    }


def _row(cell: LoadCell, run: Run, capabilities: Capabilities) -> LoadRow:
    steps = run.steps
    if steps is None:
        raise RuntimeError("a run must keep its steps, got none")
    late = steps.begun_s >= cell.warm_up_s
    held = steps.depth[late & (steps.decode_requests > 0)]
    counts = np.bincount(held, minlength=capabilities.max_depth + 1)
    return LoadRow(
        key=cell.key,
        cell=cell,
        depth=int(counts.argmax()),
        shares=(counts / max(counts.sum(), 1)).tolist(),
        tokens=int(steps.committed[late].sum() + steps.first_tokens[late].sum()),
        seconds=float(steps.duration_ms[late].sum() / 1e3),
        switches=int(np.count_nonzero(np.diff(held))),
    )
