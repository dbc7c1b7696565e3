"""Savepoints as `snapshots savepoint` shows them."""

from __future__ import annotations

from typing import Any

from snapshot_assets.catalog.pin_list import ListedSavepoint
from snapshot_assets.format.units import time_text


def savepoint_facts(savepoint: ListedSavepoint) -> dict[str, Any]:
    """Return a savepoint as JSON holds it."""
    return {
        "id": savepoint.id,
        "revision": savepoint.revision,
        "commit_time": time_text(savepoint.committed_at),
        "created_at": time_text(savepoint.created_at),
        "automatic": savepoint.automatic,
        "previous": savepoint.previous,
        "next": savepoint.next,
    }
