"""Peers that measure depths instead of modelling them."""

import numpy as np
import pytest
from tests.controller.toy_engine import Tally, ToyEngine
from tests.experiments.peers.stage import MODEL_DRAFTER, context, f2_time, outcome

from acclimate.experiments.peers.cascade import Cascade
from acclimate.experiments.peers.ucb_bandit import HOLD_STEPS, UcbBandit
from acclimate.experiments.simulation.step_time import StepMakeUp

_GOOD = (0.9, 0.9, 0.9, 0.9, 0.9)
_POOR = (0.1, 0.1, 0.1, 0.1, 0.1)


def _run(peer: UcbBandit | Cascade, q: tuple[float, ...], batch: int, steps: int = 1500) -> Tally:
    table = f2_time()
    engine = ToyEngine(
        peer,
        MODEL_DRAFTER,
        lambda step: q,
        lambda n, m, d: table.step_ms(StepMakeUp(n, m)),
        tokens_per_request=100_000,
    )
    return engine.run(batch, steps)


@pytest.mark.parametrize("kind", [UcbBandit, Cascade])
def test_they_settle_deep_where_drafts_are_good_and_at_0_where_they_cost(
    kind: type[UcbBandit] | type[Cascade],
) -> None:
    good = _run(kind(MODEL_DRAFTER), _GOOD, batch=8).depth[-500:]
    poor = _run(kind(MODEL_DRAFTER), _POOR, batch=128).depth[-500:]
    assert np.mean(np.array(good) >= 4) > 0.6
    assert np.mean(np.array(poor) == 0) > 0.6


def test_the_bandit_tries_every_arm_and_holds_it() -> None:
    peer = UcbBandit(MODEL_DRAFTER)
    depths = _run(peer, _GOOD, batch=4, steps=6 * HOLD_STEPS + 2).depth
    assert set(depths) == set(MODEL_DRAFTER.depths)
    assert peer.pulls.sum() < len(depths)  # steps in transition are nobody's


def test_a_late_outcome_rewards_the_depth_it_was_planned_with() -> None:
    peer = UcbBandit(MODEL_DRAFTER)
    plans = []
    for step in range(1, 3 * HOLD_STEPS + 1):
        at = context([peer.depth] * 2, step=step)
        plans.append((peer.plan(at), at))
        if len(plans) > 1:
            plan, then = plans[-2]
            peer.observe(outcome(plan, then, [1, 1]))
    first = plans[1][0].depth
    arm = peer.arms.index(first)
    assert peer.pulls[1, arm] == HOLD_STEPS - 1


def test_cascade_caps_what_its_trials_cost() -> None:
    table = f2_time()
    tally = _run(Cascade(MODEL_DRAFTER), _POOR, batch=128, steps=4000)
    plain_ms = tally.tokens / 128 * table.step_ms(StepMakeUp(128, 0))
    assert tally.milliseconds / plain_ms < 1.06


def test_cascade_backs_off_and_still_comes_back() -> None:
    peer = Cascade(MODEL_DRAFTER)
    table = f2_time()
    engine = ToyEngine(
        peer,
        MODEL_DRAFTER,
        lambda step: _POOR if step < 600 else (0.98,) * 5,
        lambda n, m, d: table.step_ms(StepMakeUp(n, m)),
        tokens_per_request=100_000,
    )
    early = engine.run(64, 600)
    late = engine.run(64, 3000)
    assert np.mean(np.array(early.depth[-300:]) == 0) > 0.8
    assert np.mean(np.array(late.depth[-500:]) > 0) > 0.8


def test_cascade_starts_anew_at_another_load() -> None:
    peer = Cascade(MODEL_DRAFTER)
    _run(peer, _POOR, batch=64, steps=400)
    assert peer._set_steps > 16
    peer.plan(context([0], step=10_000))
    assert peer._set_steps == 16
