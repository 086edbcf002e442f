"""vLLM's speculative decoding counters, from text dumps of its ``/metrics``.

One dump holds counts since the engine started, warm-up included; the difference of two is a window.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from acclimate.controller.records import FloatArray
from acclimate.experiments.readers.detect import Kind, require
from acclimate.experiments.readers.lines import TRUNCATED, UNREADABLE, read_lines
from acclimate.experiments.readers.read import Read

_PREFIX = "vllm:spec_decode_"
_DRAFTS, _DRAFTED, _ACCEPTED = "num_drafts", "num_draft_tokens", "num_accepted_tokens"
_PER_POSITION = "num_accepted_tokens_per_pos"
_COUNTERS = (_DRAFTS, _DRAFTED, _ACCEPTED, _PER_POSITION)
_POSITIONS = ("position", "pos")

Series = tuple[str, frozenset[tuple[str, str]]]


@dataclasses.dataclass(frozen=True, slots=True)
class SpecDecodeCounters:
    """Counters of one dump, or of the time between two.

    Parameters
    ----------
    series
        Value of every series, by counter and labels.
    resets
        Series that had gone down between two dumps: their engine was started anew, and what it
        has counted since is taken.

    Examples
    --------
    >>> nothing = SpecDecodeCounters({})
    >>> nothing.acceptance_length is None
    True
    """

    series: dict[Series, float]
    resets: int = 0

    @property
    def drafts(self) -> float:
        """Verified drafts, over all engines."""
        return self._total(_DRAFTS)

    @property
    def drafted_tokens(self) -> float:
        """Draft tokens, over all engines."""
        return self._total(_DRAFTED)

    @property
    def accepted_tokens(self) -> float:
        """Accepted draft tokens, over all engines."""
        return self._total(_ACCEPTED)

    @property
    def engines(self) -> tuple[str, ...]:
        """Engine labels, sorted; one empty label where dumps have none."""
        return tuple(sorted({dict(labels).get("engine", "") for _, labels in self.series}))

    @property
    def acceptance_length(self) -> float | None:
        """Tokens per draft, bonus token included; None where there were no drafts."""
        return 1.0 + self.accepted_tokens / self.drafts if self.drafts > 0 else None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted per drafted token, in [0, 1]; None where nothing was drafted."""
        return self.accepted_tokens / self.drafted_tokens if self.drafted_tokens > 0 else None

    @property
    def survival(self) -> FloatArray | None:
        """Share of drafts accepted up to position 1, 2, …; None where there were no drafts."""
        if self.drafts <= 0:
            return None
        counts: dict[int, float] = {}
        for (name, labels), value in self.series.items():
            if name == _PER_POSITION:
                position = _position(dict(labels))
                counts[position] = counts.get(position, 0.0) + value
        width = max(counts, default=-1) + 1
        return np.array([counts.get(i, 0.0) for i in range(width)]) / self.drafts

    def since(self, before: SpecDecodeCounters) -> SpecDecodeCounters:
        """Return what was counted between an earlier dump and this one.

        A series that the earlier dump lacks had counted nothing then; one that only the earlier
        dump has belongs to an engine that is gone, and is left out.

        Raises
        ------
        ValueError
            The window has more accepted than drafted tokens: the dumps belong to two servers.
        """
        window: dict[Series, float] = {}
        resets = 0
        for key, value in self.series.items():
            earlier = before.series.get(key, 0.0)
            resets += value < earlier
            window[key] = value if value < earlier else value - earlier
        result = SpecDecodeCounters(window, resets)
        _check(result, "between the dumps")
        return result

    def _total(self, counter: str) -> float:
        return math.fsum(value for (name, _), value in self.series.items() if name == counter)


def read_prometheus(
    path: str | os.PathLike[str], *, model: str | None = None
) -> Read[SpecDecodeCounters]:
    """Read the counters of one dump; every sample line is a record.

    Parameters
    ----------
    model
        Take only series of this ``model_name``; None: all, added up.

    Raises
    ------
    ValueError
        The file is of another kind, has no counter of speculative decoding, or counts more
        accepted than drafted tokens.
    """
    path = require(path, Kind.PROMETHEUS)
    dropped: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    series: dict[Series, float] = {}
    models: set[str] = set()
    for name, labels, value in _samples(path, dropped):
        counter = name.removeprefix(_PREFIX).removesuffix("_total")
        if name.endswith("_created"):
            dropped["when a counter was created"] += 1
        elif not name.startswith(_PREFIX) or counter not in _COUNTERS:
            dropped["another metric"] += 1
        elif math.isnan(value) or math.isinf(value):
            dropped["value is NaN or infinite"] += 1
        elif value < 0:
            dropped["value negative"] += 1
        elif counter == _PER_POSITION and _position(labels) < 0:
            dropped["position missing"] += 1
        elif model is not None and labels.get("model_name") != model:
            dropped["another model"] += 1
        elif (key := (counter, frozenset(labels.items()))) in series:
            dropped["same series as another"] += 1
        else:
            series[key] = value
            models.add(labels.get("model_name", ""))
    if not series:
        raise ValueError(
            f"{path.name} must hold {_PREFIX}* counters, got none: was the server started with a "
            "speculative configuration?"
        )
    if len(models) > 1:
        notes["models added up"] += len(models)
    value_read = SpecDecodeCounters(series)
    _check(value_read, f"in {path.name}")
    return Read(value_read, len(series), dropped, notes)


def _samples(path: Path, dropped: Counter[str]) -> Iterator[tuple[str, dict[str, str], float]]:
    from prometheus_client.parser import text_string_to_metric_families

    for line in read_lines(path):
        if line.text.startswith("#"):
            continue
        try:
            # Line by line, so that one damaged line costs no more than itself.
            samples = [
                sample
                for family in text_string_to_metric_families(line.text)
                for sample in family.samples
            ]
        except (ValueError, IndexError):
            samples = []
        if samples:
            yield samples[0].name, dict(samples[0].labels), float(samples[0].value)
        else:
            dropped[UNREADABLE if line.finished else TRUNCATED] += 1


def _position(labels: dict[str, str]) -> int:
    """Return the draft position of a series, counted from 0; -1 if it has none."""
    text = next((labels[name] for name in _POSITIONS if name in labels), "")
    return int(text) if text.isdecimal() and len(text) < 4 else -1


def _check(counters: SpecDecodeCounters, where: str) -> None:
    if counters.accepted_tokens > counters.drafted_tokens > 0:
        raise ValueError(
            f"accepted tokens {where} must not exceed the {counters.drafted_tokens:g} drafted, "
            f"got {counters.accepted_tokens:g}"
        )
