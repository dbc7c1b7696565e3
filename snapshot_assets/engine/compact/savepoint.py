"""Creates savepoints: compacts everything, so that no tombstone is pending (FORMAT.md, section 6), then pins it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins.objects import UncompactedError, create_savepoint, sealed_head
from snapshot_assets.catalog.state.file_pruning import match_files, pending_tombstones
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import SavepointState
from snapshot_assets.engine.compact.options import CompactionOptions
from snapshot_assets.engine.compact.plan import CompactionPlan, plan_compaction
from snapshot_assets.errors import CompactionFailedError, ConflictError
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore

_TRIES = 10
"""Most attempts to compact or pin the head; without other writers, three are enough."""


def compact_and_pin(
    catalog: Catalog, compact: Callable[[CompactionPlan], None], *, automatic: bool = False
) -> SavepointState:
    """Compact everything, then pin the result; what other writers commit meanwhile is compacted too.

    Args:
        catalog: The location, opened for writing.
        compact: Executes a compaction plan of the location.
        automatic: Whether a retention rule creates the savepoint, and may delete it.

    Raises:
        UnsealedError: The head is not sealed, perhaps because of another writer; nothing was pinned.
        CompactionFailedError: Chunks cannot be compacted, and no other writer changed them.
        ConflictError: Other writers kept changing data.
    """
    for _ in range(_TRIES):
        catalog.refresh()
        state = catalog.require_snapshot()
        sealed_head(state)
        planned = state.data_revision  # a refresh changes the state itself
        plan = next(compactions(catalog.store, state), None)
        if plan is not None:
            try:
                compact(plan)
            except CompactionFailedError:
                if catalog.refresh().data_revision == planned:  # nothing changed: the next try fails too
                    raise
            continue
        with suppress(UncompactedError):
            return create_savepoint(catalog, state.data_revision, automatic=automatic)
    raise ConflictError(
        f"Other writers changed data at {catalog.store.uri} again and again while it was compacted, last in revision "
        f"{catalog.refresh().data_revision}; no savepoint was made. Run again when no export or deletion is at work.",
        uri=catalog.store.uri,
        revision=catalog.state.data_revision,
    )


def compactions(store: ObjectStore, state: State) -> Iterator[CompactionPlan]:
    """Yield the compactions that a savepoint needs; execute each before you take the next.

    The first is the default compaction. It leaves files whose statistics exclude a tombstone that is still pending for
    them. The second rewrites these whole, so that no tombstone is pending.

    Args:
        store: The location, of which only schema documents are read.
        state: The head's state.
    """
    for options in filter(None, (CompactionOptions(), _still_filtered(state))):
        plan = plan_compaction(store, state, options)
        if plan.groups:
            yield plan


def _still_filtered(state: State) -> CompactionOptions | None:
    """Return a compaction of the tables and chunks for which tombstones are pending; None if there are none."""
    tables: set[TableName] = set()
    chunks: set[int] = set()
    for revision, each in pending_tombstones(state).items():
        table = TableName(each.schema, each.table)
        tables.add(table)
        chunks.update(match.file.chunk for match in match_files(state, table, older_than=revision))
    return CompactionOptions(chunks=tuple(sorted(chunks)), tables=tuple(sorted(tables))) if tables else None
