"""Peers of recalibration in several settings, of which the best is chosen in hindsight."""

from __future__ import annotations

from collections.abc import Callable

from acclimate.controller.config import ControlConfig
from acclimate.controller.policy import Policy
from acclimate.experiments.peers.request_bands import RequestBands
from acclimate.experiments.peers.sglang_adaptive import SglangAdaptive
from acclimate.experiments.peers.turbospec import INTERVAL_STEPS, TurboSpec
from acclimate.experiments.peers.ucb_bandit import UcbBandit
from acclimate.experiments.simulation.stage import Stage

Build = Callable[[Stage, ControlConfig], Policy]


def tuned_peers() -> dict[str, dict[str, Build]]:
    """Return, by peer and setting, who makes it; every peer's own setting is among them.

    >>> list(tuned_peers()["turbospec"])[2:4]
    ['weight 0.15, every 5', 'weight 0.15, every 20']
    """
    return {
        "turbospec": {
            f"weight {w}, every {steps}": _turbospec(w, steps)
            for w in (0.05, 0.15, 0.4)
            for steps in (5, INTERVAL_STEPS)
        },
        "sglang_adaptive": {f"weight {w}": _sglang(w) for w in (0.1, 0.2, 0.5)},
        "request_bands": {f"weight {w}": _bands(w) for w in (0.1, 0.3, 0.6)},
        "ucb_bandit": {f"width {w}": _bandit(w) for w in (0.2, 0.5, 1.0)},
    }


def _turbospec(weight: float, interval_steps: int) -> Build:
    def build(stage: Stage, config: ControlConfig) -> Policy:
        return TurboSpec(
            stage.capabilities,
            stage.truth.step_time,
            weight=weight,
            interval_steps=interval_steps,
        )

    return build


def _sglang(weight: float) -> Build:
    return lambda stage, config: SglangAdaptive(stage.capabilities, weight=weight)


def _bands(weight: float) -> Build:
    return lambda stage, config: RequestBands(stage.capabilities, weight=weight)


def _bandit(width: float) -> Build:
    return lambda stage, config: UcbBandit(stage.capabilities, width)
