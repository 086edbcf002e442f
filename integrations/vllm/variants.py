"""Changes the variant that a running engine drafts with, from one step to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acclimate.controller.records import Change

if TYPE_CHECKING:
    from acclimate.integrations.vllm.launch import Engine

EXTENSION = "acclimate.integrations.vllm.variants.VariantExtension"
"""Name of the class that an engine's ``worker_extension_cls`` must be."""
_METHOD = "acclimate_use_variant"


class VariantExtension:
    """What workers of an engine learn to do: hand a variant's name to their drafter."""

    model_runner: Any

    def acclimate_use_variant(self, variant: str) -> str:
        """Draft with another variant from the next step on; return the one before.

        Raises
        ------
        ValueError
            The drafter has no variants, or not that one.
        """
        drafter: Any = getattr(self.model_runner, "drafter", None)
        if not hasattr(drafter, "use"):
            raise ValueError("the drafter must have variants, it has none")
        before = str(drafter.variant)
        drafter.use(variant)
        return before


def swap_variant(engine: Engine, variant: str, *, declare: bool) -> str:
    """Let an engine draft with another variant from its next step on; return the one before.

    Call it between two steps. Nothing is polled: the workers are told.

    Parameters
    ----------
    engine
        Started with `EXTENSION`.
    variant
        One that its drafter has loaded.
    declare
        Whether the controller is told, as an operator would who deploys a new drafter. Needs an
        engine in this process.

    Raises
    ------
    ValueError
        The drafter has no such variant.
    """
    before = engine.llm.collective_rpc(_METHOD, args=(variant,))
    if declare:
        engine.bridge.loop.declare(Change(kind="draft", detail=variant))
    return str(before[0])
