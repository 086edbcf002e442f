"""Draft trees, who sees whom in them, and how they are verified."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

from acclimate.experiments.trees.draft import DraftTree, Law, grow_beam, grow_caterpillar
from acclimate.experiments.trees.drawn import draw_some, grow_drawn
from acclimate.experiments.trees.forest import Forest
from acclimate.experiments.trees.grading import grade_nodes
from acclimate.experiments.trees.mask import ancestors, batch_sight
from acclimate.experiments.trees.sampling_check import chi_square_p, not_renormalised
from acclimate.experiments.trees.tiny_model import TableDrafter
from acclimate.experiments.trees.verification import draw, residual, walk_greedy, walk_sampled

_VOCAB = 12


def table(seed: int = 0, sharpness: float = 2.0) -> TableDrafter:
    rng = np.random.default_rng(seed)
    chances = np.exp(sharpness * rng.normal(size=(_VOCAB, _VOCAB)))
    return TableDrafter(chances / chances.sum(axis=1, keepdims=True))


def _survival(tree: DraftTree) -> np.ndarray:
    survival = np.ones(len(tree) + 1)
    for j, parent in enumerate(tree.parent.tolist()):
        survival[j] = survival[parent] * tree.confidence[j]
    return survival[:-1]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1_000),
    depth=st.integers(0, 5),
    width=st.integers(1, 4),
    nodes=st.integers(1, 20),
    grow=st.sampled_from([grow_beam, grow_caterpillar]),
)
def test_trees_keep_to_their_limits(seed, depth, width, nodes, grow):
    tree = grow(table(seed), np.array([3, 1]), depth=depth, width=width, nodes=nodes)
    assert len(tree) <= nodes
    assert (tree.parent < np.arange(len(tree))).all()
    above = np.where(tree.parent < 0, 0, tree.depth[tree.parent]) if len(tree) else tree.depth
    assert (tree.depth == above + 1).all() and (tree.depth <= depth).all()
    for children in tree.children().values():
        assert len(children) <= width
        assert len(set(tree.tokens[children].tolist())) == len(children)
        assert (np.diff(tree.confidence[children]) <= 0).all()


def test_a_beam_holds_the_likeliest_paths():
    drafter = table(1)
    tree = grow_beam(drafter, np.array([3]), depth=2, width=_VOCAB, nodes=10)
    first = drafter.chances[3]
    everything = sorted([*first, *(first[:, None] * drafter.chances).ravel()], reverse=True)
    assert _survival(tree) == pytest.approx(everything[:10])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1_000), floor=st.floats(0.0, 1.0), width=st.integers(1, 4))
@pytest.mark.parametrize("grow", [grow_beam, grow_caterpillar])
def test_a_floor_leaves_out_what_is_unlikelier_and_nothing_else(grow, seed, floor, width):
    limits = {"depth": 4, "width": width, "nodes": 15}
    whole = grow(table(seed), np.array([3, 1]), **limits)
    tree = grow(table(seed), np.array([3, 1]), floor=floor, **limits)
    likely = _survival(whole) >= floor
    likely[0] = True  # the first token is drafted in any case
    assert tree.tokens.tolist() == whole.tokens[likely].tolist()
    assert tree.confidence.tolist() == whole.confidence[likely].tolist()


def test_a_correction_changes_the_order_of_growth():
    shallow = grow_beam(
        table(1), np.array([3]), depth=4, width=4, nodes=8,
        correct=lambda depth, said: said * (1.0 if depth == 1 else 0.01),
    )  # fmt: skip
    assert (shallow.depth == 1).sum() == 4


def test_a_caterpillar_is_a_chain_with_siblings():
    tree = grow_caterpillar(table(2), np.array([3]), depth=3, width=3, nodes=9)
    with_children = [node for node in tree.children() if node >= 0]
    assert len(tree) == 9 and len(with_children) == 2
    assert all(
        tree.tokens[n] == tree.tokens[tree.children()[tree.parent[n]][0]] for n in with_children
    )


def test_a_kept_part_is_a_tree_again():
    tree = grow_beam(table(3), np.array([3]), depth=3, width=3, nodes=12)
    kept = np.flatnonzero(tree.depth <= 2)
    part = tree.keep(kept)
    assert part.tokens.tolist() == tree.tokens[kept].tolist()
    assert Forest.of([part, tree]).parent.min() == -1


def test_nodes_see_their_ancestors_alone():
    sees = ancestors(np.array([-1, 0, 0, 2, 1]))
    assert [np.flatnonzero(row).tolist() for row in sees] == [
        [0], [0, 1], [0, 2], [0, 2, 3], [0, 1, 4],
    ]  # fmt: skip
    sight = batch_sight(np.array([2, 5]), [np.array([-1, 0, 0]), np.array([-1])])
    assert sight.shape == (2, 3, 8)
    assert np.flatnonzero(sight[0, 2]).tolist() == [0, 1, 2, 4]
    assert np.flatnonzero(sight[1, 0]).tolist() == [0, 1, 2, 3, 4, 5]


def test_a_greedy_walk_takes_what_the_target_chose():
    tree = DraftTree(
        np.array([5, 6, 7, 8]), np.array([-1, -1, 1, 1]), np.array([1, 1, 2, 2]), np.ones(4)
    )
    assert walk_greedy(tree, np.array([6, 0, 8, 1, 2])).written(tree) == [6, 8, 2]
    assert walk_greedy(tree, np.array([9, 0, 8, 1, 2])).written(tree) == [9]


@pytest.mark.parametrize("drawn", [True, False])
def test_one_level_has_the_targets_law_and_the_fault_does_not(drawn):
    rng = np.random.default_rng(0)
    target, noise = table(5, sharpness=1.0).chances[0], table(6, sharpness=0.5).chances[0]
    draws, width = 15_000, 4
    children = np.full(width, -1), np.ones(width, dtype=np.int64), np.ones(width)
    law = Law(np.arange(_VOCAB), target * noise / (target * noise).sum())
    best = np.argsort(-law.chances)[:width]
    p_values = []
    for left_by in (residual, not_renormalised):
        counts = np.zeros(_VOCAB, dtype=np.int64)
        for _ in range(draws):
            tokens = draw_some(law, width, rng) if drawn else best
            laws = {-1: law} if drawn else {}
            tree = DraftTree(tokens, *children, laws, drawn)
            walk = walk_sampled(tree, lambda node: target, rng, left_by=left_by)
            counts[walk.written(tree)[0]] += 1
        p_values.append(chi_square_p(counts, target))
    assert p_values[0] > 0.01 and p_values[1] < 1e-6


def test_draws_without_replacement_follow_the_law():
    rng = np.random.default_rng(1)
    law = Law(np.arange(3), np.array([0.5, 0.3, 0.2]))
    seconds = np.zeros(3, dtype=np.int64)
    firsts = np.zeros(3, dtype=np.int64)
    for _ in range(20_000):
        first, second = draw_some(law, 2, rng).tolist()
        firsts[first] += 1
        seconds[second] += first == 0
    assert chi_square_p(firsts, law.chances) > 0.01
    assert chi_square_p(seconds, np.array([0.0, 0.6, 0.4])) > 0.01


def test_what_a_drawn_tree_says_of_a_token_does_not_hang_on_the_token():
    drafter = table(7)
    shapes = set()
    for seed in range(8):
        tree = grow_drawn(
            drafter, np.array([3]), np.random.default_rng(seed), depth=2, width=3, nodes=9
        )
        shapes.add((tuple(tree.parent), tuple(tree.confidence)))
    assert len(shapes) == 1 and len(tree) == 9
    fewer = grow_drawn(
        drafter, np.array([3]), np.random.default_rng(0), depth=2, width=3, nodes=9, floor=0.13
    )
    assert fewer.confidence.tolist() == [0.5, 0.25, 0.5], "paths of .5, .25 and .25"


def test_a_drawn_child_needs_its_elder_siblings():
    tree = grow_drawn(table(8), np.array([3]), np.random.default_rng(0), depth=2, width=2, nodes=6)
    forest = Forest.of([tree, tree])
    assert forest.whole_families(np.array([0, 1, 3, 6, 7])).tolist() == [0, 1, 6, 7]


def test_draws_lie_inside_the_law():
    law = np.array([0.0, 0.25, 0.0, 0.75])
    assert [draw(law, luck) for luck in (0.0, 0.2, 0.25, 0.9999)] == [1, 1, 3, 3]


def test_candidates_are_graded_as_far_as_the_path_tells():
    #  children of the root: 5 (verified), 6; below 5: 7 (verified), 8; below 7: 9; written 5 8 1
    parent = np.array([-1, -1, 0, 0, 2])
    depth = np.array([1, 1, 2, 2, 3])
    tokens, verified = np.array([5, 6, 7, 8, 9]), np.array([1, 0, 1, 0, 0])
    for hindsight, graded in ((True, [1, 1, 1, 1, 0]), (False, [1, 0, 1, 0, 0])):
        found = grade_nodes(
            np.zeros(5, np.int64), parent, depth, tokens, verified,
            np.array([5, 8]), np.array([0, 2]), hindsight,
        )  # fmt: skip
        assert found[0].tolist() == graded
        assert found[1].tolist() == [1, 0, 0, int(hindsight), 0]
