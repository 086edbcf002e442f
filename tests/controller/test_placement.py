"""Where requests are sent: hard rules first, then headroom to those who can use it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acclimate.controller.build import build_policy
from acclimate.controller.config import ControlConfig
from acclimate.controller.engine_state import (
    EngineState,
    Load,
    Place,
    SlotState,
    headroom,
    survival_of_path,
)
from acclimate.controller.engine_view import engine_state
from acclimate.controller.placement import Fit, Unfit, advise
from acclimate.controller.records import Capabilities, FloatArray, RequestInfo, Slo

DEPTH = 3
CHAIN = Capabilities(max_depth=DEPTH, depths=(0, 1, 2, 3), free_drafts=True)


def _slot(domain: str, q: float, *, trust: str = "", spread: float = 0.02) -> SlotState:
    return SlotState(
        trust_domain=trust, domain=domain, graded_tokens=800.0, conditional=(q,) * DEPTH,
        low=(q - spread,) * DEPTH, high=(q + spread,) * DEPTH,
    )  # fmt: skip


def _engine(name: str, *, room: int, running: int = 0, base_ms: float = 20.0, **place: object):  # type: ignore[no-untyped-def]
    draft_ms = 0.01 * base_ms if room else base_ms
    joint_ms = tuple(base_ms + draft_ms * k for k in range(DEPTH + 1))
    return EngineState(
        place=Place(engine=name, seats=64, **place),  # type: ignore[arg-type]
        load=Load(running=running), max_depth=DEPTH,
        step_ms=tuple(base_ms * (1.0 + 0.01 * i) for i in range(DEPTH + 1)),
        loads=(running + 1, 2 * running + 2), joint_ms=(joint_ms, joint_ms),
        headroom_tokens=room, speedup=1.4 if room else 0.8,
        slots=(_slot("code", 0.9), _slot("prose", 0.4), _slot("chat", 0.6)),
    )  # fmt: skip


def _request(domain: str = "code", *, tpot_s: float | None = None, trust: str = "") -> RequestInfo:
    slo = None if tpot_s is None else Slo(tpot_s=tpot_s)
    return RequestInfo(
        request=1, prompt_tokens=9, max_tokens=50, domain=domain, slo=slo, trust_domain=trust
    )


def _order(*args: object, **more: object) -> list[str]:
    return [advice.engine for advice in advise(*args, **more)]  # type: ignore[arg-type]


def _card(
    name: str, *, plain_ms: float, token_ms: float, code: int = 0, prose: int = 0,
    prompt_ms: float = 0.0,
) -> EngineState:  # fmt: skip
    """An engine whose step takes longer by ``token_ms`` for each token, with requests on it."""
    running = code + prose
    loads = (running + 1, 2 * running + 2)
    joint = tuple(tuple(plain_ms + token_ms * n * (k + 1) for k in range(DEPTH + 1)) for n in loads)
    counted = (
        msgspec.structs.replace(_slot("code", 0.9), running=code, tpot_s=0.014),
        msgspec.structs.replace(_slot("prose", 0.3), running=prose, tpot_s=0.060),
    )
    return EngineState(
        place=Place(engine=name, seats=256), load=Load(running=running), max_depth=DEPTH,
        step_ms=tuple(joint[0][0] + token_ms * k for k in range(DEPTH + 1)), loads=loads,
        joint_ms=joint, prompt_ms=prompt_ms, answer_tokens=200.0,
        headroom_tokens=min(int(0.05 * joint[0][0] / token_ms), 512), speedup=1.2, slots=counted,
    )  # fmt: skip


def test_accepted_and_hurried_requests_go_to_headroom_and_refused_ones_to_saturation() -> None:
    busy = _card("busy", plain_ms=2.0, token_ms=0.3, prose=60)
    engines = [busy, _card("free", plain_ms=8.0, token_ms=0.1, code=40)]
    code, prose = (
        advise(_request(domain, tpot_s=tpot_s), engines)
        for domain, tpot_s in (("code", 0.014), ("prose", 0.060))
    )
    assert [advice.engine for advice in code] == ["free", "busy"]
    assert [advice.meets for advice in code] == [True, False]
    assert [advice.engine for advice in prose] == ["busy", "free"]
    assert prose[0].fit is Fit.PLAIN and prose[0].depth == 0 and prose[0].meets
    # It would meet its target on the other as well, and cost those there theirs.
    assert prose[1].meets and prose[0].lost_by_others < 1 < prose[1].lost_by_others
    # Where there is room for all, it may have it; a target that only that engine meets says so too.
    roomy = _card("free", plain_ms=8.0, token_ms=0.02, code=5)
    for tpot_s in (0.020, 0.060):
        ranked = advise(_request("prose", tpot_s=tpot_s), [busy, roomy])
        assert [advice.engine for advice in ranked] == ["free", "busy"]
    assert (ranked[0].fit, ranked[0].depth) == (Fit.GIVES_ROOM, DEPTH)
    assert advise(_request("code"), [roomy])[0].fit is Fit.HEADROOM


def test_nobody_goes_where_the_load_to_come_would_slow_those_there() -> None:
    """Each of the two cards still meets all targets, but one of them not for long."""
    near = _card("near", plain_ms=8.0, token_ms=0.25, prose=150)
    far = _card("far", plain_ms=8.0, token_ms=0.25, prose=90)
    prose = _request("prose", tpot_s=0.060)
    ranked = advise(prose, [near, far])
    assert [advice.engine for advice in ranked] == ["far", "near"]
    assert ranked[1].lost_tokens + ranked[1].lost_by_others > ranked[0].lost_by_others
    # What prompts take from those that decode counts as well.
    heavy = _card("near", plain_ms=8.0, token_ms=0.25, prose=90, prompt_ms=0.5)
    assert _order(msgspec.structs.replace(prose, prompt_tokens=200), [heavy, far])[0] == "far"


@given(st.integers(0, 120), st.integers(0, 120), st.sampled_from(["code", "prose"]),
       st.none() | st.floats(0.005, 0.2))  # fmt: skip
def test_more_company_of_the_same_kind_never_makes_a_request_faster(
    some: int, more: int, domain: str, tpot_s: float | None
) -> None:
    def tpot(there: int) -> float:
        engine = _card("a", plain_ms=8.0, token_ms=0.1, **{domain: there})
        (advice,) = advise(_request(domain, tpot_s=tpot_s), [engine])
        assert advice.tpot_s is not None and advice.lost_tokens >= 0 <= advice.lost_by_others
        return advice.tpot_s

    assert tpot(min(some, more)) <= tpot(max(some, more)) + 1e-12


def test_a_full_engine_comes_after_one_with_a_seat() -> None:
    full = _engine("full", room=60, running=64)
    waits = msgspec.structs.replace(_engine("waits", room=60), load=Load(running=3, waiting=1))
    engines = [full, waits, _engine("busy", room=0, running=40)]
    assert _order(_request("code"), engines)[0] == "busy"
    assert [advice.queued for advice in advise(_request("code"), engines)] == [False, True, True]


def test_what_is_not_known_is_said_and_equals_go_by_load() -> None:
    blank = EngineState(place=Place(engine="blank", seats=8), load=Load(running=1))
    other = EngineState(place=Place(engine="other", seats=8), load=Load())
    ranked = advise(_request(), [blank, other])
    assert [(a.engine, a.fit, a.tpot_s) for a in ranked] == [
        ("other", Fit.UNKNOWN, None), ("blank", Fit.UNKNOWN, None),
    ]  # fmt: skip
    unheard = advise(_request("never seen"), [_engine("a", room=60)])[0]
    assert (unheard.fit, unheard.net_tokens) == (Fit.UNKNOWN, 0.0)


def test_acceptance_of_another_trust_domain_is_not_looked_at() -> None:
    engine = msgspec.structs.replace(
        _engine("a", room=60), slots=(_slot("code", 0.9, trust="theirs"),)
    )
    assert advise(_request("code", trust="ours"), [engine])[0].fit is Fit.UNKNOWN
    assert advise(_request("code", trust="theirs"), [engine])[0].fit is Fit.HEADROOM


def test_names_must_differ() -> None:
    with pytest.raises(ValueError, match="names of their own"):
        advise(_request(), [_engine("a", room=1), _engine("a", room=2)])


_LABELS = st.lists(st.sampled_from("abc"), max_size=3, unique=True).map(tuple)


@st.composite
def _fleets(draw: st.DrawFn) -> list[EngineState]:
    count = draw(st.integers(1, 5))
    return [
        msgspec.structs.replace(
            _engine(
                f"e{i}", room=draw(st.integers(0, 64)), running=draw(st.integers(0, 64)),
                base_ms=draw(st.floats(1.0, 100.0)),
            ),
            place=Place(engine=f"e{i}", trust_domains=draw(_LABELS), residency=draw(_LABELS),
                        seats=draw(st.integers(0, 64))),
            load=Load(running=draw(st.integers(0, 64)), waiting=draw(st.integers(0, 3)),
                      batch_domains=draw(_LABELS)),
            slots=tuple(
                _slot(d, draw(st.floats(0.05, 0.95)), trust=draw(st.sampled_from("abc")))
                for d in draw(_LABELS)
            ),
            step_ms=draw(st.sampled_from([(), (20.0, 21.0, 22.0, 23.0)])),
            blocked_by=draw(st.sampled_from([None, "error"])),
        )
        for i in range(count)
    ]  # fmt: skip


@given(_fleets(), st.sampled_from("abc"), st.sampled_from("abc"), _LABELS, st.booleans(),
       st.none() | st.floats(0.001, 1.0))  # fmt: skip
def test_hard_rules_hold_whatever_the_gain(
    engines: list[EngineState], trust: str, domain: str, where: tuple[str, ...], apart: bool,
    tpot_s: float | None,
) -> None:  # fmt: skip
    request = _request(domain, tpot_s=tpot_s, trust=trust)
    ranked = advise(request, engines, residency=where, separate=apart)
    assert sorted(a.engine for a in ranked) == sorted(e.place.engine for e in engines)
    by_name = {engine.place.engine: engine for engine in engines}
    fits = [advice.reason is None for advice in ranked]
    assert fits == sorted(fits, reverse=True)
    for advice in ranked:
        place, batch = by_name[advice.engine].place, by_name[advice.engine].load.batch_domains
        away = bool(where) and not set(where) & set(place.residency)
        barred = bool(place.trust_domains) and trust not in place.trust_domains
        shared = apart and bool(set(batch) - {trust})
        assert (advice.reason is None) == (not (away or barred or shared))
        assert (advice.reason is Unfit.RESIDENCY) == away
    # Asking changes nothing, and gives the same answer.
    assert advise(request, engines, residency=where, separate=apart) == ranked


@given(
    st.integers(0, 64), st.integers(0, 64), st.integers(0, 60), st.none() | st.floats(0.004, 0.05)
)
def test_more_headroom_never_ranks_an_accepted_request_lower(
    room: int, more: int, running: int, tpot_s: float | None
) -> None:
    request = _request("code", tpot_s=tpot_s)  # accepted more than the typical one

    def rank(tokens: int) -> tuple[int, float]:
        engines = [
            msgspec.structs.replace(_engine("a", room=tokens, running=running), speedup=1.4),
            _engine("b", room=30, running=7),
            _engine("c", room=0, running=50, base_ms=35.0),
        ]
        ranked = advise(request, engines)
        at = [advice.engine for advice in ranked].index("a")
        return -at, ranked[at].net_tokens

    assert rank(min(room, more)) <= rank(max(room, more))


def test_the_state_of_a_policy_says_what_it_believes() -> None:
    policy = build_policy(ControlConfig(), CHAIN)
    place, load = Place(engine="a", seats=8), Load(running=2, context_tokens=100.0)
    assert engine_state(policy, CHAIN, place, load).step_ms == ()
    for step in range(90):
        n, m = 2 + step % 2, step % 7
        policy.beliefs.latency.learn(  # type: ignore[attr-defined]
            n, m, latency_ms=18.0 + n + 0.5 * m, context_tokens=100 * n
        )
    state = engine_state(policy, CHAIN, place, load)
    assert state.step_ms[0] == pytest.approx(21.0, abs=0.6)
    assert state.headroom_tokens == headroom(
        policy.beliefs.latency.curve(3, 64, context_tokens=300)  # type: ignore[attr-defined]
    )
    assert 0 < state.headroom_tokens < 6 and state.rate_tokens_per_s == pytest.approx(100, rel=0.1)
    assert state.speedup is None and state.speculation_pays is None  # nothing was graded
    assert state.loads == (1, 3, 5, 8) and len(state.joint_ms[0]) == DEPTH + 1
    assert state.joint_ms[1][0] == state.step_ms[0] and state.prompt_ms >= 0.0
    promised = _request("code", tpot_s=0.03)
    policy.admit(promised)
    policy.admit(msgspec.structs.replace(promised, request=2, slo=None))
    (slot,) = engine_state(policy, CHAIN, place, load).slots
    assert (slot.domain, slot.running, slot.tpot_s) == ("code", 2, pytest.approx(0.03))
    plain = engine_state(build_policy(ControlConfig(policy="static:1"), CHAIN), CHAIN, place, load)
    assert (plain.policy, plain.step_ms, plain.slots) == ("static:1", (), ())


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6))
def test_survival_never_rises(q: list[float]) -> None:
    survival: FloatArray = survival_of_path(tuple(q))
    assert (survival[1:] <= survival[:-1]).all() and survival[0] == q[0]
