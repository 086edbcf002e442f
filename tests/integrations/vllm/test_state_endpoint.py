"""``GET /acclimate/state`` on a real HTTP server, with engine cores that are elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from types import SimpleNamespace as Object
from typing import Any

import msgspec
import pytest

from acclimate.controller.engine_state import EngineState, Load, Place, SlotState
from acclimate.controller.placement import advise
from acclimate.controller.records import RequestInfo
from acclimate.integrations.state_page import Seen
from acclimate.integrations.vllm.middleware import SloHeaders
from acclimate.integrations.vllm.state_endpoint import CACHE_S, PATH, StateEndpoint

uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed")


def _slot(tenant: str, q: float, running: int, tpot_s: float | None) -> SlotState:
    return SlotState(tenant=tenant, domain="code", graded_tokens=10.0, conditional=(q,),
                     low=(q - 0.1,), high=(q + 0.1,),
                     running=running, tpot_s=tpot_s)  # fmt: skip


STATE = EngineState(
    place=Place(engine="e1-0", curve_key="cpu | m", residency=("eu",), seats=8),
    load=Load(running=3, waiting=1), policy="adaptive", max_depth=1, step_ms=(20.0, 21.0),
    headroom_tokens=5, speedup=1.2, rate_tokens_per_s=150.0,
    slots=(_slot("secret-tenant", 0.4, 1, None), _slot("other-tenant", 0.8, 2, 0.03)),
)  # fmt: skip


class Reader:
    """Gives what a test sets, and counts how often it is asked."""

    def __init__(self) -> None:
        self.states: list[Seen] = [Seen(STATE, 0.25)]
        self.asked: list[str] = []

    def __call__(self, engine: str) -> list[Seen]:
        self.asked.append(engine)
        return self.states


class Server:
    """An application that answers 200 to everything, and says which engine is behind it."""

    def __init__(self, config: Any) -> None:
        self.state = Object(vllm_config=config)
        self.served = 0
        self.middleware: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        scope["app"] = self  # as the server's framework does
        await self.middleware(scope, receive, send)

    async def inner(self, scope: Any, receive: Any, send: Any) -> None:
        self.served += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"inner"})


CONFIG = Object(instance_id="e1", additional_config={}, scheduler_config=Object(scheduler_cls=None))


def _server(reader: Any, *, token: str = "", clock_s: Any = time.monotonic) -> Server:
    server = Server(CONFIG)
    endpoint = StateEndpoint(server.inner, reader, clock_s, token)
    server.middleware = SloHeaders(endpoint)
    return server


@pytest.fixture
def serve() -> Iterator[Callable[[Any], str]]:
    running: list[tuple[Any, threading.Thread]] = []

    def start(app: Any) -> str:
        config = uvicorn.Config(app, host="127.0.0.1", port=0, lifespan="off", log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        running.append((server, thread))
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join(10)


def _ask(url: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    request = urllib.request.Request(url, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, dict(response.headers), response.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


def test_a_router_asks_over_http(serve: Callable[[Any], str]) -> None:
    now_s, reader = [0.0], Reader()
    server = _server(reader, clock_s=lambda: now_s[0])
    url = serve(server)
    status, headers, body = _ask(url + PATH)
    document = json.loads(body)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert (document["version"], reader.asked) == (1, ["e1"])
    (engine,) = document["engines"]
    assert engine["engine"] == "e1-0" and engine["load"]["running"] == 3
    assert engine["age_s"] == 0.25 and engine["speculation_pays"] is True
    assert engine["slots"][0]["conditional"] == pytest.approx([0.6]) and len(engine["slots"]) == 1
    assert (engine["slots"][0]["running"], engine["slots"][0]["tpot_s"]) == (3, 0.03)
    assert b"tenant-" not in body and b"-tenant" not in body
    # A moment later it is the same answer, and after that a new one.
    reader.states = []
    now_s[0] = CACHE_S / 2
    assert _ask(url + PATH)[2] == body and len(reader.asked) == 1
    now_s[0] = 2 * CACHE_S
    assert _ask(url + PATH)[0] == 503 and len(reader.asked) == 2
    assert CACHE_S <= 1.0
    # Everything else is the server's.
    assert _ask(f"{url}/acclimate/states")[2] == b"inner" and _ask(f"{url}/v1/x")[2] == b"inner"
    assert server.served == 2


def test_an_engine_core_in_another_process_is_asked(serve: Callable[[Any], str]) -> None:
    name = f"test{os.getpid()}"
    program = textwrap.dedent("""
        import sys
        from acclimate.controller.engine_state import EngineState, Load, Place
        from acclimate.integrations.state_page import StatePage
        page = StatePage(sys.argv[1] + "-0")
        page.write(EngineState(place=Place(engine="core"), load=Load()))
        page.load(5, 1)
        print("written", flush=True)
        sys.stdin.read()
        page.close()
    """)
    server = Server(Object(instance_id=name))
    server.middleware = StateEndpoint(server.inner, token="")
    url = serve(server) + PATH
    with subprocess.Popen([sys.executable, "-c", program, name], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as core:  # fmt: skip
        assert core.stdout is not None and core.stdout.readline() == "written\n"
        status, _, body = _ask(url)
        core.communicate("")
    (engine,) = json.loads(body)["engines"]
    assert (status, engine["engine"], engine["load"]["running"]) == (200, "core", 5)
    time.sleep(CACHE_S + 0.1)
    assert _ask(url)[0] == 503


def test_methods_and_tokens(serve: Callable[[Any], str]) -> None:
    url = serve(_server(Reader(), token="s3cret")) + PATH
    assert _ask(url)[0] == 401 and _ask(url, Authorization="Bearer wrong")[0] == 401
    assert _ask(url, Authorization="Bearer s3cret")[0] == 200
    status, headers, body = _ask(url, "HEAD", Authorization="Bearer s3cret")
    assert (status, body) == (200, b"") and int(headers["content-length"]) > 100
    status, headers, _ = _ask(url, "POST")
    assert status == 405 and headers["allow"] == "GET, HEAD"


def test_without_a_controller_the_answer_says_why(serve: Callable[[Any], str]) -> None:
    pytest.importorskip("vllm", reason="vllm is not installed")
    reader = Reader()
    reader.states = []
    status, _, body = _ask(serve(_server(reader)) + PATH)
    assert status == 503
    assert json.loads(body) == {
        "version": 1, "engines": [], "reason": "no controller was asked for",
    }  # fmt: skip

    def fails(engine: str) -> list[Seen]:
        raise PermissionError("not yours")

    status, _, body = _ask(serve(_server(fails)) + PATH)
    assert status == 503 and "PermissionError: not yours" in json.loads(body)["reason"]


def test_what_is_answered_is_enough_for_advice(serve: Callable[[Any], str]) -> None:
    (engine,) = json.loads(_ask(serve(_server(Reader())) + PATH)[2])["engines"]
    place = {key: engine[key] for key in Place.__struct_fields__}
    state = msgspec.convert({**engine, "place": place}, type=EngineState)
    request = RequestInfo(request=1, prompt_tokens=5, max_tokens=9, domain="code")
    (advice,) = advise(request, [state], residency=("eu",))
    assert advice.reason is None and advice.queued
    assert advise(request, [state], residency=("us",))[0].reason == "residency"
