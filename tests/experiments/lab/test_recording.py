"""Recorded answers on disk: resumable after a kill, and never mixed up."""

import msgspec
import pytest

from acclimate.experiments.lab.recording import (
    Answer,
    Recording,
    RecordingHeader,
    read_recording,
)

HEADER = RecordingHeader(
    model="small", engine_version="1", dtype="float32", prompts="abc", max_tokens=8
)


def answer(question, turn=0):
    return Answer(
        question=question, turn=turn, domain="qa", prompt=(1, 2), output=(3,), finish="stop"
    )


def test_a_recording_goes_on_where_it_stopped(tmp_path):
    Recording(tmp_path, HEADER).add([answer(1), answer(2)])
    again = Recording(tmp_path, HEADER)
    assert [each.question for each in again.answers] == [1, 2]
    again.add([answer(1, turn=1)])
    header, answers = read_recording(tmp_path)
    assert header == HEADER
    assert [(each.question, each.turn) for each in answers] == [(1, 0), (2, 0), (1, 1)]


def test_an_unfinished_line_is_asked_again(tmp_path):
    recording = Recording(tmp_path, HEADER)
    recording.add([answer(1), answer(2)])
    whole = recording.path.read_bytes()
    recording.path.write_bytes(whole[:-9])
    again = Recording(tmp_path, HEADER)
    assert [each.question for each in again.answers] == [1]
    again.add([answer(2)])
    assert recording.path.read_bytes() == whole


def test_another_recording_is_not_added_to(tmp_path):
    Recording(tmp_path, HEADER)
    for other in ({"max_tokens": 7}, {"model": "large"}):
        with pytest.raises(ValueError, match="must hold a recording of"):
            Recording(tmp_path, msgspec.structs.replace(HEADER, **other))


def test_an_answer_may_grow_when_the_limit_is_raised(tmp_path):
    Recording(tmp_path, HEADER).add([answer(1), answer(2)])
    longer = msgspec.structs.replace(HEADER, max_tokens=9)
    recording = Recording(tmp_path, longer)
    recording.add([msgspec.structs.replace(answer(1), output=(3, 4))])
    header, answers = read_recording(tmp_path)
    assert header == longer
    assert [(each.question, each.output) for each in answers] == [(1, (3, 4)), (2, (3,))]
    assert recording.answers == answers


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "must hold a recording, got an empty file"),
        ("question,answer\n", "line 1: must be a recording"),
        ('{"kind":"answer","question":1}\n', "line 1: must be a recording"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path, content, message):
    (tmp_path / "answers.jsonl").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_recording(tmp_path)


def test_damage_inside_is_an_error(tmp_path):
    recording = Recording(tmp_path, HEADER)
    recording.add([answer(1)])
    recording.path.write_bytes(recording.path.read_bytes() + b"{}\n")
    with pytest.raises(ValueError, match="line 3"):
        read_recording(tmp_path)
