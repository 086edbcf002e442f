"""Answers ``GET /acclimate/state``: what a router may know of the engines behind this server."""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import msgspec

from acclimate.controller.engine_state import EngineState, SlotState
from acclimate.integrations.state_page import Seen, read_states
from acclimate.integrations.vllm.middleware import App, Receive, Send

PATH = "/acclimate/state"
VERSION = 1
TOKEN = "ACCLIMATE_STATE_TOKEN"
"""Environment variable: whoever asks must then send it, as ``Authorization: Bearer …``."""

CACHE_S = 0.5
_METHODS = (b"GET", b"HEAD")


class StateEndpoint:
    """ASGI middleware that answers `PATH` and passes everything else on.

    ``vllm serve … --middleware acclimate.integrations.vllm.state_endpoint.StateEndpoint``. The
    engine cores may live in other processes of the same user: their states come by way of
    `acclimate.integrations.state_page`. Asking changes nothing, waits for nobody, and reads the
    pages at most every `CACHE_S` seconds. Tenants are left out: their slots are merged.

    Parameters
    ----------
    app
        What is wrapped.
    read
        Gives the states of an engine by its name; by default from its pages.
    clock_s
        A monotonic clock in seconds.
    token
        Who asks must know it; by default what `TOKEN` says, and without that anybody may ask.

    Examples
    --------
    >>> import asyncio
    >>> async def send(message):
    ...     print(message.get("status") or message["body"].decode())
    >>> scope = {"type": "http", "method": "GET", "path": "/acclimate/state", "headers": []}
    >>> asyncio.run(StateEndpoint(None)(scope, None, send))
    503
    {"version":1,"engines":[],"reason":"this server does not say which engine is behind it"}
    """

    def __init__(
        self,
        app: App,
        read: Callable[[str], list[Seen]] = read_states,
        clock_s: Callable[[], float] = time.monotonic,
        token: str | None = None,
    ) -> None:
        self.app = app
        self._read = read
        self._clock_s = clock_s
        self._token = os.environ.get(TOKEN, "") if token is None else token
        self._cached: tuple[float, int, bytes] | None = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one connection."""
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        if scope["type"] != "http" or path != PATH:
            await self.app(scope, receive, send)
            return
        method = scope["method"].encode()
        more: list[tuple[bytes, bytes]] = []
        if method not in _METHODS:
            status, body = 405, _refusal("ask with GET")
            more.append((b"allow", b", ".join(_METHODS)))
        elif not self._may(scope["headers"]):
            status, body = 401, _refusal("the token is missing or wrong")
            more.append((b"www-authenticate", b"Bearer"))
        else:
            status, body = self._answer(scope)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            *more,
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        sent = b"" if method == b"HEAD" else body
        await send({"type": "http.response.body", "body": sent, "more_body": False})

    def _may(self, headers: Sequence[tuple[bytes, bytes]]) -> bool:
        if not self._token:
            return True
        wanted = f"Bearer {self._token}".encode()
        said = [value for name, value in headers if name.lower() == b"authorization"]
        return any(hmac.compare_digest(value, wanted) for value in said)

    def _answer(self, scope: MutableMapping[str, Any]) -> tuple[int, bytes]:
        """Return status and body, those of a moment ago if they are not older than that."""
        now_s = self._clock_s()
        if self._cached is None or now_s - self._cached[0] > CACHE_S:
            status, body = self._made(scope)
            self._cached = (now_s, status, body)
        return self._cached[1:]

    def _made(self, scope: MutableMapping[str, Any]) -> tuple[int, bytes]:
        config = getattr(getattr(scope.get("app"), "state", None), "vllm_config", None)
        if config is None:
            return 503, _refusal("this server does not say which engine is behind it")
        try:
            seen = self._read(str(config.instance_id))
            if not seen:
                return 503, _refusal(_why_none(config))
        except Exception as error:
            return 503, _refusal(f"states cannot be read: {type(error).__name__}: {error}")
        engines = [_plain(one) for one in seen]
        return 200, msgspec.json.encode({"version": VERSION, "engines": engines})


def without_tenants(slots: Sequence[SlotState]) -> list[SlotState]:
    """Return slots merged over tenants, by their evidence; ends of intervals as well.

    Examples
    --------
    >>> two = [SlotState(tenant=t, domain="code", graded_tokens=n, conditional=(q,), low=(q,),
    ...                  high=(q,)) for t, n, q in (("a", 10.0, 0.5), ("b", 30.0, 0.9))]
    >>> [(slot.tenant, slot.conditional) for slot in without_tenants(two)]
    [('', (0.8,))]
    """
    groups: dict[tuple[str, str, str], list[SlotState]] = {}
    for slot in slots:
        groups.setdefault((slot.trust_domain, slot.adapter, slot.domain), []).append(slot)
    return [_merged(group) for group in groups.values()]


def _merged(group: Sequence[SlotState]) -> SlotState:
    total = sum(slot.graded_tokens for slot in group)
    promised = [(slot.tpot_s, slot.running) for slot in group if slot.tpot_s is not None]
    weight = sum(running for _, running in promised)
    first = msgspec.structs.replace(
        group[0],
        tenant="",
        running=sum(slot.running for slot in group),
        tpot_s=sum(tpot_s * n for tpot_s, n in promised) / weight if weight else None,
    )
    if len(group) == 1 or not total:
        return first

    def mean(columns: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
        return tuple(
            sum(q * slot.graded_tokens for q, slot in zip(position, group, strict=True)) / total
            for position in zip(*columns, strict=True)
        )

    return msgspec.structs.replace(
        first,
        graded_tokens=total,
        conditional=mean([slot.conditional for slot in group]),
        low=mean([slot.low for slot in group]),
        high=mean([slot.high for slot in group]),
    )


def _plain(seen: Seen) -> dict[str, Any]:
    """Return an engine as JSON has it."""
    state: EngineState = msgspec.structs.replace(
        seen.state, slots=tuple(without_tenants(seen.state.slots))
    )
    fields: dict[str, Any] = msgspec.to_builtins(state)
    place = fields.pop("place")
    return {
        **place,
        "age_s": round(seen.age_s, 3),
        **fields,
        "speculation_pays": state.speculation_pays,
    }


def _why_none(config: Any) -> str:
    """Say why an engine shows no state."""
    from acclimate.integrations.vllm.factory import disabled_reason
    from acclimate.integrations.vllm.settings import opted_in, read_settings

    asked = config.scheduler_config.scheduler_cls is not None
    if not asked and not opted_in(config.additional_config):
        return "no controller was asked for"
    reason = disabled_reason(config)
    if reason is None and not read_settings(config.additional_config).share_state:
        reason = "the configuration says share_state = false"
    return reason or "the controller shows no state: it has not started, or handed over for good"


def _refusal(reason: str) -> bytes:
    return msgspec.json.encode({"version": VERSION, "engines": [], "reason": reason})
