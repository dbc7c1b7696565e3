"""Objects that can be written again: the hints, from the log; schema documents, from a source that is as it was."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from snapshot_assets.catalog.faults import Fault, read_object
from snapshot_assets.catalog.manifest import hints_of
from snapshot_assets.catalog.state import State
from snapshot_assets.format.actions import ObjectRef
from snapshot_assets.format.checksums import sha256_hex
from snapshot_assets.storage.base import ObjectStore


def damaged_documents(store: ObjectStore, state: State) -> list[Fault]:
    """Return which hints, and which documents of the newest schema, are not what the log says.

    Args:
        store: The location.
        state: The head's state, sealed.
    """
    hints = (ObjectRef(path, sha256_hex(data), len(data)) for path, data in hints_of(state).items())
    return list(_faults(store, chain(hints, state.schemas[state.schema_id].files)))


def _faults(store: ObjectStore, refs: Iterator[ObjectRef]) -> Iterator[Fault]:
    for ref in refs:
        found = read_object(store, ref, True)
        if isinstance(found, Fault):
            yield found
