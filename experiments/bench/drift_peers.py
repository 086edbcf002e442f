"""River's drift detectors and two trivial ones, watching streams of graded tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from river import drift
from river.drift import binary

from acclimate.experiments.bench.drift_streams import Stream, Watch


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """A detector, the share of seeds that its speed allows, and its tokens per stable stream."""

    name: str
    watch: Watch
    seeds_share: float = 1.0
    stable_tokens: int = 5_000


def peers() -> list[Peer]:
    """Return the detectors with their defaults; binary ones are told of rejections as errors."""
    return [
        Peer("adwin", _river(drift.ADWIN)),
        Peer("page_hinkley", _river(drift.PageHinkley)),
        Peer("ddm", _river(binary.DDM, errors=True)),
        Peer("eddm", _river(binary.EDDM, errors=True), 0.2),
        Peer("fhddm", _river(binary.FHDDM, errors=True), 0.2),
        Peer("hddm_a", _river(binary.HDDMA, errors=True), 0.2),
        Peer("hddm_w", _river(binary.HDDMW, errors=True), 0.2),
        Peer("kswin", _river(lambda: drift.KSWIN(seed=0)), 0.015, 1_000),
        Peer("do_nothing", _never),
        Peer("always_fire", _always),
    ]


def _river(make: Callable[[], Any], *, errors: bool = False) -> Watch:
    def watch(stream: Stream, change: int) -> list[int]:
        detector = make()
        found = []
        for t, accepted in enumerate(stream.accepted.tolist()):
            detector.update(not accepted if errors else int(accepted))
            if detector.drift_detected:
                found.append(t)
                if t >= change:
                    break
        return found

    return watch


def _never(stream: Stream, change: int) -> list[int]:
    return []


def _always(stream: Stream, change: int) -> list[int]:
    return list(range(min(change + 1, len(stream.accepted))))
