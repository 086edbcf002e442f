"""The arms of every comparison by name: fixed depths, ours, other engines' rules, the yardsticks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from acclimate.controller.build import build_policy
from acclimate.controller.config import ControlConfig
from acclimate.controller.policy import Policy
from acclimate.controller.records import Capabilities

if TYPE_CHECKING:
    from acclimate.experiments.simulation.truth import Truth

_PEERS = "acclimate.experiments.peers"
_FACTORIES = {
    "vllm_dynamic": "vllm_dynamic:build",
    "vllm_adaptive_verification": "vllm_adaptive_verification:build",
    "sglang_adaptive": "sglang_adaptive:build",
    "sglang_throughput": "sglang_throughput:build",
    "turbospec": "turbospec:build",
    "request_bands": "request_bands:build",
    "adaserve": "adaserve:build",
    "adaserve_code": "adaserve:build_code_order",
    "tensorrt_llm": "tensorrt_llm:build",
    "ucb_bandit": "ucb_bandit:build",
    "cascade": "cascade:build",
    "adaptive-plain": "blind:build",
    "adaptive-twin": "guaranteed:build",
    "clairvoyant": "clairvoyant:build",
    "oracle": "oracle:build",
}
NEED_TRUTH = ("clairvoyant", "oracle")
"""Arms that only a simulation can run."""


def arm_names() -> tuple[str, ...]:
    """Return every arm but the fixed depths above 0, ours first, the yardsticks last.

    Examples
    --------
    >>> arm_names()[:3], arm_names()[-2:]
    (('adaptive', 'k0', 'vllm_dynamic'), ('clairvoyant', 'oracle'))
    """
    return ("adaptive", "k0", *_FACTORIES)


def arm_policy(
    name: str, config: ControlConfig, capabilities: Capabilities, truth: Truth | None = None
) -> Policy:
    """Return a fresh policy for an arm.

    Parameters
    ----------
    name
        One of `arm_names`, ``kN`` for a fixed depth N, or ``package.module:factory``, where the
        factory takes the configuration and the capabilities.
    truth
        What a simulation knows. The yardsticks need it; peers that profile an engine at start-up
        measure its step time, and learn it while serving where there is none.

    Raises
    ------
    ValueError
        There is no such arm, it needs a truth that is not given, or its depth is above the
        engine's.

    Examples
    --------
    >>> engine = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4))
    >>> arm_policy("k2", ControlConfig(), engine).name
    'static:2'
    >>> arm_policy("turbospec", ControlConfig(), engine).name
    'turbospec'
    """
    if name in NEED_TRUTH and truth is None:
        raise ValueError(f"arm {name!r} must be given the truth, which only a simulation has")
    if name in _FACTORIES:
        module, _, factory = _FACTORIES[name].partition(":")
        policy: Policy = getattr(import_module(f"{_PEERS}.{module}"), factory)(
            config, capabilities, truth
        )
        return policy
    if name.startswith("k") and name[1:].isdecimal():
        name = f"static:{name[1:]}"
    elif name != "adaptive" and ":" not in name:
        raise ValueError(
            f"arm must be kN, package.module:factory or one of {', '.join(arm_names())}, "
            f"got {name!r}"
        )
    return build_policy(config.model_copy(update={"policy": name}), capabilities)


def arm_follows(name: str) -> str:
    """Return the engine or paper, and its version, that an arm follows, for tables.

    Examples
    --------
    >>> arm_follows("turbospec"), arm_follows("k3")
    ('TurboSpec, arXiv 2406.14066v3', '')
    """
    if name not in _FACTORIES:
        return ""
    module = import_module(f"{_PEERS}.{_FACTORIES[name].partition(':')[0]}")
    follows: str = next(
        vars(kind)["FOLLOWS"]
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__ and "FOLLOWS" in vars(kind)
    )
    return follows


def replay_factories() -> dict[str, Callable[[ControlConfig, Capabilities], Policy]]:
    """Return what `acclimate.experiments.replay.verify.verify` needs to decide again for every peer.

    A peer's start-up profile and the clairvoyant's change-points are part of their states, and so
    need no truth. The oracle keeps nothing and cannot be replayed without the simulation.
    """
    return {name: partial(_replayed, name) for name in _FACTORIES if name != "oracle"}


def _replayed(name: str, config: ControlConfig, capabilities: Capabilities) -> Policy:
    module, _, factory = _FACTORIES[name].partition(":")
    policy: Policy = getattr(import_module(f"{_PEERS}.{module}"), factory)(config, capabilities)
    return policy
