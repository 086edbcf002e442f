"""What an online predictor of acceptance may know of a draft token, and its log loss for it."""

from __future__ import annotations

import dataclasses
from itertools import combinations

import numpy as np
import numpy.typing as npt

from acclimate.controller.records import FloatArray, IntArray, int_array
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

Features = tuple[str, ...]
BoolArray = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, slots=True)
class AblationData:
    """Graded tokens, and what is said of the requests that they are of.

    Parameters
    ----------
    tokens
        In the order of serving.
    domain, mistaken, cluster
        Shape (requests,): the true domain of each request, the same with a share of wrong labels,
        and its conversation.
    by_age
        Whether acceptance, and what the label adds, may differ between cold, young and warm
        requests: a prior should count less the more is known. Otherwise effects are additive.

    Raises
    ------
    ValueError
        There are too few tokens to say anything.
    """

    tokens: GradedTokens
    domain: IntArray
    mistaken: IntArray
    cluster: IntArray
    by_age: bool = True

    def __post_init__(self) -> None:
        if len(self.tokens) <= 2 * _SETTLING_TOKENS:
            raise ValueError(
                f"graded tokens must be more than {2 * _SETTLING_TOKENS}, got {len(self.tokens)}"
            )

    @property
    def counted(self) -> dict[str, BoolArray]:
        """Shape (n,) each: which tokens count in all, and of cold and of warm requests."""
        settled = np.arange(len(self.tokens)) >= _SETTLING_TOKENS
        age = self.tokens.age
        return {
            "all": settled,
            "cold": settled & (age < COLD_TOKENS),
            "warm": settled & (age >= WARM_TOKENS),
        }

    def losses(self, features: Features, *, wrong_labels: bool = False) -> FloatArray:
        """Return the log loss in nats of every token, shape (n,), for what ``features`` know.

        The empty tuple is position (and age) alone.
        """
        tokens, columns = self.tokens, []
        age = _age(tokens) if self.by_age else np.zeros_like(tokens.age)
        label = (self.mistaken if wrong_labels else self.domain)[tokens.request]
        for family in (POSITION, *features):
            columns += _columns(family, tokens, label, age)
        index, value, offset = [], [], 0
        for codes, values in columns:
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

    def sums(self, values: FloatArray) -> dict[str, FloatArray]:
        """Return the sum of ``values`` over each conversation's tokens, by age."""
        each, of = np.unique(self.cluster[self.tokens.request], return_inverse=True)
        return {
            age: np.bincount(of[kept], values[kept], minlength=each.size).astype(np.float64)
            for age, kept in self.counted.items()
        }


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


def _columns(
    family: str, tokens: GradedTokens, label: IntArray, age: IntArray
) -> list[tuple[IntArray, FloatArray]]:
    """Return the columns of a family: which weights each token uses, and with what values."""
    if family == POSITION:
        return [_one_hot(tokens.position), *_by_position(age, tokens.position)]
    if family == DOMAIN:
        return [*_by_position(label, tokens.position), _one_hot(label * len(AGES) + age)]
    if family == HISTORY:
        return _history(tokens)
    known = tokens.match if family == MATCH else _renewal(tokens)
    return _by_position(known, tokens.position)


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
