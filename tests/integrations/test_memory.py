"""What was learned outlives the engine, in files that a stranger may hand us."""

from __future__ import annotations

import json
import threading
import zlib

import msgspec
import numpy as np
import pytest

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities, RequestInfo
from acclimate.controller.warm_start import ACCEPTANCE, STEP_TIMES, kept_of
from acclimate.experiments.scripted_scheduler import ScriptedScheduler
from acclimate.integrations.engine_key import EngineKey
from acclimate.integrations.header import EngineHeader
from acclimate.integrations.memory_keeper import MemoryKeeper
from acclimate.integrations.memory_store import MemoryStore
from acclimate.integrations.runtime import Runtime
from acclimate.integrations.trace_format import pack, unpack

DEPTH = 5
ENGINE = Capabilities(
    max_depth=DEPTH, depths=tuple(range(DEPTH + 1)), free_drafts=True, hindsight=True
)
HEADER = EngineHeader(
    engine="none", engine_version="0", runner="v1", model="m", dtype="float32",
    method="ngram", device="cpu", capabilities=ENGINE, max_model_len=64, max_num_seqs=8,
)  # fmt: skip
KEY = EngineKey.of(HEADER, draft_model="d")


@pytest.fixture(scope="module")
def learned():
    """A policy that served for a while."""
    engine = ScriptedScheduler(8, max_depth=DEPTH, seed=3)
    for _ in range(400):
        engine.step()
    return engine.loop.policy


@pytest.fixture
def kept(learned):
    """Its parts, for a test to damage."""
    parts = kept_of(learned.state())
    assert list(parts) == [ACCEPTANCE, STEP_TIMES]
    return parts


@pytest.fixture
def store(tmp_path):
    return MemoryStore(tmp_path, "adaptive", KEY)


def start(folder, lines, key=KEY, **settings):
    config = ControlConfig.read({"memory": {"path": str(folder)}, **settings})
    return Runtime.start(config, ENGINE, HEADER, lines.append, key)


def begun(folder, key=KEY, **settings):
    """Start on a folder and return the policy, and the one line of the log."""
    lines = []
    runtime = start(folder, lines, key, **settings)
    runtime.close()
    (line,) = lines
    return runtime.loop.policy, line


def survival(policy):
    request = RequestInfo(request=10**6, prompt_tokens=5, max_tokens=9, domain="domain-1")
    policy.admit(request)
    row = policy.beliefs.rows.find(np.array([request.request]))
    found = policy.beliefs.acceptance.survival(policy.beliefs.rows.slot[row], row)
    policy.forget(request.request)
    return found


def test_the_next_start_is_warm(store, learned, kept, tmp_path):
    for part, state in kept.items():
        store.write(part, state)
    warm, line = begun(tmp_path)
    cold, cold_line = begun(tmp_path / "other")
    assert line.endswith("acceptance warm; step_times warm")
    assert cold_line.endswith("acceptance cold (none of this engine); "
                              "step_times cold (none of this engine)")  # fmt: skip
    expected = survival(learned)
    errors = [np.abs(survival(policy) - expected).max() for policy in (warm, cold)]
    assert errors[0] < errors[1]
    assert not len(warm.beliefs.rows)
    assert warm.latency.steps == 400
    assert warm.latency.curve(8, 16) == pytest.approx(learned.latency.curve(8, 16), rel=0.01)


def test_a_part_comes_back_bit_by_bit(store, kept, tmp_path):
    for part, state in kept.items():
        path = store.write(part, state)
        assert pack(store.read(part)) == pack(state)
        assert path.parent == tmp_path
    assert len(list(tmp_path.iterdir())) == len(kept)


@pytest.mark.parametrize(
    ("change", "warm"),
    [
        ({"device": "H200"}, {ACCEPTANCE}),
        ({"engine_version": "1"}, {ACCEPTANCE}),
        ({"tensor_parallel": 2}, {ACCEPTANCE}),
        ({"draft_model": "e"}, {STEP_TIMES}),
        ({"lookup_max": 4}, {STEP_TIMES}),
        ({"model": "n"}, set()),
        ({"max_depth": 4}, set()),
        ({}, {ACCEPTANCE, STEP_TIMES}),
    ],
)
def test_a_change_makes_cold_what_depends_on_it(tmp_path, store, kept, change, warm):
    for part, state in kept.items():
        store.write(part, state)
    other = MemoryStore(tmp_path, "adaptive", msgspec.structs.replace(KEY, **change))
    assert {part for part in kept if other.read(part) is not None} == warm


