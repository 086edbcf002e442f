"""What a reader must be told who never saw the project."""

from __future__ import annotations

from acclimate.experiments.report.page import Section, Text

SPECULATION = (
    "A language model writes one token per step. With speculative decoding a cheap drafter proposes "
    "the next few tokens, and the model verifies them all in one step: those that it would have "
    "written itself are accepted, the first wrong one and all behind it are thrown away. The text "
    "stays the same; only the speed changes. How far to speculate (the depth) is a bargain: verified "
    "tokens take time, and only accepted ones are worth it. The best depth depends on how often "
    "drafts are accepted, and on how many requests share the engine."
)
CONTROLLER = (
    "acclimate is a feedback controller: at every step it decides how many drafts to verify, from "
    "what it has learned of acceptance and of the time that steps take. In tables and figures it is "
    "called adaptive. kN is a fixed depth of N tokens, and k0 no speculation at all."
)


def introduction(*more: str) -> Section:
    """Return the section that explains what the report is about."""
    return Section("What this is about", [Text([SPECULATION, CONTROLLER, *more])])
