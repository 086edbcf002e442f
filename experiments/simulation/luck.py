"""Random numbers that are a hash of what they are for: whoever asks meets the same luck."""

from __future__ import annotations

import math

import numpy as np

from acclimate.predictors.compiled import compiled

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_UNIT = 2.0**-53


@compiled("u8(u8)")
def _mix(value: np.uint64) -> np.uint64:
    """Return SplitMix64's finaliser of ``value``: every bit depends on every bit."""
    value = (value ^ (value >> _S30)) * _FIRST
    value = (value ^ (value >> _S27)) * _SECOND
    return value ^ (value >> _S31)


@compiled("f8(i8, i8, i8, i8, i8)")
def uniform(seed: int, request: int, offset: int, position: int, purpose: int) -> float:
    """Return a number in [0, 1) that depends on the arguments alone.

    References
    ----------
    G. Steele, D. Lea, C. Flood: Fast splittable pseudorandom number generators, OOPSLA 2014.

    Examples
    --------
    >>> uniform(1, 2, 3, 4, 5) == uniform(1, 2, 3, 4, 5) != uniform(1, 2, 3, 4, 6)
    True
    """
    value = _mix(np.uint64(seed) + _GOLDEN)
    value = _mix(value ^ (np.uint64(request) + _GOLDEN))
    value = _mix(value ^ (np.uint64(offset) + _GOLDEN))
    value = _mix(value ^ (np.uint64(position * 64 + purpose) + _GOLDEN))
    return np.float64(value >> _S11) * _UNIT


@compiled("f8(i8, i8, i8, i8, i8)")
def normal(seed: int, request: int, offset: int, position: int, purpose: int) -> float:
    """Return a standard normal number that depends on the arguments alone (Box and Muller).

    >>> import numpy as np
    >>> sample = [normal(0, request, 0, 0, 0) for request in range(4_000)]
    >>> abs(float(np.mean(sample))) < 0.05, abs(float(np.std(sample)) - 1) < 0.05
    (True, True)
    """
    radius = 1.0 - uniform(seed, request, offset, 2 * position + 1_000, purpose)
    angle = uniform(seed, request, offset, 2 * position + 1_001, purpose)
    return math.sqrt(-2.0 * math.log(radius)) * math.cos(2.0 * math.pi * angle)
