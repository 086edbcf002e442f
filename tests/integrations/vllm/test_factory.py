"""Who gets a controller, who gets the stock scheduler, and what is said about it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lines that were logged under our name."""
    from acclimate.integrations.vllm import factory

    got: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            got.append(record.getMessage())

    handler = Keep()
    factory.logger.addHandler(handler)
    factory.logger.setLevel(logging.INFO)
    yield got
    factory.logger.removeHandler(handler)


@pytest.fixture
def make(
    engine_config: Callable[..., Any], scheduler_arguments: Callable[..., dict[str, Any]]
) -> Callable[..., Any]:
    def build(own: Any = None, **config_args: Any) -> Any:
        from acclimate.integrations.vllm.factory import make_scheduler

        additional = None if own is None else {"acclimate": own}
        config = engine_config(additional=additional, **config_args)
        return make_scheduler(**scheduler_arguments(config))

    return build


@pytest.mark.parametrize("asynchronous", [False, True])
def test_active_on_the_right_base_class(
    make: Callable[..., Any], lines: list[str], asynchronous: bool
) -> None:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    scheduler = make({"policy": "static:2"}, asynchronous=asynchronous)
    assert isinstance(scheduler, AsyncScheduler) is asynchronous
    assert len(lines) == 1
    mode = "async" if asynchronous else "sync"
    assert lines[0].startswith(
        f"acclimate active: policy static:2, method ngram, runner v1, {mode}, depths 0 to 4, "
        "controls draft depth and verify lengths"
    )
    assert scheduler.acclimate.loop.capabilities.hindsight is not asynchronous
    scheduler.shutdown()


@pytest.mark.parametrize(
    ("own", "config_args", "why"),
    [
        ({"sede": 3}, {}, "configuration key 'sede' is unknown"),
        ({"policy": "static:9"}, {}, "depth must be in [0, 4], got 9"),
        ({"policy": "nowhere:make"}, {}, "policy 'nowhere:make' must be importable"),
        ({"max_depth": 5}, {}, "must be at most the engine's num_speculative_tokens 4, got 5"),
        ({"enabled": False}, {}, "enabled = false"),
        ("yes", {}, "additional_config.acclimate must be an object, got str"),
        ({}, {"speculative": False}, "the engine has no speculative_config"),
    ],
)
def test_disabled_with_one_line_and_the_stock_scheduler(
    make: Callable[..., Any],
    lines: list[str],
    own: Any,
    config_args: dict[str, Any],
    why: str,
) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    scheduler = make(own, **config_args)
    assert type(scheduler) is Scheduler
    assert len(lines) == 1
    assert lines[0].startswith("acclimate disabled: the stock scheduler acts, because ")
    assert why in lines[0]


def test_unsupported_versions_and_changed_hooks_disable(
    make: Callable[..., Any], lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    from acclimate.integrations.vllm import compat, factory

    monkeypatch.setattr(factory, "engine_version", lambda: "0.41.0")
    assert type(make({})) is Scheduler
    monkeypatch.undo()
    monkeypatch.setitem(compat.HOOKS, "update_from_output", ("outputs",))
    assert type(make({})) is Scheduler
    assert "vLLM must be 0.32.*, got 0.41.0" in lines[0]
    assert "Scheduler.update_from_output must take (outputs)" in lines[1]


def test_an_exception_of_ours_is_no_crash_of_theirs(
    make: Callable[..., Any], lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from acclimate.integrations.vllm import factory

    def broken(*args: Any) -> Any:
        raise KeyError("surprise")

    monkeypatch.setattr(factory, "engine_facts", broken)
    scheduler = make({"policy": "static:2"})
    assert scheduler.acclimate is None and len(lines) == 1
    assert "KeyError" in lines[0]
    monkeypatch.setattr(factory, "engine_capabilities", broken)
    assert make({}).__class__.__name__ == "Scheduler"


def test_a_sink_that_does_not_start_is_one_line(
    make: Callable[..., Any], lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from acclimate.integrations import runtime

    def refuse(*args: Any) -> Any:
        raise OSError("no space left")

    monkeypatch.setattr(runtime, "_trace_sink", refuse)
    scheduler = make({"policy": "static:2", "trace": {"path": "unused"}})
    assert scheduler.acclimate is not None
    assert [line for line in lines if line == "acclimate sink trace is off: OSError: no space left"]


def test_configuration_comes_from_file_and_argument(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "control.json"
    path.write_text(json.dumps({"policy": "static:1", "seed": 5, "switch": {"dwell_s": 2}}))
    monkeypatch.setenv("ACCLIMATE_CONFIG", str(path))
    config = make({"policy": "static:3", "switch": {"cost_tokens": 1}}).acclimate.loop.config
    assert (config.policy, config.seed) == ("static:3", 5)
    assert (config.switch.dwell_s, config.switch.cost_tokens) == (2, 1)


def test_plugin_acts_only_if_asked(
    engine_config: Callable[..., Any],
    scheduler_arguments: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vllm.config import SchedulerConfig
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    from acclimate.integrations.vllm.plugin import register

    monkeypatch.setattr(SchedulerConfig, "get_scheduler_cls", SchedulerConfig.get_scheduler_cls)
    register()
    once = SchedulerConfig.get_scheduler_cls
    register()
    assert SchedulerConfig.get_scheduler_cls is once

    def make(**config_args: Any) -> Any:
        config = engine_config(**config_args)
        return config.scheduler_config.get_scheduler_cls()(**scheduler_arguments(config))

    monkeypatch.delenv("ACCLIMATE", raising=False)
    assert type(make()) is Scheduler
    assert type(make(asynchronous=True)) is AsyncScheduler
    assert make(additional={"acclimate": {"policy": "static:1"}}).acclimate is not None
    monkeypatch.setenv("ACCLIMATE", "1")
    assert make().acclimate is not None
    # Somebody else's class stays, and 0 switches off whatever else is said.
    assert type(make(scheduler_cls="vllm.v1.core.sched.scheduler.Scheduler")) is Scheduler
    monkeypatch.setenv("ACCLIMATE", "0")
    assert type(make(additional={"acclimate": {}})) is Scheduler


def test_handle_validates_before_any_engine_starts() -> None:
    from acclimate import AdaptiveController

    with pytest.raises(ValueError, match="configuration key 'depht' is unknown"):
        AdaptiveController({"depht": 3})
    arguments = AdaptiveController({"seed": 3, "guard": {"late_ms": 20}}).engine_args()
    assert arguments["additional_config"] == {"acclimate": {"seed": 3, "guard": {"late_ms": 20.0}}}
    module, _, name = arguments["scheduler_cls"].rpartition(".")
    assert (module, name) == ("acclimate.integrations.vllm.factory", "make_scheduler")


def test_step_times_of_one_engine_are_warm_at_its_second_start(
    make: Callable[..., Any], lines: list[str], tmp_path: Path
) -> None:
    own = {"memory": {"path": str(tmp_path)}}
    first = make(own)
    curve = first.acclimate.loop.policy.latency
    for step in range(300):
        curve.learn(4, step % 9, latency_ms=20.0 + step % 9)
    first.acclimate.loop.counters.outcomes = 300
    first.shutdown()
    second = make(own)
    assert second.acclimate.loop.policy.latency.steps == 300
    second.shutdown()
    told = [line for line in lines if "memory" in line]
    assert ["step_times warm" in line for line in told] == [False, True]
