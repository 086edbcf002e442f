"""The engine of trees: speculate, select, verify, commit; driven by a control loop as vLLM is."""

from __future__ import annotations

import dataclasses
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from acclimate.controller.loop import ControlLoop
from acclimate.controller.records import (
    Candidates,
    IntArray,
    StepContext,
    StepOutcome,
    StepPlan,
    int_array,
)
from acclimate.controller.trees import first_chain, path_survival
from acclimate.experiments.trees.draft import DraftTree, Grower, NextTokens, grow_beam, no_draft
from acclimate.experiments.trees.drawn import grow_drawn
from acclimate.experiments.trees.forest import Forest
from acclimate.experiments.trees.outcome import chain_outcomes, node_outcomes
from acclimate.experiments.trees.protocols import Laws, Target
from acclimate.experiments.trees.requests import Served, TreeRequest
from acclimate.experiments.trees.verification import (
    Residual,
    Walk,
    residual,
    walk_greedy,
    walk_sampled,
)
from acclimate.integrations.vllm.grading import DraftGrader


class DraftLimits(NamedTuple):
    """How much is drafted behind a request, as growers take it."""

    depth: int
    width: int
    nodes: int
    floor: float = 0.0


@dataclasses.dataclass(slots=True)
class StepTally:
    """Sums over steps, which only rise.

    ``requests`` counts a request once per step; ``accepted`` are verified nodes on the paths that
    were taken (before stops), ``committed`` the tokens that stayed.
    """

    steps: int = 0
    requests: int = 0
    accepted: int = 0
    committed: int = 0
    time_ns: int = 0


