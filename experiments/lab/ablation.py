"""What each kind of knowledge is worth to an online predictor of acceptance, in log loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from acclimate.controller.records import FloatArray, IntArray, int_array
from acclimate.experiments.figures import Figure
from acclimate.experiments.lab.graded import FIRST_BLOCK, GradedTokens
from acclimate.experiments.lab.online_logistic import prequential_losses

POSITION = "position"
DOMAIN, HISTORY, MATCH, RENEWAL = "domain", "history", "match", "renewal"
FAMILIES = (DOMAIN, HISTORY, MATCH, RENEWAL)
COLD_TOKENS, WARM_TOKENS = 6, 20
AGES = ("cold", "young", "warm")
WRONG_SHARE = 0.2
_PRIOR_SD = 0.4  # in logits; about what domains differ by
_SETTLING_TOKENS = 500  # the model's own start is not what is asked about
_PRIOR_TOKENS = 8.0  # of the pooled rate, in a request's own
_NEAR = 3  # positions that are told apart beside other features: first, second, later
_RESAMPLES = 2_000

Features = tuple[str, ...]
BoolArray = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, slots=True)
class Ablation:
    """Losses per graded token of every set of features.

    Parameters
    ----------
    tokens
        What was graded.
    cluster
        Shape (n,): the conversation of each token; conversations are resampled.
    losses
        By features, shape (n,) in nats; the empty tuple is position (and age) alone.
    wrong
        The same with a share of wrong labels, for sets with the domain label.
    """

    tokens: GradedTokens
    cluster: IntArray
    losses: dict[Features, FloatArray]
    wrong: dict[Features, FloatArray]


def feature_sets() -> list[Features]:
    """Return every set of families, small ones first.

    >>> feature_sets()[:3], len(feature_sets())
    ([(), ('domain',), ('history',)], 16)
    """
    sizes = range(len(FAMILIES) + 1)
    return [chosen for size in sizes for chosen in combinations(FAMILIES, size)]


def feature_name(features: Features) -> str:
    """Return how figures call a set.

    >>> feature_name(()), feature_name(("domain", "match"))
    ('position', 'domain+match')
    """
    return "+".join(features) or POSITION


def ablate(
    tokens: GradedTokens,
    domain: IntArray,
    cluster: IntArray,
    rng: np.random.Generator,
    *,
    by_age: bool = True,
    on_set: Callable[[str], None] = lambda name: None,
) -> Ablation:
    """Run every set of features over the same tokens.

    Parameters
    ----------
    tokens
        In the order of serving.
    domain, cluster
        Shape (requests,): the true domain of each request, and its conversation.
    rng
        Draws the wrong labels: each request keeps its own throughout.
    by_age
        Whether acceptance, and what the label adds, may differ between cold, young and warm
        requests: a prior should count less the more is known. Otherwise effects are additive.
    on_set
        Told of each set that is done.

    Raises
    ------
    ValueError
        There are too few tokens to say anything.
    """
    if len(tokens) <= 2 * _SETTLING_TOKENS:
        raise ValueError(
            f"graded tokens must be more than {2 * _SETTLING_TOKENS}, got {len(tokens)}"
        )
    label = domain[tokens.request]
    mistaken = wrong_labels(domain, WRONG_SHARE, rng)[tokens.request]
    age = _age(tokens) if by_age else np.zeros_like(tokens.age)
    columns = {
        POSITION: [_one_hot(tokens.position), *_by_position(age, tokens.position)],
        DOMAIN: [*_by_position(label, tokens.position), _one_hot(label * len(AGES) + age)],
        HISTORY: _history(tokens),
        MATCH: _by_position(tokens.match, tokens.position),
        RENEWAL: _by_position(_renewal(tokens), tokens.position),
    }
    mistaken_columns = columns | {
        DOMAIN: [*_by_position(mistaken, tokens.position), _one_hot(mistaken * len(AGES) + age)]
    }
    losses, wrong = {}, {}
    for features in feature_sets():
        losses[features] = _losses(tokens, columns, features)
        if DOMAIN in features:
            wrong[features] = _losses(tokens, mistaken_columns, features)
        on_set(feature_name(features))
    return Ablation(tokens, cluster[tokens.request], losses, wrong)


def ablation_figures(ablation: Ablation, rng: np.random.Generator) -> list[Figure]:
    """Return log losses by features, age and label, and what the label is worth.

    Intervals are 95 % bootstrap intervals over conversations. ``gain`` is 1 - loss / loss of the
    position alone; ``ablation/label/…`` is 1 - loss with / loss without the label, alone or on top of
    all other features, with the same conversations on both sides.
    """
    sampler = _Sampler(ablation, rng)
    figures: list[Figure] = []
    base = ablation.losses[()]
    for features, losses in ablation.losses.items():
        name = f"ablation/{feature_name(features)}"
        for age, kept in sampler.ages.items():
            suffix = "" if age == "all" else f"/{age}"
            figures.append(sampler.mean(f"{name}/log_loss{suffix}", losses, kept))
            if features:
                figures.append(sampler.gain(f"{name}/gain{suffix}", losses, base, kept))
        if features in ablation.wrong:
            everything = sampler.ages["all"]
            wrong = ablation.wrong[features]
            figures.append(sampler.mean(f"{name}/log_loss/wrong_labels", wrong, everything))
    others = tuple(family for family in FAMILIES if family != DOMAIN)
    for what, without, including in (
        ("alone", (), (DOMAIN,)),
        ("on_top", others, FAMILIES),
    ):
        for kind, table in (("", ablation.losses), ("/wrong_labels", ablation.wrong)):
            for age, kept in sampler.ages.items():
                suffix = "" if age == "all" else f"/{age}"
                figures.append(
                    sampler.gain(
                        f"ablation/label/{what}{kind}{suffix}",
                        table[including],
                        ablation.losses[without],
                        kept,
                    )
                )
    tokens = ablation.tokens
    conversations = int(np.unique(ablation.cluster).size)
    figures.append(Figure("ablation/graded_tokens", len(tokens), unit="tokens", n=conversations))
    figures.append(Figure("ablation/acceptance", float(tokens.right.mean()), n=conversations))
    return figures


def wrong_labels(domain: IntArray, share: float, rng: np.random.Generator) -> IntArray:
    """Give a share of requests the label of another domain, each with equal chance.

    >>> domain = np.zeros(1000, dtype=np.int64)
    >>> domain[:500] = 1
    >>> mistaken = wrong_labels(domain, 0.2, np.random.default_rng(0))
    >>> bool(150 < (mistaken != domain).sum() < 250)
    True
    """
    domains = int(domain.max()) + 1
    if domains < 2:
        return domain
    other = (domain + rng.integers(1, domains, domain.size)) % domains
    return np.where(rng.random(domain.size) < share, other, domain)


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

    def __init__(self, ablation: Ablation, rng: np.random.Generator) -> None:
        tokens = ablation.tokens
        self._clusters, self._cluster = np.unique(ablation.cluster, return_inverse=True)
        n = self._clusters.size
        self._draws = rng.multinomial(n, np.full(n, 1 / n), size=_RESAMPLES).astype(np.float64)
        settled = np.arange(len(tokens)) >= _SETTLING_TOKENS
        self.ages = {
            "all": settled,
            "cold": settled & (tokens.age < COLD_TOKENS),
            "warm": settled & (tokens.age >= WARM_TOKENS),
        }

    def mean(self, name: str, losses: FloatArray, kept: BoolArray) -> Figure:
        """Return the mean loss."""
        total, count = self._sums(losses, kept), self._sums(np.ones(kept.size), kept)
        return self._figure(name, total, count, lambda ratio: ratio, unit="nats")

    def gain(self, name: str, losses: FloatArray, base: FloatArray, kept: BoolArray) -> Figure:
        """Return by what share the loss is below another."""
        ours, theirs = self._sums(losses, kept), self._sums(base, kept)
        return self._figure(name, ours, theirs, lambda ratio: 1.0 - ratio)

    def _sums(self, values: FloatArray, kept: BoolArray) -> FloatArray:
        return np.bincount(self._cluster[kept], values[kept], minlength=self._clusters.size).astype(
            np.float64
        )

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


def _losses(
    tokens: GradedTokens, columns: dict[str, list[tuple[IntArray, FloatArray]]], features: Features
) -> FloatArray:
    """Lay the columns of a set beside each other, each with weights of its own."""
    index, value, offset = [], [], 0
    for family in (POSITION, *features):
        for codes, values in columns[family]:
            index.append(codes + offset)
            value.append(values)
            offset += int(codes.max()) + 1
    return prequential_losses(
        np.stack(index, axis=1),
        np.stack(value, axis=1),
        tokens.right,
        tokens.step,
        prior_sd=_PRIOR_SD,
    )


def _one_hot(codes: IntArray) -> tuple[IntArray, FloatArray]:
    return codes, np.ones(codes.size)


def _by_position(codes: IntArray, position: IntArray) -> list[tuple[IntArray, FloatArray]]:
    """Return a category, and the category apart for the first, second and later positions."""
    near = np.minimum(position, _NEAR - 1)
    return [_one_hot(codes), _one_hot(codes * _NEAR + near)]


def _age(tokens: GradedTokens) -> IntArray:
    """Return the index into `AGES`."""
    return int_array(np.digitize(tokens.age, [COLD_TOKENS, WARM_TOKENS]))


def _renewal(tokens: GradedTokens) -> IntArray:
    """Number what the request's last draft came to: nothing yet, or its run and whether it was whole."""
    return (tokens.before - FIRST_BLOCK) * 2 + tokens.whole


