"""Drafts that say how sure they are, and the proposer that makes them, without an engine."""

import json
from pathlib import Path
from types import SimpleNamespace as Object

import numpy as np
import pytest

from acclimate.controller.config import ControlConfig
from acclimate.controller.loop import ControlLoop
from acclimate.controller.records import Capabilities, Change, StepContext, StepPlan
from acclimate.controller.static import StaticPolicy
from acclimate.integrations.ngram_files import NgramHeader, save_backoff
from acclimate.integrations.vllm.backoff_proposer import (
    FILES_VARIABLE,
    BackoffProposer,
    name_files,
    read_files,
)
from acclimate.integrations.vllm.bridge import EngineBridge
from acclimate.integrations.vllm.drafts import SureDraft, sure_candidates
from acclimate.integrations.vllm.flight import EngineFacts
from acclimate.integrations.vllm.variants import VariantExtension, swap_variant
from acclimate.predictors.ngram import train_backoff

_CONFIG = Object(
    speculative_config=Object(num_speculative_tokens=3), model_config=Object(max_model_len=12)
)


@pytest.fixture
def proposer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BackoffProposer:
    files = {}
    for name, text in (("general", [1, 2, 3, 4]), ("code", [1, 2, 7, 8])):
        model = train_backoff([(np.array(text * 10), 1)] * 20, order=2)
        header = NgramHeader(model="m", variant=name, order=2, texts=20, tokens=1, seed=0)
        files[name] = tmp_path / f"{name}.npz"
        save_backoff(files[name], model, header)
    monkeypatch.setenv(FILES_VARIABLE, name_files(files))
    return BackoffProposer(_CONFIG)


def _propose(proposer: BackoffProposer, texts: list[list[int]], sampled: list[list[int]]) -> list:
    table = np.zeros((len(texts), 12), dtype=np.int32)
    for row, text in enumerate(texts):
        table[row, : len(text)] = text
    return proposer.propose(sampled, np.array([len(text) for text in texts]), table)


def test_rows_without_a_new_token_get_no_draft_and_none_is_too_long(
    proposer: BackoffProposer,
) -> None:
    texts = [[1, 2], [1, 2], [1, 2, 3, 4] * 3, [3, 4] * 5 + [1]]
    drafts = _propose(proposer, texts, [[2], [], [4], [1]])
    assert [list(draft) for draft in drafts] == [[3, 4, 1], [], [], [2]]
    assert type(drafts[0]) is SureDraft
    assert (drafts[0].confidence > 0.8).all()


def test_a_variant_takes_over_from_one_step_to_the_next(proposer: BackoffProposer) -> None:
    worker = VariantExtension()
    worker.model_runner = Object(drafter=proposer)
    assert worker.acclimate_use_variant("code") == "general"
    assert _propose(proposer, [[1, 2]], [[2]])[0] == [7, 8, 1]
    with pytest.raises(ValueError, match="variant must be one of general, code, got 'prose'"):
        worker.acclimate_use_variant("prose")
    worker.model_runner = Object(drafter=object())
    with pytest.raises(ValueError, match="must have variants"):
        worker.acclimate_use_variant("code")


def test_a_declared_swap_reaches_the_controller_and_a_secret_one_does_not() -> None:
    told: list[Change] = []
    llm = Object(collective_rpc=lambda method, args: ["general"])
    engine = Object(llm=llm, bridge=Object(loop=Object(declare=told.append)))
    assert swap_variant(engine, "code", declare=False) == "general"
    assert told == []
    swap_variant(engine, "code", declare=True)
    assert told == [Change(kind="draft", detail="code")]


class _Seen(StaticPolicy):
    """Keeps what it was asked."""

    contexts: list[StepContext]

    def plan(self, context: StepContext) -> StepPlan:
        self.contexts = [*getattr(self, "contexts", []), context]
        return super().plan(context)


def test_the_plan_sees_how_sure_every_draft_is() -> None:
    engine = Capabilities(max_depth=3, depths=(0, 1, 2, 3), honours_depth=False)
    policy = _Seen(3, engine)
    loop = ControlLoop(policy, engine, ControlConfig(), clock_ns=lambda: 0)
    bridge = EngineBridge(loop, EngineFacts(depth=3, max_model_len=100))
    requests = []
    for name, draft in (("a", SureDraft([7, 8], np.array([0.5, 0.4]))), ("b", [])):
        request = Object(
            request_id=name, num_prompt_tokens=5, max_tokens=64, sampling_params=None,
            num_computed_tokens=5, num_output_tokens=1, is_prefill_chunk=False,
            spec_token_ids=draft,
        )  # fmt: skip
        bridge.admit(request)
        requests.append(request)
    bridge.begin(requests)
    found = policy.contexts[-1].candidates
    assert found is not None and found.confidence is not None
    assert found.request.tolist() == [0, 0]
    assert found.confidence.tolist() == [0.5, 0.4]
    assert found.survival.tolist() == pytest.approx([0.5, 0.2])
    requests[0].spec_token_ids = [7, 8]
    bridge.begin(requests)
    assert policy.contexts[-1].candidates is None


def test_a_mixed_batch_says_nothing() -> None:
    assert sure_candidates([SureDraft([1]), [2]], np.array([1, 1]), 2) is None


def test_files_are_named_and_read() -> None:
    with pytest.raises(ValueError, match="free of ',' and '='"):
        name_files({"a": "x,y"})
    with pytest.raises(ValueError, match="must be variant=file by comma"):
        read_files("")
    assert json.dumps(read_files(name_files({"a": "x"}))) == '{"a": "x"}'
