"""Constant concurrency and open loop on a made-up engine with a clock of its own."""

from __future__ import annotations

import pytest

from acclimate.integrations.vllm.client import ClientStep, Sent
from acclimate.integrations.vllm.closed_loop import Job
from acclimate.integrations.vllm.open_loop import run_open_loop
from acclimate.integrations.vllm.steady_load import run_steady


class ScriptedClient:
    """Writes one token per request and step, a step per second; a job asks for its own length."""

    def __init__(self) -> None:
        self.running: dict[str, Sent] = {}
        self.now_s = 0.0
        self.loads: list[int] = []
        self.aborted: list[str] = []
        self.slept_s: list[float] = []

    def clock_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds

    def send(self, job: Job, *, due_s: float | None = None, filler: bool = False) -> Sent:
        assert job.key not in self.running
        sent = Sent(job, self.now_s if due_s is None else due_s, self.now_s, filler)
        self.running[job.key] = sent
        return sent

    def step(self) -> ClientStep:
        self.loads.append(len(self.running))
        begun_s, self.now_s = self.now_s, self.now_s + 1.0
        for key, sent in list(self.running.items()):
            sent.token_ids.append(0)
            sent.chunk_s.append(self.now_s)
            sent.chunk_tokens.append(1)
            if len(sent.token_ids) == sent.job.max_tokens:
                del self.running[key]
        return ClientStep(begun_s, 1.0, 0, 0, 0, 0, 0, 0, 0, False, 0)

    def abort(self) -> None:
        self.aborted += self.running
        self.running.clear()


def _jobs(*lengths: int) -> list[Job]:
    return [Job(f"job{i}", (1,), length) for i, length in enumerate(lengths)]


def test_concurrency_is_constant_to_the_last_step() -> None:
    client = ScriptedClient()
    run = run_steady(client, _jobs(3, 9, 2, 4, 8), 3)
    assert set(client.loads) == {3}
    counted = [sent for sent in run.sent if not sent.filler]
    assert [sent.job.key for sent in counted] == [f"job{i}" for i in range(5)]
    assert all(len(sent.token_ids) == sent.job.max_tokens for sent in counted)
    # It ends with the last job that counts, whatever fillers would still have written.
    assert run.ended_s == max(sent.chunk_s[-1] for sent in counted)
    assert client.aborted and all("/again" in key for key in client.aborted)
    assert not client.running


def test_more_places_than_jobs_are_filled_too() -> None:
    client = ScriptedClient()
    run = run_steady(client, _jobs(2, 5), 7)
    assert set(client.loads) == {7} and len(client.loads) == 5
    assert sum(not sent.filler for sent in run.sent) == 2


def test_arrivals_never_wait_for_answers() -> None:
    client = ScriptedClient()
    client.now_s = 100.0
    run = run_open_loop(client, _jobs(5, 5, 5), [0.0, 0.5, 2.0], sleep=client.sleep)
    # The second is due during the first step, and is handed over after it; its waiting counts.
    assert [sent.added_s - 100 for sent in run.sent] == [0.0, 1.0, 2.0]
    assert [sent.due_s - 100 for sent in run.sent] == [0.0, 0.5, 2.0]
    assert client.loads == [1, 2, 3, 3, 3, 2, 1]
    assert client.slept_s == []


def test_the_engine_idles_when_nobody_is_there() -> None:
    client = ScriptedClient()
    run = run_open_loop(client, _jobs(2, 2), [3.0, 10.0], sleep=client.sleep)
    assert client.slept_s == [3.0, 5.0]
    assert [sent.added_s for sent in run.sent] == [3.0, 10.0]
    assert len(run.steps) == 4 and run.ended_s == 12.0


def test_bad_loads_are_refused() -> None:
    client = ScriptedClient()
    with pytest.raises(ValueError, match="concurrency must be >= 1, got 0"):
        run_steady(client, _jobs(1), 0)
    with pytest.raises(ValueError, match="jobs must not be empty"):
        run_steady(client, [], 1)
    with pytest.raises(ValueError, match="one arrival per job, got 1, 2"):
        run_open_loop(client, _jobs(1, 1), [0.0])
    with pytest.raises(ValueError, match="ascending"):
        run_open_loop(client, _jobs(1, 1), [1.0, 0.5])
    with pytest.raises(ValueError, match="ascending"):
        run_open_loop(client, _jobs(1), [-1.0])
