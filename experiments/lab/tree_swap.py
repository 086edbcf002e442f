"""How soon the chosen trees earn what the oracle's would, after the drafter was swapped.

The truth must be known for that, and so text, drafter and target are synthetic: see
`acclimate.experiments.trees.synthetic`. A swap changes what the drafter's probabilities mean.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.loop import ControlLoop
from acclimate.controller.policy import Policy
from acclimate.controller.records import (
    Capabilities,
    FloatArray,
    RequestInfo,
    StepContext,
    StepOutcome,
    StepPlan,
)
from acclimate.controller.reports import Alarm
from acclimate.controller.select import select
from acclimate.controller.tree_policy import TreePolicy
from acclimate.experiments.figures import Figure, median_interval
from acclimate.experiments.lab.tree_cells import SWAP, TreeCell, TreeRow
from acclimate.experiments.peers.clairvoyant_tree import ClairvoyantTree
from acclimate.experiments.peers.oracle_tree import OracleTree, Truth
from acclimate.experiments.simulation.clock import SimulatedClock
from acclimate.experiments.simulation.step_time import StepMakeUp, StepTime
from acclimate.experiments.simulation.table_time import TableTime
from acclimate.experiments.trees.engine import TreeEngine
from acclimate.experiments.trees.requests import TreeRequest
from acclimate.experiments.trees.shape_log import ShapeLog, thin
from acclimate.experiments.trees.synthetic import Meaning, SyntheticTarget, SyntheticText

ADAPTIVE, CLAIRVOYANT, ORACLE = "adaptive_tree", "clairvoyant_tree", "oracle_tree"
SWAP_POLICIES = (ADAPTIVE, CLAIRVOYANT, ORACLE)
SWAPS = {"worse": (-0.2, -1.6), "better": (-1.6, -0.2)}
"""Intercepts of what probabilities are worth, before and after."""

SHARE_OF_ORACLE = 0.99
WINDOW_STEPS = 50
_DOMAINS = {"sure": 1.2, "unsure": 0.0}
_DEPTH, _WIDTH, _NODES, _REQUESTS, _TOKENS = 6, 3, 24, 4, 60
_POINTS = 120
_STEP_TIME = ([1, 1, 8, 8], [0, 8, 0, 8], [20.0, 24.0, 24.0, 60.0])
_ENGINE = Capabilities(
    max_depth=_DEPTH, depths=tuple(range(_DEPTH + 1)), max_width=_WIDTH, free_drafts=True,
    hindsight=True,
)  # fmt: skip


class Offer(NamedTuple):
    """A step's candidates by the truth, and what was chosen of them.

    ``earned`` are tokens expected of the best 0, 1, … nodes, ``milliseconds`` what they take, both
    shape (m + 1,); ``expected`` and ``taken_ms`` are the same of the chosen ones. ``graded`` are the
    nodes whose fate the step told.
    """

    earned: FloatArray
    milliseconds: FloatArray
    expected: float
    taken_ms: float
    graded: int


class TruthLog(ShapeLog):
    """Notes of every step what its candidates are truly worth.

    Parameters
    ----------
    policy
        Decides and learns.
    text, step_time
        The truth.
    """

    def __init__(self, policy: Policy, text: SyntheticText, step_time: StepTime) -> None:
        super().__init__(policy)
        self.offers: list[Offer] = []
        self._truth = OracleTree(_ENGINE, truth_of(text), step_time)
        self._planned: tuple[FloatArray, FloatArray, float, float] | None = None

    def admit(self, request: RequestInfo) -> None:
        """Take note of a request."""
        self._truth.admit(request)
        super().admit(request)

    def plan(self, context: StepContext) -> StepPlan:
        """Decide one step."""
        plan = super().plan(context)
        self._planned = None
        tree, kept = context.candidates, plan.kept
        if tree is not None and tree.request.size and kept is not None:
            survival = self._truth.known_survival(context)
            n = context.requests.shape[0]
            makeup = StepMakeUp(
                n, survival.shape[0], context_tokens=int(context.context_tokens.sum())
            )
            curve = self._truth.step_time.curve(makeup)
            earned = n + select(survival, curve, 0.0).earned
            expected = n + float(survival[kept].sum())
            self._planned = (earned, curve, expected, float(curve[kept.shape[0]]))
        return plan

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Learn from one step."""
        if self._planned is not None and outcome.nodes is not None:
            self.offers.append(Offer(*self._planned, int(outcome.nodes.graded.sum())))
        return super().observe(outcome)


