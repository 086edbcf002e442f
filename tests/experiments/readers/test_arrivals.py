"""Arrivals from dirty traces: every dropped row has a name, and times keep unit and order."""

import json
from pathlib import Path

import numpy as np
import pytest

from acclimate.experiments.readers.arrival_files import read_arrivals
from acclimate.experiments.readers.azure import parse_time, read_azure
from acclimate.experiments.readers.burstgpt import FAILED, read_burstgpt
from acclimate.experiments.readers.mooncake import read_mooncake

DATA = Path(__file__).parents[4] / "shared" / "data"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def _file(folder: Path, text: str | bytes, name: str = "arrivals") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def _mooncake(folder: Path, *rows: object) -> Path:
    return _file(folder, "".join(json.dumps(row) + "\n" for row in rows), "mooncake.jsonl")


def _row(timestamp: object, prompt: object = 10, output: object = 5) -> dict[str, object]:
    return {
        "timestamp": timestamp,
        "input_length": prompt,
        "output_length": output,
        "hash_ids": [1],
    }


def test_azure_rows_are_dropped_by_name(tmp_path: Path) -> None:
    rows = [
        "2023-11-16 18:15:46.6805900,374,44",
        "2023-11-16 18:15:50.9951690,396,0",
        "2023-11-16 18:15:51.2224670,0,9",
        "2023-11-16 18:15:52,879,",
        "2023-11-16 18:15:52,NaN,5",
        "2023-11-16 18:15:52,-3,5",
        "2023-11-16 18:15:52,3.5,5",
        "15:46.7,91,5",
        ",91,5",
        "2023-13-16 18:15:46.0,91,5",
        "2023-11-16 18:15:53,1",
        "2023-11-16 18:15:53,1,2,3",
        "2023-11-16 18:15:54.1000000,7,many",
        "2023-11-16 18:1",
    ]
    read = read_azure(_file(tmp_path, AZURE + "\n".join(rows)))
    assert read.kept == 1 and read.read == len(rows)
    assert dict(read.dropped) == {
        "no output tokens": 1,
        "no prompt tokens": 1,
        "output length missing": 1,
        "prompt length is NaN": 1,
        "prompt length negative": 1,
        "prompt length is not whole": 1,
        "timestamp unreadable": 2,
        "timestamp missing": 1,
        "too few cells": 1,
        "too many cells": 1,
        "output length is no number": 1,
        "last line truncated": 1,
    }


def test_seven_digits_are_read_to_the_last(tmp_path: Path) -> None:
    rows = "2023-11-16 18:15:46.6805901,1,1\r\n2023-11-16 18:15:46.6805908,1,1\r\n"
    read = read_azure(_file(tmp_path, AZURE.replace("\n", "\r\n") + rows))
    assert read.value.arrival_s.tolist() == [0.0, 7e-7]
    assert not read.notes


def test_cut_fractions_ties_and_disorder_are_noted_not_dropped(tmp_path: Path) -> None:
    rows = "2023-11-16 18:15:47.68,3,1\n2023-11-16 18:15:46.68,1,1\n2023-11-16 18:15:46.68,2,1\n"
    read = read_azure(_file(tmp_path, AZURE + rows))
    assert read.kept == 3 and not read.dropped
    assert read.value.prompt_tokens.tolist() == [1, 2, 3]
    assert read.value.arrival_s.tolist() == [0.0, 0.0, 1.0]
    assert dict(read.notes) == {
        "timestamp cut to 2 fractional digits": 3,
        "same time as another": 1,
        "out of order, sorted": 2,
    }


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    text = (
        "\ufeffService,TIMESTAMP,Region,GeneratedTokens,contexttokens\n"
        "a,2024-05-10 00:00:00.009930+00:00,b,7,9\n"
    )
    value = read_azure(_file(tmp_path, text)).value
    assert (value.prompt_tokens[0], value.output_tokens[0]) == (9, 7)
    with pytest.raises(ValueError, match="must have the columns 'time', 'prompt', 'output'"):
        read_azure(_file(tmp_path, "TIMESTAMP,ContextTokens\n2023-11-16 18:15:46,1\n"))
    with pytest.raises(ValueError, match="one column 'prompt', got 2"):
        read_azure(_file(tmp_path, AZURE.strip() + ",ContextTokens\n"))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2023-11-16T18:15:46Z", 46), ("2023-11-16 20:15:46.25+02:00", 46.25)],
)
def test_time_zones(text: str, seconds: float) -> None:
    minute_ns, _ = parse_time("2023-11-16 18:15:00")
    assert parse_time(text)[0] - minute_ns == seconds * 1e9


def test_dates_that_are_numbers_are_refused(tmp_path: Path) -> None:
    text = AZURE + "1700158546680590000,374,44\n1700158550995169000,396,109\n"
    with pytest.raises(ValueError, match=r"must be dates such as .* got plain numbers"):
        read_azure(_file(tmp_path, text))


