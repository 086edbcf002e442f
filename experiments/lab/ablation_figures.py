"""What each kind of knowledge is worth: log losses, gains and their intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.figures import Figure
from acclimate.experiments.lab.ablation import (
    DOMAIN,
    FAMILIES,
    AblationData,
    Features,
    feature_name,
)
from acclimate.experiments.lab.graded import GradedTokens

_RESAMPLES = 2_000

Sums = Mapping[str, FloatArray]
"""By age, shape (conversations,): a loss summed over each conversation's tokens."""


def ablation_figures(
    data: AblationData,
    losses: Mapping[Features, Sums],
    wrong: Mapping[Features, Sums],
    rng: np.random.Generator,
) -> list[Figure]:
    """Return log losses by features, age and label, and what the label is worth.

    Intervals are 95 % bootstrap intervals over conversations. ``gain`` is 1 - loss / loss of the
    position alone; ``ablation/label/…`` is 1 - loss with / loss without the label, alone or on top of
    all other features, with the same conversations on both sides.

    Parameters
    ----------
    data
        What was predicted.
    losses, wrong
        By features, with the true labels, and with wrong ones where there is a label.
    rng
        Draws conversations anew, the same draws for every figure.
    """
    counts = data.sums(np.ones(len(data.tokens)))
    sampler = _Sampler(counts["all"].size, rng)
    figures: list[Figure] = []
    base = losses[()]
    for features, sums in losses.items():
        name = f"ablation/{feature_name(features)}"
        for age in counts:
            suffix = "" if age == "all" else f"/{age}"
            figures.append(sampler.mean(f"{name}/log_loss{suffix}", sums[age], counts[age]))
            if features:
                figures.append(sampler.gain(f"{name}/gain{suffix}", sums[age], base[age]))
        if features in wrong:
            mistaken = wrong[features]["all"]
            figures.append(sampler.mean(f"{name}/log_loss/wrong_labels", mistaken, counts["all"]))
    others = tuple(family for family in FAMILIES if family != DOMAIN)
    for what, without, including in (
        ("alone", (), (DOMAIN,)),
        ("on_top", others, FAMILIES),
    ):
        for kind, table in (("", losses), ("/wrong_labels", wrong)):
            for age in counts:
                suffix = "" if age == "all" else f"/{age}"
                name = f"ablation/label/{what}{kind}{suffix}"
                figures.append(sampler.gain(name, table[including][age], losses[without][age]))
    conversations = int(counts["all"].size)
    tokens = data.tokens
    figures.append(Figure("ablation/graded_tokens", len(tokens), unit="tokens", n=conversations))
    figures.append(Figure("ablation/acceptance", float(tokens.right.mean()), n=conversations))
    return figures


def acceptance_figures(data: AblationData, names: Sequence[str]) -> list[Figure]:
    """Return how acceptance varies, and how often a draft's first token is right, by domain."""
    tokens, domain = data.tokens, data.domain
    between, within = spread_of_acceptance(tokens, domain)
    figures = [
        Figure("ablation/variance/between_domains", between, n=len(names)),
        Figure("ablation/variance/between_requests", within, n=int(domain.size)),
    ]
    first = tokens.position == 0
    for number, name in enumerate(names):
        mine = first & (domain[tokens.request] == number)
        rate = float(tokens.right[mine].mean()) if mine.any() else None
        figures.append(Figure(f"ablation/first_position/{name}", rate, n=int(mine.sum())))
    return figures


def inference_figures(declared: IntArray, guessed: IntArray) -> list[Figure]:
    """Return how many domains were guessed at all, and how many of these guesses were right."""
    known = guessed <= declared.max()
    right = float((guessed == declared)[known].mean()) if known.any() else None
    return [
        Figure("ablation/inferred/known_share", float(known.mean()), n=int(known.size)),
        Figure("ablation/inferred/right_share", right, n=int(known.sum())),
    ]


def spread_of_acceptance(
    tokens: GradedTokens, domain: IntArray, *, at_least: int = 20
) -> tuple[float, float]:
    """Return the variance of acceptance between domains, and between requests of one domain.

    The second is what remains after the noise of counting; requests with fewer than ``at_least``
    graded tokens are left out. Each request weighs the same.
    """
    requests = np.unique(tokens.request)
    graded = np.bincount(tokens.request, minlength=domain.size)[requests]
    right = np.bincount(tokens.request, tokens.right, minlength=domain.size)[requests]
    kept = graded >= at_least
    if not kept.any():
        return float("nan"), float("nan")
    rate = right[kept] / graded[kept]
    of = domain[requests[kept]]
    mean = np.bincount(of, rate) / np.maximum(np.bincount(of), 1)
    noise = rate * (1 - rate) / graded[kept]
    return float(np.var(mean[of])), float(np.mean((rate - mean[of]) ** 2 - noise))


class _Sampler:
    """Bootstrap over conversations, the same draws for every figure."""

    def __init__(self, conversations: int, rng: np.random.Generator) -> None:
        n = conversations
        self._draws = rng.multinomial(n, np.full(n, 1 / n), size=_RESAMPLES).astype(np.float64)

    def mean(self, name: str, losses: FloatArray, counts: FloatArray) -> Figure:
        """Return the mean loss."""
        return self._figure(name, losses, counts, lambda ratio: ratio, unit="nats")

    def gain(self, name: str, losses: FloatArray, base: FloatArray) -> Figure:
        """Return by what share the loss is below another."""
        return self._figure(name, losses, base, lambda ratio: 1.0 - ratio)

    def _figure(
        self,
        name: str,
        above: FloatArray,
        below: FloatArray,
        of: Callable[[FloatArray], FloatArray],
        unit: str = "",
    ) -> Figure:
        n = int(np.count_nonzero(below))
        if not n:
            return Figure(name, None, unit=unit, n=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            drawn = of((self._draws @ above) / (self._draws @ below))
        low, high = np.nanquantile(drawn, [0.025, 0.975])
        value = of(np.array(above.sum() / below.sum()))
        return Figure(name, float(value), float(low), float(high), unit=unit, n=n)
