"""Labels and targets that clients send are checked; nothing they send can raise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acclimate.controller.config import ControlConfig, SloConfig
from acclimate.controller.events import AddEvent, EventQueue
from acclimate.controller.loop import ControlLoop
from acclimate.controller.records import Capabilities, Slo
from acclimate.controller.static import StaticPolicy
from acclimate.integrations.vllm.bridge import EngineBridge
from acclimate.integrations.vllm.flight import EngineFacts
from acclimate.integrations.vllm.metadata import MAX_LABEL_CHARS, MetadataReader


def _request(extra: Any, **fields: Any) -> SimpleNamespace:
    sampling = SimpleNamespace(temperature=0.0, extra_args=extra)
    base = {
        "num_prompt_tokens": 3, "max_tokens": 9, "sampling_params": sampling,
        "lora_request": None, "priority": 0, "structured_output_request": None,
    }  # fmt: skip
    return SimpleNamespace(**(base | fields))


@pytest.mark.parametrize(
    ("value", "rejected"),
    [
        ("code", 0),
        ("", 0),
        ("ä" * 64, 0),
        ("x" * 65, 1),
        ("a\nb", 1),
        (7, 1),
        (["a"], 1),
        (None, 1),
    ],
)
def test_labels(value: Any, rejected: int) -> None:
    reader = MetadataReader()
    info = reader.read(_request({"acclimate_domain": value}), number=1, arrival_ns=0)
    assert info.domain == ("" if rejected else value)
    assert reader.rejected == rejected


@pytest.mark.parametrize(
    ("value", "seconds", "problem"),
    [(50, 0.05, None), ("250", 0.25, None), (" 30.5 ", 0.0305, None), (1, 0.001, None),
     (0, None, "not_positive"), (-5, None, "not_positive"), ("-1e308", None, "not_positive"),
     (0.2, 0.001, "too_short"), (1e9, 3600.0, "too_far"),
     (float("nan"), None, "not_finite"), ("inf", None, "not_finite"), (10**400, None, "not_finite"),
     ("soon", None, "not_a_number"), ([50], None, "not_a_number"), (True, None, "not_a_number"),
     ("", None, "not_a_number"), ("9" * 99, None, "too_long")],
)  # fmt: skip
def test_targets(value: Any, seconds: float | None, problem: str | None) -> None:
    reader = MetadataReader()
    info = reader.read(_request({"acclimate_slo_tpot_ms": value}), number=1, arrival_ns=0)
    assert (info.slo.tpot_s if info.slo else None) == seconds
    assert dict(reader.problems) == ({problem: 1} if problem else {})
    assert reader.rejected == (problem is not None)


def test_classes_bounds_and_permissions_come_from_the_configuration_in_force() -> None:
    service = SloConfig.model_validate(
        {"classes": {"gold": {"e2e_ms": 5000, "weight": 2, "tenants": ["a"]}}, "least_tpot_ms": 10}
    )
    reader = MetadataReader()
    extra = {"acclimate_slo_class": "gold", "acclimate_slo_tpot_ms": 3, "acclimate_tenant": "a"}
    info = reader.read(_request(extra, priority=-1), number=1, arrival_ns=0, service=service)
    assert info.slo == Slo(tpot_s=0.01, e2e_s=5.0)
    assert (info.slo_class, info.importance, info.priority) == ("gold", 3.0, -1)
    extra["acclimate_tenant"] = "b"
    info = reader.read(_request(extra), number=2, arrival_ns=0, service=service)
    assert info.slo == Slo(tpot_s=0.01)
    assert (info.slo_class, info.importance) == ("", 1.0)
    assert dict(reader.problems) == {"too_short": 2, "class_denied": 1}


def test_a_reload_changes_what_is_promised_from_then_on() -> None:
    engine = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4))
    loop = ControlLoop(StaticPolicy(2, engine), engine, ControlConfig(), clock_ns=lambda: 0)
    events = EventQueue(snapshots=False)
    loop.attach(events)
    bridge = EngineBridge(loop, EngineFacts(depth=4, max_model_len=100))
    bridge.admit(_request({"acclimate_slo_class": "royal"}, request_id="a"))
    loop.reload(ControlConfig.read({"policy": "static:2", "slo": {"default_class": "standard"}}))
    bridge.admit(_request({"acclimate_slo_class": "royal"}, request_id="b"))
    added = [event.request for event in events.take() if isinstance(event, AddEvent)]
    assert [request.slo_class for request in added] == ["", "standard"]
    assert bridge.status()["metadata_problems"] == {"unknown_class": 2}


def test_an_absurd_priority_can_be_recorded() -> None:
    info = MetadataReader().read(_request(None, priority=10**30), number=1, arrival_ns=0)
    assert info.priority == 2**31 - 1 and 0.0 < info.importance < 1.0


def test_a_client_cannot_name_its_trust_domain() -> None:
    extra = {"acclimate_trust_domain": "theirs", "trust_domain": "theirs"}
    info = MetadataReader("ours").read(_request(extra), number=1, arrival_ns=0)
    assert info.trust_domain == "ours"


def test_adapter_priority_and_kind() -> None:
    request = _request(
        None,
        lora_request=SimpleNamespace(lora_name="sql"),
        priority=3,
        structured_output_request=object(),
    )
    request.sampling_params.temperature = 0.7
    info = MetadataReader().read(request, number=1, arrival_ns=0)
    assert (info.adapter, info.priority, info.sampled, info.grammar) == ("sql", 3, True, True)


def test_adapters_whose_long_names_begin_alike_are_two() -> None:
    labels = set()
    for end in ("a", "b", "ab"):
        adapter = SimpleNamespace(lora_name="/models/adapters/" * 9 + end)
        request = _request(None, lora_request=adapter)
        labels.add(MetadataReader().read(request, number=1, arrival_ns=0).adapter)
    assert len(labels) == 3 and all(len(label) == MAX_LABEL_CHARS for label in labels)


@pytest.mark.parametrize("name", ["\ud800", "a\nb", None, 7])
def test_an_adapter_whose_name_cannot_be_written_down_has_none(name: Any) -> None:
    reader = MetadataReader()
    request = _request(None, lora_request=SimpleNamespace(lora_name=name))
    info = reader.read(request, number=1, arrival_ns=0)
    assert info.adapter == "" and reader.rejected == 1
    msgspec.json.encode(info)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
_KEYS = st.sampled_from(
    [
        "acclimate_domain", "acclimate_tenant", "acclimate_slo_ttft_ms", "acclimate_slo_e2e_ms",
        "acclimate_slo_class",
    ]
)  # fmt: skip


@given(st.dictionaries(_KEYS, _JSON), st.integers())
def test_anything_goes_in_and_only_sane_values_come_out(
    extra: dict[str, Any], priority: int
) -> None:
    info = MetadataReader().read(_request(extra, priority=priority), number=1, arrival_ns=0)
    assert len(info.domain) <= MAX_LABEL_CHARS and info.domain.isprintable()
    if info.slo is not None and info.slo.ttft_s is not None:
        assert 0.001 <= info.slo.ttft_s <= 3600.0
