"""Verification of the older revisions that can be read: their files, each once however many revisions have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.catalog.faults import Fault, FaultKind, object_faults
from snapshot_assets.catalog.manifest import checksum_of, used_schema_files
from snapshot_assets.catalog.state import SealState, State, first_version
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.listed import Listed

_SHOWN = 5


def older_files(state: State) -> Iterator[tuple[DataFile, list[int]]]:
    """Yield every file that a readable revision has and the head has not, with the revisions that have it."""
    base, retained = state.files.merged(), np.array(state.retained(), dtype=np.int64)
    added, removed, paths = base.column("added"), base.column("removed"), base.table["path"]
    first = np.searchsorted(retained, added)
    end = np.where(removed == 0, len(retained), np.searchsorted(retained, removed))
    live = pc.is_in(paths, pc.unique(paths.filter(pa.array(removed == 0)))).combine_chunks()
    rows = np.flatnonzero((first < end) & ~live.to_numpy(zero_copy_only=False))
    found = zip(base.picked(rows), first[rows].tolist(), end[rows].tolist(), strict=True)
    for _, lives in groupby(found, key=lambda each: each[0].file.path):
        known = list(lives)
        yield known[0][0].file, [int(each) for _, one, other in known for each in retained[one:other]]


def needed_by(state: State, revisions: Sequence[int]) -> str:
    """Return, for a message, which revisions and pins need something."""
    named = ", ".join(map(str, revisions[:_SHOWN]))
    more = f" and {len(revisions) - _SHOWN} more" if len(revisions) > _SHOWN else ""
    pins = sorted(str(known.pin) for known in state.pins if known.pin.revision in revisions)
    pinned = f" ({', '.join(pins)})" if pins else ""
    return f"revision{'s' * (len(revisions) > 1)} {named}{more}{pinned} need{'s' * (len(revisions) == 1)} it."


def older_state_faults(store: ObjectStore, head: State, objects: Listed, checked: set[str]) -> Iterator[Fault]:
    """Yield what of readable revisions is not as it was sealed: checksums, and documents of their schemas.

    Args:
        store: The location.
        head: The head's state; if it is sealed, that seal is checked with it.
        objects: The location's objects by path.
        checked: Paths of documents that are checked already; those that are checked here are added.
    """
    own = head.newest_seal if head.sealed else None
    for sealed, then in _sealed_states(head):
        if sealed == own:
            continue
        for path, (ref, _) in used_schema_files(then).items():
            if path not in checked:
                checked.add(path)
                for fault in object_faults(store, ref, path in objects):
                    needed = needed_by(head, [sealed.revision])
                    yield Fault(fault.kind, path, f"{fault.message[:-1]}; {needed}", fault.chunk)
        found, expected = checksum_of(then), sealed.seal.checksum
        if found != expected:
            message = f"Revision {sealed.revision} has checksum {found}; its seal says {expected}."
            yield Fault(FaultKind.SNAPSHOT_CHECKSUM, transaction_path(sealed.revision), message)


def _sealed_states(head: State) -> Iterator[tuple[SealState, State]]:
    """Yield each readable seal with its state, as `State.at` gives it; one is made of the one before it."""
    then = State(location_id=head.location_id, format_version=first_version(head.events, head.format_version))
    events, place = head.events, 0
    for sealed in head.readable():
        while place < len(events) and events[place].revision <= sealed.revision:
            then.fold(events[place], transaction_path(events[place].revision))
            place += 1
        then.files, then.revision = head.files.at(sealed.revision), sealed.revision
        yield sealed, then
