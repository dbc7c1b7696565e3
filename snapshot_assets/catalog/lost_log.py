"""Telling a log that was lost, or lost its end, from one that is whole: what it left behind speaks of later revisions.

A writer that took such a log for whole would commit other transactions in the place of the lost ones, and garbage
collection would take what those named for rubbish.
"""

from __future__ import annotations

import re
from contextlib import suppress

from snapshot_assets.catalog.replay import read_state
from snapshot_assets.catalog.state import State
from snapshot_assets.errors import LostLogError, ObjectNotFoundError
from snapshot_assets.format.layout import MANIFEST, in_layout
from snapshot_assets.storage.base import ObjectStore

_HEAD_BYTES = 1024
_LOCATION = re.compile(rb'\n  "location_id": "([0-9a-f]{32})"')
_REVISION = re.compile(rb'\n  "revision": (\d{1,19})')


def newest_state(store: ObjectStore) -> State:
    """Return the head's state, after making sure that nothing tells of a later one.

    Raises:
        LostLogError: The log, or its end, was lost.
        DamageError: It has another fault.
    """
    state = known_state(store)
    hinted = _hinted_revision(store, state)
    if hinted > state.revision:  # somebody may have committed since the log was read
        state = read_state(store)
    if hinted > state.revision:
        raise LostLogError(
            f"The log of {store.uri} ends at revision {state.revision}, but {MANIFEST} is of revision {hinted}: the "
            "log's end was lost. Bring it back from a copy, or rebuild the log with `snapshots catalog rebuild`.",
            uri=store.uri,
            revision=state.revision,
            expected=hinted,
        )
    return state


def known_state(store: ObjectStore) -> State:
    """Return the head's state, that of an empty location only where nothing tells of a log.

    Raises:
        LostLogError: The log was lost.
        DamageError: It has another fault.
    """
    state = read_state(store)
    if not state.revision:
        refuse_lost_log(store)
    return state


def refuse_lost_log(store: ObjectStore) -> None:
    """Refuse a location without a log that holds what is only written after a log began.

    Raises:
        LostLogError: It does; what is there would be taken for rubbish.
    """
    there = next((info.path for info in store.list("data/") if in_layout(info.path)), None)
    with suppress(ObjectNotFoundError):
        there = there or store.head(MANIFEST).path
    if there:
        raise LostLogError(
            f"{store.uri} has no log, but {there} is there: the log was lost. Rebuild it with `snapshots catalog "
            "rebuild`, or remove what is left and begin anew.",
            uri=store.uri,
        )


def _hinted_revision(store: ObjectStore, state: State) -> int:
    """Return the revision that this location's manifest is of, as its first bytes say; 0 where they do not."""
    try:
        head = store.get_range(MANIFEST, 0, _HEAD_BYTES)
    except ObjectNotFoundError:
        return 0
    location, revision = _LOCATION.search(head), _REVISION.search(head)
    if location is None or revision is None or location[1].decode() != state.location_id:
        return 0
    return int(revision[1])
