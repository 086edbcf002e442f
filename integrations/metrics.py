"""Turns a loop's events into interval metrics: few names, finite values, a step that only rises."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from statistics import median

import msgspec

from acclimate.controller.events import (
    AlarmEvent,
    ConfigEvent,
    Event,
    GapEvent,
    GuardEvent,
    ObserveEvent,
    PlanEvent,
    ReportEvent,
)
from acclimate.controller.records import StepOutcome, StepPlan
from acclimate.controller.reports import Report
from acclimate.integrations.metric_names import BoundedNames
from acclimate.integrations.service_metrics import service_metrics

MAX_METRICS_PER_ROW = 1000
_MAX_DOMAINS = 128
_MAX_CLASSES = _MAX_TENANTS = 32


class MetricRow(msgspec.Struct, frozen=True):
    """Metrics of one interval: names and values at one step.

    Parameters
    ----------
    timestamp_ms
        Wall clock, milliseconds since 1970.
    step
        The engine step up to which the interval reached.
    values
        By name, finite, at most `MAX_METRICS_PER_ROW`.

    Examples
    --------
    >>> len(MetricRow(timestamp_ms=0, step=7, values={"controller/depth": 2.0}))
    1
    """

    timestamp_ms: int
    step: int
    values: dict[str, float]

    def __len__(self) -> int:
        return len(self.values)


class Aggregator:
    """Sums up the events of an interval, in microseconds per event.

    Means and shares are over the interval; ``switches``, ``probes``, ``stock_steps``, ``alarms``
    and the drops are counts since the start. ``tokens_per_s`` is per second of engine time: idle
    gaps do not count. ``latency/step_ms`` is the interval's median.

    Parameters
    ----------
    max_domains
        Domains reported at most; further ones are left out and counted in
        ``sink/domains_left_out``, values beyond `MAX_METRICS_PER_ROW` in ``sink/values_left_out``.

    Examples
    --------
    >>> from acclimate.controller.reports import Alarm
    >>> aggregator = Aggregator()
    >>> alarm = Alarm(
    ...     step=9, slot=0, label="code", signal="adwin", before=0.8, after=0.5, graded_tokens=400)
    >>> aggregator.add(AlarmEvent(seq=1, alarm=alarm))
    >>> aggregator.flush(timestamp_ms=0).values["drift/alarms"]
    1.0
    """

    def __init__(self, max_domains: int = 64) -> None:
        self._domains = BoundedNames(min(max_domains, _MAX_DOMAINS))
        self._classes = BoundedNames(_MAX_CLASSES)
        self._tenants = BoundedNames(_MAX_TENANTS)
        self._step = self._flushed_step = -1
        self._plan_step: int | None = None
        self._depth: int | None = None
        self._depths_seen: set[int] = set()
        self._was_stock = self._is_stock = False
        self._switches = self._probes = self._stock_steps = self._alarms = 0
        self._time_alarms = 0
        self._domain_alarms: Counter[str] = Counter()
        self._config_version = 1
        self._report: Report | None = None
        self._values_left_out = 0
        self._start_interval()

    def _start_interval(self) -> None:
        self._plans = self._plan_rows = 0
        self._depths: Counter[int] = Counter()
        self._draft_depths = self._verify_tokens = 0
        self._predicted_ns: list[int] = []
        self._latencies_ns: list[int] = []
        self._outcomes = self._rows = self._row_tokens = 0
        self._verified = self._accepted = 0
        # Tokens and time of the outcomes whose time is known: together they are a rate.
        self._timed_tokens = 0

    def add(self, event: Event) -> None:
        """Take one event into account; kinds that say nothing for a tracker are passed over."""
        if isinstance(event, PlanEvent):
            self._add_plan(event.decision)
        elif isinstance(event, ObserveEvent):
            self._add_outcome(event.outcome)
        elif isinstance(event, ReportEvent):
            self._report = event.report
        elif isinstance(event, AlarmEvent):
            self._alarms += 1
            self._step = max(self._step, event.alarm.step)
            of_step_time = event.alarm.slot < 0
            self._time_alarms += of_step_time
            name = None if of_step_time else self._domains.of(event.alarm.label)
            if name is not None:
                self._domain_alarms[name] += 1
        elif isinstance(event, GuardEvent):
            self._is_stock = event.stock is not None
            self._was_stock = self._was_stock or self._is_stock
            if self._plan_step is not None:
                # The loop logs no plan for a stock step: it is the one after the last plan.
                self._step = max(self._step, self._plan_step + 1)
        elif isinstance(event, GapEvent):
            self._plan_step = self._depth = None
        elif isinstance(event, ConfigEvent):
            self._config_version = event.version

    def _add_plan(self, plan: StepPlan) -> None:
        if self._was_stock and self._plan_step is not None:
            self._stock_steps += max(0, plan.step - self._plan_step - 1)
        self._was_stock = self._is_stock
        self._plan_step = plan.step
        self._step = max(self._step, plan.step)
        if self._depth is not None and plan.depth != self._depth:
            self._switches += 1
        self._depth = plan.depth
        self._probes += plan.explored
        self._plans += 1
        self._depths[plan.depth] += 1
        self._draft_depths += plan.draft_depth
        self._plan_rows += plan.verify_lens.size
        self._verify_tokens += int(plan.verify_lens.sum())
        if plan.predicted_latency_ns is not None:
            self._predicted_ns.append(plan.predicted_latency_ns)

    def _add_outcome(self, outcome: StepOutcome) -> None:
        self._step = max(self._step, outcome.step)
        committed = int(outcome.committed.sum())
        self._outcomes += 1
        self._rows += outcome.decode_requests
        self._row_tokens += committed
        if not outcome.exempt:
            self._verified += int(outcome.drafts.verified.sum())
            self._accepted += int(outcome.drafts.accepted.sum())
        if outcome.latency_ns is not None and outcome.latency_ns > 0:
            self._latencies_ns.append(outcome.latency_ns)
            self._timed_tokens += committed + outcome.first_tokens

    def flush(self, timestamp_ms: int, extra: Iterable[tuple[str, float]] = ()) -> MetricRow | None:
        """Return the interval's metrics and start the next; None if no step passed meanwhile.

        Parameters
        ----------
        timestamp_ms
            Wall clock.
        extra
            Further names and values of this step.
        """
        if self._step <= self._flushed_step:
            return None
        self._flushed_step = self._step
        values: dict[str, float | None] = {
            "controller/switches": self._switches,
            "controller/probes": self._probes,
            "controller/stock_steps": self._stock_steps,
            "controller/stock": int(self._is_stock),
            "controller/config_version": self._config_version,
            "drift/alarms": self._alarms,
            "drift/step_time_alarms": self._time_alarms,
            **dict(extra),
        }
        self._put_interval(values)
        self._put_report(values)
        values["sink/domains_left_out"] = self._domains.left_out
        if self._tenants.left_out:
            values["sink/tenants_left_out"] = self._tenants.left_out
        self._start_interval()
        fit = [(k, float(v)) for k, v in values.items() if v is not None and math.isfinite(v)]
        if len(fit) > MAX_METRICS_PER_ROW:
            kept = MAX_METRICS_PER_ROW - 1
            self._values_left_out += len(fit) - kept
            fit = [*fit[:kept], ("sink/values_left_out", float(self._values_left_out))]
        return MetricRow(timestamp_ms, self._flushed_step, dict(fit))

    def _put_interval(self, values: dict[str, float | None]) -> None:
        if self._plans:
            values["controller/draft_depth"] = self._draft_depths / self._plans
            values["controller/depth"] = (
                sum(depth * count for depth, count in self._depths.items()) / self._plans
            )
            # Depths seen once stay in every row: a share of 0 is news.
            self._depths_seen.update(self._depths)
            for depth in sorted(self._depths_seen):
                values[f"depth/{depth}/share"] = self._depths[depth] / self._plans
        if self._plan_rows:
            values["controller/verify_depth_mean"] = self._verify_tokens / self._plan_rows
        if self._outcomes:
            values["controller/decode_requests"] = self._rows / self._outcomes
        if self._rows:
            values["acceptance/length"] = self._row_tokens / self._rows
        if self._verified:
            values["acceptance/wasted_share"] = 1.0 - self._accepted / self._verified
        if self._latencies_ns:
            values["latency/step_ms"] = median(self._latencies_ns) / 1e6
            values["controller/tokens_per_s"] = self._timed_tokens / sum(self._latencies_ns) * 1e9
        if self._predicted_ns:
            values["latency/predicted_ms"] = median(self._predicted_ns) / 1e6

    def _put_report(self, values: dict[str, float | None]) -> None:
        report, self._report = self._report, None
        if report is not None:
            values["latency/error_ratio"] = report.latency_error_ratio
            values["controller/marginal_gain"] = report.marginal_gain
            if report.shadow is not None and report.shadow.speed_ratio is not None:
                values["shadow/speed_ratio"] = report.shadow.speed_ratio
                values["shadow/planned_tokens_per_s"] = report.shadow.planned_tokens_per_s
            for slot in report.slots:
                name = self._domains.of(slot.label) if slot.graded_tokens else None
                if name is not None:
                    values[f"acceptance/{name}/predicted"] = slot.predicted
                    values[f"acceptance/{name}/seen"] = slot.seen
                    values[f"acceptance/{name}/brier"] = slot.brier
                    values[f"acceptance/{name}/graded_tokens"] = slot.graded_tokens
            values.update(service_metrics(report, self._classes, self._tenants))
        for name, alarms in self._domain_alarms.items():
            values[f"acceptance/{name}/alarms"] = alarms
