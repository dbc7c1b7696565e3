"""Reads checkpoints of this location and this log only.

A checkpoint becomes the state as it is. One that somebody copied here, from another location or from a copy of this
one that went on by itself, would turn this location's files into garbage.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

from snapshot_assets.catalog.log.checkpoints import read_checkpoint
from snapshot_assets.catalog.log.store import read_entry
from snapshot_assets.catalog.state.chain import foreign_location
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import DamageError, ForkError, ObjectNotFoundError, UnsupportedVersionError
from snapshot_assets.format.layout import MANIFEST, checkpoint_path, transaction_path
from snapshot_assets.storage.base import ObjectStore

_DIGEST = 32
_HEAD_BYTES = 4096
_LOCATION = re.compile(rb'\n +"location_id": "([0-9a-f]{32})"')
_REVISION = re.compile(rb'\n +"revision": (\d{1,19})')


def read_own_checkpoint(
    store: ObjectStore, revision: int, transactions: Sequence[int], *, statistics: bool = False
) -> State:
    """Return the state in a checkpoint, if it is this location's and agrees with the log; see `read_checkpoint`.

    Args:
        store: The location.
        revision: The revision that it is of.
        transactions: Revisions that have a transaction, ascending.
        statistics: Read all of them now.

    Raises:
        ForeignLocationError: It belongs to another location.
        ForkError: It is of another past of this location.
        DamageError: It cannot be read.
        ObjectNotFoundError: There is none.
        UnsupportedVersionError: It is of a newer format.
    """
    state = read_checkpoint(store, revision, statistics=statistics)
    _check_location(store, state, transactions)
    check_transaction(store, state, transactions)
    return state


def named_location(store: ObjectStore, transactions: Sequence[int]) -> tuple[str, str]:
    """Return the location that the log's first readable transaction names, and its path; revision 1 is never pruned.

    Args:
        store: The location.
        transactions: Revisions that have a transaction, ascending.
    """
    for revision in transactions:
        with suppress(DamageError, UnsupportedVersionError):
            return read_entry(store, revision).transaction.location_id, transaction_path(revision)
    return "", ""


def manifest_facts(store: ObjectStore, path: str) -> tuple[str, int]:
    """Return location and revision of a manifest, or of the one in a tag or savepoint, from its first bytes.

    They are empty and 0 where it is not there, or its bytes do not say.
    """
    try:
        head = store.get_range(path, 0, _HEAD_BYTES)
    except ObjectNotFoundError:
        return "", 0
    location, revision = _LOCATION.search(head), _REVISION.search(head)
    return (location[1].decode(), int(revision[1])) if location and revision else ("", 0)


def _check_location(store: ObjectStore, state: State, transactions: Sequence[int]) -> None:
    location, named_by = named_location(store, transactions)
    if location in ("", state.location_id):
        return
    if state.rebuilt_at and manifest_facts(store, MANIFEST)[0] == state.location_id:
        return  # what lies below a rebuild is no part of the log, and may belong to another location
    raise foreign_location(checkpoint_path(state.revision), state.location_id, location, named_by)


def check_transaction(store: ObjectStore, state: State, transactions: Sequence[int]) -> None:
    """Refuse a checkpoint that disagrees with the log's transactions; a damaged transaction proves nothing.

    Args:
        store: The location.
        state: The checkpoint's state.
        transactions: Revisions that have a transaction, ascending.

    Raises:
        ForkError: The checkpoint is of another past of this location.
    """
    path = transaction_path(state.revision)
    try:
        end = store.head(path).size
        if end >= _DIGEST and store.get_range(path, end - _DIGEST, _DIGEST).hex() == state.sha256:
            return
        found = read_entry(store, state.revision).sha256
    except ObjectNotFoundError:  # pruned, or lost with the log's end
        _check_past(store, state, transactions)
        return
    except (DamageError, UnsupportedVersionError):
        return
    if found != state.sha256:
        raise _fork(state, f"it is of a revision {state.revision} with SHA-256 {state.sha256}; {path} has {found}")


def _check_past(store: ObjectStore, state: State, transactions: Sequence[int]) -> None:
    """Refuse a checkpoint behind the log's last transaction that tells of another one in its place."""
    last = transactions[-1] if transactions else 0
    event = next((event for event in state.events if event.revision == last), None)
    if event is None or last > state.revision or state.rebuilt_at:
        return
    try:
        entry = read_entry(store, last).transaction
    except (DamageError, UnsupportedVersionError):
        return
    if (event.committed_at, event.writer_id) != (entry.committed_at, entry.writer_id):
        raise _fork(state, f"its revision {last} is not {transaction_path(last)}")


def _fork(state: State, why: str) -> ForkError:
    path = checkpoint_path(state.revision)
    return ForkError(
        f"{path} is not of this log: {why}. If it was copied here, from a copy of this location that went on by itself "
        "or from before its log was set back, move it away.",
        object=path,
    )
