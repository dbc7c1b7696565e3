"""Folders of a user in which commands keep state between calls."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """Return the folder for what this package keeps of a user between commands; it may not exist."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "snapshot_assets"


def dagster_home() -> Path:
    """Return the folder of Dagster's instance, which may not exist."""
    return Path(os.environ.get("DAGSTER_HOME") or state_folder() / "dagster")