@pytest.mark.parametrize(("name", "rows"), [("azure_conv.csv", 19_366), ("azure_code.csv", 8_819)])
def test_the_public_traces(name: str, rows: int) -> None:
    if not (DATA / name).exists():
        pytest.skip("the Azure traces are not beside this checkout")
    read = read_arrivals(DATA / name)
    assert (read.kept, read.dropped.total()) == (rows, 0)
    assert np.all(np.diff(read.value.arrival_s) >= 0)
    assert 3_400 < read.value.span_s < 3_600


def test_mooncake_rows_are_dropped_by_name(tmp_path: Path) -> None:
    good = [_row(0, 6755, 500), _row(0, 7319, 490), _row(3052, 7234, 794)]
    bad = [
        _row(4000, 10, 0),
        _row(4000, 0, 5),
        {"timestamp": 4000, "input_length": 5},
        _row(None),
        _row("soon"),
        _row(-1),
        _row(True),
        [1, 2],
    ]
    path = _mooncake(tmp_path, *good, *bad)
    path.write_text(path.read_text() + 'no json\n{"timestamp": 5000, "inp')
    read = read_mooncake(path)
    assert read.value.arrival_s.tolist() == [0.0, 0.0, 3.052]
    assert read.read == len(good) + len(bad) + 2
    assert dict(read.dropped) == {
        "no output tokens": 1,
        "no prompt tokens": 1,
        "output length missing": 1,
        "timestamp missing": 1,
        "timestamp is no number": 2,
        "timestamp negative": 1,
        "not an object": 1,
        "line unreadable": 1,
        "last line truncated": 1,
    }


@pytest.mark.parametrize(
    ("scale", "likely"),
    [(1e6, "nanoseconds"), (1e3, "microseconds"), (1e-3, "seconds")],
)
def test_a_trace_in_another_unit_is_refused(tmp_path: Path, scale: float, likely: str) -> None:
    times_ms = np.arange(20) * 300.0
    path = _mooncake(tmp_path, *[_row(time * scale) for time in times_ms])
    if scale == 1e3:
        # A request every five minutes is possible: nobody can tell.
        assert read_mooncake(path).kept == 20
        return
    with pytest.raises(ValueError, match=f"must be in milliseconds, got what looks like {likely}"):
        read_mooncake(path)
    unit = {"nanoseconds": "ns", "seconds": "s"}[likely]
    read = read_mooncake(path, unit=unit)
    assert read.value.arrival_s[-1] == pytest.approx(5.7)


@pytest.mark.parametrize(
    ("first", "likely"),
    [(1.7e9, "seconds"), (1.7e15, "microseconds"), (1.7e18, "nanoseconds")],
)
def test_times_since_1970_betray_their_unit(tmp_path: Path, first: float, likely: str) -> None:
    path = _mooncake(tmp_path, _row(first), _row(first * 1.000001))
    with pytest.raises(ValueError, match=f"looks like {likely}"):
        read_mooncake(path)
    assert read_mooncake(_mooncake(tmp_path, _row(1.7e12), _row(1.7e12 + 9))).value.span_s == 0.009


def test_burstgpt_rows_are_dropped_by_name(tmp_path: Path) -> None:
    rows = [
        "5,ChatGPT,472,18,490,Conversation log",
        "45,ChatGPT,1087,230,1317,Conversation log",
        "118,GPT-4,417,0,417,API log",
        "119,GPT-4,417,276,999,API log",
        "120,GPT-4,417,,417,API log",
        "121,GPT-4,4",
    ]
    read = read_burstgpt(_file(tmp_path, BURST + "\n".join(rows)))
    assert read.value.arrival_s.tolist() == [0.0, 40.0, 114.0]
    assert dict(read.dropped) == {
        FAILED: 1,
        "output length missing": 1,
        "last line truncated": 1,
    }
    assert dict(read.notes) == {"total differs from request plus response": 1}
    only = read_burstgpt(_file(tmp_path, BURST + "\n".join(rows)), model="GPT-4")
    assert (only.kept, only.dropped["another model"]) == (1, 2)


def test_burstgpt_with_inserted_columns_and_no_latency(tmp_path: Path) -> None:
    text = (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens\n"
        '0,7,,ChatGPT,"472",18,490\n'
        "9,7,2.5,ChatGPT,472,0,472\n"
    )
    read = read_burstgpt(_file(tmp_path, text))
    assert read.value.prompt_tokens.tolist() == [472]
    assert dict(read.notes) == {"no elapsed time": 1}


def test_burstgpt_in_milliseconds_is_refused(tmp_path: Path) -> None:
    rows = "5000,a,1,1,2,b\n45000,a,1,1,2,b\n118000,a,1,1,2,b\n"
    with pytest.raises(ValueError, match="must be in seconds, got what looks like milliseconds"):
        read_burstgpt(_file(tmp_path, BURST + rows))


def test_any_arrivals(tmp_path: Path) -> None:
    assert len(read_arrivals(_mooncake(tmp_path, _row(0), _row(1000))).value) == 2
    empty = read_arrivals(_file(tmp_path, BURST)).value
    assert len(empty) == 0 and empty.rate_per_s is None
    with pytest.raises(ValueError, match=r"must hold arrivals .* got a latency table"):
        read_arrivals(_file(tmp_path, "batch,K,ms\n1,0,6.5\n"))
