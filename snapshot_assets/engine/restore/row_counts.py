"""Compares the rows of a target with those that its ledger lists: only a count shows that rows are missing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from snapshot_assets.databases.protocol.source import AllRows, Rows
from snapshot_assets.databases.protocol.sql_target import SqlTarget
from snapshot_assets.engine.progress import Stage, silent
from snapshot_assets.engine.restore.windows import numbered
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.format.units import counted, noun

if TYPE_CHECKING:
    from snapshot_assets.engine.restore.files import FilePlan
    from snapshot_assets.engine.restore.loader import ChunkOutcome
    from snapshot_assets.engine.restore.plan import RestorePlan

_MOST_WINDOWS = 100
"""If there are more windows, the message does not name those that differ: each takes a query."""

_GROUP_TABLES = 50
_GROUP_ROWS = 10_000_000
"""Tables and rows that are counted before progress is reported."""

_AGAIN = (
    "To load them again, drop the import's tables, give --forget-ledger, and import again; single windows come back"
    " when the asset `restored` is materialised with `replace: true`."
)


def how_to_load_again(plan: RestorePlan) -> str:
    """Return how to load missing rows again, and which other restores that affects."""
    others = [each for each in plan.ledger.records if not set(each.tables) <= set(plan.ledger.tables)]
    if not others:
        return _AGAIN
    places = ", ".join(sorted({each.location for each in others}))
    return (
        f"{_AGAIN} --forget-ledger drops the whole ledger, which holds {counted(len(others), 'other import')} too (of"
        f" {places}): before they run again, their tables have to be dropped as well."
    )


def loaded_and_found(loaded: int, found: int) -> str:
    """Return how many rows were loaded into a table, and how many it has, as text."""
    return f"{loaded:,} {noun(loaded, 'was', 'were')} loaded, {found:,} {noun(found, 'is', 'are')} there"


class _Difference(NamedTuple):
    """A table that does not hold the rows that were loaded, and its chunks that differ, if they were counted."""

    table: TableName
    loaded: int
    found: int
    chunks: tuple[int, ...] = ()

    def __str__(self) -> str:
        where = f" (other rows than loaded in {numbered(self.chunks)})" if self.chunks else ""
        return f"{self.table}: {loaded_and_found(self.loaded, self.found)}{where}"


class _Expected(NamedTuple):
    """Rows of a table to be counted, and how many there should be."""

    table: Table
    rows: Rows
    expected: int


def _count(target: SqlTarget, wanted: Sequence[_Expected], stage: Stage) -> list[int]:
    """Count rows, many small tables at once; returns a number for each of `wanted`."""
    found: list[int] = []
    group, size = list[_Expected](), 0
    for at, each in enumerate(wanted, 1):
        group.append(each)
        size += each.expected
        if size >= _GROUP_ROWS or len(group) >= _GROUP_TABLES or at == len(wanted):
            found += target.counts([(one.table, one.rows) for one in group])
            stage("counting rows", len(found), len(wanted))
            group, size = [], 0
    return found


def check_rows(target: SqlTarget, plan: RestorePlan, *, added: bool, stage: Stage = silent) -> None:
    """Count the loaded rows of a restore, before its ledger is relied on.

    Args:
        target: The restore's target.
        plan: The restore, for the chunks that are counted.
        added: Whether more rows than were loaded are an error too, unless tables may have rows of others.
        stage: Takes how many tables are counted.

    Raises:
        RestoreError: Rows are missing, or there are more; names the tables with both numbers.
    """
    every = {chunk.chunk for chunk in plan.chunks}
    whole = not plan.only or plan.only >= every
    found = _whole(target, plan, stage) if whole else _of_chunks(target, plan, stage)
    added = added and not plan.record.into_nonempty
    different = [each for each in found if added or each.found < each.loaded]
    if different:
        raise RestoreError(
            f"The target does not hold the rows that were loaded: {'; '.join(map(str, different))}. They were changed"
            f" since; the ledger still lists them, so nothing was done. {how_to_load_again(plan)}",
            tables=[table_text(each.table) for each in different],
        )


def _whole(target: SqlTarget, plan: RestorePlan, stage: Stage) -> Iterator[_Difference]:
    loaded: Counter[TableName] = Counter()
    for entry in plan.ledger.loaded:
        loaded[entry.table] += entry.rows
    tables = [table for table in plan.definition.tables if table.table_name in loaded]
    wanted = [_Expected(table, AllRows(), loaded[table.table_name]) for table in tables]
    for (table, _, expected), found in zip(wanted, _count(target, wanted, stage), strict=True):
        if found != expected:
            chunks = tuple(_windows(target, plan, table)) if found else ()
            yield _Difference(table.table_name, expected, found, chunks)


def _windows(target: SqlTarget, plan: RestorePlan, table: Table) -> Iterator[int]:
    """Yield the chunks whose rows of a table differ, where a window identifies them."""
    if len(plan.chunks) > _MOST_WINDOWS:
        return
    for chunk in plan.chunks:
        bounds = [rows for bounded, rows in chunk.tables if bounded.table_name == table.table_name]
        files = [each for each in chunk.files if each.table.table_name == table.table_name]
        loaded = all(each.key in plan.ledger.files for each in files)
        expected = sum(expected_rows(plan, each) for each in files)
        if bounds and loaded and target.counts([(table, bounds[0])]) != [expected]:
            yield chunk.chunk


def _of_chunks(target: SqlTarget, plan: RestorePlan, stage: Stage) -> Iterator[_Difference]:
    for chunk, different in differences(target, plan, sorted(plan.only), stage).items():
        for name, (loaded, found) in different.items():
            if name not in plan.absent and (chunk, name) not in plan.left_places:
                yield _Difference(name, loaded, found, (chunk,))


def differences(
    target: SqlTarget, plan: RestorePlan, chunks: Sequence[int], stage: Stage = silent
) -> dict[int, dict[TableName, tuple[int, int]]]:
    """Compare the rows of loaded chunks in the target with the manifest's.

    Args:
        target: The restore's target.
        plan: The restore.
        chunks: Ids of the chunks.
        stage: Takes how many tables of chunks are counted.

    Returns:
        For each chunk, rows expected and rows found of the tables that differ.
    """
    wanted = [
        (chunk, _Expected(table, rows, sum(expected_rows(plan, each) for each in files)))
        for chunk in chunks
        for table, rows, files in rows_of_chunk(plan, chunk)
    ]
    there = [each for _, each in wanted if each.table.table_name not in plan.absent]
    counts = iter(_count(target, there, stage))
    different: dict[int, dict[TableName, tuple[int, int]]] = {chunk: {} for chunk in chunks}
    for chunk, (table, _, expected) in wanted:
        found = 0 if table.table_name in plan.absent else next(counts)
        if found != expected:
            different[chunk][table.table_name] = (expected, found)
    return different


class TableRows(NamedTuple):
    """Rows of one table, as the target holds it, and the files that they come from."""

    table: Table
    rows: Rows
    files: tuple[FilePlan, ...]


def rows_of_chunk(plan: RestorePlan, chunk: int) -> Iterator[TableRows]:
    """Yield the target's rows of a chunk. A table whose rows no window identifies is part of chunk 0, whole."""
    tables = {table.table_name: table for table in plan.definition.tables}
    own = plan.by_id.get(chunk)
    bounded = {table.table_name: rows for table, rows in own.tables} if own else {}
    if chunk == UNTIMED_CHUNK:
        bounded |= {name: AllRows() for name, table in tables.items() if table.time_index is None}
    whole = {name for name, rows in bounded.items() if isinstance(rows, AllRows)}
    files: defaultdict[TableName, list[FilePlan]] = defaultdict(list)
    for each in plan.chunks if whole else [own] if own else []:
        for file in each.files:
            name = file.table.table_name
            # Rows that are counted at once come from the files of all chunks.
            if each.chunk == chunk or (name in whole and file.key in plan.ledger.files):
                files[name].append(file)
    for name, rows in bounded.items():
        yield TableRows(tables[name], rows, tuple(files[name]))


