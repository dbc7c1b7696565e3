"""Deleting a whole snapshot: first the word in the log, then the objects, the log's head last."""

from __future__ import annotations

from dataclasses import dataclass

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import list_log
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.verify import named_by
from snapshot_assets.errors import LocationDeletedError
from snapshot_assets.format.layout import (
    CHECKSUMS,
    MANIFEST,
    TRANSACTIONS,
    checkpoint_path,
    in_layout,
    is_temporary,
    revision_of,
    transaction_path,
)
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.listed import Listed


@dataclass(frozen=True)
class Deletion:
    """What a deletion removed.

    Attributes:
        objects: How many objects were deleted.
        foreign: Objects that are not part of the format, left where they are.
        temporary: How many temporary files of killed writers were deleted.
    """

    objects: int
    foreign: tuple[str, ...]
    temporary: int = 0


def delete_snapshot(store: ObjectStore, *, with_tags: bool = False) -> Deletion:
    """Delete the snapshot at a location; a deletion that was cut off is finished.

    Objects go only after the log says `deleted`, so that no reader sees a snapshot with missing files. Only objects
    that match the layout are removed, and temporary files beside them.

    Args:
        store: The location.
        with_tags: Also if tags or savepoints pin revisions of it; they go with it.

    Raises:
        PinnedError: Tags or savepoints pin it; names them.
        NoSnapshotError: There is none.
        DamageError: The log has a fault; nothing is deleted.
    """
    state = State()
    try:
        catalog = Catalog.open_for_writing(store)
        state = catalog.state
        if not state.deleted:
            catalog.commit(rules.delete(catalog.token(), with_tags=with_tags))
    except LocationDeletedError:
        pass  # an earlier deletion got as far as removing transactions
    left = [info.path for info in store.temporaries() if is_temporary(info.path)]
    for path in left:
        store.delete(path)
    objects = Listed(store)
    objects.missing({*state.files.paths(), *_documents(state), *_log(store, state)})  # now it shows them too
    gone, shown = set[str](), set(objects)
    for kept in (TRANSACTIONS, ()):  # the log goes when no listing shows anything else
        while ours := sorted(
            filter(in_layout, (path for path in shown - gone if not path.startswith(kept))), key=_order
        ):
            for path in ours:
                store.delete(path)
            gone.update(ours)
            shown.update(info.path for info in store.list())
    return Deletion(len(gone), tuple(sorted(shown - gone)), len(left))


def _documents(state: State) -> set[str]:
    """Return the paths of documents that the log names, and of the hints."""
    named = (path for event in state.events for action in event.actions for path in named_by(action))
    return {MANIFEST, CHECKSUMS, *named}


def _log(store: ObjectStore, state: State) -> set[str]:
    """Return the paths of what lies in the log's folder."""
    there = list_log(store)
    revisions = (1, *range(there.start + 1, state.revision + 1))
    return {*map(transaction_path, revisions), *map(checkpoint_path, there.checkpoints)}


def _order(path: str) -> tuple[bool, int, str]:
    """Sort the log behind everything else, oldest revision first, so that its head goes last of all."""
    return path.startswith(TRANSACTIONS), revision_of(path) or 0, path
