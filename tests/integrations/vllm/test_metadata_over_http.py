"""What malformed metadata costs its client when it comes over HTTP: its target, never its request."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from acclimate.controller.config import SloConfig
from acclimate.controller.records import RequestInfo, Slo
from acclimate.integrations.vllm.metadata import MetadataReader
from acclimate.integrations.vllm.middleware import SloHeaders

uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed")

SERVICE = SloConfig.model_validate(
    {
        "classes": {"gold": {"tpot_ms": 30, "tenants": ["a"]}},
        "default_class": "standard",
        "trusted_tenants": ["a", "b"],
        "least_tpot_ms": 5,
    }
)
STANDARD = Slo(ttft_s=2.0, tpot_s=0.15)
TPOT, CLASS, TENANT = "x-slo-tpot-ms", "x-slo-class", "x-acclimate-tenant"


class Engine:
    """Reads a completion's metadata as the engine does: JSON by the standard library, extra args."""

    def __init__(self) -> None:
        self.reader = MetadataReader()
        self.infos: list[RequestInfo] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        extra = json.loads(body).get("vllm_xargs")
        request = SimpleNamespace(
            num_prompt_tokens=3, max_tokens=9, lora_request=None, priority=0,
            structured_output_request=None,
            sampling_params=SimpleNamespace(temperature=0.0, extra_args=extra),
        )  # fmt: skip
        info = self.reader.read(request, number=1, arrival_ns=0, service=SERVICE)
        self.infos.append(info)
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Engine, str]]:
    engine = Engine()
    app: Any = SloHeaders(engine)
    config = uvicorn.Config(app, host="127.0.0.1", port=0, lifespan="off", log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield engine, f"http://127.0.0.1:{port}/v1/completions"
    server.should_exit = True
    thread.join(10)


def _send(
    served: tuple[Engine, str], headers: dict[str, str], body: str
) -> tuple[RequestInfo, dict[str, int]]:
    engine, url = served
    engine.reader.problems.clear()
    request = urllib.request.Request(
        url, data=body.encode(), headers={"Content-Type": "application/json"} | headers
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        assert response.status == 200 and response.read() == b"ok"
    problems = {str(problem): count for problem, count in engine.reader.problems.items()}
    return engine.infos[-1], problems


@pytest.mark.parametrize(
    ("value", "tpot_s", "problem"),
    [
        ("-5", 0.15, "not_positive"),
        ("0", 0.15, "not_positive"),
        ("nan", 0.15, "not_finite"),
        ("-inf", 0.15, "not_finite"),
        ("1e999", 0.15, "not_finite"),
        ("soon", 0.15, "not_a_number"),
        ("0x10", 0.15, "not_a_number"),
        ("", 0.15, "not_a_number"),
        ("9" * 400, 0.15, "too_long"),
        ("0.5", 0.005, "too_short"),
        ("1e12", 3600.0, "too_far"),
        ("42.5", 0.0425, None),
    ],
)
def test_targets_in_headers(
    served: tuple[Engine, str], value: str, tpot_s: float, problem: str | None
) -> None:
    info, problems = _send(served, {TPOT: value, TENANT: "b"}, '{"model": "m"}')
    assert (info.slo_class, info.slo) == ("standard", Slo(ttft_s=2.0, tpot_s=tpot_s))
    assert problems == ({} if problem is None else {problem: 1})


@pytest.mark.parametrize(
    ("literal", "tpot_s", "problem"),
    [
        ("-5", 0.15, "not_positive"),
        ("NaN", 0.15, "not_finite"),
        ("-Infinity", 0.15, "not_finite"),
        ("1e400", 0.15, "not_finite"),
        ("1" + "0" * 400, 0.15, "not_finite"),
        ('"soon"', 0.15, "not_a_number"),
        ("[50]", 0.15, "not_a_number"),
        ("true", 0.15, "not_a_number"),
        ('{"a": 1}', 0.15, "not_a_number"),
        ('"30"', 0.03, None),
    ],
)
def test_targets_in_the_body(
    served: tuple[Engine, str], literal: str, tpot_s: float, problem: str | None
) -> None:
    xargs = f'{{"acclimate_slo_tpot_ms": {literal}, "acclimate_tenant": "b"}}'
    info, problems = _send(served, {}, f'{{"vllm_xargs": {xargs}}}')
    assert (info.slo_class, info.slo) == ("standard", Slo(ttft_s=2.0, tpot_s=tpot_s))
    assert problems == ({} if problem is None else {problem: 1})


@pytest.mark.parametrize(
    ("headers", "slo_class", "slo", "problem"),
    [
        ({CLASS: "royal", TENANT: "a"}, "standard", STANDARD, "unknown_class"),
        ({CLASS: "gold", TENANT: "b"}, "standard", STANDARD, "class_denied"),
        ({CLASS: "gold"}, "standard", STANDARD, "class_denied"),
        ({CLASS: "x" * 5000, TENANT: "a"}, "standard", STANDARD, "too_long"),
        ({CLASS: "gold", TENANT: "a"}, "gold", Slo(tpot_s=0.03), None),
        ({TPOT: "20", TENANT: "stranger"}, "standard", STANDARD, "target_denied"),
        ({CLASS: "gold", TENANT: "a" * 99}, "standard", STANDARD, "too_long"),
        ({CLASS: "batch"}, "batch", None, None),
    ],
)
def test_classes_and_permissions_in_headers(
    served: tuple[Engine, str], headers: dict[str, str], slo_class: str, slo: Slo | None,
    problem: str | None,
) -> None:  # fmt: skip
    info, problems = _send(served, headers, "{}")
    assert (info.slo_class, info.slo) == (slo_class, slo)
    assert set(problems) - {"class_denied"} == ({problem} if problem else set()) - {"class_denied"}
    assert ("class_denied" in problems) == (problem == "class_denied" or headers.get(TENANT, "")
                                            == "a" * 99)  # fmt: skip


def test_a_header_that_is_malformed_replaces_a_good_target_in_the_body(
    served: tuple[Engine, str],
) -> None:
    """A header wins over the body, even where that leaves no target of the client's own."""
    body = '{"vllm_xargs": {"acclimate_slo_tpot_ms": 40, "acclimate_tenant": "b"}}'
    info, problems = _send(served, {TPOT: "soon"}, body)
    assert info.slo == STANDARD and problems == {"not_a_number": 1}


def test_not_a_number_as_a_literal_beside_headers_costs_only_the_headers(
    served: tuple[Engine, str],
) -> None:
    """Strict JSON knows no NaN: such a body goes on untouched, as the page on promises says."""
    body = '{"temperature": NaN, "vllm_xargs": {"acclimate_tenant": "b"}}'
    info, problems = _send(served, {TPOT: "40"}, body)
    assert (info.tenant, info.slo, problems) == ("b", STANDARD, {})
