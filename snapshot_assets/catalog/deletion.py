"""Deleting a whole snapshot: first the word in the log, then the objects, the log's head last."""

from __future__ import annotations

from dataclasses import dataclass

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.errors import LocationDeletedError
from snapshot_assets.format.layout import TRANSACTIONS, in_layout, is_temporary, revision_of
from snapshot_assets.storage.base import ObjectStore


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
    try:
        catalog = Catalog.open_for_writing(store)
        if not catalog.state.deleted:
            catalog.commit(rules.delete(catalog.token(), with_tags=with_tags))
    except LocationDeletedError:
        pass  # an earlier deletion got as far as removing transactions
    left = [info.path for info in store.temporaries() if is_temporary(info.path)]
    infos = [info.path for info in store.list()]
    ours = [path for path in infos if in_layout(path)]
    for path in (*left, *sorted(ours, key=_order)):
        store.delete(path)
    return Deletion(len(ours), tuple(path for path in infos if not in_layout(path)), len(left))


def _order(path: str) -> tuple[bool, int, str]:
    """Sort the log behind everything else, oldest revision first, so that its head goes last of all."""
    return path.startswith(TRANSACTIONS), revision_of(path) or 0, path