class SwapFound(NamedTuple):
    """What came of one swap.

    ``tokens`` are graded from the swap until over 50 steps the chosen trees' rate was within 1 % of
    the best choice's among the same candidates; where it never was, all that were graded, and
    ``recovered`` is False. ``share`` is the mean share of that rate from the swap on, ``noticed``
    the tokens until the first alarm, None without one. ``shape`` are columns over the whole run.
    """

    tokens: int
    recovered: bool
    graded: int
    share: float
    noticed: int | None
    swapped_s: float
    shape: dict[str, list[float]]


def run_swap(swap: str, policy: str, *, seed: int, steps: int = 500) -> SwapFound:
    """Serve so many steps before a swap, and as many after it.

    Parameters
    ----------
    swap
        One of `SWAPS`.
    policy
        One of `SWAP_POLICIES`; ours is not told.
    """
    before, after = (
        {name: Meaning(intercept, sureness=sure) for name, sure in _DOMAINS.items()}
        for intercept in SWAPS[swap]
    )
    clock, step_time = SimulatedClock(), TableTime(*_STEP_TIME)
    text = SyntheticText(before, seed=seed)
    chosen = _policy(policy, text, step_time, seed)
    log = TruthLog(chosen, text, step_time)
    loop = ControlLoop(log, _ENGINE, ControlConfig(seed=seed), clock_ns=clock)
    target = SyntheticTarget(text, step_time, clock, max_requests=_REQUESTS)
    engine = TreeEngine(target, loop, text, nodes=_NODES, seed=seed)
    engine.submit(
        TreeRequest(prompt=text.prompt(name, number), max_tokens=_TOKENS, domain=name)
        for number, name in itertools.product(range(steps), _DOMAINS)
    )
    engine.run(max_steps=steps)
    first, alarms_before = len(log.offers), len(log.alarms)
    text.meanings = after
    swapped_s = clock.now_s
    if isinstance(chosen, ClairvoyantTree):
        chosen.changes.ahead = [clock.now_ns]
    noticed = None
    graded = 0
    for _ in range(steps):
        engine.run(max_steps=1)
        graded += log.offers[-1].graded
        if noticed is None and len(log.alarms) > alarms_before:
            noticed = graded
    tokens, recovered, share = recovery(log.offers[first:])
    return SwapFound(tokens, recovered, graded, share, noticed, swapped_s, thin(log.notes, _POINTS))


def swap_cells(seeds: int, *, seed: int) -> list[TreeCell]:
    """Return a cell for each swap, policy and seed; the oracle runs for the first seed alone."""
    return [
        TreeCell(
            key=f"{SWAP}/{swap}/{policy}/{number}",
            options={"swap": swap, "policy": policy, "seed": number},
        )
        for number in range(seed, seed + seeds)
        for swap in SWAPS
        for policy in SWAP_POLICIES
        if policy != ORACLE or number == seed
    ]


def swap_cell(key: str, *, swap: str, policy: str, seed: int) -> TreeRow:
    """Run one swap."""
    found = run_swap(swap, policy, seed=seed)
    return TreeRow(
        key=key,
        numbers={
            "tokens": [float(found.tokens)],
            "recovered": [float(found.recovered)],
            "graded": [float(found.graded)],
            "share": [found.share],
            "noticed": [None if found.noticed is None else float(found.noticed)],
            "swapped_s": [found.swapped_s],
            **{f"shape/{name}": list(column) for name, column in found.shape.items()},
        },
    )