def test_other_policies_and_ranks_have_files_of_their_own(tmp_path):
    stores = [MemoryStore(tmp_path, *about) for about in (("adaptive", KEY), ("mine", KEY),
                                                          ("adaptive", KEY, 1))]  # fmt: skip
    assert len({store.path_of(part) for store in stores for part in (ACCEPTANCE, STEP_TIMES)}) == 6


def test_parts_are_saved_while_serving_and_at_the_end(store, tmp_path):
    engine = ScriptedScheduler(4, max_depth=DEPTH, seed=1)
    saved = threading.Event()

    class Told(MemoryStore):
        def write(self, part, state):
            path = super().write(part, state)
            if part == STEP_TIMES:
                saved.set()
            return path

    told = Told(tmp_path, "adaptive", KEY)
    keeper = MemoryKeeper(told, "adaptive", print, interval_s=0.02)
    engine.loop.attach(keeper.queue)
    keeper.start()
    for _ in range(3_000):
        engine.step()
        if saved.is_set():
            break
    keeper.close()
    keeper.close()
    assert keeper.saved >= 2
    assert store.read(ACCEPTANCE)["slots"]["keys"]
    assert store.read(STEP_TIMES)["steps"] >= 200
    assert not list(tmp_path.glob("*.partial"))


def test_what_was_learned_is_saved_when_the_runtime_closes(store, tmp_path):
    runtime = start(tmp_path, [])
    runtime.close()
    assert not list(tmp_path.iterdir())  # nothing was served: nothing to tell
    runtime = start(tmp_path, [])
    runtime.loop.admit(RequestInfo(request=1, prompt_tokens=5, max_tokens=9, domain="code"))
    for _ in range(300):
        runtime.loop.policy.latency.learn(4, 8, latency_ms=20.0)
    runtime.loop.counters.outcomes = 300
    runtime.close()
    assert store.read(ACCEPTANCE)["slots"]["keys"][0][4] == "code"
    assert store.read(STEP_TIMES)["steps"] == 300


def test_another_policy_that_is_put_into_force_is_not_saved_as_this_one(tmp_path):
    runtime = start(tmp_path, [])
    runtime.loop.reload(ControlConfig.read({"policy": "static:2"}))
    runtime.loop.counters.outcomes = 300
    runtime.close()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_a_line_in_the_log(tmp_path):
    blocked = tmp_path / "file"
    lines = []
    runtime = start(blocked / "folder", lines)
    blocked.write_text("in the way")
    runtime.loop.counters.outcomes = 300
    runtime.close()
    assert [line.split(":")[:2] for line in lines[1:]] == [["memory", " acceptance is not saved"]]
    assert "cold" in begun(blocked / "folder")[1]


