"""What outlives an engine: the part of a policy's state that a later life can begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acclimate.controller.beliefs import Beliefs

_PARTS = ("slots", "acceptance", "lengths")


def prior_of(state: dict[str, Any]) -> dict[str, Any] | None:
    """Return what of an `AdaptivePolicy.state` is worth keeping; None if it is another policy's.

    That is acceptance and draft lengths, with the traffic classes that they are of. Requests,
    steps under way, clocks and budgets belong to the life that ended; step times have a store of
    their own.
    """
    beliefs = state.get("beliefs")
    if not isinstance(beliefs, dict) or not all(name in beliefs for name in _PARTS):
        return None
    return {name: beliefs[name] for name in _PARTS}


def resume(beliefs: Beliefs, prior: dict[str, Any]) -> None:
    """Begin with a `prior_of` an earlier life, as after a change that was declared.

    Every class keeps its best guess, with little weight: what was served since is not known. New
    classes begin as their pool does.

    Parameters
    ----------
    beliefs
        Of a policy that has seen nothing yet.
    prior
        What was kept.

    Raises
    ------
    ValueError, KeyError, TypeError
        It is of other sizes, or damaged; the beliefs are then of no use.
    """
    beliefs.slots.load(prior["slots"])
    beliefs.slots.vacate()
    beliefs.acceptance.load(prior["acceptance"])
    beliefs.lengths.load(prior["lengths"])
    beliefs.make_room()
    beliefs.shake()
