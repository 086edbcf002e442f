"""The learned head: what it attends to, what it learns, and what is saved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

from acclimate.experiments.drafters.eagle_head import AUX_LAYERS, EagleHead, HeadShape
from acclimate.experiments.drafters.eagle_training import (
    Lesson,
    grade_head,
    train_head,
)

SHAPE = HeadShape(
    hidden=16, intermediate=32, heads=4, kv_heads=2, head_dim=4, rope_theta=1e4, eps=1e-5,
    vocab=12, draft_vocab=8,
)  # fmt: skip


@pytest.fixture
def head() -> EagleHead:
    torch.manual_seed(0)
    return EagleHead(SHAPE, torch.randn(12, 16), torch.arange(8) + 2)


def _lesson(length: int = 24) -> Lesson:
    """A text in which every token is the one before plus one, round the draft vocabulary."""
    ids = torch.arange(length) % 8 + 2
    generator = torch.Generator().manual_seed(length)
    features = torch.randn((length, len(AUX_LAYERS), 16), generator=generator)
    return Lesson("code", ids, 4, features)


def test_a_place_sees_nothing_of_what_comes_later(head: EagleHead) -> None:
    features = torch.randn(1, 10, len(AUX_LAYERS), 16)
    ids = torch.randint(0, 12, (1, 13))
    with torch.no_grad():
        outputs = head.rollout(features, ids, 3)
        features[:, 6:] += 1.0
        ids[:, 9:] = 0
        changed = head.rollout(features, ids, 3)
    for step in range(3):
        # Place i of step s knows the target up to i, and tokens up to i + s.
        assert torch.allclose(outputs[step][:, :6], changed[step][:, :6], atol=1e-5)
        assert not torch.allclose(outputs[step][:, 6:], changed[step][:, 6:], atol=1e-3)


def test_it_learns_a_rule_and_steps_that_follow_each_other(head: EagleHead) -> None:
    lessons = [_lesson(20 + n % 5) for n in range(40)]
    before = grade_head(head, lessons)["all"].top1
    train_head(head, lessons, epochs=250, seed=0, told=lambda what, done, total: None)
    found = grade_head(head, lessons)["all"]
    assert before < 0.5 < found.top1
    assert found.acceptance_length > 1.5


def test_what_is_saved_has_the_engines_names(head: EagleHead, tmp_path: Path) -> None:
    target = {"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 30, "vocab_size": 12}
    head.save(tmp_path, target)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert (config["num_hidden_layers"], config["draft_vocab_size"]) == (1, 8)
    weights = safetensors.load_file(tmp_path / "model.safetensors")
    assert weights["midlayer.self_attn.q_proj.weight"].shape == (16, 32)
    assert weights["midlayer.mlp.down_proj.weight"].shape == (16, 32)
    assert weights["midlayer.hidden_norm.weight"].shape == (16,)
    assert weights["fc.weight"].shape == (16, 16 * len(AUX_LAYERS))
    assert weights["d2t"].tolist() == [2] * 8
    assert "embedding" not in " ".join(weights)
