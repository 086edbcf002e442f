"""Builds the policy that a configuration names; live engine, replay and simulation share it."""

from __future__ import annotations

from importlib import import_module

from acclimate.controller.config import ControlConfig
from acclimate.controller.policy import Policy
from acclimate.controller.records import Capabilities


def build_policy(config: ControlConfig, capabilities: Capabilities) -> Policy:
    """Return a fresh policy.

    Parameters
    ----------
    config
        ``config.policy`` is ``adaptive``, ``static:K``, or ``package.module:factory``, where the
        factory takes the configuration and the capabilities and returns a `Policy`.
    capabilities
        What the engine lets the policy choose.

    Raises
    ------
    ValueError
        The name is unknown, cannot be imported, gives something that is no policy, or asks for
        a depth above the engine's.

    Examples
    --------
    >>> engine = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4))
    >>> build_policy(ControlConfig(policy="static:2"), engine).name
    'static:2'
    """
    from acclimate.controller.adaptive import AdaptivePolicy
    from acclimate.controller.static import StaticPolicy

    name = config.policy
    if name == "adaptive":
        return AdaptivePolicy(config, capabilities)
    if name.startswith("static:"):
        depth = name.removeprefix("static:")
        if not depth.isdecimal():
            raise ValueError(
                f"policy 'static:K' must name a depth such as 'static:3', got {name!r}"
            )
        return StaticPolicy(int(depth), capabilities)
    module_name, colon, factory_name = name.partition(":")
    if not colon:
        raise ValueError(
            f"policy must be 'adaptive', 'static:K' or 'package.module:factory', got {name!r}"
        )
    try:
        factory = getattr(import_module(module_name), factory_name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"policy {name!r} must be importable, got {error}") from error
    policy = factory(config, capabilities)
    if not isinstance(policy, Policy):
        raise ValueError(f"policy {name!r} must give a Policy, got {type(policy).__name__}")
    return policy
