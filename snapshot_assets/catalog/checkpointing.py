"""Writing a checkpoint on demand."""

from __future__ import annotations

from dataclasses import dataclass

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.own_checkpoints import read_own_checkpoint
from snapshot_assets.catalog.replay import list_log
from snapshot_assets.errors import DamageError
from snapshot_assets.format.layout import checkpoint_path


@dataclass(frozen=True)
class Written:
    """A checkpoint that is there.

    Attributes:
        bytes: Its size.
        new: Whether this call wrote it.
    """

    path: str
    revision: int
    bytes: int
    new: bool


def checkpoint_head(catalog: Catalog) -> Written:
    """Write the checkpoint of the newest revision, unless there is one that can be read.

    Args:
        catalog: The location, opened for writing.

    Raises:
        NoSnapshotError: There is no snapshot.
        LocationDeletedError: It was deleted.
        DamageError: The checkpoint that is there is damaged.
    """
    catalog.refresh()
    state = catalog.begun()
    new = state.revision not in list_log(catalog.store).checkpoints
    if not new:
        _refuse_damaged(catalog, state.revision)
    path = catalog.checkpoint() if new else checkpoint_path(state.revision)
    return Written(path, catalog.state.revision, catalog.store.head(path).size, new)


def _refuse_damaged(catalog: Catalog, revision: int) -> None:
    try:
        read_own_checkpoint(catalog.store, revision, list_log(catalog.store).transactions)
    except DamageError as fault:
        path = checkpoint_path(revision)
        raise DamageError(
            f"{fault} Readers pass it over, and nothing in the log is ever overwritten; delete {path} and run again.",
            object=path,
        ) from fault
