"""Options that hold several values by comma."""

from __future__ import annotations

import typer


def names(text: str | None) -> list[str]:
    """Return the names in an option; none where it was not given."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def counts(text: str, option: str) -> list[int]:
    """Return the whole numbers above 0 that an option holds.

    Raises
    ------
    BadParameter
        Something else is among them; the message names the option, such as ``--batch``.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise typer.BadParameter(
            f"must be whole numbers above 0 such as 1,16,64, got {text!r}", param_hint=option
        )
    return [int(part) for part in parts]


def numbers(text: str, option: str) -> list[float]:
    """Return the numbers that an option holds.

    Raises
    ------
    BadParameter
        Something else is among them; the message names the option, such as ``--rates``.
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"must be numbers by comma, got {text!r}", param_hint=option
        ) from None