class TreeEngine:
    """Serves requests at a constant concurrency with draft trees.

    A step plans, verifies the chosen nodes of all requests in one pass, commits, and drafts for the
    next step. Prompts are computed between steps, and their time belongs to none: the engine
    measures decoding.

    Parameters
    ----------
    target
        The model and its cache.
    loop
        Decides and learns. Its clock is the engine's.
    drafter
        Says what may come next.
    grow
        Grows trees from what the drafter says, as a function of the text. None: children are drawn
        by chance from the drafter's law, without replacement.
    nodes
        Nodes of a draft at most.
    concurrency
        Requests in service, an attribute that may be changed between runs; None: as many as the
        target has rows.
    first_number
        Number of the first request.
    seed
        Of the requests' random numbers, which are each number's own.
    left_by
        For tests that plant a fault into the verification.

    Raises
    ------
    ValueError
        A number is out of range.
    """

    def __init__(
        self,
        target: Target,
        loop: ControlLoop,
        drafter: NextTokens,
        *,
        grow: Grower | None = grow_beam,
        nodes: int = 32,
        concurrency: int | None = None,
        first_number: int = 1,
        seed: int = 0,
        left_by: Residual = residual,
    ) -> None:
        if nodes < 1:
            raise ValueError(f"nodes must be >= 1, got {nodes}")
        rows = target.max_requests
        if not 1 <= (concurrency or rows) <= rows:
            raise ValueError(f"concurrency must be in [1, {rows}], got {concurrency}")
        self.target = target
        self.loop = loop
        self.drafter = drafter
        self.grow = grow
        self.nodes = nodes
        self.seed = seed
        self.tally = StepTally()
        self.concurrency = concurrency or rows
        self.serving: list[Served] = []
        self.finished: dict[int, Served] = {}
        self._waiting: deque[TreeRequest] = deque()
        self._left_by = left_by
        self._numbers = first_number - 1
        self._free = list(range(rows))[::-1]
        most = loop.capabilities
        self._limits = DraftLimits(most.max_depth, most.max_width, nodes)
        self._grader = DraftGrader(max(most.max_depth, 1))
        self._first_tokens = 0

    def submit(self, requests: Iterable[TreeRequest]) -> None:
        """Put requests into the queue.

        Raises
        ------
        ValueError
            One can never fit into the cache.
        """
        for request in requests:
            needed = len(request.prompt) + request.max_tokens + self.nodes + 1
            if needed > self.target.capacity:
                raise ValueError(f"capacity must be >= {needed} tokens, got {self.target.capacity}")
            self._waiting.append(request)

    def run(
        self, requests: Sequence[TreeRequest] = (), *, max_steps: int | None = None
    ) -> list[list[int]]:
        """Serve until all is done, and return the outputs of ``requests``, in order.

        Parameters
        ----------
        max_steps
            End after so many further steps.
        """
        first = self._numbers + len(self._waiting) + 1
        self.submit(requests)
        for _ in itertools.islice(self.steps(), max_steps):
            pass
        served = {one.number: one for one in (*self.finished.values(), *self.serving)}
        numbers = range(first, first + len(requests))
        return [served[number].output if number in served else [] for number in numbers]

    def steps(self) -> Iterator[StepOutcome]:
        """Serve step by step until all that was submitted is done, and yield what came of each."""
        while True:
            self.admit()
            if not self.serving:
                return
            yield self.step()

    # --- between steps -------------------------------------------------------------------------

    def admit(self) -> None:
        """Take requests from the queue while there is room; compute their prompts."""
        while self._waiting and len(self.serving) < self.concurrency:
            room = self.concurrency - len(self.serving)
            fresh = []
            now_ns = self.loop.clock_ns()
            for _ in range(min(room, len(self._waiting))):
                self._numbers += 1
                request = self._waiting.popleft()
                slot = self._free.pop()
                served = Served.of(self._numbers, slot, request, seed=self.seed, now_ns=now_ns)
                self.loop.admit(served.info())
                fresh.append(served)
            laws = self.target.prefill(len(self.serving), [one.ids for one in fresh])
            now_ns = self.loop.clock_ns()
            for row, one in enumerate(fresh):
                one.commit([self._walk(laws, row, one, no_draft()).bonus], now_ns)
            self._first_tokens += len(fresh)
            self.serving += fresh
            self._retire()
        for one in self.serving:
            if one.drafted_by < 0 and not len(one.tree):
                self._draft(one, self.tally.steps)

    # --- one step ------------------------------------------------------------------------------

    def step(self) -> StepOutcome:
        """Plan, verify, commit and draft once, and let the loop learn."""
        begun_ns = self.loop.clock_ns()
        self.tally.steps += 1
        step, serving = self.tally.steps, self.serving
        forest = Forest.of([one.tree for one in serving])
        context = self._context(step, begun_ns, forest)
        plan = self.loop.plan(context)
        kept = forest.whole_families(self._kept(plan, context, forest))
        trees = [
            one.tree.keep(nodes) for one, nodes in zip(serving, forest.split(kept), strict=True)
        ]
        walks = self._verify(trees)
        written = [walk.written(tree) for walk, tree in zip(walks, trees, strict=True)]
        drafted_by = int_array([one.drafted_by for one in serving])
        committed = []
        commit_ns = self.loop.clock_ns()
        for row, (one, walk) in enumerate(zip(serving, walks, strict=True)):
            self.target.accept(row, [0, *(node + 1 for node in walk.path)])
            committed.append(written[row][: one.commit(written[row], commit_ns)])
        if plan is not None:
            nodes = self.nodes if plan.draft_nodes is None else min(plan.draft_nodes, self.nodes)
            self._limits = DraftLimits(plan.draft_depth, plan.draft_width, nodes, plan.draft_floor)
        for one in serving:
            self._draft(one, step)
        now_ns = self.loop.clock_ns()
        fates = node_outcomes(forest, kept, written)
        outcome = StepOutcome(
            step=step,
            now_ns=now_ns,
            latency_ns=now_ns - begun_ns,
            decode_requests=len(serving),
            verified_tokens=int(kept.shape[0]),
            prefill_tokens=0,
            context_tokens=int(context.context_tokens.sum()),
            sampled_rows=sum(one.request.temperature > 0.0 for one in serving),
            draft_depth=self._limits.depth,
            requests=context.requests,
            committed=int_array([len(tokens) for tokens in committed]),
            drafts=chain_outcomes(
                self._grader,
                forest,
                fates,
                step=step,
                slots=int_array([one.slot for one in serving]),
                numbers=context.requests,
                drafted_by=drafted_by,
                committed=committed,
            ),
            first_tokens=self._first_tokens,
            stock=plan is None,
            nodes=fates,
        )
        self._first_tokens = 0
        self._count(outcome, sum(len(walk.path) for walk in walks))
        self.loop.observe(outcome)
        self._retire()
        return outcome

    # --- inside --------------------------------------------------------------------------------

    def _context(self, step: int, now_ns: int, forest: Forest) -> StepContext:
        serving = self.serving
        candidates = Candidates(
            forest.request,
            forest.parent,
            forest.depth,
            path_survival(forest.request, forest.parent, forest.confidence, len(serving)),
            forest.confidence,
        )
        return StepContext(
            step=step,
            now_ns=now_ns,
            # Those beyond the concurrency wait for a client of a closed loop, not for the engine.
            waiting_prompts=0,
            prefill_forecast_tokens=0,
            requests=int_array([one.number for one in serving]),
            drafts=forest.deepest(),
            committed=int_array([one.committed for one in serving]),
            context_tokens=int_array([one.length for one in serving]),
            tokens_left=int_array([one.tokens_left for one in serving]),
            candidates=candidates,
        )

    def _kept(self, plan: StepPlan | None, context: StepContext, forest: Forest) -> IntArray:
        """Return the nodes to verify; without a plan the whole chain of first children."""
        if plan is not None and plan.kept is not None:
            return plan.kept
        lens = context.drafts if plan is None else plan.verify_lens
        return first_chain(forest.request, forest.parent, forest.depth, lens)

    def _verify(self, trees: Sequence[DraftTree]) -> list[Walk]:
        tokens, parents, depths = [], [], []
        for one, tree in zip(self.serving, trees, strict=True):
            tokens.append(np.concatenate([one.text[one.length - 1 : one.length], tree.tokens]))
            # The root is node 0, and so all others are one further on.
            parents.append(np.concatenate([[-1], tree.parent + 1]).astype(np.int64))
            depths.append(np.concatenate([[0], tree.depth]).astype(np.int64))
        laws = self.target.verify(tokens, parents, depths)
        return [
            self._walk(laws, row, one, tree)
            for row, (one, tree) in enumerate(zip(self.serving, trees, strict=True))
        ]

    def _walk(self, laws: Laws, row: int, one: Served, tree: DraftTree) -> Walk:
        if one.request.temperature == 0.0:
            return walk_greedy(tree, laws.choices(row))
        return walk_sampled(
            tree, laws.behind(row, one.request.temperature), one.luck, left_by=self._left_by
        )

    def _draft(self, one: Served, step: int) -> None:
        """Draft behind a request's last token; its bonus token comes on top."""
        limits = self._limits
        limits = limits._replace(depth=min(limits.depth, one.tokens_left - 1))
        one.drafted_by = step
        if limits.depth < 1 or one.done:
            one.tree = no_draft()
        elif self.grow is None:
            one.tree = grow_drawn(self.drafter, one.ids, one.draft_luck, **limits._asdict())
        else:
            one.tree = self.grow(self.drafter, one.ids, **limits._asdict())

    def _count(self, outcome: StepOutcome, accepted: int) -> None:
        tally = self.tally
        tally.requests += outcome.decode_requests
        tally.accepted += accepted
        tally.committed += int(outcome.committed.sum())
        tally.time_ns += outcome.latency_ns or 0

    def _retire(self) -> None:
        """Take away what is done; the last row moves into each gap."""
        row = 0
        while row < len(self.serving):
            one = self.serving[row]
            if not one.done:
                row += 1
                continue
            self._grader.drop(one.slot)
            self._free.append(one.slot)
            self.loop.forget(one.number)
            self.finished[one.number] = one
            last = self.serving.pop()
            if last is not one:
                self.target.move(len(self.serving), row)
                self.serving[row] = last
            self.target.clear(len(self.serving))
