"""What was learned outlives the engine, in a file that a stranger may hand us."""

from __future__ import annotations

import json
import threading

import msgspec
import numpy as np
import pytest

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities, RequestInfo
from acclimate.controller.warm_start import prior_of
from acclimate.experiments.scripted_scheduler import ScriptedScheduler
from acclimate.integrations.header import EngineHeader
from acclimate.integrations.runtime import Runtime
from acclimate.integrations.state_store import SnapshotQueue, StateSink, StateStore
from acclimate.integrations.trace_format import pack

DEPTH = 5
ENGINE = Capabilities(
    max_depth=DEPTH, depths=tuple(range(DEPTH + 1)), free_drafts=True, hindsight=True
)


def header(model="m", **fields):
    return EngineHeader(
        engine="none", engine_version="0", runner="v1", model=model, dtype="float32",
        method="ngram", device="cpu", capabilities=ENGINE, max_model_len=64, max_num_seqs=8,
        **fields,
    )  # fmt: skip


@pytest.fixture(scope="module")
def learned():
    """A policy that served for a while."""
    engine = ScriptedScheduler(8, max_depth=DEPTH, seed=3)
    for _ in range(400):
        engine.step()
    return engine.loop.policy


@pytest.fixture
def store(tmp_path):
    return StateStore(tmp_path / "states", "adaptive", header())


def survival(policy, number=10**6, domain="domain-1"):
    policy.admit(RequestInfo(request=number, prompt_tokens=5, max_tokens=9, domain=domain))
    row = policy.beliefs.rows.find(np.array([number]))
    slots = policy.beliefs.rows.slot[row]
    found = policy.beliefs.acceptance.survival(slots, row)
    policy.forget(number)
    return found


def test_the_next_start_is_warm(store, learned, tmp_path):
    store.save(prior_of(learned.state()))
    config = ControlConfig.read({"memory": {"path": str(tmp_path / "states")}})
    lines = []
    warm = Runtime.start(config, ENGINE, header(), lines.append)
    cold = Runtime.start(ControlConfig(), ENGINE, header(), print)
    expected = survival(learned)
    errors = [np.abs(survival(runtime.loop.policy) - expected).max() for runtime in (warm, cold)]
    for runtime in (warm, cold):
        runtime.close()
    assert "warm start" in lines[0]
    assert errors[0] < errors[1]
    assert not len(warm.loop.policy.beliefs.rows)


def test_a_state_is_saved_while_serving_and_at_the_end(store, tmp_path):
    engine = ScriptedScheduler(4, max_depth=DEPTH, seed=1)
    queue, saved = SnapshotQueue(), threading.Event()

    def keep(state):
        saved.set()
        return prior_of(state)

    sink = StateSink(store, queue, keep, interval_s=0.02)
    engine.loop.attach(queue)
    sink.start()
    for _ in range(3_000):
        engine.step()
        if saved.is_set():
            break
    sink.close()
    assert sink.saved >= 1
    assert store.read()["slots"]["keys"]
    assert not list(tmp_path.rglob("*.tmp"))


def test_the_last_state_is_saved_when_the_runtime_closes(tmp_path):
    config = ControlConfig.read({"memory": {"path": str(tmp_path)}})
    runtime = Runtime.start(config, ENGINE, header(), print)
    runtime.close()
    assert not list(tmp_path.iterdir())  # nothing was served: nothing to tell
    runtime = Runtime.start(config, ENGINE, header(), print)
    runtime.loop.admit(RequestInfo(request=1, prompt_tokens=5, max_tokens=9, domain="code"))
    runtime.loop.counters.outcomes = 1
    runtime.close()
    state = StateStore(tmp_path, "adaptive", header()).read()
    assert state is not None
    assert state["slots"]["keys"][0][4] == "code"


def test_other_engines_have_files_of_their_own(tmp_path):
    stores = [
        StateStore(tmp_path, *about)
        for about in (
            ("adaptive", header()), ("mine", header()), ("adaptive", header("n")),
            ("adaptive", header(rank=1)),
        )
    ]  # fmt: skip
    assert len({store.path for store in stores}) == 4


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: len(text) // 2], "damaged"),
        (lambda text: "", "damaged"),
        (lambda text: "[" * 100_000, "damaged"),
        (lambda text: text.replace('"schema":1', '"schema":2'), "must have schema 1, got 2"),
        (lambda text: text.replace('"checksum":', '"checksum":1'), "checksum"),
        (lambda text: text.replace("acclimate-state", "pickle"), "must be an acclimate-state"),
        (lambda text: text.replace('"model":"m"', '"model":"n"'), "another's"),
    ],
)
def test_a_file_that_is_not_ours_is_refused_by_name(store, damage, message):
    store.save({"q": np.zeros(3)})
    store.path.write_text(damage(store.path.read_text()))
    with pytest.raises(ValueError, match=message):
        store.read()


@pytest.mark.parametrize(
    "array",
    [
        {"dtype": "|O", "shape": [1], "base64": "AAAAAAAAAAA="},
        {"dtype": "<f8", "shape": [-1], "base64": "AAAAAAAAAAA="},
        {"dtype": "<f8", "shape": [10**15], "zlib": "eJxjYGBgAAAABAAB"},
        {"dtype": "<f8", "shape": [2], "base64": "AAAAAAAAAAA="},
        {"dtype": "nonsense", "shape": [1], "base64": "AA=="},
    ],
)
def test_arrays_that_lie_are_refused(store, array):
    store.save({"q": 1})
    content = json.loads(store.path.read_text())
    text = msgspec.json.encode({"q": array})
    import zlib

    content.update(state=text.decode(), checksum=zlib.crc32(text))
    store.path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="damaged"):
        store.read()


def test_a_damaged_state_means_a_cold_start(store, learned, tmp_path):
    prior = prior_of(learned.state())
    prior["acceptance"]["table"]["pool"][0] = 10**9
    store.save(prior)
    config = ControlConfig.read({"memory": {"path": str(tmp_path / "states")}})
    lines = []
    runtime = Runtime.start(config, ENGINE, header(), lines.append)
    fresh = Runtime.start(ControlConfig(), ENGINE, header(), print)
    assert "cold start: ValueError: pool must be in" in lines[0]
    assert pack(runtime.loop.policy.state()) == pack(fresh.loop.policy.state())
    for each in (runtime, fresh):
        each.close()


def test_there_is_nothing_before_the_first_save(store):
    assert store.read() is None
