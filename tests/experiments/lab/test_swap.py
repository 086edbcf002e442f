"""Beliefs around a swap, lived anew from outcomes of a known acceptance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests.controller.toy_engine import ToyEngine

from acclimate.controller.adaptive import AdaptivePolicy
from acclimate.controller.config import ControlConfig
from acclimate.controller.events import AddEvent, Event, ObserveEvent, PlanEvent
from acclimate.controller.records import (
    Capabilities,
    Change,
    RequestInfo,
    StepContext,
    StepOutcome,
    StepPlan,
)
from acclimate.controller.reports import Alarm
from acclimate.experiments.drafters.choices import drafter
from acclimate.experiments.lab.swap import run_swap, swap_figures
from acclimate.experiments.lab.swap_recovery import LABEL, SwapRun, hindsight, relive

ENGINE = Capabilities(
    max_depth=3, depths=(0, 1, 2, 3), honours_depth=False, hindsight=True
)  # fmt: skip
BEFORE, AFTER = (0.8, 0.75, 0.7), (0.4, 0.4, 0.4)
_SWAP_STEP = 150


class _Recorder(AdaptivePolicy):
    """Keeps what it is told as events."""

    def __init__(self) -> None:
        super().__init__(ControlConfig(), ENGINE)
        self.events: list[Event] = []

    def admit(self, request: RequestInfo) -> None:
        named = RequestInfo(
            request=request.request,
            prompt_tokens=request.prompt_tokens,
            max_tokens=request.max_tokens,
            domain=LABEL,
        )
        self.events.append(AddEvent(seq=0, request=named))
        super().admit(named)

    def plan(self, context: StepContext) -> StepPlan:
        plan = super().plan(context)
        self.events.append(PlanEvent(seq=0, context=context, decision=plan))
        return plan

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        self.events.append(ObserveEvent(seq=0, outcome=outcome))
        return super().observe(outcome)


def _run(after: tuple[float, ...] = AFTER, seed: int = 0) -> SwapRun:
    policy = _Recorder()
    engine = ToyEngine(
        policy, ENGINE, lambda step: BEFORE if step <= _SWAP_STEP else after,
        lambda n, m, d: 10.0 + 0.2 * m, seed=seed,
    )  # fmt: skip
    engine.run(8, _SWAP_STEP)
    split = len(policy.events)
    swapped_ns = engine.now_ns
    engine.run(8, 400)
    return SwapRun(policy.events[:split], policy.events[split:], swapped_ns, ENGINE.max_depth)


@pytest.fixture(scope="module")
def run() -> SwapRun:
    return _run()


def test_hindsight_is_the_survival_of_the_segment(run: SwapRun) -> None:
    assert hindsight(run.before, 3) == pytest.approx(np.cumprod(BEFORE), abs=0.05)
    assert hindsight(run.after, 3) == pytest.approx(np.cumprod(AFTER), abs=0.05)


def test_a_policy_is_right_again_after_a_swap_and_at_once_where_nothing_changed(
    run: SwapRun,
) -> None:
    found = relive(run, AdaptivePolicy(ControlConfig(), ENGINE))
    assert found.recovered is not None
    assert 0 < found.recovered < found.graded
    same = relive(_run(after=BEFORE), AdaptivePolicy(ControlConfig(), ENGINE))
    assert same.recovered is not None
    assert same.recovered < found.recovered


def test_the_swap_is_told_behind_the_last_event_before_it(run: SwapRun) -> None:
    class Told(AdaptivePolicy):
        outcomes = told_after = 0

        def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
            self.outcomes += 1
            return super().observe(outcome)

        def declare(self, change: Change) -> None:
            self.told_after = self.outcomes
            super().declare(change)

    policy = Told(ControlConfig(), ENGINE)
    relive(run, policy, at_swap=lambda told: told.declare(Change(kind="draft")))
    assert policy.told_after == _SWAP_STEP


def test_figures_name_every_contender_and_how_much_changed() -> None:
    runs = [_run(seed=seed) for seed in range(3)]
    figures = swap_figures(runs, ControlConfig(), ENGINE, np.random.default_rng(0))
    found = {figure.name: figure for figure in figures}
    for name in ("adaptive", "adaptive-declared", "clairvoyant"):
        assert found[f"swap/{name}/tokens_to_recover"].value is not None
        assert found[f"swap/{name}/recovered"].n == 3
    assert found["swap/acceptance_position1/before"].value == pytest.approx(0.8, abs=0.05)
    assert found["swap/acceptance_position1/after"].value == pytest.approx(0.4, abs=0.05)


def test_only_a_variant_that_is_loaded_can_take_over() -> None:
    assert drafter("backoff").swappable
    with pytest.raises(ValueError, match="to must be a variant of ngram: none; got 'code'"):
        run_swap(drafter_name="ngram", variant="code", rounds=1, jobs=1, json=None, seed=0)
