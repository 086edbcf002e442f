"""``acclimate lab domains``: what the domain label is worth beside other knowledge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from acclimate.experiments.figures import (
    UNKNOWN,
    Figure,
    interval_text,
    number_text,
)
from acclimate.experiments.lab.ablation import Features, feature_name, feature_sets
from acclimate.experiments.lab.ablation_cell import (
    AblationRow,
    AblationSample,
    ablation_cells,
    material_of,
    run_ablation_cell,
)
from acclimate.experiments.lab.ablation_figures import (
    Sums,
    ablation_figures,
    acceptance_figures,
    inference_figures,
)
from acclimate.experiments.lab.cell_grid import run_missing
from acclimate.experiments.lab.conclusion import conclude, lab_console
from acclimate.experiments.lab.lab_run import LabRun
from acclimate.experiments.lab.tracking import Group
from acclimate.experiments.offsets import Lookup

_COMMAND = "lab domains"


def run_domains(
    path: Path,
    *,
    lookup: Lookup,
    concurrency: int,
    first_tokens: int | None,
    merge: Iterable[str],
    additive: bool = False,
    inferred: bool = False,
    run: LabRun = LabRun(),
) -> list[Figure]:
    """Ablate the predictor's features over a recording, show the table, write figures.

    Parameters
    ----------
    path, lookup, concurrency, first_tokens, merge, additive, inferred
        As in `AblationSample`.
    run
        Processes, folder and the like, tracked with a nested run per set of features; its seed
        draws the order of serving, wrong labels and resamples.

    Raises
    ------
    ValueError
        The file is no recording, too little was graded, or the folder holds something else.
    RuntimeError
        Cells failed, or the run was stopped; what is done is kept.
    """
    sample = AblationSample(
        recording=str(path),
        lookup=lookup,
        concurrency=concurrency,
        first_tokens=first_tokens,
        merge=tuple(merge),
        additive=additive,
        inferred=inferred,
        seed=run.seed,
    )
    material = material_of(sample)
    with run.open_store(_COMMAND, sample.settings(), AblationRow) as store:
        run_missing(run_ablation_cell, store, ablation_cells(sample), run.jobs)
        losses, wrong = (_sums_of(store.rows, wrong_labels=what) for what in (False, True))
        figures = ablation_figures(material.data, losses, wrong, material.rng)
        figures += acceptance_figures(material.data, material.names)
        if inferred:
            figures += inference_figures(material.declared, material.data.domain)
        console = lab_console()
        _show(figures, console)
        conclude(
            store,
            figures,
            lambda: _groups(figures),
            console,
            run,
            engine=f"vllm {material.header.engine_version}",
        )
    return figures


def _sums_of(rows: Sequence[AblationRow], *, wrong_labels: bool) -> dict[Features, Sums]:
    """Return the rows' sums by features, small sets first whatever the order of the rows."""
    found = {row.features: row.sums for row in rows if row.wrong_labels == wrong_labels}
    return {
        features: {age: np.array(sums) for age, sums in found[features].items()}
        for features in feature_sets()
        if features in found
    }


def _groups(figures: Sequence[Figure]) -> list[Group]:
    """Return one nested run for each set of features, and one for what the label adds."""
    names = {feature_name(features): feature_name(features) for features in feature_sets()}
    names["label"] = "with the domain label against without it"
    return [
        Group(
            name,
            {"features": about},
            [figure for figure in figures if figure.name.startswith(f"ablation/{name}/")],
            strip=f"ablation/{name}/",
        )
        for name, about in names.items()
    ]


def _show(figures: list[Figure], console: Console) -> None:
    """Show the losses as a table by features, and below it what the label is worth."""
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
            rest.add_row(figure.name, value, f"[{interval}" if interval else UNKNOWN, str(figure.n))
    console.print(rest, markup=False)


def _cell(figure: Figure | None, *, percent: bool) -> str:
    if percent:
        return interval_text(figure, ".1%")
    large = figure is not None and abs(figure.value or 0.0) >= 10
    return number_text(figure, ".0f" if large else ".4f")
