"""Why a plan is what it is, and why the engine's own rule acts: words for logs, metrics and tests."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """The reason that a plan carries."""

    IDLE = "idle"  # no request decodes
    NO_DRAFTS = "no_drafts"  # nothing at hand to verify
    PRICE = "price"  # the price of time decided
    HELD = "held"  # a better depth is known, the dwell has not passed or the gain is unsure
    TWIN = "twin"  # verifies less than would pay: somebody would fall behind the plain engine
    NEIGHBOURS = "neighbours"  # verifies less than would pay: a target would go out of reach
    PROBE = "probe"  # drawn at random to measure a cell of the latency table
    FIXED = "fixed"  # a policy that does not learn


class Stock(StrEnum):
    """Why the engine's own rule acts instead of a plan."""

    LATE = "late"  # a call returned late: one step
    ERROR = "error"  # a call raised: back-off
    INVALID = "invalid"  # a plan broke its contract: back-off
    VIOLATION = "violation"  # the engine did not do what was asked: back-off
    DISABLED = "disabled"  # switched off by the operator, or tripped too often
