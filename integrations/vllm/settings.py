"""Where an engine's configuration of the controller comes from."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acclimate.controller.config import ControlConfig

SWITCH = "ACCLIMATE"
CONFIG_FILE = "ACCLIMATE_CONFIG"
KEY = "acclimate"


def opted_in(additional_config: Any, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether somebody asked for the controller by environment or engine argument.

    Examples
    --------
    >>> opted_in({}, {"ACCLIMATE": "1"}), opted_in({"acclimate": {}}, {}), opted_in({}, {})
    (True, True, False)
    """
    return environ.get(SWITCH) == "1" or (
        isinstance(additional_config, dict) and KEY in additional_config
    )


def read_settings(additional_config: Any, environ: Mapping[str, str] = os.environ) -> ControlConfig:
    """Return the configuration: the file that ``ACCLIMATE_CONFIG`` names, under the engine's.

    Keys of the engine's ``additional_config`` win over those of the file. That argument becomes
    part of the key of the engine's compile cache, so values that change often belong in the file.

    Raises
    ------
    ValueError
        A key is unknown, a value is out of range, or something is no JSON object.
    FileNotFoundError
        The file does not exist.

    Examples
    --------
    >>> read_settings({"acclimate": {"policy": "static:2"}}, {}).policy
    'static:2'
    """
    merged: dict[str, Any] = {}
    if path := environ.get(CONFIG_FILE):
        try:
            merged = json.loads(Path(path).read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise ValueError(f"{CONFIG_FILE} must name a JSON file, got {error}") from error
        if not isinstance(merged, dict):
            raise ValueError(f"{CONFIG_FILE} must hold an object, got {type(merged).__name__}")
    own = additional_config.get(KEY) if isinstance(additional_config, dict) else None
    if own is None:
        own = {}
    if not isinstance(own, dict):
        raise ValueError(f"additional_config.{KEY} must be an object, got {type(own).__name__}")
    for key, value in own.items():
        section = merged.get(key)
        if isinstance(section, dict) and isinstance(value, dict):
            value = {**section, **value}
        merged[key] = value
    return ControlConfig.read(merged)
