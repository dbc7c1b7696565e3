"""Whether a target still holds the rows that its ledger says were loaded: nothing else notices that they are gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from snapshot_assets.databases.source import AllRows
from snapshot_assets.databases.target import RestoreTarget
from snapshot_assets.engine.restore.decide import expected_rows, key_of
from snapshot_assets.engine.restore.prepared import Prepared
from snapshot_assets.engine.restore.windows import numbered
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import Table, TableName

_MOST_WINDOWS = 100
"""Of more windows it is not looked up which ones differ: each is a query."""

_AGAIN = (
    "To load them again, drop the import's tables, give --forget-ledger, and import again; single windows come back"
    " when the asset `restored` is materialised with `replace: true`."
)


def how_to_load_again(prepared: Prepared) -> str:
    """Return how rows that are gone come back, and which other imports suffer from it."""
    if not prepared.others:
        return _AGAIN
    places = ", ".join(sorted({each.location for each in prepared.others}))
    return (
        f"{_AGAIN} --forget-ledger drops the whole ledger, which holds {len(prepared.others)} other imports too (of"
        f" {places}): before they run again, their tables have to be dropped as well."
    )


@dataclass(frozen=True)
class RowCountDifference:
    """A table that does not hold the rows that were loaded.

    Attributes:
        loaded: Rows that the ledger has.
        found: Rows that are there.
        chunks: Windows that differ, where they were looked at.
    """

    table: TableName
    loaded: int
    found: int
    chunks: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Return it as a message has it."""
        where = f" (other rows than loaded in {numbered(self.chunks)})" if self.chunks else ""
        return f"{self.table}: {self.loaded} were loaded, {self.found} are there{where}"


def check_rows(target: RestoreTarget, prepared: Prepared, only: Collection[int] = (), *, added: bool) -> None:
    """Count the rows of an import that are loaded, before the ledger is believed.

    Args:
        target: The import's target.
        prepared: The import.
        only: Chunk ids; empty for all.
        added: Whether more rows than were loaded are an error too. They are none where rows of others may be there.

    Raises:
        RestoreError: Rows are gone, or more; names the tables with both numbers.
    """
    whole = set(only) >= {chunk.chunk for chunk in prepared.chunks} or not only
    found = _whole(target, prepared) if whole else _of_chunks(target, prepared, only)
    added = added and not prepared.record.into_nonempty
    different = [each for each in found if added or each.found < each.loaded]
    if different:
        raise RestoreError(
            f"The target does not hold the rows that were loaded: {'; '.join(map(str, different))}. Somebody changed"
            f" them since; the ledger still has them, so nothing was done. {how_to_load_again(prepared)}",
            tables=[str(each.table) for each in different],
        )


def _whole(target: RestoreTarget, prepared: Prepared) -> Iterator[RowCountDifference]:
    loaded: Counter[TableName] = Counter()
    for (name, _), entry in prepared.done.items():
        loaded[name] += entry.rows
    for table in prepared.definition.tables:
        name = table.table_name
        if name not in loaded:
            continue
        found = target.count(table, AllRows())
        if found != loaded[name]:
            chunks = tuple(_windows(target, prepared, table)) if found else ()
            yield RowCountDifference(name, loaded[name], found, chunks)


def _windows(target: RestoreTarget, prepared: Prepared, table: Table) -> Iterator[int]:
    """Yield the chunks of a table whose rows are others, where a window tells them."""
    if len(prepared.chunks) > _MOST_WINDOWS:
        return
    for chunk in prepared.chunks:
        for held, rows in chunk.tables:
            plans = [plan for plan in chunk.files if plan.table.table_name == table.table_name]
            if held.table_name == table.table_name and all(key_of(plan) in prepared.done for plan in plans):
                expected = sum(expected_rows(plan, prepared.done) for plan in plans)
                if target.count(table, rows) != expected:
                    yield chunk.chunk


def _of_chunks(target: RestoreTarget, prepared: Prepared, only: Collection[int]) -> Iterator[RowCountDifference]:
    for chunk in sorted(set(only)):
        for name, (loaded, found) in prepared.differences(target, chunk).items():
            yield RowCountDifference(name, loaded, found, (chunk,))