def swap_figures(rows: Sequence[TreeRow], rng: np.random.Generator) -> list[Figure]:
    """Return how soon trees were right again: over both swaps, and by swap and policy.

    ``tree/swap/to_clairvoyant`` is the ratio of medians over all swaps, below 1 where ours is sooner.
    """
    found: dict[str, dict[str, list[TreeRow]]] = {
        swap: {
            policy: [row for row in rows if row.key.startswith(f"{SWAP}/{swap}/{policy}/")]
            for policy in SWAP_POLICIES
        }
        for swap in SWAPS
    }
    ours, clairvoyant = (
        [row.column("tokens")[0] for swap in SWAPS for row in found[swap][policy]]
        for policy in (ADAPTIVE, CLAIRVOYANT)
    )
    figures = [
        median_interval("tree/swap/tokens_to_recover", ours, rng, unit="tokens"),
        median_interval("tree/swap/clairvoyant_tokens", clairvoyant, rng, unit="tokens"),
    ]
    first, second = (figure.value for figure in figures)
    ratio = first / second if first is not None and second else None
    figures.append(Figure("tree/swap/to_clairvoyant", ratio, n=len(ours)))
    for swap, policy in itertools.product(SWAPS, SWAP_POLICIES):
        own = found[swap][policy]
        base = f"tree/swap/{swap}/{policy}"
        for name, unit in (("tokens", "tokens"), ("recovered", ""), ("share", "")):
            values = [row.column(name)[0] for row in own]
            if name == "recovered":
                figures.append(Figure(f"{base}/recovered", float(np.mean(values)), n=len(values)))
                continue
            label = "tokens_to_recover" if name == "tokens" else "rate_to_oracle"
            figures.append(median_interval(f"{base}/{label}", values, rng, unit=unit))
    return figures


def recovery(offers: Sequence[Offer]) -> tuple[int, bool, float]:
    """Return graded tokens until the rate is right, whether it ever is, and its mean share.

    The rate of 50 steps is their expected tokens over their time; the best one that the same
    candidates allow is found by Dinkelbach's method.
    """
    widest = max(offer.earned.shape[0] for offer in offers)
    earned, ms = np.full((len(offers), widest), -np.inf), np.ones((len(offers), widest))
    for row, offer in enumerate(offers):
        earned[row, : offer.earned.shape[0]] = offer.earned
        ms[row, : offer.earned.shape[0]] = offer.milliseconds[: offer.earned.shape[0]]
    chosen = np.array([[offer.expected, offer.taken_ms] for offer in offers])
    graded = np.concatenate([[0], np.cumsum([offer.graded for offer in offers])])
    shares = []
    for begin in range(max(len(offers) - WINDOW_STEPS, 0) + 1):
        part = slice(begin, begin + WINDOW_STEPS)
        tokens, taken_ms = chosen[part].sum(axis=0)
        rate = float(tokens / taken_ms)
        shares.append(rate / best_rate(earned[part], ms[part], rate))
    right = np.flatnonzero(np.array(shares) >= SHARE_OF_ORACLE)
    first = int(right[0]) if right.size else len(offers)
    return int(graded[first]), bool(right.size), float(np.mean(shares))


def best_rate(earned: FloatArray, milliseconds: FloatArray, rate: float) -> float:
    """Return the largest tokens per millisecond over some steps together.

    Parameters
    ----------
    earned, milliseconds
        Shape (steps, m): of the best 0, 1, … nodes of each step.
    rate
        Where to begin: a rate that some choice has.

    Examples
    --------
    >>> best_rate(np.array([[1.0, 1.9, 2.0]]), np.array([[10.0, 12.0, 20.0]]), 0.1).__round__(4)
    0.1583
    """
    rows = np.arange(earned.shape[0])
    while True:
        best = np.argmax(earned - rate * milliseconds, axis=1)
        better = float(earned[rows, best].sum() / milliseconds[rows, best].sum())
        if better <= rate * (1.0 + 1e-12):
            return rate
        rate = better


def truth_of(text: SyntheticText) -> Truth:
    """Return what a synthetic drafter's probabilities are worth, at any time."""

    def truth(domain: str, said: FloatArray) -> FloatArray:
        return text.meanings[domain].true(said)

    return truth


def _policy(name: str, text: SyntheticText, step_time: StepTime, seed: int) -> Policy:
    config = ControlConfig(seed=seed)
    if name == ORACLE:
        return OracleTree(_ENGINE, truth_of(text), step_time)
    if name == CLAIRVOYANT:
        return ClairvoyantTree(config, _ENGINE)
    return TreePolicy(config, _ENGINE)