def _history(tokens: GradedTokens) -> list[tuple[IntArray, FloatArray]]:
    """Return the request's own rate, over its life and of late, against the rate of all before."""
    seen = np.searchsorted(tokens.step, tokens.step)  # tokens of earlier steps
    right = np.concatenate([[0.0], np.cumsum(tokens.right)])[seen]
    pooled = (right + 1.0) / (seen + 2.0)
    near = np.minimum(tokens.position, _NEAR - 1)
    columns = []
    for counts in (tokens.accepted, tokens.recent):
        rate = (counts[:, 0] + _PRIOR_TOKENS * pooled) / (counts[:, 1] + _PRIOR_TOKENS)
        value = _logit(rate) - _logit(pooled)
        columns += [(np.zeros(value.size, dtype=np.int64), value), (near, value)]
    return columns


def _logit(p: FloatArray) -> FloatArray:
    logit: FloatArray = np.log(p) - np.log1p(-p)
    return logit


def groups(names: Iterable[str], merged: Sequence[tuple[frozenset[str], str]]) -> list[str]:
    """Return each name, or the group that it belongs to.

    >>> groups(["stem", "qa"], [(frozenset({"stem", "humanities"}), "chat")])
    ['chat', 'qa']
    """
    group = {name: into for members, into in merged for name in members}
    return [group.get(name, name) for name in names]
