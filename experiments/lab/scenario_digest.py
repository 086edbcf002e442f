"""What a header keeps of a scenario: its words, and a digest of all that it means."""

from __future__ import annotations

import hashlib
from typing import Any

from acclimate.experiments.simulation.scenario import Scenario


def about_scenario(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario's words and a digest of it and of the files that it names."""
    digest = hashlib.blake2b(scenario.model_dump_json().encode(), digest_size=12)
    for name in (scenario.step_time.table, getattr(scenario.arrivals, "path", None)):
        if name is not None:
            digest.update((scenario.folder / name).read_bytes())
    return {"title": scenario.title, "note": scenario.note, "digest": digest.hexdigest()}
