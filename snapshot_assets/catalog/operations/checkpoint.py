"""Writing a checkpoint on demand, and mending those that are damaged."""

from __future__ import annotations

from dataclasses import dataclass

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import is_damaged, write_checkpoint
from snapshot_assets.catalog.log.listing import is_there, list_log
from snapshot_assets.catalog.log.replay import read_from_log
from snapshot_assets.errors import DamageError
from snapshot_assets.format.layout import checkpoint_path
from snapshot_assets.storage.base import ObjectStore


@dataclass(frozen=True)
class Written:
    """A checkpoint that is there.

    Attributes:
        bytes: Its size.
        new: Whether this call wrote it.
        mended: Paths of older checkpoints that were damaged, and were written again from the log.
    """

    path: str
    revision: int
    bytes: int
    new: bool
    mended: tuple[str, ...] = ()


def checkpoint_head(catalog: Catalog) -> Written:
    """Write the checkpoint of the newest revision, unless there is one that can be read, and mend damaged ones.

    Args:
        catalog: The location, opened for writing.

    Raises:
        NoSnapshotError: There is no snapshot.
        LocationDeletedError: It was deleted.
        DamageError: A checkpoint is damaged, and the log does not give it again.
    """
    catalog.refresh()
    revision, store = catalog.begun().revision, catalog.store
    new = is_damaged(store, revision) or not is_there(store, checkpoint_path(revision))
    mended = tuple(
        _mend(store, each) for each in list_log(store).checkpoints if each < revision and is_damaged(store, each)
    )
    path = catalog.checkpoint() if new else checkpoint_path(revision)
    return Written(path, catalog.state.revision, store.head(path).size, new, mended)


def _mend(store: ObjectStore, revision: int) -> str:
    try:
        state = read_from_log(store, revision)
    except DamageError as fault:
        path = checkpoint_path(revision)
        raise DamageError(
            f"{path} is damaged, and the log before it does not give it again: {fault} Bring it back from a copy, or "
            "rebuild the log with `snapshots catalog rebuild`.",
            object=path,
        ) from fault
    return write_checkpoint(store, state)
