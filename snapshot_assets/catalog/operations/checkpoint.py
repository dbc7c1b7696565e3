"""Writing a checkpoint on demand, and mending those that are damaged."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    """Write the checkpoint of the newest revision, unless there is one that can be read; then mend damaged older ones.

    What lies below a rebuild is no part of the log, and stays as it is.

    Args:
        catalog: The location, opened for writing.

    Raises:
        NoSnapshotError: There is no snapshot.
        LocationDeletedError: It was deleted.
        DamageError: An older checkpoint is damaged, and the log does not give it again; all others are written.
    """
    catalog.refresh()
    revision, store = catalog.require_snapshot().revision, catalog.store
    new = is_damaged(store, revision) or not is_there(store, checkpoint_path(revision))
    path = catalog.checkpoint() if new else checkpoint_path(revision)
    written = Written(path, catalog.state.revision, store.head(path).size, new)
    return replace(written, mended=_mend_older(store, revision, catalog.state.rebuilt_at))


def _mend_older(store: ObjectStore, head: int, rebuilt_at: int) -> tuple[str, ...]:
    """Write damaged checkpoints below the head again, and return their paths.

    Raises:
        DamageError: The log does not give one of them again; the oldest such one.
    """
    listing, mended, faults = list_log(store), list[str](), list[DamageError]()
    for revision in listing.checkpoints:
        if rebuilt_at <= revision < head and is_damaged(store, revision):
            try:
                mended.append(write_checkpoint(store, read_from_log(store, revision)))
            except DamageError as fault:
                faults.append(_unmendable(revision, fault, begins=revision == max(listing.start, rebuilt_at)))
    if faults:
        raise faults[0]
    return tuple(mended)


def _unmendable(revision: int, cause: DamageError, *, begins: bool) -> DamageError:
    path = checkpoint_path(revision)
    if begins:
        why = (
            "the log begins with it. Bring it back from a copy, or delete it with `snapshots catalog prune`, which "
            "keeps two newer checkpoints that can be read. Where there are none, rebuild the log"
        )
    else:
        why = f"the log before it does not give it again: {cause} Bring it back from a copy, or rebuild the log"
    error = DamageError(f"{path} is damaged, and {why} with `snapshots catalog rebuild`.", object=path)
    error.__cause__ = cause
    return error
