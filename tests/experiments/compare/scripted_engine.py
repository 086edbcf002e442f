"""An engine of which every speed is known, for rounds and findings."""

from __future__ import annotations

from acclimate.experiments.compare.promised import asked
from acclimate.experiments.compare.rows import CellRow, RequestRow, StepColumns
from acclimate.experiments.compare.worker import Order


class ScriptedEngine:
    """Takes a known time per token for every arm; rounds differ in the speed of the machine.

    Parameters
    ----------
    step_s
        Seconds per token by arm.
    machine
        Factor on all times, by the number of orders taken so far.
    """

    def __init__(self, step_s: dict[str, float], machine: dict[int, float] | None = None) -> None:
        self.step_s = step_s
        self.machine = machine or {}
        self.orders: list[Order] = []

    def run(self, order: Order) -> CellRow:
        factor = self.machine.get(len(self.orders), 1.0)
        self.orders.append(order)
        step_s = self.step_s[order.arm] * factor
        requests, at_s, steps = [], 0.0, 0
        for number, job in enumerate(order.jobs):
            due_s = at_s if order.arrival_s is None else order.arrival_s[number]
            tokens = job.max_tokens
            promise = asked(job)
            chunk_s = [due_s + 0.2 + i * step_s for i in range(tokens)]
            requests.append(
                RequestRow(
                    prompt=job.key,
                    domain=job.truth,
                    due_s=due_s,
                    chunk_s=chunk_s,
                    chunk_tokens=[1] * tokens,
                    decode_s=step_s * (tokens - 1),
                    decode_tokens=tokens - 1,
                    text=job.key,
                    finish="length",
                    slo_class=promise.slo_class,
                    ttft_target_s=promise.ttft_s,
                    tpot_target_s=promise.tpot_s,
                )
            )
            at_s, steps = chunk_s[-1], steps + tokens
        return CellRow(
            arm=order.arm,
            cell=order.cell,
            round=order.round,
            block=order.block,
            duration_s=at_s or 1.0,
            verify_lens=[steps],
            requests=requests,
            steps=StepColumns(
                begun_s=[i * step_s for i in range(steps)],
                duration_s=[step_s] * steps,
                decode_requests=[1] * steps,
                prefill_tokens=[0] * steps,
                verified=[0] * steps,
                committed=[1] * steps,
                first_tokens=[0] * steps,
                depth=[0] * steps,
                draft_depth=[0] * steps,
                stock=[False] * steps,
                waiting=[0] * steps,
            ),
        )
