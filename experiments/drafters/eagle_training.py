"""Trains an `EagleHead` on answers of its target, and grades it on held-out ones."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from acclimate.experiments.drafters.answers import Answer
from acclimate.experiments.drafters.eagle_head import AUX_LAYERS, EagleHead, HeadShape
from acclimate.experiments.drafters.held_out import DEPTH, Drafted, HeldOut, by_domain
from acclimate.experiments.drafters.text import Told

_LONGEST_TOKENS = 1024  # of a prompt's end and its answer
_READ_BATCH = 16
_BATCH_TOKENS = 1_024
_STEP_WEIGHTS = (1.0, 0.7)
_STEPS = len(_STEP_WEIGHTS)
_RATE, _WARM_UP = 8e-4, 0.05
_NO_LABEL = -1


@dataclasses.dataclass(frozen=True, slots=True)
class Lesson:
    """One answer as the head sees it.

    Parameters
    ----------
    ids
        Shape (length,): the prompt, or what is left of it, and the answer.
    first
        Where the answer begins.
    features
        Shape (length, layers, hidden): the target's hidden states.
    """

    domain: str
    ids: Tensor
    first: int
    features: Tensor


def read_features(
    model: Path, answers: Sequence[Answer], told: Told, what: str
) -> tuple[list[Lesson], Any]:
    """Return answers with the target's hidden states, and the target.

    Parameters
    ----------
    told
        Gets ``what`` it is doing, how many are done, and of how many.
    """
    from transformers import AutoModelForCausalLM

    target = AutoModelForCausalLM.from_pretrained(str(model), dtype=torch.bfloat16).eval()
    texts = [(answer.prompt + answer.answer)[-_LONGEST_TOKENS:] for answer in answers]
    by_length = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    lessons: dict[int, Lesson] = {}
    with torch.inference_mode():
        for begin in range(0, len(texts), _READ_BATCH):
            some = by_length[begin : begin + _READ_BATCH]
            # Padding is behind the text, where causal attention does not look.
            ids = torch.zeros((len(some), len(texts[some[-1]])), dtype=torch.long)
            for row, i in enumerate(some):
                ids[row, : len(texts[i])] = torch.tensor(texts[i])
            states = target.model(ids, output_hidden_states=True, use_cache=False).hidden_states
            for row, i in enumerate(some):
                end = len(texts[i])
                features = torch.stack([states[at][row, :end] for at in AUX_LAYERS], dim=1)
                first = end - len(answers[i].answer)
                lessons[i] = Lesson(answers[i].domain, ids[row, :end].clone(), first, features)
            told(what, len(lessons), len(texts))
    return [lessons[i] for i in range(len(texts))], target


def new_head(model: Path, target: Any, lessons: Sequence[Lesson], draft_vocab: int) -> EagleHead:
    """Return a head that begins as its target's last layer, drafting the most frequent tokens."""
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    counts = np.zeros(int(config["vocab_size"]), dtype=np.int64)
    for lesson in lessons:
        np.add.at(counts, lesson.ids[lesson.first :].numpy(), 1)
    # Of tokens that were never written, those with low numbers: they are the common ones.
    frequent = np.argsort(-counts, kind="stable")[:draft_vocab]
    draft_ids = torch.from_numpy(np.sort(frequent))
    embedding = target.get_input_embeddings().weight.detach().float()
    head = EagleHead(HeadShape.of(config, draft_vocab), embedding, draft_ids)
    last = target.model.layers[-1].state_dict()
    head.start_from(last, target.model.norm.weight.detach())
    return head


def train_head(
    head: EagleHead,
    lessons: Sequence[Lesson],
    *,
    epochs: int,
    seed: int,
    told: Told,
) -> None:
    """Train a head in place; two draft steps are trained as they follow each other.

    Parameters
    ----------
    epochs
        Passes over the lessons.
    seed
        Draws their order.
    """
    rng = np.random.default_rng(seed)
    place = _places(head)
    optimiser = torch.optim.AdamW(head.parameters(), lr=_RATE, betas=(0.9, 0.95), weight_decay=0.01)
    batches = [batch for _ in range(epochs) for batch in _batches(lessons, rng)]
    head.train()
    for number, batch in enumerate(batches):
        for group in optimiser.param_groups:
            group["lr"] = _RATE * _schedule(number / len(batches))
        features, ids, labels = _collate([lessons[i] for i in batch], place, _STEPS)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = head.rollout(features, ids, _STEPS)
            loss = torch.zeros(())
            for step, (output, weight) in enumerate(zip(outputs, _STEP_WEIGHTS, strict=True)):
                wanted = labels[:, step : step + output.shape[1]]
                known = wanted >= 0
                logits = head.lm_head(output[known])
                loss = loss + weight * functional.cross_entropy(logits.float(), wanted[known])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimiser.step()
        told(f"training, loss {float(loss.detach()) / sum(_STEP_WEIGHTS):.2f}", number + 1,
             len(batches))  # fmt: skip
    head.eval()


