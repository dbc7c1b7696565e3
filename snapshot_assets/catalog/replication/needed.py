"""The objects that a state needs: those of its head, of every readable revision, and of tags and savepoints."""

from __future__ import annotations

from itertools import chain

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.retained_events import documents_of, needed_events
from snapshot_assets.format.actions import ObjectRef


def needed_objects(state: State) -> dict[str, ObjectRef]:
    """Return by path the objects that a head needs, with checksum and size; all but its log and its hints."""
    from snapshot_assets.catalog.verify.retained import older_files

    files = chain((known.file for known in state.live_files()), (file for file, _ in older_files(state)))
    needed = {file.path: ObjectRef(file.path, file.sha256, file.bytes) for file in files}
    events = needed_events(state, recent_expiries=False)
    documents = (ref for event in events for action in event.actions for ref in documents_of(action))
    pins = (known.pin.object for known in state.pins)
    return needed | {ref.path: ref for ref in chain(documents, pins)}
