"""The arms of a comparison: what a list of names means, and which engine each arm needs."""

from __future__ import annotations

import dataclasses
import re

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities

NONE, CONTROLLED, ADAPTIVE = "none", "controlled", "adaptive"
GUARANTEED, UNTOLD = "adaptive-twin", "adaptive-plain"
BASE, AGAIN, NONE_AGAIN = "k0", "k0-again", "none-again"
_STOCK = re.compile(r"stock-k([1-9]\d*)")
_DEPTH = re.compile(r"k(\d+)")


@dataclasses.dataclass(frozen=True, slots=True)
class Arm:
    """One contender.

    Parameters
    ----------
    name
        As in figures.
    engine
        Name of the engine it runs on: ``controlled`` for all that alternate on one, else its own.
    policy
        What `acclimate.experiments.arms.arm_policy` builds for it; empty on an engine of its own.
    static
        Whether it is a fixed depth on the controlled engine, and so may be the best static one.
    depth
        Depth of a fixed arm, 0 for ``none``, None for a policy that chooses.
    """

    name: str
    engine: str
    policy: str = ""
    static: bool = False
    depth: int | None = None

    @property
    def told(self) -> bool:
        """Whether what requests were promised can change what it does."""
        return self.depth is None and self.name != UNTOLD


def parse_arms(text: str, *, max_depth: int) -> tuple[Arm, ...]:
    """Return the arms of a list by comma, ``k0`` and a second ``k0`` among them in any case.

    With ``none`` there is a second ``none``, in a process of its own. The second of a pair stands
    about half a list away from the first, as other arms do on average.

    Raises
    ------
    ValueError
        An arm is unknown, named twice, needs what only a simulation knows, or its depth is above
        the engine's.

    Examples
    --------
    >>> [arm.name for arm in parse_arms("none,k1,k3,adaptive", max_depth=8)]
    ['k0', 'none', 'k1', 'k0-again', 'k3', 'none-again', 'adaptive']
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ValueError(f"arms must be names by comma such as none,k1,adaptive, got {text!r}")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"arms must be named once, got {', '.join(twice)} twice")
    names = [name for name in names if name not in (AGAIN, NONE_AGAIN)]
    if BASE not in names:
        names.insert(0, BASE)
    for first, again in ((BASE, AGAIN), (NONE, NONE_AGAIN)):
        if first in names:
            names.insert((names.index(first) + 1 + len(names) // 2) % (len(names) + 1), again)
    return tuple(_arm(name, max_depth) for name in names)


def _arm(name: str, max_depth: int) -> Arm:
    if name in (NONE, NONE_AGAIN):
        return Arm(name, name, depth=0)
    if name == AGAIN:
        return Arm(name, CONTROLLED, BASE, depth=0)
    if stock := _STOCK.fullmatch(name):
        return Arm(name, name, depth=_checked(name, int(stock[1]), max_depth))
    if fixed := _DEPTH.fullmatch(name):
        depth = _checked(name, int(fixed[1]), max_depth)
        return Arm(name, CONTROLLED, name, static=True, depth=depth)
    if name != ADAPTIVE:
        _check_policy(name, max_depth)
    return Arm(name, CONTROLLED, name)


def _checked(name: str, depth: int, max_depth: int) -> int:
    if depth > max_depth:
        raise ValueError(
            f"arm {name!r} must be at most the engine's depth {max_depth}, got {depth}"
        )
    return depth


def _check_policy(name: str, max_depth: int) -> None:
    """Build the policy once, so that a wrong name is known before an engine starts."""
    from acclimate.experiments.arms import NEED_TRUTH, arm_names, arm_policy

    if name in NEED_TRUTH:
        raise ValueError(f"arm {name!r} must be run in a simulation, which alone knows the truth")
    if name not in arm_names() and ":" not in name:
        raise ValueError(
            f"arm must be none, stock-kN, kN, package.module:factory or one of "
            f"{', '.join(known for known in arm_names() if known not in NEED_TRUTH)}, got {name!r}"
        )

    capabilities = Capabilities(
        max_depth=max_depth, depths=tuple(range(max_depth + 1)), free_drafts=True, hindsight=True
    )
    arm_policy(name, ControlConfig(), capabilities)
