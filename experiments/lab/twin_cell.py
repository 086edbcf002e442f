"""One cell of ``lab twin``: what each guarantee costs in speed, and how far requests fall behind."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import FloatArray
from acclimate.experiments.arms import arm_policy
from acclimate.experiments.run_record import Run
from acclimate.experiments.simulation.scenario import FOLDER, Scenario
from acclimate.experiments.simulation.stage import Stage

LAG_TOKENS = 8.0
"""B of every guarantee."""

ETAS = (0.0, 0.02, 0.05, 0.1, 0.2)
GUARANTEES = ("per_request", "aggregate")
CURVES: dict[str, tuple[int, dict[str, Any]]] = {
    "f2": (64, {"table": str(FOLDER / "f2.csv")}),
    "f2-drafter": (64, {"table": str(FOLDER / "f2.csv"), "draft_share": 0.3}),
    "cpu": (
        16,
        {
            "rows": [
                (8, 0, 15.8), (8, 1, 19.4), (8, 2, 23.0), (8, 3, 26.4), (8, 5, 37.9),
                (16, 0, 19.7), (16, 1, 26.7), (16, 2, 35.1), (16, 3, 42.4), (16, 5, 58.2),
            ]
        },
    ),
    "rtx4090": (32, {"roofline": "rtx4090"}),
}  # fmt: skip
"""Requests at all times, and how long their steps take; ``f2-drafter`` pays for its drafts."""

MIXES: dict[str, tuple[tuple[float, float], ...]] = {
    "alike": ((0.7, 1.0),),
    "even": ((0.85, 0.5), (0.35, 0.5)),
    "few": ((0.9, 0.2), (0.4, 0.8)),
}
"""Conditional acceptance q and share of the requests, of each kind of traffic."""

_DEPTH = 5
_OUTPUT_TOKENS = 200
_NOISE = 0.03


class TwinCell(msgspec.Struct, frozen=True, kw_only=True):
    """What to run: one curve, one mix, one seed, and all guarantees on it.

    Parameters
    ----------
    rounds
        Answers per place in the batch; the first is not measured for speed.
    """

    curve: str
    mix: str
    seed: int
    rounds: int

    @property
    def key(self) -> str:
        """Name of the cell."""
        return f"{self.curve}/{self.mix}/seed{self.seed}"


class TwinArm(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one guarantee.

    Parameters
    ----------
    guarantee, eta
        ``off``, ``aggregate`` or ``per_request``, and its share.
    tokens_per_s
        Behind the first round.
    worst_lag
        The largest lag of a request behind its own ``k0`` run, beyond `LAG_TOKENS`, as a share of
        what it had written there in the same time; at most η if the guarantee is kept.
    behind
        Requests whose lag exceeds that.
    requests
        Requests that ended in both runs.
    """

    guarantee: str
    eta: float
    tokens_per_s: float
    worst_lag: float
    behind: int
    requests: int


class TwinRow(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a cell; ``k0_tokens_per_s`` is the speed without any speculation."""

    key: str
    cell: TwinCell
    k0_tokens_per_s: float
    arms: list[TwinArm]


def run_twin_cell(cell: TwinCell) -> TwinRow:
    """Run a cell; the same cell gives the same row."""
    plain = _run(cell, "k0", {})
    arms = [_measured(plain, _run(cell, "adaptive", {"twin": "off"}), "off", 0.0)]
    for guarantee in GUARANTEES:
        for eta in ETAS:
            promised = {"twin": guarantee, "eta": eta, "lag_tokens": LAG_TOKENS}
            arms.append(_measured(plain, _run(cell, "adaptive", promised), guarantee, eta))
    return TwinRow(key=cell.key, cell=cell, k0_tokens_per_s=_speed(plain), arms=arms)


def lags(plain: Run, run: Run) -> tuple[FloatArray, FloatArray]:
    """Return each request's lag in tokens behind its own plain run, and what it wrote there.

    Both are counted from its first token to the end of its answer in ``run``, over the requests that
    ended in both runs.
    """
    written = np.minimum(plain.tokens.shape[0], run.tokens.shape[0])
    both = plain.finished[:written] & run.finished[:written] & (run.tokens[:written] > 1)
    took_s = (run.last_token_s - run.first_token_s)[:written][both]
    twin = took_s / plain.tpot_s[:written][both]
    return twin - (run.tokens[:written][both] - 1.0), twin


def _measured(plain: Run, run: Run, guarantee: str, eta: float) -> TwinArm:
    lag, twin = lags(plain, run)
    share = (lag - LAG_TOKENS) / twin
    return TwinArm(
        guarantee=guarantee,
        eta=eta,
        tokens_per_s=_speed(run),
        worst_lag=float(share.max()),
        behind=int(np.count_nonzero(share > eta)),
        requests=share.shape[0],
    )


def _run(cell: TwinCell, arm: str, promised: dict[str, Any]) -> Run:
    stage = Stage.of(_scenario(cell), seed=cell.seed)
    config = ControlConfig.read({"seed": cell.seed, "slo": promised})
    lines: list[str] = []
    policy = arm_policy(arm, config, stage.capabilities, stage.truth)
    run = stage.engine(policy, config=config, log=lines.append).run(drain=False)
    if lines:
        raise RuntimeError(f"policy {arm!r} must not fail in a simulation, got: {lines[0]}")
    return run


def _scenario(cell: TwinCell) -> Scenario:
    batch, step_time = CURVES[cell.curve]
    drafts_cost = step_time.get("draft_share", 0.0) > 0.0
    return Scenario.of(
        {
            "title": cell.key,
            "engine": {
                "max_depth": _DEPTH,
                "max_num_seqs": batch,
                "free_drafts": not drafts_cost,
                # A drafter whose drafts are drawn: what was not verified is never graded.
                "hindsight": not drafts_cost,
            },
            "arrivals": {
                "kind": "closed",
                "concurrency": batch,
                "requests": batch * (cell.rounds + 1),
            },
            "lengths": {
                "prompt_tokens": 1,
                "output_tokens": {"mean": _OUTPUT_TOKENS, "variation": 0.5},
            },
            "step_time": {**step_time, "noise": _NOISE},
            "domains": [
                {
                    "name": f"q{q}",
                    "share": share,
                    "conditional": [q] * _DEPTH,
                    "request_spread": 0.5,
                }
                for q, share in MIXES[cell.mix]
            ],
        }
    )


def _speed(run: Run) -> float:
    """Return tokens per second behind the first quarter of the run, while policies learn."""
    steps = run.steps
    if steps is None:
        raise RuntimeError("a run must keep its steps, got none")
    late = steps.begun_s >= run.begun_s + 0.25 * run.duration_s
    tokens = steps.committed[late].sum() + steps.first_tokens[late].sum()
    return float(tokens) / float(steps.duration_ms[late].sum() / 1e3)
