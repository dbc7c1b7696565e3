"""Lists the snapshots below a URI."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.store import has_log, is_there
from snapshot_assets.catalog.log.truncation import refuse_lost_log
from snapshot_assets.catalog.pins.listing import ListedSavepoint, ListedTag, list_savepoints, list_tags
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import (
    DamageError,
    LocationDeletedError,
    NoSnapshotError,
    StorageError,
    StoreUnavailableError,
    UnsupportedVersionError,
)
from snapshot_assets.format.layout import MANIFEST, OWN_FOLDERS
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.in_parallel import in_parallel

_LEVELS = 2


@dataclass(frozen=True)
class SnapshotSummary:
    """One location as `snapshots export list` shows it.

    Attributes:
        status: `complete` (sealed), `incomplete`, `schema-only`, `deleted` or `unreadable`.
        tags: Its tags, by commit time of the revisions that they pin.
        savepoints: Its savepoints, in the same order.
        error: Why it is unreadable, else "".
    """

    uri: str
    status: str
    snapshot_id: str = ""
    name: str = ""
    created_at: datetime | None = None
    catalog: str = ""
    schemas: tuple[str, ...] = ()
    chunks_done: int = 0
    chunks: int = 0
    rows: int = 0
    bytes: int = 0
    revision: int = 0
    sealed_revision: int | None = None
    tags: tuple[ListedTag, ...] = ()
    savepoints: tuple[ListedSavepoint, ...] = ()
    error: str = ""


def list_snapshots(store: ObjectStore, open_below: Callable[..., ObjectStore]) -> list[SnapshotSummary]:
    """Return the snapshots at a URI and up to two levels below it, newest first, unreadable ones last.

    A location may contain others. The second level holds the members of a federation: `<root>/<writer id>/<database>`.

    Args:
        store: The URI itself.
        open_below: Opens the store of a folder below, given the names on its path.
    """
    summaries = _look_into(store, open_below, _LEVELS)
    return sorted(summaries, key=lambda item: (-(item.created_at.timestamp() if item.created_at else 0), item.uri))


def _look_into(store: ObjectStore, open_below: Callable[..., ObjectStore], levels: int) -> list[SnapshotSummary]:
    """Return the summaries of a folder with a snapshot, and of the folders in it."""
    found = _snapshot_at(store)
    names = [name for name in store.folders() if not (found and name in OWN_FOLDERS)] if levels else []

    def below(name: str) -> list[SnapshotSummary]:
        inner = open_below(name)
        try:
            return _look_into(inner, partial(open_below, name), levels - 1)
        except StoreUnavailableError:
            raise
        except StorageError as error:  # one folder that cannot be listed must not hide other snapshots
            return [SnapshotSummary(inner.uri, "unreadable", error=str(error))]

    inner = in_parallel(store, below, names) if levels == _LEVELS else map(below, names)  # no threads of threads
    return [*found, *chain.from_iterable(inner)]


def _snapshot_at(store: ObjectStore) -> list[SnapshotSummary]:
    """Return the summary of a location with a snapshot, also one whose log is lost; nothing for another folder."""
    if has_log(store):
        return [summarize(store)]
    if not _resembles_location(store):
        return []
    try:
        refuse_lost_log(store)
    except NoSnapshotError as error:  # a replica whose first copy has not ended
        return [SnapshotSummary(store.uri, "incomplete", error=str(error))]
    except (DamageError, UnsupportedVersionError) as error:
        return [SnapshotSummary(store.uri, "unreadable", error=str(error))]
    return []


def _resembles_location(store: ObjectStore) -> bool:
    """Return whether a folder without a log may have had one; spares other programs' folders a whole listing."""
    return any(name.isdecimal() for name in store.folders("data/")) or is_there(store, MANIFEST)


def summarize(store: ObjectStore) -> SnapshotSummary:
    """Return the summary of one location."""
    try:
        state = read_state(store)
    except LocationDeletedError as error:
        return SnapshotSummary(store.uri, "deleted", error=str(error))
    except (DamageError, UnsupportedVersionError) as error:
        return SnapshotSummary(store.uri, "unreadable", error=str(error))
    if state.header is None:
        return SnapshotSummary(store.uri, "unreadable", error="The log is empty.")
    _, rows, size = state.files.totals()
    expected = state.counted_chunks()
    return SnapshotSummary(
        uri=store.uri,
        status=_status(state),
        snapshot_id=state.snapshot_id,
        name=state.header.name,
        created_at=state.created_at,
        catalog=state.header.catalog,
        schemas=state.header.schemas,
        chunks_done=sum(state.completed(chunk) for chunk in expected),
        chunks=len(expected),
        rows=rows,
        bytes=size,
        revision=state.revision,
        sealed_revision=state.newest_seal.revision if state.newest_seal else None,
        tags=tuple(list_tags(state)),
        savepoints=tuple(list_savepoints(state)),
    )


def _status(state: State) -> str:
    if state.deleted:
        return "deleted"
    if not state.sealed:
        return "incomplete"
    return "schema-only" if state.header and state.header.schema_only else "complete"
