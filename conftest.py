"""Keeps a second copy of the package from being tested unnoticed."""

from __future__ import annotations

import sys

import pytest

_FOLDERS = ("controller", "predictors", "integrations", "experiments")


def pytest_collection_modifyitems() -> None:
    """Refuse a run that has loaded a folder under its bare name."""
    loaded = [name for name in _FOLDERS if name in sys.modules]
    if loaded:
        raise pytest.UsageError(
            f"tests must load acclimate.{loaded[0]}, got a second copy named {loaded[0]!r}: "
            f"run pytest on src/acclimate/{loaded[0]}"
        )
