"""What is compacted before a savepoint: everything (STORAGE, section 7 "Compact"), so that no tombstone is pending."""

from __future__ import annotations

from collections.abc import Iterator

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.matching import match_files, pending_tombstones
from snapshot_assets.catalog.state import State
from snapshot_assets.engine.compact_plan import CompactionPlan, Documents, Wanted, plan_compaction
from snapshot_assets.format.relations import TableName


def compactions(catalog: Catalog) -> Iterator[tuple[Wanted, CompactionPlan]]:
    """Yield what there is to compact, each on the head that the caller's run of the one before left.

    First what a compaction does by itself, then what it leaves: files that a tombstone is still pending for though
    their statistics say that they have no such row. Written anew whole, they leave no tombstone pending.

    Args:
        catalog: The location, of which only the log and schema documents are read.
    """
    for wanted_of in (lambda _: Wanted(), _still_filtered):
        state = catalog.refresh()
        wanted = wanted_of(state)
        if wanted is not None:
            plan = plan_compaction(state, Documents(catalog.store, state), wanted)
            if plan.groups:
                yield wanted, plan


def _still_filtered(state: State) -> Wanted | None:
    """Return a compaction of the tables and chunks that have files which tombstones are pending for, None if none."""
    tables: set[TableName] = set()
    chunks: set[int] = set()
    for revision, each in pending_tombstones(state).items():
        table = TableName(each.schema, each.table)
        tables.add(table)
        chunks.update(match.known.file.chunk for match in match_files(state, table, older_than=revision))
    return Wanted(chunks=tuple(sorted(chunks)), tables=tuple(sorted(tables))) if tables else None
