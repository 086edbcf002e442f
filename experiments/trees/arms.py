"""The arms of a comparison on an engine of trees, by name."""

from __future__ import annotations

from importlib import import_module

from acclimate.controller.config import ControlConfig
from acclimate.controller.policy import Policy
from acclimate.controller.records import Capabilities
from acclimate.experiments.arms import arm_policy

_FACTORIES = {
    "adaptive_tree": "acclimate.controller.tree_policy:build",
    "sequoia_tree": "acclimate.experiments.peers.sequoia_tree:build",
    "eagle2_tree": "acclimate.experiments.peers.eagle2_tree:build",
    "bastion_tree": "acclimate.experiments.peers.bastion_tree:build",
    "adaserve_tree": "acclimate.experiments.peers.adaserve_tree:build",
    "adaserve_code_tree": "acclimate.experiments.peers.adaserve_tree:build_code_order",
}


def tree_arm_names() -> tuple[str, ...]:
    """Return the arms that choose nodes by a rule, ours first."""
    return tuple(_FACTORIES)


def tree_arm_policy(name: str, config: ControlConfig, capabilities: Capabilities) -> Policy:
    """Return a fresh policy for an arm on an engine of trees.

    Parameters
    ----------
    name
        One of `tree_arm_names`; ``DxW`` or ``DxWxN`` for a static box of depth D, width W and N nodes
        per request; or an arm of chains, see `acclimate.experiments.arms.arm_policy`.

    Raises
    ------
    ValueError
        There is no such arm, or the engine drafts chains.

    Examples
    --------
    >>> engine = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4), max_width=3)
    >>> tree_arm_policy("4x2x8", ControlConfig(), engine).name
    'static_tree:4x2x8'
    >>> tree_arm_policy("k2", ControlConfig(), engine).name
    'static:2'
    """
    if name in _FACTORIES:
        module, _, factory = _FACTORIES[name].partition(":")
        policy: Policy = getattr(import_module(module), factory)(config, capabilities)
        return policy
    sizes = name.split("x")
    if len(sizes) in (2, 3) and all(size.isdecimal() for size in sizes):
        from acclimate.experiments.peers.static_tree import StaticTree

        depth, width, *nodes = map(int, sizes)
        limit = {"nodes": nodes[0]} if nodes else {}
        return StaticTree(capabilities, depth=depth, width=width, **limit)
    return arm_policy(name, config, capabilities)