def grade_head(head: EagleHead, lessons: Sequence[Lesson]) -> dict[str, HeldOut]:
    """Return what a head makes of lessons, per domain and over all, as `held_out.measure` does."""
    place = _places(head)
    drafted: list[tuple[str, Drafted]] = []
    with torch.inference_mode():
        for lesson in lessons:
            if lesson.ids.shape[0] - lesson.first < 2:
                continue
            features, ids, labels = _collate([lesson], place, DEPTH)
            right = np.zeros((features.shape[1], DEPTH), dtype=bool)
            right3 = np.zeros(features.shape[1], dtype=bool)
            sure = np.zeros(features.shape[1])
            for step, output in enumerate(head.rollout(features, ids, DEPTH)):
                logits = head.lm_head(output[0])
                wanted = labels[0, step : step + logits.shape[0]]
                right[:, step] = (logits.argmax(-1) == wanted).numpy()
                if step == 0:
                    best = logits.topk(3).indices
                    right3 = (best == wanted[:, None]).any(-1).numpy()
                    sure = logits.softmax(-1).max(-1).values.numpy()
            # Place i drafts token i + 2: the answer's second token is the first that is drafted.
            at = max(lesson.first - 1, 0)
            drafted.append((lesson.domain, (right[at:], right3[at:], sure[at:])))
    return by_domain(drafted)


def _places(head: EagleHead) -> Tensor:
    """Return each token's place in the draft vocabulary, `_NO_LABEL` if it has none."""
    draft_ids: Any = head.draft_ids
    place = torch.full((head.shape.vocab,), _NO_LABEL)
    place[draft_ids] = torch.arange(draft_ids.shape[0])
    return place


def _collate(lessons: Sequence[Lesson], place: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return features, ids with room for ``steps`` more, and labels: what follows token i + 1.

    Label i of draft step s is at i + s - 1.
    """
    longest = max(lesson.ids.shape[0] for lesson in lessons) - 2
    count = len(lessons)
    shape = lessons[0].features.shape[1:]
    features = torch.zeros((count, longest, *shape))
    ids = torch.zeros((count, longest + steps), dtype=torch.long)
    labels = torch.full((count, longest + steps), _NO_LABEL)
    for row, lesson in enumerate(lessons):
        length = lesson.ids.shape[0]
        features[row, : length - 2] = lesson.features[: length - 2].float()
        shown = min(length, ids.shape[1])
        ids[row, :shown] = lesson.ids[:shown]
        labels[row, : length - 2] = place[lesson.ids[2:]]
        labels[row, : max(lesson.first - 1, 0)] = _NO_LABEL
    return features, ids, labels


def _batches(lessons: Sequence[Lesson], rng: np.random.Generator) -> list[list[int]]:
    """Return lessons in random batches of like length."""
    lengths = np.array([lesson.ids.shape[0] for lesson in lessons])
    order = np.lexsort((rng.random(len(lessons)), lengths // 32))
    batches: list[list[int]] = [[]]
    longest = 0
    for index in order.tolist():
        if lengths[index] < 3:
            continue
        longest = max(longest, int(lengths[index]))
        if batches[-1] and longest * (len(batches[-1]) + 1) > _BATCH_TOKENS:
            batches.append([])
            longest = int(lengths[index])
        batches[-1].append(index)
    return [batches[i] for i in rng.permutation(len(batches)) if batches[i]]


def _schedule(progress: float) -> float:
    """Return the learning rate's factor: up linearly, then down along a cosine."""
    if progress < _WARM_UP:
        return (progress + 0.01) / (_WARM_UP + 0.01)
    return 0.5 * (1.0 + math.cos(math.pi * (progress - _WARM_UP) / (1.0 - _WARM_UP)))
