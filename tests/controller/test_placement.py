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
    engine_state,
    headroom,
    survival_of_path,
)
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
    return EngineState(
        place=Place(engine=name, seats=64, **place),  # type: ignore[arg-type]
        load=Load(running=running), max_depth=DEPTH,
        step_ms=tuple(base_ms * (1.0 + 0.01 * i) for i in range(DEPTH + 1)),
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


def test_accepted_and_hurried_requests_go_to_headroom_and_refused_ones_to_saturation() -> None:
    engines = [_engine("busy", room=0, running=40, base_ms=40.0), _engine("free", room=60)]
    assert _order(_request("code"), engines) == ["free", "busy"]
    assert _order(_request("prose"), engines) == ["busy", "free"]
    by_name = {advice.engine: advice for advice in advise(_request("prose"), engines)}
    assert by_name["busy"].fit is Fit.PLAIN and by_name["busy"].depth == 0
    assert by_name["free"].fit is Fit.GIVES_ROOM and by_name["free"].depth == DEPTH
    # A target that only the free engine meets outweighs that.
    ranked = advise(_request("prose", tpot_s=0.03), engines)
    assert [(advice.engine, advice.meets) for advice in ranked] == [("free", True), ("busy", False)]


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
    plain = engine_state(build_policy(ControlConfig(policy="static:1"), CHAIN), CHAIN, place, load)
    assert (plain.policy, plain.step_ms, plain.slots) == ("static:1", (), ())


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6))
def test_survival_never_rises(q: list[float]) -> None:
    survival: FloatArray = survival_of_path(tuple(q))
    assert (survival[1:] <= survival[:-1]).all() and survival[0] == q[0]
