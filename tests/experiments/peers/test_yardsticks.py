"""The oracle chooses what the facts call best; the clairvoyant is right again sooner."""

import numpy as np
import pytest
from tests.experiments.peers.stage import F2, NGRAM, KnownTruth, context, f2_time, outcome, request

from acclimate.controller.adaptive import AdaptivePolicy
from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities
from acclimate.experiments.peers.clairvoyant import Clairvoyant
from acclimate.experiments.peers.oracle import Oracle
from acclimate.experiments.simulation.step_time import StepMakeUp

_UNIFORM = Capabilities(max_depth=5, depths=(0, 1, 3, 5), per_request=False, uniform_only=True)
_SURVIVALS: dict[tuple[float, ...], tuple[int, ...]] = {
    (0.681, 0.391, 0.204, 0.101, 0.051): (3, 3, 3, 1, 0),
    (0.76, 0.54, 0.39, 0.28, 0.21): (5, 5, 5, 3, 0),
    (0.17, 0.15, 0.12, 0.01, 0.01): (3, 3, 3, 0, 0),
}


@pytest.mark.parametrize("survival", _SURVIVALS)
def test_the_oracle_drafts_the_best_depth_of_f2(survival: tuple[float, ...]) -> None:
    oracle = Oracle(_UNIFORM, KnownTruth(survival))
    depths = [oracle.plan(context([0] * n)).draft_depth for n in F2]
    assert tuple(depths) == _SURVIVALS[survival]


def test_the_price_is_the_best_rate_that_a_depth_reaches() -> None:
    survival = (0.681, 0.391, 0.204, 0.101, 0.051)
    truth, table = KnownTruth(survival), f2_time()
    oracle = Oracle(_UNIFORM, truth)
    for n in F2:
        rates = [
            n * (1 + sum(survival[:k])) / table.step_ms(StepMakeUp(n, n * k))
            for k in _UNIFORM.depths
        ]
        rate = oracle.best_rate(
            np.tile(survival, (n, 1)),
            np.ones((n, 5)),
            table.curve(StepMakeUp(n, 5 * n)),
            np.zeros(4),
        )
        assert rate == pytest.approx(max(rates), rel=1e-8)


def test_a_ragged_oracle_is_never_worse_than_the_best_static_depth() -> None:
    survival = (0.681, 0.391, 0.204, 0.101, 0.051)
    table = f2_time()
    oracle = Oracle(NGRAM, KnownTruth(survival))
    for n in F2:
        plan = oracle.plan(context([5] * n))
        tokens = n + sum(np.cumsum((0.0, *survival))[plan.verify_lens])
        rate = tokens / table.step_ms(StepMakeUp(n, int(plan.verify_lens.sum())))
        static = max(
            n * (1 + sum(survival[:k])) / table.step_ms(StepMakeUp(n, n * k)) for k in range(6)
        )
        assert rate >= static * (1 - 1e-9)


def _accept(policy: AdaptivePolicy, runs: int, steps: int, start: int) -> None:
    for step in range(start, start + steps):
        at = context([5], step=step, now_ns=step * 10_000_000)
        policy.observe(outcome(policy.plan(at), at, [runs]))


def test_the_clairvoyant_forgets_at_the_change_and_only_acceptance() -> None:
    change_ns = 300 * 10_000_000
    told = Clairvoyant(ControlConfig(), NGRAM, (change_ns,))
    plain = AdaptivePolicy(ControlConfig(), NGRAM)
    for policy in (told, plain):
        policy.admit(request(1))
        _accept(policy, 5, 299, 1)
    learned_steps = told.beliefs.latency.steps
    assert _first_q(told) == _first_q(plain) > 0.9
    for policy in (told, plain):
        _accept(policy, 0, 8, 300)
    assert told.changes.ahead == [] and told.beliefs.latency.steps == learned_steps + 8
    assert _first_q(told) < _first_q(plain) - 0.1


def _first_q(policy: AdaptivePolicy) -> float:
    """Return what is believed of position 1 in the only domain."""
    return float(policy.beliefs.acceptance.predict_slots()[1, 0])
