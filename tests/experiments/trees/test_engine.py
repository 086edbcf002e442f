"""The engine writes what plain decoding writes, keeps the accepted path alone, and tells the loop."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from acclimate.controller.adaptive import AdaptivePolicy
from acclimate.controller.config import ControlConfig
from acclimate.controller.events import EventQueue, ObserveEvent, PlanEvent
from acclimate.controller.loop import ControlLoop
from acclimate.controller.policy import Policy
from acclimate.controller.records import Capabilities
from acclimate.controller.static import StaticPolicy
from acclimate.controller.tree_policy import TreePolicy
from acclimate.experiments.peers.static_tree import StaticTree
from acclimate.experiments.trees.draft import grow_beam, grow_caterpillar
from acclimate.experiments.trees.engine import TreeEngine
from acclimate.experiments.trees.plain import decode_plain
from acclimate.experiments.trees.requests import TreeRequest
from acclimate.experiments.trees.sampling_check import (
    chi_square_p,
    count_pairs,
    not_renormalised,
    pair_law,
)
from acclimate.experiments.trees.target import TreeTarget
from acclimate.experiments.trees.tiny_model import TableDrafter, tiny_llama
from acclimate.integrations.trace_format import decode_line, encode_line

torch.set_num_threads(1)
ENGINE = Capabilities(
    max_depth=4, depths=(0, 1, 2, 3, 4), max_width=3, free_drafts=True, hindsight=True
)
PROMPTS = [[7, 3, 5], [11, 2, 30, 4, 18, 9, 1, 0, 55], [42], [8, 8, 8, 20, 63], [5, 6], [33] * 12]
LENGTHS = [20, 13, 17, 9, 25, 6]


class Ticks:
    """A clock that moves by a millisecond whenever it is read."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 1_000_000
        return self.now_ns


@pytest.fixture(scope="module")
def model():
    return tiny_llama()


@pytest.fixture(scope="module")
def drafter(model):
    return TableDrafter.noisy(model, noise=0.7)


@pytest.fixture(scope="module")
def plain(model):
    return [decode_plain(model, p, n) for p, n in zip(PROMPTS, LENGTHS, strict=True)]


def start(model, drafter, policy: Policy, *, batch: int, **options) -> TreeEngine:
    loop = ControlLoop(policy, ENGINE, ControlConfig(), clock_ns=Ticks(), log=pytest.fail)
    target = TreeTarget(model, max_requests=batch, capacity=96)
    return TreeEngine(target, loop, drafter, nodes=12, **options)


def requests(**options) -> list[TreeRequest]:
    return [
        TreeRequest(prompt=p, max_tokens=n, domain="toy", **options)
        for p, n in zip(PROMPTS, LENGTHS, strict=True)
    ]


@pytest.mark.parametrize(
    ("grow", "batch"),
    [(grow_beam, 1), (grow_beam, 2), (grow_beam, 3), (grow_beam, 4), (grow_caterpillar, 3)],
)
@pytest.mark.parametrize(
    "make",
    [
        lambda: StaticTree(ENGINE, depth=4, width=3, nodes=12),
        lambda: StaticTree(ENGINE, depth=3, width=1),
        lambda: StaticTree(ENGINE, depth=0, width=1),
        lambda: StaticPolicy(2, ENGINE),
        lambda: TreePolicy(ControlConfig(), ENGINE),
        lambda: AdaptivePolicy(ControlConfig(), ENGINE),
    ],
    ids=["box", "chain", "k0", "static", "adaptive_tree", "adaptive"],
)
def test_greedy_tokens_are_those_of_plain_decoding(model, drafter, plain, make, grow, batch):
    engine = start(model, drafter, make(), batch=batch, grow=grow)
    assert engine.run(requests()) == plain
    assert engine.tally.committed == sum(LENGTHS) - len(LENGTHS)  # the first come with the prompts


def test_rows_of_any_width_get_the_hidden_states_that_they_get_alone(model):
    """Nodes pass as one sequence; nobody sees another row's keys, and no filler shows."""
    trees = [[-1], [-1, 0, 0, 2], [-1, 0], [-1, 0, 1, 2, 0, 4]]
    rng = np.random.default_rng(4)
    tokens = [rng.integers(0, 60, len(parents)) for parents in trees]
    parents = [np.array(one) for one in trees]
    depths = [np.array([0, 1, 1, 2])[: len(one)] if len(one) < 5 else np.array([0, 1, 2, 3, 1, 2])
              for one in trees]  # fmt: skip
    prompts = [np.array(prompt) for prompt in PROMPTS[:4]]
    together = TreeTarget(model, max_requests=4, capacity=40)
    together.prefill(0, prompts)
    laws = together.verify(tokens, parents, depths)
    for row, prompt in enumerate(prompts):
        alone = TreeTarget(model, max_requests=1, capacity=40)
        alone.prefill(0, [prompt])
        own = alone.verify([tokens[row]], [parents[row]], [depths[row]])
        for node in range(tokens[row].shape[0]):
            np.testing.assert_allclose(
                laws.behind(row, 1.0)(node - 1), own.behind(0, 1.0)(node - 1), atol=1e-5
            )