def expected_rows(plan: RestorePlan, file: FilePlan) -> int:
    """Return how many rows a file brings; for a file that is not loaded whole, only the ledger has the number."""
    entry = plan.ledger.files.get(file.key)
    return file.file.rows if file.whole or entry is None else entry.rows


def rows_after(plan: RestorePlan, outcome: ChunkOutcome) -> int:
    """Return how many rows the target holds of a chunk.

    Args:
        plan: The restore, as it was before the chunk was loaded.
        outcome: What loading the chunk did.
    """
    files = plan.by_id[outcome.chunk].files
    if all(file.whole for file in files):
        return sum(file.file.rows for file in files)
    loaded = () if outcome.status == "replaced" else {file.key for file in files} & set(plan.ledger.files)
    return sum(plan.ledger.files[key].rows for key in loaded) + outcome.rows


def table_counts(target: SqlTarget, plan: RestorePlan, stage: Stage = silent) -> dict[TableName, tuple[int, int]]:
    """Return rows expected and rows found, for every restored table.

    Where damage left out a table of a chunk, the rows that were loaded before are expected.
    """
    expected: Counter[TableName] = Counter()
    for chunk in plan.chunks:
        for file in chunk.files:
            if (chunk.chunk, file.table.table_name) not in plan.left_places:
                expected[file.table.table_name] += expected_rows(plan, file)
    for entry in plan.ledger.loaded:
        if (entry.chunk, entry.table) in plan.left_places:
            expected[entry.table] += entry.rows
    names = [table.table_name for table in plan.definition.tables]
    there = [table for table in plan.definition.tables if table.table_name not in plan.absent]
    wanted = [_Expected(table, AllRows(), expected[table.table_name]) for table in there]
    found = dict(zip((table.table_name for table in there), _count(target, wanted, stage), strict=True))
    return {name: (expected[name], found.get(name, 0)) for name in names}
