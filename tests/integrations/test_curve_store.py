"""Step times on disk: warm again with the right key, a clear error or a cold start otherwise."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities
from acclimate.integrations.curve_store import CurveKey, CurveStore
from acclimate.integrations.header import EngineHeader
from acclimate.integrations.runtime import Runtime
from acclimate.predictors.watched_latency import WatchedLatency

KEY = CurveKey(
    device="H200", model="m", quantization="", dtype="bfloat16", engine_version="0.32.0",
    runner="v1", graph_mode="FULL", capture_sizes=(1, 2, 4, 8), method="eagle", draft_model="d",
    max_depth=4, tensor_parallel=1, pipeline_parallel=1, data_parallel=1, asynchronous=True,
)  # fmt: skip
ENGINE = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4), capture_sizes=(1, 2, 4, 8))


def fresh():
    return WatchedLatency(8, 32, capture_sizes=(1, 2, 4, 8))


def learned(model=None, steps=400):
    model, rng = model or fresh(), np.random.default_rng(0)
    for _ in range(steps):
        n, k = int(rng.integers(1, 9)), int(rng.integers(0, 5))
        model.learn(n, n * k, latency_ms=(10 + n * (k + 1)) * rng.lognormal(sigma=0.03))
    return model


def test_a_curve_comes_back_bit_by_bit(tmp_path):
    store, model, again = CurveStore(tmp_path / "new"), learned(), fresh()
    path = store.save(KEY, model)
    assert store.load(KEY, again)
    for each in (model, again):
        learned(each, 60)
    assert (model.curve(8, 32) == again.curve(8, 32)).all()
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert not store.load(msgspec.structs.replace(KEY, tensor_parallel=2), fresh())


def broken(text, how):
    data = json.loads(text)
    if how == "cut":
        return text[: len(text) // 2]
    if how == "newer":
        data["version"] = 2
    elif how == "foreign":
        data["format"] = "something"
    elif how == "key":
        data["key"]["device"] = "A100"
    elif how == "nan":
        data["curve"]["theta"]["values"][0] = None
    elif how == "place":
        data["curve"]["cells"]["at"][-1] = 10**9
    elif how == "shape":
        data["curve"]["gram"]["shape"] = [3, 3]
    elif how == "missing":
        del data["curve"]["moment"]
    elif how == "counts":
        data["curve"]["visits"]["values"][0] = -1.0
    elif how == "singular":
        data["curve"]["gram"]["values"] = [0.0] * len(data["curve"]["gram"]["values"])
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("cut", "must hold a latency curve"),
        ("newer", "must be of version 1, got 2"),
        ("foreign", "must hold a latency curve, got format"),
        ("key", "must be of this engine, got device 'A100' instead of 'H200'"),
        ("nan", "must hold a latency curve"),
        ("place", "must have places below"),
        ("shape", r"curve.gram must be of shape \(7, 7\)"),
        ("missing", "curve must hold"),
        ("counts", "curve must have counts >= 0"),
        ("singular", "curve.gram must be positive definite"),
    ],
)
def test_a_file_that_is_not_right_is_refused_and_changes_nothing(tmp_path, how, words):
    store, model = CurveStore(tmp_path), fresh()
    before = model.curve(4, 16)
    path = store.save(KEY, learned())
    path.write_bytes(broken(path.read_bytes(), how))
    with pytest.raises(ValueError, match=words):
        store.load(KEY, model)
    assert (model.curve(4, 16) == before).all()


def start(folder, key, lines):
    header = EngineHeader(
        engine="vllm", engine_version="0.32.0", runner="v1", model="m", dtype="bfloat16",
        method="eagle", device="cuda", capabilities=ENGINE, max_model_len=64, max_num_seqs=8,
    )  # fmt: skip
    config = ControlConfig.read({"memory": {"path": str(folder)}})
    return Runtime.start(config, ENGINE, header, lines.append, key)


def test_a_second_start_is_warm_and_one_with_another_key_cold(tmp_path):
    lines = []
    first = start(tmp_path, KEY, lines)
    learned(first.loop.policy.latency)
    known = first.loop.policy.latency.curve(8, 16)
    first.close()
    second = start(tmp_path, KEY, lines)
    assert second.loop.policy.latency.curve(8, 16) == pytest.approx(known)
    second.close()
    other = start(tmp_path, msgspec.structs.replace(KEY, model="other"), lines)
    assert other.loop.policy.latency.steps == 0
    other.close()
    assert ["cold" in line for line in lines] == [True, False, True]
    assert "curve of 400 steps loaded" in lines[1]


def test_a_damaged_store_is_a_line_in_the_log(tmp_path):
    lines = []
    folder = tmp_path / "curves"
    folder.mkdir()
    CurveStore(folder).path_of(KEY).write_text("{")
    runtime = start(tmp_path, KEY, lines)
    assert "latency curve is not used" in lines[0] and "starts cold" in lines[0]
    runtime.close()
