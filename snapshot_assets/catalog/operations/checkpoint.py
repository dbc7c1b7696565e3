"""Writes a checkpoint on demand, and repairs damaged ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import is_whole, write_checkpoint
from snapshot_assets.catalog.log.listing import is_there, list_log
from snapshot_assets.catalog.log.replay import read_from_log
from snapshot_assets.errors import DamageError
from snapshot_assets.format.layout import checkpoint_path
from snapshot_assets.storage.base import ObjectStore


@dataclass(frozen=True)
class WrittenCheckpoint:
    """The checkpoint of the newest revision.

    Attributes:
        bytes: Its size.
        new: Whether this call wrote it.
        mended: Paths of older, damaged checkpoints that this call wrote again from the log.
    """

    path: str
    revision: int
    bytes: int
    new: bool
    mended: tuple[str, ...] = ()


def checkpoint_head(catalog: Catalog) -> WrittenCheckpoint:
    """Write the checkpoint of the newest revision unless a readable one exists, then repair older ones.

    Checkpoints from before a rebuild are not part of the log, and stay as they are.

    Args:
        catalog: The location, opened for writing.

    Raises:
        DamageError: An older checkpoint is damaged and the log cannot reproduce it; all others are written.
    """
    catalog.refresh()
    revision, store = catalog.require_snapshot().revision, catalog.store
    new = not is_whole(store, revision)
    path = catalog.checkpoint() if new else checkpoint_path(revision)
    written = WrittenCheckpoint(path, catalog.state.revision, store.head(path).size, new)
    return replace(written, mended=_mend_older(store, revision, catalog.state.rebuilt_at))


def _mend_older(store: ObjectStore, head: int, rebuilt_at: int) -> tuple[str, ...]:
    """Write damaged checkpoints before the head again, and return their paths."""
    mended, faults = list[str](), list[DamageError]()
    for revision in list_log(store).checkpoints:
        path = checkpoint_path(revision)
        if rebuilt_at <= revision < head and not is_whole(store, revision) and is_there(store, path):
            try:
                mended.append(write_checkpoint(store, read_from_log(store, revision)))
            except DamageError as fault:
                faults.append(_unmendable(path, fault))
    if faults:
        raise faults[0]
    return tuple(mended)


def _unmendable(path: str, cause: DamageError) -> DamageError:
    return DamageError(
        f"{path} is damaged, and the log before it cannot reproduce it: {cause} Bring it back from a copy, or rebuild "
        "the log with `snapshots catalog rebuild`.",
        object=path,
    )
