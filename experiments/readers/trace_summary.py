"""What is in an acclimate trace of any schema: events by kind, gaps by name, acceptance."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from pathlib import Path

from acclimate.controller.events import GapEvent, GuardEvent, ObserveEvent, PlanEvent
from acclimate.experiments.readers.detect import Kind, require
from acclimate.experiments.readers.lines import TRUNCATED
from acclimate.experiments.readers.read import Read
from acclimate.integrations.trace_format import TraceHeader
from acclimate.integrations.trace_names import segment_files
from acclimate.integrations.trace_reader import read_trace


@dataclasses.dataclass(frozen=True, slots=True)
class Gap:
    """Events that the writer lost: ``lost`` of them, before the event numbered ``before_seq``."""

    before_seq: int
    lost: int


@dataclasses.dataclass(frozen=True, slots=True)
class TraceSummary:
    """Counts over a whole trace.

    Parameters
    ----------
    header
        Of the first segment at hand.
    kinds
        Events by kind.
    depths
        Decided steps by depth.
    gaps
        Where events were lost.
    deleted_segments
        Earlier segments that are gone.
    drafts, verified_tokens, accepted_tokens
        Drafts of which something was verified, and their tokens, exempt steps left out.
    committed_tokens, span_s
        Committed tokens, and seconds from the first outcome to the last.
    """

    header: TraceHeader
    kinds: Counter[str]
    depths: Counter[int]
    gaps: tuple[Gap, ...]
    deleted_segments: int
    drafts: int
    verified_tokens: int
    accepted_tokens: int
    committed_tokens: int
    span_s: float

    @property
    def acceptance_length(self) -> float | None:
        """Tokens per verified draft, bonus token included; None where none was verified."""
        return 1.0 + self.accepted_tokens / self.drafts if self.drafts else None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted per verified token; None where none was verified."""
        return self.accepted_tokens / self.verified_tokens if self.verified_tokens else None


def read_trace_summary(path: str | os.PathLike[str]) -> Read[TraceSummary]:
    """Count what a trace holds, segment after segment.

    Raises
    ------
    ValueError
        The file is of another kind, of a newer schema, or damaged inside.
    """
    path = Path(path)
    files = segment_files(path)
    require(files[0] if files else path, Kind.TRACE)
    trace = read_trace(path)
    kinds: Counter[str] = Counter()
    depths: Counter[int] = Counter()
    notes: Counter[str] = Counter()
    gaps: list[Gap] = []
    drafts = verified = accepted = committed = 0
    first_ns = last_ns = None
    for event in trace:
        kinds[str(event.__struct_config__.tag)] += 1
        if isinstance(event, PlanEvent):
            depths[event.decision.depth] += 1
        elif isinstance(event, GapEvent):
            gaps.append(Gap(event.seq, event.lost))
            notes["events lost in gaps"] += event.lost
        elif isinstance(event, GuardEvent) and event.stock is not None:
            notes[f"guard: {event.stock}"] += 1
        elif isinstance(event, ObserveEvent):
            outcome = event.outcome
            first_ns = outcome.now_ns if first_ns is None else first_ns
            last_ns = outcome.now_ns
            committed += int(outcome.committed.sum())
            if not outcome.exempt:
                drafts += int((outcome.drafts.verified > 0).sum())
                verified += int(outcome.drafts.verified.sum())
                accepted += int(outcome.drafts.accepted.sum())
    span_ns = (last_ns or 0) - (first_ns or 0)
    summary = TraceSummary(
        header=trace.header,
        kinds=kinds,
        depths=depths,
        gaps=tuple(gaps),
        deleted_segments=trace.deleted_segments,
        drafts=drafts,
        verified_tokens=verified,
        accepted_tokens=accepted,
        committed_tokens=committed,
        span_s=span_ns / 1e9,
    )
    dropped = Counter({TRUNCATED: trace.truncated_lines} if trace.truncated_lines else {})
    return Read(summary, kinds.total(), dropped, notes)
