"""Deletes a whole snapshot: commits the deletion, then deletes the objects, the log's head last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import list_log
from snapshot_assets.catalog.manifest import load_manifests_of
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.unnamed import named_by
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
    """A snapshot's deletion.

    Attributes:
        objects: How many objects were deleted.
        foreign: Objects that are not part of the format, left where they are.
        temporary: How many temporary files of interrupted writers were deleted.
    """

    objects: int
    foreign: tuple[str, ...]
    temporary: int = 0


def delete_snapshot(
    store: ObjectStore,
    *,
    with_tags: bool = False,
    single_writer: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Deletion:
    """Delete the snapshot at a location, or finish a deletion that was interrupted.

    Objects are deleted only after the deletion is committed, so that no reader sees a snapshot with missing files. Only
    objects that match the layout are deleted, and temporary files beside them.

    Args:
        store: The location.
        with_tags: Delete tags and savepoints with it.
        single_writer: Accept a store without conditional creates; the caller promises to be the only writer.
        progress: Called with the path of each deleted object.

    Raises:
        PinnedError: Tags or savepoints pin it, and `with_tags` is not given; names them.
        NoSnapshotError: There is no snapshot.
        DamageError: The log has a fault; nothing is deleted.
    """
    state = State()
    try:
        catalog = Catalog.open_for_writing(store, single_writer=single_writer)
        state = catalog.state
        if not state.deleted:
            catalog.commit(rules.delete(catalog.token(), with_tags=with_tags))
    except LocationDeletedError:
        pass  # an earlier deletion already deleted transactions
    temporary = [info.path for info in store.temporaries() if is_temporary(info.path)]
    for path in temporary:
        store.delete(path)
    objects = Listed(store)
    objects.missing(_named(store, state))  # makes the listing include them
    gone, shown = set[str](), set(objects)
    for kept in (TRANSACTIONS, ()):  # the log goes when nothing else is listed
        while ours := sorted(
            filter(in_layout, (path for path in shown - gone if not path.startswith(kept))), key=_order
        ):
            for path in ours:
                store.delete(path)
                progress(path)
            gone.update(ours)
            shown.update(info.path for info in store.list())
    return Deletion(len(gone), tuple(sorted(shown - gone)), len(temporary))


def _named(store: ObjectStore, state: State) -> set[str]:
    """Return the paths of what the log names, of its own transactions and checkpoints, and of the hints."""
    named = (path for event in state.events for action in event.actions for path in named_by(action))
    log = list_log(store)
    revisions = (1, *range(log.start + 1, state.revision + 1))
    in_log = {*map(transaction_path, revisions), *map(checkpoint_path, log.checkpoints)}
    return {MANIFEST, CHECKSUMS, *load_manifests_of(state, store.uri), *state.files.paths(), *named, *in_log}


def _order(path: str) -> tuple[bool, int, str]:
    """Sort the log after everything else, oldest revision first, so that its head is deleted last."""
    return path.startswith(TRANSACTIONS), revision_of(path) or 0, path
