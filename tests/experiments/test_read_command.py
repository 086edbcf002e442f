"""``acclimate read``: kind, kept, dropped by reason, a summary, and the figures file."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from acclimate.experiments.cli import app
from acclimate.experiments.read_command import run_read


def _figures(path: Path) -> dict[str, Any]:
    document = json.loads(path.read_text())
    return {figure["name"]: figure["value"] for figure in document["figures"]}


def test_read_shows_kind_drops_and_summary(tmp_path: Path) -> None:
    path = tmp_path / "arrivals.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.0000000,10,4\n"
        "2023-11-16 18:15:48.0000000,30,8\n"
        "2023-11-16 18:15:49.0000000,30,0\n"
    )
    result = CliRunner().invoke(app, ["read", str(path), "--json", str(tmp_path / "out.json")])
    assert result.exit_code == 0, result.output
    assert "an Azure LLM inference trace; 3 records read, 2 kept, 1 dropped" in result.output
    assert "no output tokens" in result.output
    figures = _figures(tmp_path / "out.json")
    assert figures["read/kept"] == 2
    assert figures["read/dropped/no output tokens"] == 1
    assert figures["read/rate_per_s"] == 0.5
    assert figures["read/prompt_tokens_mean"] == 20


def test_read_shows_the_window_between_two_dumps(tmp_path: Path) -> None:
    for name, drafts in (("before", 10), ("after", 30)):
        (tmp_path / name).write_text(
            f"# HELP a b\nvllm:spec_decode_num_drafts_total {drafts}\n"
            f"vllm:spec_decode_num_draft_tokens_total {3 * drafts}\n"
            f"vllm:spec_decode_num_accepted_tokens_total {2 * drafts}\n"
        )
    run_read(tmp_path / "after", before=tmp_path / "before", json=tmp_path / "out.json")
    figures = _figures(tmp_path / "out.json")
    assert figures["read/drafts"] == 20
    assert figures["read/acceptance_length"] == 3.0


@pytest.mark.parametrize(
    "content",
    [
        "batch,K,ms\n1,0,6.5\n",
        '{"question_id":81,"category":"writing","turns":["a"]}\n',
        '{"acceptance_histogram":[39,1,0,3]}\n',
        '{"duration":1.0,"completed":1,"total_output_tokens":5}',
        '{"timestamp":0,"input_length":1,"output_length":1}\n',
        "Timestamp,Model,Request tokens,Response tokens\n",
        "batch,K,ms\n",
    ],
)
def test_every_kind_has_a_summary(tmp_path: Path, content: str) -> None:
    path = tmp_path / "file"
    path.write_text(content)
    with (tmp_path / "shown").open("w") as file:
        run_read(path, json=tmp_path / "out.json", console=Console(file=file))
    assert "summary" in (tmp_path / "shown").read_text()
    assert "read/kept" in _figures(tmp_path / "out.json")


def test_read_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    with pytest.raises(ValueError, match=r"must be of a kind read here .* got text, beginning"):
        run_read(path)
    path.write_text("batch,K,ms\n1,0,6.5\n")
    with pytest.raises(ValueError, match="--before must go with a Prometheus dump"):
        run_read(path, before=path)
