"""Draws what the adaptive arm believed, saw and did over its rounds, as one PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acclimate.experiments.demo.learning import GradedToken, Learning
from acclimate.experiments.demo.stream import CHAT

_BIN_TOKENS = 30
_STEPS_PER_POINT = 12
_SEEN, _SHIFT, _ALARM = "#1f2933", "#c0392b", "#d68910"


def draw(learning: Learning, path: Path) -> None:
    """Draw predicted and seen acceptance per domain over time, with depth and concurrency below.

    A point is the mean over thirty graded tokens in a row of one domain; the prediction is the one
    made before any of them was seen.

    Parameters
    ----------
    learning
        What `demo_learning.relive` gave.
    path
        The PNG to write.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    labels = sorted({token.label for token in learning.tokens} - {CHAT})
    figure, axes = plt.subplots(
        4, 1, figsize=(12, 11), sharex=True, height_ratios=(3, 3.4, 2, 1.2), layout="constrained"
    )
    _draw_chat(axes[0], learning)
    _draw_domains(axes[1], learning, labels, plt.get_cmap("tab10").colors)
    _draw_depth(axes[2], learning)
    times = [point.time_s for point in learning.steps]
    axes[3].fill_between(
        times, [point.requests for point in learning.steps], step="post", color="#5d6d7e", lw=0
    )
    axes[3].set_ylabel("requests\ndecoding")
    axes[3].set_yticks((1, 8, 16))
    axes[3].set_xlabel("seconds of service by the adaptive arm, its rounds one after the other")
    for axis in axes:
        _mark(axis, learning)
        axis.margins(x=0.005)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_title("Acceptance predicted and seen, depth and load", loc="left", weight="bold")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _draw_chat(axis: Any, learning: Learning) -> None:
    times, predicted, seen = _binned(learning.of(CHAT))
    axis.plot(times, seen, "o", ms=4, color=_SEEN, label="seen")
    axis.plot(times, predicted, "-", lw=2, color="#2471a3", label="predicted")
    for number, shift_s in enumerate(learning.shifts_s):
        axis.annotate(
            "content shifts" if number == 0 else "",
            (shift_s, 0.0),
            xytext=(4, 6),
            textcoords="offset points",
            color=_SHIFT,
            fontsize=9,
        )
    alarms = [time_s for time_s, alarm in learning.alarms if alarm.label == CHAT]
    axis.plot(alarms, [0.12] * len(alarms), "^", ms=8, color=_ALARM, label="alarm")
    _acceptance_axis(axis, f"“{CHAT}”: one label,\ntwo contents")
    _legend(axis, 3)


def _draw_domains(axis: Any, learning: Learning, labels: Sequence[str], colors: Any) -> None:
    for label, color in zip(labels, colors, strict=False):
        times, predicted, seen = _binned(learning.of(label))
        axis.plot(times, predicted, "-", lw=1.6, color=color, label=label)
        axis.plot(times, seen, "o", ms=3, color=color, alpha=0.6)
    _acceptance_axis(axis, "true labels\n(line: predicted, dots: seen)")
    _legend(axis, 6)


def _draw_depth(axis: Any, learning: Learning) -> None:
    points = learning.steps
    groups = [points[i : i + _STEPS_PER_POINT] for i in range(0, len(points), _STEPS_PER_POINT)]
    times = [group[0].time_s for group in groups]
    mean = [float(np.mean([point.verified_per_request for point in group])) for group in groups]
    most = [max(point.verified_per_request for point in group) for group in groups]
    axis.fill_between(times, most, step="post", color="#aed6f1", lw=0, label="most in a step")
    axis.step(times, mean, where="post", color="#1a5276", lw=1.4, label="mean")
    axis.set_ylabel("drafts verified\nper request")
    axis.set_ylim(bottom=0)
    _legend(axis, 2)


def _legend(axis: Any, columns: int) -> None:
    """Put the legend above the axes, where it hides nothing."""
    axis.legend(
        loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=columns, frameon=False, fontsize=9
    )


def _mark(axis: Any, learning: Learning) -> None:
    for shift_s in learning.shifts_s:
        axis.axvline(shift_s, color=_SHIFT, lw=1.2, ls="--")
    for round_s in learning.rounds_s[1:-1]:
        axis.axvline(round_s, color="#95a5a6", lw=1.0)


def _acceptance_axis(axis: Any, title: str) -> None:
    axis.set_ylabel(f"acceptance\n{title}")
    axis.set_ylim(0, 1.02)
    axis.set_yticks(np.arange(0, 1.01, 0.25))
    axis.grid(axis="y", color="#e5e8e8")


def _binned(tokens: Sequence[GradedToken]) -> tuple[list[float], list[float], list[float]]:
    """Return times, mean predictions and mean outcomes, over so many tokens of one round each."""
    times: list[float] = []
    predicted: list[float] = []
    seen: list[float] = []
    known = [token for token in tokens if np.isfinite(token.predicted)]
    for number in sorted({token.round for token in known}):
        here = [token for token in known if token.round == number]
        for start in range(0, len(here), _BIN_TOKENS):
            group = here[start : start + _BIN_TOKENS]
            if len(group) < _BIN_TOKENS // 2:
                continue
            times.append(float(np.mean([token.time_s for token in group])))
            predicted.append(float(np.mean([token.predicted for token in group])))
            seen.append(float(np.mean([token.right for token in group])))
        times.append(float("nan"))
        predicted.append(float("nan"))
        seen.append(float("nan"))
    return times, predicted, seen
