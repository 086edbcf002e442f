"""Runs the demo's arms in alternation on one engine, over one and the same stream."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from acclimate.controller.events import Event, EventQueue
from acclimate.controller.policy import Policy
from acclimate.experiments.demo.stream import Stream
from acclimate.integrations.vllm.closed_loop import ClosedLoopRun, StepRecord, run_phases
from acclimate.integrations.vllm.launch import Engine

_STALL_RATIO = 5.0


@dataclasses.dataclass(slots=True)
class ArmRun:
    """One pass of one arm over the stream.

    Parameters
    ----------
    arm
        ``k0``, ``k<depth>`` or ``adaptive``.
    round
        Counted from 0.
    run
        What the client saw.
    events
        What the control loop logged, in order, a sequel's events included.
    sequel
        What the client saw of the stream's sequel, where this pass was followed by it.
    """

    arm: str
    round: int
    run: ClosedLoopRun
    events: list[Event]
    sequel: ClosedLoopRun | None = None

    def speed(self, concurrency: int | None = None) -> float:
        """Return decode tokens per second at one concurrency, or over the whole stream.

        Steps with a prompt in them are left out, and so are stalls of the machine.
        """
        kept = self.decode_steps(concurrency)
        seconds = sum(step.duration_s for step in kept)
        return sum(step.tokens for step in kept) / seconds if seconds else float("nan")

    @property
    def overall_speed(self) -> float:
        """Return tokens per second with prompts and stalls."""
        return sum(step.tokens for step in self.run.steps) / self.run.wall_s

    def decode_steps(self, concurrency: int | None = None) -> list[StepRecord]:
        """Return the steps without prompts and stalls, at one concurrency or at all of them."""
        by_load: dict[int, list[StepRecord]] = {}
        for step in self.run.steps:
            if not step.first_tokens and concurrency in (None, step.running):
                by_load.setdefault(step.running, []).append(step)
        return [step for steps in by_load.values() for step in _without_stalls(steps)]


def run_rounds(
    engine: Engine,
    stream: Stream,
    arms: Mapping[str, Policy],
    *,
    go_on: Callable[[int, float], bool],
    sequel_of: str | None = None,
    on_step: Callable[[str, int, StepRecord], None] = lambda arm, round, step: None,
) -> list[ArmRun]:
    """Run whole rounds, the order of the arms rotated in each.

    A policy stays what it is from round to round, and so keeps what it has learned.

    Parameters
    ----------
    engine
        In-process, with a controller.
    stream
        What every arm is sent.
    arms
        The policies by name.
    go_on
        Asked before every round, with the round's number and the seconds that the last one took,
        whether to run it.
    sequel_of
        The arm whose first pass is followed by the stream's sequel.
    on_step
        Told of every step of the stream.
    """
    loop = engine.bridge.loop
    queue = EventQueue(capacity=1_000_000, snapshots=False)
    loop.attach(queue)
    runs: list[ArmRun] = []
    names = list(arms)
    number, took_s = 0, 0.0
    while go_on(number, took_s):
        took_s = 0.0
        for offset in range(len(names)):
            arm = names[(number + offset) % len(names)]
            loop.replace_policy(arms[arm])
            queue.take()
            run = run_phases(
                engine,
                stream.phases,
                on_step=lambda step, arm=arm, number=number: on_step(arm, number, step),  # type: ignore[misc]
            )
            took_s += run.wall_s
            sequel = None
            if number == 0 and arm == sequel_of:
                loop.replace_policy(arms[arm])  # in the trace, a pass of its own
                sequel = run_phases(engine, [stream.sequel])
            runs.append(ArmRun(arm, number, run, queue.take(), sequel))
        number += 1
    return runs


def differing_jobs(runs: list[ArmRun]) -> list[str]:
    """Return the jobs that did not get the same tokens in every pass."""
    first = runs[0].run.tokens
    return [
        key for key, tokens in first.items() if any(run.run.tokens[key] != tokens for run in runs)
    ]


def _without_stalls(steps: list[StepRecord]) -> list[StepRecord]:
    """Drop steps that took several times the median of their kind: the machine is shared."""
    durations = sorted(step.duration_s for step in steps)
    limit = _STALL_RATIO * durations[len(durations) // 2]
    return [step for step in steps if step.duration_s <= limit]
