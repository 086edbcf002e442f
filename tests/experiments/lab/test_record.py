"""Recording, with an engine that answers by rote: turns in order, resumed, and longer later."""

from types import SimpleNamespace

import pytest

from acclimate.experiments.lab import record
from acclimate.experiments.lab.recording import read_recording
from acclimate.integrations.vllm.closed_loop import ClosedLoopRun, JobResult

PROMPTS = (
    '{"question_id": 1, "category": "chat", "turns": ["ab", "cd"]}\n'
    '{"question_id": 2, "category": "qa", "turns": ["xyz"], "reference": ["unused"]}\n'
)


class Rote:
    """Writes the last letter's code on and on; stops by itself after six tokens in all."""

    def __init__(self):
        self.llm = self
        self.asked = []

    def get_tokenizer(self):
        return SimpleNamespace(
            decode=lambda ids, skip_special_tokens: "".join(map(chr, ids))
        )  # fmt: skip

    def tokens(self, messages):
        return tuple(ord(letter) for message in messages for letter in message["content"])

    def shutdown(self):
        pass

    def answer(self, engine, jobs, concurrency):
        results = []
        for job in jobs:
            self.asked.append(job)
            written = 0
            while job.prompt_token_ids[-1 - written :] == job.prompt_token_ids[-1:] * (written + 1):
                written += 1
            fresh = max(0, 6 - (written - 1))
            ids = [job.prompt_token_ids[-1]] * min(job.max_tokens, fresh)
            reason = "length" if len(ids) == job.max_tokens else "stop"
            results.append(JobResult(job, 0.0, token_ids=ids, finish_reason=reason))
        return ClosedLoopRun(results, [])


@pytest.fixture
def rote(monkeypatch, tmp_path):
    engine = Rote()
    monkeypatch.setattr(record, "start_engine", lambda *args, **options: engine)
    monkeypatch.setattr(record, "run_closed_loop", engine.answer)
    monkeypatch.setattr(record, "model_path", lambda progress: tmp_path / "rote")
    monkeypatch.setattr(record, "engine_version", lambda: "1")
    (tmp_path / "prompts.jsonl").write_text(PROMPTS)

    def run(tokens, **options):
        options = {"max_model_len": 99, "minutes": 1.0, "dtype": "float32"} | options
        return record.run_record(
            tmp_path / "prompts.jsonl", out=tmp_path / "out", tokens=tokens, **options
        )

    return SimpleNamespace(engine=engine, run=run, out=tmp_path / "out")


def outputs(folder):
    return {(a.question, a.turn): "".join(map(chr, a.output)) for a in read_recording(folder)[1]}


def test_a_second_turn_has_the_recorded_answer_before_it(rote):
    assert rote.run(3)
    assert outputs(rote.out) == {(1, 0): "bbb", (2, 0): "zzz", (1, 1): "ddd"}
    second = next(a for a in read_recording(rote.out)[1] if a.turn == 1)
    assert "".join(map(chr, second.prompt)) == "abbbbcd"
    assert second.domain == "chat" and second.finish == "length"


def test_what_is_recorded_is_not_asked_again(rote):
    rote.run(3)
    rote.engine.asked.clear()
    assert rote.run(3)
    assert rote.engine.asked == []


def test_no_piece_is_begun_without_time(rote):
    assert not rote.run(3, minutes=0.0)
    assert outputs(rote.out) == {}


def test_a_higher_limit_lets_the_last_answers_go_on(rote):
    rote.run(3)
    assert rote.run(9)
    # The first turn stays as the second one has read it.
    assert outputs(rote.out) == {(1, 0): "bbb", (2, 0): "zzzzzz", (1, 1): "dddddd"}
    grown = next(a for a in read_recording(rote.out)[1] if a.question == 2)
    assert "".join(map(chr, grown.prompt)) == "xyz" and grown.finish == "stop"
    with pytest.raises(ValueError, match="must hold a recording of"):
        rote.run(3)


def test_conversations_that_are_too_long_are_left_out(rote, capsys):
    assert rote.run(3, max_model_len=5)
    assert outputs(rote.out) == {(1, 0): "bbb"}
    assert "2 conversations left out" in capsys.readouterr().err


def test_prompts_of_another_kind_are_refused(rote, tmp_path):
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "x"}\n')
    with pytest.raises(ValueError, match="must hold JSON lines with question_id"):
        rote.run(3)
