"""Headers reach the engine by way of the body, and whatever else passes is left as it is."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.integrations.vllm.middleware import PATHS, SloHeaders, logger, rewritten

CHAT = "/v1/chat/completions"
TPOT = (b"x-slo-tpot-ms", b"50")


class Server:
    """An application that reads its request and answers in two pieces, as a stream does."""

    def __init__(self) -> None:
        self.scope: Any = None
        self.messages: list[Any] = []
        self.later: Any = None

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scope = scope
        if scope["type"] != "http":
            return
        while True:
            message = await receive()
            self.messages.append(message)
            if not message.get("more_body", False):
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        self.later = await receive()
        await send({"type": "http.response.body", "body": b"data: 2\n\n", "more_body": False})


def serve(
    *chunks: bytes, headers: Any = (TPOT,), path: str = CHAT, method: str = "POST",
    kind: bytes = b"application/json", scope: Any = None, most: int = 1000,
) -> tuple[Server, SloHeaders, list[Any]]:  # fmt: skip
    """Send a request in chunks, then a disconnect, and return what the server saw and said."""
    server = Server()
    middleware = SloHeaders(server, max_body_bytes=most)
    messages = [
        {"type": "http.request", "body": chunk, "more_body": i < len(chunks) - 1}
        for i, chunk in enumerate(chunks)
    ]
    incoming = iter([*messages, {"type": "http.disconnect"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(incoming)

    async def send(message: Any) -> None:
        sent.append(message)

    base = {
        "type": "http", "method": method, "path": path,
        "headers": [(b"content-type", kind), (b"content-length", b"1"), *headers],
    }  # fmt: skip
    asyncio.run(middleware(base | (scope or {}), receive, send))
    return server, middleware, sent


@pytest.mark.parametrize("path", sorted(PATHS))
def test_headers_become_extra_arguments(path: str) -> None:
    headers = [
        TPOT, (b"X-SLO-TTFT-MS", b" 250 "), (b"x-slo-e2e-ms", b"soon"), (b"x-slo-class", b"gold"),
        (b"x-acclimate-tenant", "ä".encode()), (b"x-other", b"1"),
    ]  # fmt: skip
    server, middleware, _ = serve(b'{"model": "m"}', headers=headers, path=path)
    assert server.json == {
        "model": "m",
        "vllm_xargs": {
            "acclimate_slo_tpot_ms": "50",
            "acclimate_slo_ttft_ms": "250",
            "acclimate_slo_e2e_ms": "soon",
            "acclimate_slo_class": "gold",
            "acclimate_tenant": "ä",
        },
    }
    assert middleware.counts == {"rewritten": 1}


def test_a_header_wins_over_the_body_and_other_arguments_stay() -> None:
    body = b'{"vllm_xargs": {"acclimate_slo_tpot_ms": 1, "mine": [1, 2.50]}, "n": 1e2}'
    server, _, _ = serve(body)
    assert server.body == (
        b'{"vllm_xargs":{"acclimate_slo_tpot_ms":"50","mine":[1, 2.50]},"n":1e2}'
    )


def test_of_equal_headers_the_last_counts() -> None:
    server, _, _ = serve(b"{}", headers=[TPOT, (b"x-slo-tpot-ms", b"70")])
    assert server.json["vllm_xargs"] == {"acclimate_slo_tpot_ms": "70"}


def test_the_new_body_comes_in_one_piece_with_its_length() -> None:
    chunked = [TPOT, (b"transfer-encoding", b"chunked")]
    server, _, _ = serve(b'{"mod', b'el": "', b"", b'm"}', headers=chunked)
    headers = dict(server.scope["headers"])
    assert len(server.messages) == 1 and b"transfer-encoding" not in headers
    assert int(headers[b"content-length"]) == len(server.body)
    assert server.json["model"] == "m"


def test_a_streamed_answer_and_a_disconnect_pass_as_they_come() -> None:
    server, _, sent = serve(b"{}")
    assert [message.get("body") for message in sent[1:]] == [b"data: 1\n\n", b"data: 2\n\n"]
    assert server.later == {"type": "http.disconnect"}


@pytest.mark.parametrize(
    ("body", "more", "reason"),
    [
        (b'{"model": "m"', {}, "not_a_json_object"),
        (b"", {}, "not_a_json_object"),
        (b"[1]", {}, "not_a_json_object"),
        (b'{"vllm_xargs": [1]}', {}, "not_a_json_object"),
        (b'{"temperature": NaN}', {}, "not_a_json_object"),
        (b"\xff\xfe{\x00}\x00", {}, "not_a_json_object"),
        (b'{"a":' + b"[" * 100_000, {"most": 10**6}, "not_a_json_object"),
        (b"a=1", {"kind": b"application/x-www-form-urlencoded"}, "not_json"),
        (b"{}", {"headers": [TPOT, (b"content-encoding", b"gzip")]}, "encoded"),
        (b"{" + b" " * 2000 + b"}", {}, "too_large"),
        (b"{}", {"headers": [TPOT, (b"content-length", b"5000")]}, "too_large"),
    ],
)
def test_a_body_that_cannot_be_rewritten_is_passed_on_untouched(
    body: bytes, more: Any, reason: str
) -> None:
    server, middleware, sent = serve(body, **more)
    assert server.body == body and sent[0]["status"] == 200
    assert middleware.counts == {reason: 1}


def test_a_huge_body_streams_through_after_the_cap() -> None:
    chunks = [b"{" + b" " * 600, b" " * 600, b" " * 600, b"}"]
    server, middleware, _ = serve(*chunks)
    assert [message["body"] for message in server.messages] == chunks
    assert middleware.counts == {"too_large": 1} and server.later["type"] == "http.disconnect"


def test_a_client_that_leaves_while_it_sends_is_passed_on() -> None:
    server = Server()
    messages = iter(
        [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    )

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        raise OSError("gone")

    scope = {
        "type": "http", "method": "POST", "path": CHAT,
        "headers": [(b"content-type", b"application/json"), TPOT],
    }  # fmt: skip
    with pytest.raises(OSError, match="gone"):
        asyncio.run(SloHeaders(server)(scope, receive, send))
    assert [message["type"] for message in server.messages] == ["http.request", "http.disconnect"]


@pytest.mark.parametrize(
    "more",
    [
        {"path": "/v1/embeddings"},
        {"path": "/metrics", "method": "GET"},
        {"headers": []},
        {"method": "OPTIONS"},
        {"scope": {"type": "websocket"}},
        {"scope": {"type": "lifespan"}},
    ],
)
def test_everything_else_is_not_looked_at(more: Any) -> None:
    server, middleware, _ = serve(b'{"model":', b' "m"}', **more)
    assert not middleware.counts and server.scope["headers"][1] == (b"content-length", b"1")
    if server.messages:
        assert [message["body"] for message in server.messages] == [b'{"model":', b' "m"}']


def test_a_root_path_is_no_part_of_the_path() -> None:
    server, _, _ = serve(b"{}", scope={"path": "/llm" + CHAT, "root_path": "/llm"})
    assert server.json["vllm_xargs"] == {"acclimate_slo_tpot_ms": "50"}


def test_a_long_value_is_cut_and_stays_too_long() -> None:
    server, _, _ = serve(b"{}", headers=[(b"x-slo-tpot-ms", b"9" * 10_000)])
    assert len(server.json["vllm_xargs"]["acclimate_slo_tpot_ms"]) == 256


def test_what_had_no_effect_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(logger, "warning", lambda line, *words: lines.append(line % words))
    middleware = SloHeaders(Server())

    async def receive() -> Any:
        return {"type": "http.request", "body": b"no", "more_body": False}

    async def send(message: Any) -> None: ...

    scope = {"type": "http", "method": "POST", "path": CHAT,
             "headers": [(b"content-type", b"application/json"), TPOT]}  # fmt: skip
    for _ in range(3):
        asyncio.run(middleware(scope, receive, send))
    assert middleware.counts == {"not_a_json_object": 3}
    (line,) = lines
    assert "had no effect on a request (not_a_json_object); said once" in line


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(deadline=None)
@given(st.dictionaries(st.text("abcvx_"), _JSON, max_size=4), st.booleans())
def test_all_else_in_the_body_stays(fields: dict[str, Any], ascii_only: bool) -> None:
    body = json.dumps(fields, ensure_ascii=ascii_only).encode()
    new = rewritten(body, {"k": "v"})
    assert new is not None
    assert json.loads(new) == {**fields, "vllm_xargs": {"k": "v"}}


@given(st.binary(max_size=60))
def test_any_bytes_give_a_body_or_none(body: bytes) -> None:
    new = rewritten(body, {"k": "v"})
    with contextlib.suppress(ValueError):
        json.loads(body)  # what was no JSON may stay none
        assert new is None or json.loads(new)["vllm_xargs"]["k"] == "v"
