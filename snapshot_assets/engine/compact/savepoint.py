"""Savepoints: everything is compacted (FORMAT.md, section 6), so that no tombstone is pending, then pinned."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins.savepoints import UncompactedError, create_savepoint, sealed_head
from snapshot_assets.catalog.state.file_pruning import match_files, pending_tombstones
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import SavepointState
from snapshot_assets.engine.compact.plan import CompactionPlan, SchemaDocuments, Wanted, plan_compaction
from snapshot_assets.errors import ConflictError
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore

_TRIES = 10
"""How often what is there is looked at, and compacted or pinned: three times where nobody else commits."""


def compact_and_pin(
    catalog: Catalog, compact: Callable[[Wanted, CompactionPlan], None], *, automatic: bool = False
) -> SavepointState:
    """Compact everything, then pin just that; what others commit meanwhile is compacted, too.

    Args:
        catalog: The location, opened for writing.
        compact: Runs a compaction of the location; is told how it is planned.
        automatic: Whether a rule makes the savepoint, and may delete it.

    Raises:
        UnsealedError: The head is not sealed, perhaps as others commit: nothing was pinned.
        ConflictError: Others changed data again and again.
        NoSnapshotError: There is no snapshot.
        LocationDeletedError: The snapshot was deleted.
        SupersededError: The location was upgraded meanwhile.
    """
    for _ in range(_TRIES):
        catalog.refresh()
        state = catalog.require_snapshot()
        sealed_head(state)
        wanted = next(compactions(catalog.store, state), None)
        if wanted is not None:
            compact(*wanted)
            continue
        try:
            return create_savepoint(catalog, state.data_revision, automatic=automatic)
        except UncompactedError:
            continue
    raise ConflictError(
        f"Other writers changed data at {catalog.store.uri} again and again while it was compacted, last in revision "
        f"{catalog.refresh().data_revision}; no savepoint was made. Run again when no export or deletion is at work.",
        uri=catalog.store.uri,
        revision=catalog.state.data_revision,
    )


def compactions(store: ObjectStore, state: State) -> Iterator[tuple[Wanted, CompactionPlan]]:
    """Yield what is to be compacted before a savepoint, and how: one is to be done before the next is asked for.

    First what a compaction does by itself, then what it leaves: files that a tombstone is still pending for though
    their statistics say that they have no such row. Written anew whole, they leave no tombstone pending.

    Args:
        store: The location, of which only schema documents are read.
        state: The head's state.
    """
    documents = SchemaDocuments(store, state)
    for wanted in filter(None, (Wanted(), _still_filtered(state))):
        plan = plan_compaction(state, documents, wanted)
        if plan.groups:
            yield wanted, plan


def _still_filtered(state: State) -> Wanted | None:
    """Return a compaction of the tables and chunks that have files which tombstones are pending for, None if none."""
    tables: set[TableName] = set()
    chunks: set[int] = set()
    for revision, each in pending_tombstones(state).items():
        table = TableName(each.schema, each.table)
        tables.add(table)
        chunks.update(match.file.chunk for match in match_files(state, table, older_than=revision))
    return Wanted(chunks=tuple(sorted(chunks)), tables=tuple(sorted(tables))) if tables else None
