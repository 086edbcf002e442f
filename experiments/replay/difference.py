"""Says how two plans differ, up to the rounding of machines."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acclimate.controller.records import StepPlan

_RELATIVE = 1e-9


def plan_difference(logged: StepPlan, again: StepPlan) -> str | None:
    """Say how two plans differ, or return None; prices and predictions agree to 1e-9 relative.

    Examples
    --------
    >>> import msgspec
    >>> from acclimate.controller.records import int_array
    >>> plan = StepPlan(step=1, draft_depth=2, verify_lens=int_array([2]), depth=2, reason="price")
    >>> plan_difference(plan, msgspec.structs.replace(plan, draft_depth=3))
    'draft_depth was 2, is 3 here'
    """
    wrong = [
        f"{name} was {_show(getattr(logged, name))}, is {_show(getattr(again, name))} here"
        for name in StepPlan.__struct_fields__
        if not equal(getattr(logged, name), getattr(again, name))
    ]
    return "; ".join(wrong) or None


def equal(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, float) or isinstance(b, float):
        return math.isclose(a, b, rel_tol=_RELATIVE, abs_tol=0.0)
    return bool(a == b)


def _show(value: Any) -> str:
    return str(value.tolist()) if isinstance(value, np.ndarray) else str(value)
