"""Takes latency targets from HTTP headers, and puts them where the engine passes them on."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

# The server shows what is logged below its own name.
logger = logging.getLogger("vllm.acclimate")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

HEADERS = {
    b"x-slo-ttft-ms": "acclimate_slo_ttft_ms",
    b"x-slo-tpot-ms": "acclimate_slo_tpot_ms",
    b"x-slo-e2e-ms": "acclimate_slo_e2e_ms",
    b"x-slo-class": "acclimate_slo_class",
    b"x-acclimate-tenant": "acclimate_tenant",
    b"x-acclimate-domain": "acclimate_domain",
}
"""Which header becomes which extra argument of a request."""

PATHS = frozenset({"/v1/completions", "/v1/chat/completions"})
MAX_BODY_BYTES = 16 * 2**20
_MAX_VALUE_BYTES = 256
_Raws = dict[str, msgspec.Raw]
_BODY = msgspec.json.Decoder(_Raws)
_XARGS = msgspec.json.Decoder(_Raws | None)


class SloHeaders:
    """ASGI middleware: moves `HEADERS` of a completion request into its body's ``vllm_xargs``.

    ``vllm serve … --middleware acclimate.integrations.vllm.middleware.SloHeaders`` puts it before
    everything else. A header wins over the body's own argument, so that a gateway that sets headers
    has the last word. Where a body cannot be rewritten, the request goes on untouched and without
    what the headers say: nothing here ever answers a client. Requests without such headers, other
    paths and responses pass through as they are.

    Parameters
    ----------
    app
        What is wrapped.
    max_body_bytes
        A longer body is passed on as it comes, and not kept in memory here.

    Attributes
    ----------
    counts
        Requests that were rewritten (``rewritten``) and that were not, by reason.

    Examples
    --------
    >>> import asyncio
    >>> async def app(scope, receive, send):
    ...     print((await receive())["body"])
    >>> async def receive():
    ...     return {"type": "http.request", "body": b'{"model":"m"}', "more_body": False}
    >>> scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": [
    ...     (b"content-type", b"application/json"), (b"x-slo-tpot-ms", b"50")]}
    >>> asyncio.run(SloHeaders(app)(scope, receive, None))
    b'{"model":"m","vllm_xargs":{"acclimate_slo_tpot_ms":"50"}}'
    """

    def __init__(self, app: App, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self.app = app
        self.max_body_bytes = max_body_bytes
        self.counts: Counter[str] = Counter()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one connection."""
        said = _said(scope)
        if not said:
            await self.app(scope, receive, send)
            return
        reason = self._unfit(scope["headers"])
        if reason is not None:
            self._pass_over(reason)
            await self.app(scope, receive, send)
            return
        kept, reason = await self._keep(receive)
        body = None
        if reason is None:
            body = rewritten(b"".join(message.get("body", b"") for message in kept), said)
            reason = "not_a_json_object" if body is None else None
        if body is None:
            if reason is not None:
                self._pass_over(reason)
            await self.app(scope, _replay(kept, receive), send)
            return
        self.counts["rewritten"] += 1
        one: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        fit = {**scope, "headers": _with_length(scope["headers"], len(body))}
        await self.app(fit, _replay(one, receive), send)

    def _unfit(self, headers: list[tuple[bytes, bytes]]) -> str | None:
        """Return why a body is not looked at, or None."""
        kind = _last(headers, b"content-type") or b""
        if kind.split(b";", 1)[0].strip().lower() != b"application/json":
            return "not_json"
        if (_last(headers, b"content-encoding") or b"identity").strip().lower() != b"identity":
            return "encoded"
        length = _last(headers, b"content-length") or b""
        if length.isdigit() and len(length) < 20 and int(length) > self.max_body_bytes:
            return "too_large"
        return None

    async def _keep(self, receive: Receive) -> tuple[list[Message], str | None]:
        """Receive the body; with it, why it is not whole, or None."""
        kept: list[Message] = []
        size = 0
        while True:
            message = await receive()
            kept.append(message)
            if message["type"] != "http.request":
                return kept, "disconnected"
            size += len(message.get("body", b""))
            if size > self.max_body_bytes:
                return kept, "too_large"
            if not message.get("more_body", False):
                return kept, None

    def _pass_over(self, reason: str) -> None:
        if not self.counts[reason]:
            logger.warning(
                "acclimate: SLO headers had no effect on a request (%s); said once, then counted",
                reason,
            )
        self.counts[reason] += 1


def rewritten(body: bytes, said: dict[str, str]) -> bytes | None:
    """Return a request's body with further extra arguments, None if it is not one to add to.

    Whatever else is in the body stays as it is, byte by byte.

    Examples
    --------
    >>> rewritten(b'{"a": 1.50, "vllm_xargs": {"x": 1}}', {"y": "2"})
    b'{"a":1.50,"vllm_xargs":{"x":1,"y":"2"}}'
    >>> rewritten(b"[1]", {"y": "2"}) is None
    True
    """
    try:
        fields = _BODY.decode(body)
        own = _XARGS.decode(fields["vllm_xargs"]) if "vllm_xargs" in fields else None
        xargs = (own or {}) | {key: _raw(value) for key, value in said.items()}
        fields["vllm_xargs"] = _raw(xargs)
        return msgspec.json.encode(fields)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _said(scope: MutableMapping[str, Any]) -> dict[str, str]:
    """Return the extra arguments that a request's headers ask for; of equal headers, the last."""
    if scope["type"] != "http" or scope.get("method") != "POST":
        return {}
    if scope["path"].removeprefix(scope.get("root_path", "")) not in PATHS:
        return {}
    said = {}
    for name, value in scope["headers"]:
        key = HEADERS.get(name.lower())
        if key is not None:
            # Too long a value stays too long, and is refused and counted where it is read.
            said[key] = value[:_MAX_VALUE_BYTES].decode("utf-8", "replace").strip()
    return said


def _last(headers: list[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    return next((value for key, value in reversed(headers) if key.lower() == name), None)


def _with_length(headers: list[tuple[bytes, bytes]], length: int) -> list[tuple[bytes, bytes]]:
    """Return headers that describe a body of ``length`` bytes in one piece."""
    kept = [
        (name, value)
        for name, value in headers
        if name.lower() not in (b"content-length", b"transfer-encoding")
    ]
    return [*kept, (b"content-length", str(length).encode())]


def _replay(kept: list[Message], receive: Receive) -> Receive:
    """Return a source of the messages that were received already, and then of those to come."""
    rest = iter(kept)

    async def replayed() -> Message:
        message = next(rest, None)
        return await receive() if message is None else message

    return replayed
