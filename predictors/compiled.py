"""Compiles the loops of the hot path, ahead of the first call and for one signature each.

A signature is given, so that nothing is compiled inside an engine's step: a wrong array type is an
error instead of a second's stall. The cache makes the second start quick.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def compiled(signature: str) -> Callable[[F], F]:
    """Return a decorator that compiles a function of numbers and C-ordered arrays.

    >>> @compiled("f8(f8[::1])")
    ... def total(values):
    ...     result = 0.0
    ...     for value in values:
    ...         result += value
    ...     return result
    >>> import numpy as np
    >>> total(np.array([1.0, 2.0]))
    3.0
    """

    def decorate(function: F) -> F:
        # A copy under another name shares the files of the cache, which would then name it for all.
        ours = function.__module__.startswith("acclimate.")
        # A function defined interactively has no file to cache beside.
        cache = ours and not function.__code__.co_filename.startswith("<")
        return cast(F, numba.njit(signature, cache=cache)(function))

    return decorate
