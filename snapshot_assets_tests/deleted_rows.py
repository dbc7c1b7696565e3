"""Computes the deleted rows of a file directly from the specification, as a reference for faster code."""

from __future__ import annotations

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.predicates import Predicate


def deleting(state: State, file: DataFile) -> dict[int, Predicate]:
    """Return the predicates, by revision of their tombstones, that a live file's rows are to be filtered by."""
    return {
        revision: tombstone.predicate
        for revision, tombstone in state.tombstones.items()
        if revision > file.tombstones_through and (tombstone.schema, tombstone.table) == (file.schema, file.table)
    }