def test_trees_take_fewer_steps_than_plain_decoding(model, drafter):
    steps = {}
    for width, depth in ((1, 0), (1, 4), (3, 4)):
        policy = StaticTree(ENGINE, depth=depth, width=width, nodes=12)
        engine = start(model, drafter, policy, batch=1)
        engine.run(requests())
        steps[width, depth] = engine.tally.steps
    assert steps[1, 0] == sum(LENGTHS) - len(LENGTHS)
    assert steps[1, 0] > steps[1, 4] > steps[3, 4]


def test_the_cache_holds_the_accepted_path_alone(model, drafter):
    policy = StaticTree(ENGINE, depth=4, width=3, nodes=12)
    engine = start(model, drafter, policy, batch=3)
    engine.submit(requests())
    branched = 0
    for _ in range(6):
        engine.admit()
        outcome = engine.step()
        chain = outcome.drafts.accepted[: outcome.requests.shape[0]]
        branched += int((outcome.committed - 1 > chain).sum())
        cache = engine.target.cache
        for row, one in enumerate(engine.serving):
            # The newest token is computed with the next step.
            assert cache.lengths[row] == one.length - 1
            fresh = TreeTarget(model, max_requests=1, capacity=96)
            fresh.prefill(0, [one.ids[:-1]])
            length = one.length - 1
            assert torch.allclose(
                cache.store[:, :, :, row, :length],
                fresh.cache.store[:, :, :, 0, :length],
                atol=1e-5,
            )
    assert branched > 0  # paths that are no prefix of what was computed


def test_a_stop_ends_an_answer(model, drafter, plain):
    stop = plain[0][5]
    expected = [
        decode_plain(model, p, n, stop=[stop]) for p, n in zip(PROMPTS, LENGTHS, strict=True)
    ]
    policy = StaticTree(ENGINE, depth=4, width=3, nodes=12)
    assert start(model, drafter, policy, batch=4).run(requests(stop=(stop,))) == expected


def test_the_loop_is_told_what_became_of_every_node(model, drafter):
    policy = TreePolicy(ControlConfig(), ENGINE)
    engine = start(model, drafter, policy, batch=2)
    queue = EventQueue()
    engine.loop.attach(queue)
    engine.run(requests())
    events = queue.take()
    plans = {e.context.step: e for e in events if isinstance(e, PlanEvent)}
    outcomes = [e.outcome for e in events if isinstance(e, ObserveEvent)]
    assert len(outcomes) == engine.tally.steps == len(plans)
    for outcome in outcomes:
        nodes, plan = outcome.nodes, plans[outcome.step]
        assert np.flatnonzero(nodes.verified).tolist() == plan.decision.kept.tolist()
        taken = np.bincount(
            nodes.request, weights=nodes.accepted * nodes.verified, minlength=outcome.committed.size
        )
        assert (outcome.committed <= taken + 1).all() and (outcome.committed >= 1).all()
        drafts = outcome.drafts
        assert (drafts.matched <= drafts.graded).all()
    graded = sum(int(o.nodes.graded.sum()) for o in outcomes)
    (slot,) = [one for one in policy.report().slots if one.label == "toy"]
    assert slot.graded_tokens == graded > 0
    for event in events:
        assert encode_line(decode_line(encode_line(event))) == encode_line(event)


def test_a_request_draws_the_same_tokens_in_any_company(model, drafter):
    outputs = []
    for batch in (1, 4):
        policy = StaticTree(ENGINE, depth=4, width=3, nodes=12)
        engine = start(model, drafter, policy, batch=batch, seed=3)
        outputs.append(engine.run(requests(temperature=1.0)))
    assert outputs[0] == outputs[1]
    assert [len(one) for one in outputs[0]] == LENGTHS


@pytest.mark.parametrize("grow", [grow_beam, None], ids=["beam", "drawn"])
def test_sampled_tokens_have_the_targets_law_and_the_fault_is_found(grow):
    model = tiny_llama(sharpness=3.0)
    drafter = TableDrafter.noisy(model, prompt=[7, 3, 5], noise=0.7)
    law = pair_law(model, [7, 3, 5])
    options = {"draws": 2_500, "grow": grow, "width": 4, "nodes": 20}
    counts = count_pairs(model, drafter, [7, 3, 5], **options)
    assert chi_square_p(counts, law) > 0.01
    faulty = count_pairs(model, drafter, [7, 3, 5], **options, left_by=not_renormalised)
    assert chi_square_p(faulty, law) < 1e-3


def test_what_cannot_be_served_is_refused(model, drafter):
    engine = start(model, drafter, StaticPolicy(2, ENGINE), batch=1)
    with pytest.raises(ValueError, match="capacity must be >= 114 tokens, got 96"):
        engine.submit([TreeRequest(prompt=[1], max_tokens=100)])
    with pytest.raises(ValueError, match="prompt must hold a token, got none"):
        TreeRequest(prompt=[], max_tokens=1)
