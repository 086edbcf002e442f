"""What a drafting method on a runner lets a policy choose."""

from __future__ import annotations

import dataclasses

from acclimate.controller.records import Capabilities


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MethodTraits:
    """How one drafting method treats the depth it is asked for.

    Parameters
    ----------
    honours_depth
        It makes as many tokens as asked; if not, only verify lengths act.
    free
        Proposing costs nearly nothing.
    ids_visible
        Draft ids reach the scheduler where it is synchronous.
    note
        Why it is limited, for people.
    """

    honours_depth: bool = False
    free: bool = False
    ids_visible: bool = False
    note: str = ""


_FIXED = "drafts at full depth whatever is asked: only verify lengths act"
_MODEL_V1 = MethodTraits(
    honours_depth=True, ids_visible=True, note="depth 0 still costs one draft pass"
)
_MODEL_V2 = MethodTraits(honours_depth=True, note="draft ids are not visible: no hindsight")
_FIXED_V1 = MethodTraits(ids_visible=True, note=_FIXED)
_FIXED_V2 = MethodTraits(note=_FIXED)

TRAITS: dict[tuple[str, str], MethodTraits] = {
    ("ngram", "v1"): MethodTraits(honours_depth=True, free=True, ids_visible=True),
    ("draft_model", "v1"): _MODEL_V1,
    ("eagle", "v1"): _MODEL_V1,
    ("eagle3", "v1"): _MODEL_V1,
    ("mtp", "v1"): _MODEL_V1,
    ("dflash", "v1"): _MODEL_V1,
    ("custom_class", "v1"): MethodTraits(
        ids_visible=True, note="is not told the depth: only verify lengths act"
    ),
    ("suffix", "v1"): _FIXED_V1,
    ("medusa", "v1"): _FIXED_V1,
    ("ngram_gpu", "v1"): _FIXED_V2,
    ("eagle", "v2"): _MODEL_V2,
    ("eagle3", "v2"): _MODEL_V2,
    ("mtp", "v2"): _MODEL_V2,
    ("draft_model", "v2"): _FIXED_V2,
    ("ngram", "v2"): _FIXED_V2,
}


def method_traits(
    method: str, runner: str, *, parallel_drafting: bool = False, chained_modules: bool = False
) -> MethodTraits:
    """Return how a method behaves; what is not known drafts at full depth.

    Parameters
    ----------
    method, runner
        vLLM's name of the method; ``v1`` or ``v2``.
    parallel_drafting
        Whether all draft tokens come from one pass, laid out for the full depth.
    chained_modules
        Whether a chain of several prediction modules drafts.

    Examples
    --------
    >>> method_traits("draft_model", "v1").honours_depth
    True
    >>> method_traits("draft_model", "v2").honours_depth, method_traits("new", "v1").honours_depth
    (False, False)
    """
    traits = TRAITS.get((method, runner), _FIXED_V2)
    if traits.honours_depth and (parallel_drafting or chained_modules):
        why = "parallel drafting" if parallel_drafting else "a chain of modules"
        return dataclasses.replace(traits, honours_depth=False, note=f"{why}: {_FIXED}")
    return traits


def build_capabilities(
    traits: MethodTraits,
    *,
    engine_depth: int,
    asynchronous: bool,
    cap: int | None = None,
    pinned: bool = False,
    drafts_sampled: bool = False,
    capture_sizes: tuple[int, ...] = (),
) -> Capabilities:
    """Return what a policy may choose.

    Parameters
    ----------
    traits
        Of the drafting method.
    engine_depth
        The engine's ``num_speculative_tokens``.
    asynchronous
        Whether the engine schedules one step ahead.
    cap
        A configured depth below the engine's.
    pinned
        Whether the depth must not differ between ranks.
    drafts_sampled
        Whether drafts can be drawn at random: then their fate is not known in hindsight.
    capture_sizes
        Token counts that the engine pads its steps to.

    Raises
    ------
    ValueError
        ``cap`` is above the engine's depth.

    Examples
    --------
    >>> ngram = method_traits("ngram", "v1")
    >>> build_capabilities(ngram, engine_depth=8, asynchronous=False, cap=3).depths
    (0, 1, 2, 3)
    """
    if cap is not None and cap > engine_depth:
        raise ValueError(
            f"max_depth must be at most the engine's num_speculative_tokens {engine_depth}, "
            f"got {cap}"
        )
    depth = engine_depth if cap is None else cap
    return Capabilities(
        max_depth=depth,
        depths=tuple(range(depth + 1)),
        honours_depth=traits.honours_depth and not pinned,
        free_drafts=traits.free,
        hindsight=traits.ids_visible and not asynchronous and not drafts_sampled,
        asynchronous=asynchronous,
        capture_sizes=capture_sizes,
    )
