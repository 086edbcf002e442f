"""A mistake in a configuration is named before an engine starts."""

from __future__ import annotations

import json

import pytest

from acclimate.controller.build import build_policy
from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities

ENGINE = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"sede": 1}, "configuration key 'sede' is unknown; known here: "),
        (
            {"guard": {"late": 3}},
            "configuration key 'guard.late' is unknown; known here: backoff_s",
        ),
        ({"switch": {"dwell_s": -1}}, "'switch.dwell_s': Input should be greater than or equal"),
        ({"learn": {"probe_share": 2}}, "'learn.probe_share': .* got 2"),
        ({"learn": {"rate_window_s": float("nan")}}, "'learn.rate_window_s': "),
        (
            {"slo": {"classes": {"gold": {"tpot": 3}}}},
            "configuration key 'slo.classes.gold.tpot' is unknown; known here: e2e_ms, tenants",
        ),
        (
            {"slo": {"clases": {}}},
            "configuration key 'slo.clases' is unknown; known here: base_tokens, classes",
        ),
        ({"slo": {"classes": {"gold": {"tpot_ms": -3}}}}, "'slo.classes.gold.tpot_ms': .* got -3"),
        ({"slo": {"classes": {"a b": {}}}}, "'slo.classes.a b"),
        ({"slo": {"default_class": "gold"}}, "default_class must be one of batch, interactive"),
        ({"slo": {"twin": "always"}}, "'slo.twin': .* got 'always'"),
        ({"slo": {"eta": 5}}, "'slo.eta': .* got 5"),
        ({"slo": {"lag_tokens": -1}}, "'slo.lag_tokens': .* got -1"),
        ({"slo": {"externality": "perhaps"}}, "'slo.externality': .* got 'perhaps'"),
        ({"slo": {"fairness": float("inf")}}, "'slo.fairness': "),
        ([1], "configuration must be an object, got list"),
    ],
)
def test_what_is_wrong_is_said(source, message):
    with pytest.raises(ValueError, match=message):
        ControlConfig.read(source)


def test_a_file_is_read_and_a_broken_one_named(tmp_path):
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"switch": {"freeze_depth": 2}}))
    assert ControlConfig.read(path).switch.freeze_depth == 2
    path.write_text("{")
    with pytest.raises(ValueError, match="configuration file must be JSON, got"):
        ControlConfig.read(str(path))
    with pytest.raises(FileNotFoundError):
        ControlConfig.read(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("static:x", "must name a depth such as 'static:3', got 'static:x'"),
        ("static:7", r"depth must be in \[0, 4\], got 7"),
        ("best", "policy must be 'adaptive', 'static:K' or 'package.module:factory', got 'best'"),
        ("no_such_module:make", "must be importable"),
        ("operator:is_", "policy 'operator:is_' must give a Policy, got bool"),
    ],
)
def test_a_policy_that_cannot_be_built_is_named(policy, message):
    with pytest.raises(ValueError, match=message):
        build_policy(ControlConfig(policy=policy), ENGINE)


def test_a_frozen_depth_must_be_one_of_the_engines():
    config = ControlConfig.read({"switch": {"freeze_depth": 3}})
    two_depths = Capabilities(max_depth=4, depths=(0, 4), uniform_only=True)
    with pytest.raises(ValueError, match=r"freeze_depth must be one of \[0, 4\], got 3"):
        build_policy(config, two_depths)
    assert build_policy(config, ENGINE).name == "adaptive"


@pytest.mark.parametrize(
    ("depths", "message"),
    [((4, 0), "ascending"), ((), "ascending"), ((0, 9), "must not exceed max_depth 4")],
)
def test_capabilities_are_checked(depths, message):
    with pytest.raises(ValueError, match=message):
        Capabilities(max_depth=4, depths=depths)


def test_classes_of_service_are_added_to_the_built_in_ones_and_survive_a_dump():
    config = ControlConfig.read(
        {"slo": {"classes": {"gold": {"tpot_ms": 30}, "batch": {"tenants": ["night"]}}}}
    )
    assert sorted(config.slo.classes) == ["batch", "gold", "interactive", "standard"]
    assert config.slo.classes["batch"].tenants == ("night",)
    assert ControlConfig.read(json.loads(json.dumps(config.model_dump()))) == config
