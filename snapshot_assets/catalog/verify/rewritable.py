"""Objects that can be written again: the hints, from the log; schema documents, from a source that is as it was."""

from __future__ import annotations

from itertools import chain

from snapshot_assets.catalog.manifest import hints_of
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.faults import Fault, object_faults
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
    refs = chain(hints, state.schemas[state.schema_id].files)
    return [fault for ref in refs for fault in object_faults(store, ref, True)]
