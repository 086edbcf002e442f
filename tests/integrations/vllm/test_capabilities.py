"""What each drafting method lets a policy choose."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from acclimate.integrations.vllm.capabilities import build_capabilities, method_traits
from acclimate.integrations.vllm.factory import capture_sizes


@pytest.mark.parametrize(
    ("method", "runner", "honours", "free", "hindsight"),
    [
        ("ngram", "v1", True, True, True),
        ("draft_model", "v1", True, False, True),
        ("eagle3", "v1", True, False, True),
        ("custom_class", "v1", False, False, True),
        ("suffix", "v1", False, False, True),
        ("medusa", "v1", False, False, True),
        ("ngram_gpu", "v1", False, False, False),
        ("eagle", "v2", True, False, False),
        ("draft_model", "v2", False, False, False),
        ("dspark", "v2", False, False, False),
        ("invented", "v1", False, False, False),
    ],
)
def test_table(method: str, runner: str, honours: bool, free: bool, hindsight: bool) -> None:
    got = build_capabilities(method_traits(method, runner), engine_depth=5, asynchronous=False)
    assert (got.honours_depth, got.free_drafts, got.hindsight) == (honours, free, hindsight)
    assert got.depths == (0, 1, 2, 3, 4, 5)


def test_what_takes_control_away() -> None:
    eagle = method_traits("eagle", "v1")
    parallel = method_traits("eagle", "v1", parallel_drafting=True)
    chained = method_traits("mtp", "v1", chained_modules=True)
    assert eagle.honours_depth and not parallel.honours_depth and not chained.honours_depth
    assert not build_capabilities(
        eagle, engine_depth=5, asynchronous=False, pinned=True
    ).honours_depth
    assert not build_capabilities(eagle, engine_depth=5, asynchronous=True).hindsight
    assert not build_capabilities(
        eagle, engine_depth=5, asynchronous=False, drafts_sampled=True
    ).hindsight


def test_cap() -> None:
    eagle = method_traits("eagle", "v1")
    got = build_capabilities(eagle, engine_depth=5, asynchronous=False, cap=2)
    assert (got.max_depth, got.depths) == (2, (0, 1, 2))
    with pytest.raises(ValueError, match="num_speculative_tokens 5, got 6"):
        build_capabilities(eagle, engine_depth=5, asynchronous=False, cap=6)


def test_captured_sizes_are_read_where_graphs_are_captured():
    def sizes(mode, values):
        compilation = SimpleNamespace(
            cudagraph_mode=SimpleNamespace(name=mode), cudagraph_capture_sizes=values
        )
        return capture_sizes(SimpleNamespace(compilation_config=compilation))

    assert sizes("FULL_AND_PIECEWISE", [8, 4, 1, 2]) == (1, 2, 4, 8)
    assert sizes("NONE", [1, 2]) == sizes("FULL", None) == ()
    assert capture_sizes(SimpleNamespace()) == ()
