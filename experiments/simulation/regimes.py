"""Laws of acceptance: how likely each draft position is accepted, and what confidence means."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq  # type: ignore[import-untyped]
from scipy.special import expit, logit, polygamma  # type: ignore[import-untyped]

from acclimate.controller.records import FloatArray

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_LIMIT = 40.0  # states beyond are certainties


@dataclasses.dataclass(frozen=True, slots=True)
class Regime:
    """How drafts fare while nothing shifts.

    A draft token has a state x, normal about ``state`` at its position: ``spread`` is the standard
    deviation between requests, ``scatter`` that between tokens of one request. The drafter's
    confidence is logistic(x); the token is accepted with probability logistic(a + b·x).

    Parameters
    ----------
    state
        Shape (max_depth,): mean logit of confidence at each position.
    reach
        Shape (max_depth,): P(the draft has at least i tokens), never rising.
    spread, scatter
        Standard deviations, in logits of confidence.
    a, b
        What confidence means; 0 and 1: it is the probability of acceptance.

    Examples
    --------
    >>> regime = Regime.of_survival([0.8, 0.6, 0.5], spread=0.7)
    >>> regime.survival().round(6).tolist()
    [0.8, 0.6, 0.5]
    """

    state: FloatArray
    reach: FloatArray
    spread: float = 0.0
    scatter: float = 0.0
    a: float = 0.0
    b: float = 1.0

    def __post_init__(self) -> None:
        if self.reach.shape != self.state.shape:
            raise ValueError(
                f"reach must have {self.state.shape[0]} positions, got {self.reach.shape[0]}"
            )
        _check_survival("reach", self.reach)
        if self.spread < 0 or self.scatter < 0:
            raise ValueError(f"spreads must be >= 0, got {self.spread} and {self.scatter}")
        if not (math.isfinite(self.a) and math.isfinite(self.b)):
            raise ValueError(f"a and b must be finite, got {self.a} and {self.b}")

    @classmethod
    def of_survival(
        cls,
        survival: npt.ArrayLike,
        *,
        reach: npt.ArrayLike | None = None,
        spread: float = 0.0,
        scatter: float = 0.0,
        a: float = 0.0,
        b: float = 1.0,
    ) -> Regime:
        """Return the law whose mean over requests and tokens is the given survival.

        Parameters
        ----------
        survival
            P(the first i tokens are all accepted) for i = 1, 2, …; public tables print this kind.
            Of the other kind `to_survival` makes it.

        Raises
        ------
        ValueError
            Survival is outside [0, 1] or rises, or ``b`` is 0 where states must be found.
        """
        target = np.asarray(survival, dtype=np.float64)
        _check_survival("survival", target)
        if b == 0:
            raise ValueError("b must not be 0 where survival is given, got 0")
        alive = np.ones(_NODES.shape[0])
        state = np.zeros_like(target)
        for i, wanted in enumerate(target.tolist()):
            state[i] = _solve_state(wanted, alive, spread, scatter, a, b)
            alive = alive * _acceptance(state[i] + spread * _NODES, scatter, a, b)
        ones = np.ones_like(target)
        return cls(
            state, ones if reach is None else np.asarray(reach, np.float64), spread, scatter, a, b
        )

    def moved(self, logits: float) -> Regime:
        """Return the law after a covariate shift: states move, confidence means what it meant."""
        return dataclasses.replace(self, state=self.state + logits)

    def recalibrated(self, a: float, b: float) -> Regime:
        """Return the law after a calibration shift: the same confidence means something else."""
        return dataclasses.replace(self, a=a, b=b)

    def survival(self, request_deviation: FloatArray | None = None) -> FloatArray:
        """Return P(the first i tokens are all accepted).

        Parameters
        ----------
        request_deviation
            Shape (n,): each request's deviation in units of ``spread``. None: the mean over all
            requests.

        Returns
        -------
        Shape (n, max_depth), or (max_depth,) for the mean.
        """
        at = _NODES if request_deviation is None else request_deviation
        states = self.state + self.spread * at[:, None]
        each = np.cumprod(_acceptance(states, self.scatter, self.a, self.b), axis=1)
        if request_deviation is None:
            each = _WEIGHTS @ each
        return np.asarray(each, dtype=np.float64)


def to_survival(conditional: npt.ArrayLike) -> FloatArray:
    """Return P(the first i tokens are all accepted) for P(token i is, given those before it were).

    Raises
    ------
    ValueError
        A probability is outside [0, 1].

    Examples
    --------
    >>> to_survival([0.8, 0.5]).tolist()
    [0.8, 0.4]
    """
    each = np.asarray(conditional, dtype=np.float64)
    if not ((each >= 0) & (each <= 1)).all():
        raise ValueError(f"conditional acceptance must be in [0, 1], got {each.tolist()}")
    survival: FloatArray = np.cumprod(each, dtype=np.float64)
    return survival


def spread_of(concentration: float, acceptance: float) -> float:
    """Return the spread in logits of a Beta distribution of acceptance between requests.

    Parameters
    ----------
    concentration
        Sum of both parameters of the Beta distribution.
    acceptance
        Its mean, in (0, 1).

    Raises
    ------
    ValueError
        An argument is out of range.

    Examples
    --------
    >>> round(spread_of(10.0, 0.8), 2)
    0.88
    """
    if not concentration > 0:
        raise ValueError(f"concentration must be > 0, got {concentration}")
    if not 0 < acceptance < 1:
        raise ValueError(f"acceptance must be in (0, 1), got {acceptance}")
    alpha = concentration * acceptance
    return float(math.sqrt(polygamma(1, alpha) + polygamma(1, concentration - alpha)))


def _acceptance(state: FloatArray, scatter: float, a: float, b: float) -> FloatArray:
    """Return P(accepted) at a state, the mean over the scatter of tokens."""
    if scatter == 0:
        plain: FloatArray = expit(a + b * np.asarray(state))
        return plain
    scattered = np.asarray(state)[..., None] + scatter * _NODES
    mean: FloatArray = expit(a + b * scattered) @ _WEIGHTS
    return mean


def _solve_state(
    wanted: float, alive: FloatArray, spread: float, scatter: float, a: float, b: float
) -> float:
    """Return the mean state at which ``wanted`` of all drafts survive this position."""
    survives = float(_WEIGHTS @ alive)
    sign = math.copysign(1.0, b)
    if wanted >= survives * (1 - 1e-12):
        return sign * _LIMIT
    if wanted <= 0:
        return -sign * _LIMIT
    if spread == 0 and scatter == 0:
        return float((logit(wanted / survives) - a) / b)

    def excess(state: float) -> float:
        each = _acceptance(state + spread * _NODES, scatter, a, b)
        return float(_WEIGHTS @ (alive * each)) - wanted

    return float(brentq(excess, -_LIMIT * 4, _LIMIT * 4, xtol=1e-12))


def _check_survival(what: str, values: FloatArray) -> None:
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"{what} must be in [0, 1], got {values.tolist()}")
    if (np.diff(values) > 1e-12).any():
        raise ValueError(
            f"{what} must never rise (it is P(the first i tokens are accepted or there), not the "
            f"acceptance of each), got {values.tolist()}"
        )