def test_a_policy_without_learners_keeps_nothing(tmp_path):
    _, line = begun(tmp_path, policy="static:2")
    assert line.endswith("static:2 learns nothing to keep")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: len(text) // 2], "is damaged"),
        (lambda text: "", "is damaged"),
        (lambda text: "[" * 100_000, "is damaged"),
        (lambda text: '{"kind":"acclimate-memory","schema":2}', "must have schema 1, got 2"),
        (lambda text: text.replace('"checksum":', '"checksum":1'), "checksum"),
        (lambda text: text.replace("acclimate-memory", "pickle"), "must be of kind"),
        (lambda text: text.replace('"model":"m"', '"model":"n"'),
         "must be of this engine, got model 'n' instead of 'm'"),
        (lambda text: text.replace('"part":"acceptance"', '"part":"step_times"'),
         "must hold 'acceptance', got 'step_times'"),
        (lambda text: text + " " * 2**26, "must have at most"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_ours_is_refused_by_name(store, damage, message):
    path = store.write(ACCEPTANCE, {"q": np.zeros(3)})
    path.write_text(damage(path.read_text()))
    with pytest.raises(ValueError, match=message):
        store.read(ACCEPTANCE)


def forge(store, part, packed):
    """Write a file with a right checksum and what a stranger likes."""
    path = store.write(part, {"q": 1})
    content = json.loads(path.read_text())
    text = msgspec.json.encode(packed)
    content.update(state=text.decode(), checksum=zlib.crc32(text))
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "packed",
    [
        {"q": {"dtype": "|O", "shape": [1], "base64": "AAAAAAAAAAA="}},
        {"q": {"dtype": "<f8", "shape": [-1], "base64": "AAAAAAAAAAA="}},
        {"q": {"dtype": "<f8", "shape": [10**15], "zlib": "eJxjYGBgAAAABAAB"}},
        {"q": {"dtype": "<f8", "shape": [2], "base64": "AAAAAAAAAAA="}},
        {"q": {"dtype": "nonsense", "shape": [1], "base64": "AA=="}},
        {"q": [{"dtype": "<f8", "shape": [2**24], "zlib": "eJxjYGBgAAAABAAB"}] * 8},
    ],
)
def test_arrays_that_lie_are_refused(store, packed):
    forge(store, ACCEPTANCE, packed)
    with pytest.raises(ValueError, match="is damaged"):
        store.read(ACCEPTANCE)


def test_a_file_must_hold_an_object(store):
    forge(store, ACCEPTANCE, [1])
    with pytest.raises(ValueError, match="must hold an object"):
        store.read(ACCEPTANCE)


def spoil(name, value):
    def damage(state):
        state[name] = value(state[name])

    return damage


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda state: state.pop("moment"), "step times must hold gram, moment"),
        (lambda state: state.pop("watch"), "step times must hold"),
        (spoil("gram", lambda gram: gram[:3, :3]), "gram must have shape"),
        (spoil("gram", lambda gram: 0.0 * gram), "gram must be positive definite"),
        (spoil("gram", lambda gram: gram - 2.0 * np.diag(np.diag(gram))), "positive definite"),
        (spoil("gram", np.triu), "positive definite"),
        (spoil("theta", lambda theta: theta * np.nan), "theta must be finite"),
        (spoil("visits", lambda visits: visits - 1.0), "visits must be >= 0"),
        (spoil("load_sums", lambda sums: sums - 1.0), "steps must be >= 0"),
        (spoil("weights", lambda weights: weights[:, :-1]), "latency table must be"),
        (spoil("cliffs", lambda cliffs: np.zeros(0)), "cliffs must have shape"),
        (spoil("pace", lambda pace: 1e9), "pace must be near 1"),
        (spoil("pace", lambda pace: float("nan")), "pace must be near 1"),
        (spoil("steps", lambda steps: float("inf")), "OverflowError"),
        (lambda state: state["watch"].update(n_recent=10**9), "n_recent must be in"),
        (lambda state: state["watch"].update(paced=float("nan")), "watched must be finite"),
        (lambda state: state["watch"].update(drift={}), "a state must have"),
    ],
)
def test_step_times_that_cannot_be_start_cold_alone(store, learned, kept, tmp_path, damage, words):
    store.write(ACCEPTANCE, kept[ACCEPTANCE])
    alone, _ = begun(tmp_path)
    state = unpack(pack(kept[STEP_TIMES]))
    damage(state)
    store.write(STEP_TIMES, state)
    policy, line = begun(tmp_path)
    assert "acceptance warm; step_times cold" in line
    assert words in line
    assert pack(policy.state()) == pack(alone.state())


def test_acceptance_that_cannot_be_starts_cold_alone(store, kept, tmp_path):
    acceptance = kept[ACCEPTANCE]
    acceptance["acceptance"]["table"]["pool"][0] = 10**9
    store.write(STEP_TIMES, kept[STEP_TIMES])
    alone, _ = begun(tmp_path)
    store.write(ACCEPTANCE, acceptance)
    policy, line = begun(tmp_path)
    assert "acceptance cold (ValueError: pool must be in" in line
    assert line.endswith("step_times warm")
    assert pack(policy.state()) == pack(alone.state())
