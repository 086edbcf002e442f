"""Reads arrivals from any of the traces that are known here."""

from __future__ import annotations

import os

from acclimate.experiments.readers.arrivals import Arrivals
from acclimate.experiments.readers.azure import read_azure
from acclimate.experiments.readers.burstgpt import read_burstgpt
from acclimate.experiments.readers.detect import Kind, detect
from acclimate.experiments.readers.mooncake import read_mooncake
from acclimate.experiments.readers.read import Read

_READERS = {
    Kind.AZURE: read_azure,
    Kind.MOONCAKE: read_mooncake,
    Kind.BURSTGPT: read_burstgpt,
}


def read_arrivals(path: str | os.PathLike[str]) -> Read[Arrivals]:
    """Read arrivals from a trace of Azure, Mooncake or BurstGPT, whichever it is.

    Raises
    ------
    ValueError
        The file is of another kind, or its reader refuses it.
    """
    sighting = detect(path)
    if sighting.kind not in _READERS:
        known = ", ".join(kind.described for kind in _READERS)
        raise ValueError(
            f"{os.path.basename(path)} must hold arrivals ({known}), got {sighting.words}"
        )
    return _READERS[sighting.kind](path)
