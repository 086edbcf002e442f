"""A budget by headroom alone, and fixed depths by domain."""

from __future__ import annotations

import pytest
from tests.experiments.peers.stage import NGRAM, context, f2_time

from acclimate.controller.records import RequestInfo
from acclimate.experiments.peers.domain_depths import DomainDepths
from acclimate.experiments.peers.headroom import HeadroomSized


def test_the_budget_is_what_lengthens_a_step_by_no_more_than_the_share() -> None:
    peer = HeadroomSized(NGRAM, f2_time(), growth=0.2)
    # 6.90 ms for 16 requests: 0, 1 and 3 drafts each take 6.90, 7.85 and 9.52 ms.
    assert peer.headroom_tokens(16, 0) == int(16 * (1 + 2 * (8.28 - 7.85) / (9.52 - 7.85)))
    assert peer.headroom_tokens(256, 0) < 256


def test_the_budget_is_spread_evenly_and_cut_to_what_is_at_hand() -> None:
    peer = HeadroomSized(NGRAM, f2_time(), growth=0.2)
    lens = peer.plan(context([5] * 16)).verify_lens
    assert int(lens.sum()) == peer.headroom_tokens(16, 16 * 30) and lens.max() - lens.min() <= 1
    assert peer.plan(context([0, 1, 5, 5] * 4)).verify_lens[:2].tolist() == [0, 1]
    assert peer.plan(context([])).verify_lens.size == 0
    with pytest.raises(ValueError, match="growth must be > 0, got 0"):
        HeadroomSized(NGRAM, f2_time(), growth=0.0)


def test_depths_by_domain() -> None:
    peer = DomainDepths(NGRAM, {"code": 3})
    for number, domain in ((1, "code"), (2, "prose"), (3, "code")):
        peer.admit(RequestInfo(request=number, prompt_tokens=9, max_tokens=50, domain=domain))
    again = DomainDepths(NGRAM, {"code": 3})
    again.load(peer.state())
    assert again.plan(context([5, 5, 2])).verify_lens.tolist() == [3, 0, 2]
    again.forget(1)
    assert again.plan(context([5, 5, 2])).verify_lens.tolist() == [0, 0, 2]
