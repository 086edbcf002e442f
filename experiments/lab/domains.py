"""``acclimate lab domains``: what the domain label is worth beside other knowledge."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from acclimate.controller.records import IntArray, int_array
from acclimate.experiments.figures import Figure, Meta, interval_text, number_text, write_figures
from acclimate.experiments.lab.ablation import (
    Ablation,
    ablate,
    ablation_figures,
    feature_name,
    feature_sets,
    groups,
    spread_of_acceptance,
)
from acclimate.experiments.lab.graded import graded_tokens
from acclimate.experiments.lab.recording import read_recording
from acclimate.experiments.offsets import Lookup

if TYPE_CHECKING:
    from rich.console import Console


def run_domains(
    path: Path,
    *,
    lookup: Lookup,
    concurrency: int,
    first_tokens: int | None,
    merge: Iterable[str],
    additive: bool = False,
    json: Path | None,
    seed: int,
) -> list[Figure]:
    """Ablate the predictor's features over a recording, show the table, write figures if asked.

    Parameters
    ----------
    path
        A recording of ``acclimate lab record``, or its folder.
    lookup
        The n-gram drafter.
    concurrency
        Requests in service.
    first_tokens
        Cut answers to so many tokens; None for whole answers.
    merge
        ``NAME,NAME=GROUP``: domains to be taken as one.
    additive
        Let the label mean the same at every age of a request, and age nothing.
    json
        The figures file, if wanted.
    seed
        Draws the order of serving, wrong labels and resamples.

    Raises
    ------
    ValueError
        The file is no recording, or too little was graded.
    """
    from rich.console import Console

    console = Console()
    header, answers = read_recording(path)
    if first_tokens is not None:
        answers = [
            msgspec.structs.replace(answer, output=answer.output[:first_tokens])
            for answer in answers
        ]
    rng = np.random.default_rng(seed)
    tokens = graded_tokens(answers, lookup, concurrency=concurrency, rng=rng)
    labels = groups((answer.domain for answer in answers), [_merge(text) for text in merge])
    names = sorted(set(labels))
    domain = int_array([names.index(label) for label in labels])
    cluster = int_array([answer.question for answer in answers])
    with Console(stderr=True).status("position") as status:
        ablation = ablate(tokens, domain, cluster, rng, by_age=not additive, on_set=status.update)
        figures = ablation_figures(ablation, rng)
    between, within = spread_of_acceptance(tokens, domain)
    figures += [
        Figure("ablation/variance/between_domains", between, n=len(names)),
        Figure("ablation/variance/between_requests", within, n=len(answers)),
    ]
    figures += _first_positions(ablation, domain, names)
    _show(figures, console)
    if json is not None:
        meta = Meta("lab domains", engine=f"vllm {header.engine_version}", seed=seed)
        write_figures(json, figures, meta)
    return figures


def _first_positions(ablation: Ablation, domain: IntArray, names: list[str]) -> list[Figure]:
    """Return how often a draft's first token is right, by domain."""
    tokens = ablation.tokens
    first = tokens.position == 0
    figures = []
    for number, name in enumerate(names):
        mine = first & (domain[tokens.request] == number)
        rate = float(tokens.right[mine].mean()) if mine.any() else None
        figures.append(Figure(f"ablation/first_position/{name}", rate, n=int(mine.sum())))
    return figures


def _show(figures: list[Figure], console: Console) -> None:
    """Show the losses as a table by features, and below it what the label is worth."""
    from rich.table import Table

    by_name = {figure.name: figure for figure in figures}
    shown = set()
    table = Table(title="what is known of a draft token before it is verified")
    table.add_column("features", no_wrap=True)
    for column in ("nats", "below position", "cold", "warm", "20 % wrong"):
        table.add_column(column)
    for features in feature_sets():
        name = f"ablation/{feature_name(features)}"
        row = [
            f"{name}/{what}" for what in ("log_loss", "gain", "log_loss/cold", "log_loss/warm",
                                          "log_loss/wrong_labels")
        ]  # fmt: skip
        shown |= {*row, f"{name}/gain/cold", f"{name}/gain/warm"}
        cells = [by_name.get(name) for name in row]
        table.add_row(
            feature_name(features),
            *(_cell(cell, percent=i == 1) for i, cell in enumerate(cells)),
        )
    console.print(table)
    rest = Table("figure", "value", "95 % interval", "n")
    for figure in figures:
        if figure.name not in shown:
            share = "/label/" in figure.name
            value, _space, interval = _cell(figure, percent=share).partition(" [")
            rest.add_row(figure.name, value, f"[{interval}" if interval else "-", str(figure.n))
    console.print(rest, markup=False)


def _cell(figure: Figure | None, *, percent: bool) -> str:
    if percent:
        return interval_text(figure, ".1%")
    large = figure is not None and abs(figure.value or 0.0) >= 10
    return number_text(figure, ".0f" if large else ".4f")


def _merge(text: str) -> tuple[frozenset[str], str]:
    names, equals, group = text.partition("=")
    members = frozenset(name.strip() for name in names.split(",") if name.strip())
    if not (equals and group.strip() and members):
        raise ValueError(f"--merge must be NAME,NAME=GROUP, got {text!r}")
    return members, group.strip()
