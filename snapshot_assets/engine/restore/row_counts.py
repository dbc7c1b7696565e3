"""Compares how many rows a target has with how many were loaded: only counts show that rows of the ledger are gone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from snapshot_assets.databases.protocol.source import AllRows, Rows
from snapshot_assets.databases.protocol.sql_target import SqlTarget
from snapshot_assets.engine.progress import Stage, silent
from snapshot_assets.engine.restore.files import FilePlan
from snapshot_assets.engine.restore.windows import numbered
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.format.units import counted, noun

if TYPE_CHECKING:
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

_REPLACE = (
    "To run the same again changes nothing. Materialise the partitions of `restored` that lack rows again, with run"
    " config `replace: true`: their rows are deleted, and loaded again. Or drop the import's tables, and run `snapshots"
    " import` with --forget-ledger."
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


class TableRows(NamedTuple):
    """Rows of one table, as the target holds it.

    Attributes:
        expected: How many rows there should be.
        files: The files that they come from, where these are compared.
        chunk: Their chunk, where it is compared alone.
    """

    table: Table
    rows: Rows
    expected: int
    files: tuple[FilePlan, ...] = ()
    chunk: int = UNTIMED_CHUNK

    @property
    def name(self) -> TableName:
        """The table's name in the target."""
        return self.table.table_name


class _Difference(NamedTuple):
    """A table that does not hold the rows that were loaded, and its chunks that differ, if they were counted."""

    table: TableName
    loaded: int
    found: int
    chunks: tuple[int, ...] = ()


def _count(
    target: SqlTarget, wanted: Sequence[TableRows], stage: Stage, absent: Collection[TableName] = ()
) -> list[tuple[TableRows, int]]:
    """Count rows, many small tables at once; those of absent tables are none."""
    there = [each for each in wanted if each.name not in absent]
    counts: list[int] = []
    group, size = list[TableRows](), 0
    for at, each in enumerate(there, 1):
        group.append(each)
        size += each.expected
        if size >= _GROUP_ROWS or len(group) >= _GROUP_TABLES or at == len(there):
            counts += target.counts([(one.table, one.rows) for one in group])
            stage("counting rows", len(counts), len(there))
            group, size = [], 0
    found = iter(counts)
    return [(each, 0 if each.name in absent else next(found)) for each in wanted]


def check_rows(target: SqlTarget, plan: RestorePlan, *, added: bool, stage: Stage = silent) -> None:
    """Count the loaded rows of the chosen chunks, before the ledger is relied on; see `RestoreRun.check_rows`."""
    if not plan.only or plan.only >= plan.by_id.keys():
        found = list(_whole(target, plan, stage))
    else:
        found = [
            _Difference(name, *rows, (chunk,))
            for chunk, tables in differences(target, plan, sorted(plan.only), stage).items()
            for name, rows in tables.items()
            if name not in plan.absent and (chunk, name) not in plan.left_places
        ]
    added = added and not plan.record.into_nonempty
    different = [each for each in found if added or each.found < each.loaded]
    if different:
        texts = [
            f"{each.table}: {loaded_and_found(each.loaded, each.found)}"
            + (f" (other rows than loaded in {numbered(each.chunks)})" if each.chunks else "")
            for each in different
        ]
        raise RestoreError(
            f"The target does not hold the rows that were loaded: {'; '.join(texts)}. They were changed"
            f" since; the ledger still lists them, so nothing was done. {how_to_load_again(plan)}",
            tables=[table_text(each.table) for each in different],
            remedy=_REPLACE,
        )


def _whole(target: SqlTarget, plan: RestorePlan, stage: Stage) -> Iterator[_Difference]:
    loaded: Counter[TableName] = Counter()
    for entry in plan.ledger.loaded:
        loaded[entry.table] += entry.rows
    tables = [table for table in plan.definition.tables if table.table_name in loaded]
    wanted = [TableRows(table, AllRows(), loaded[table.table_name]) for table in tables]
    for rows, found in _count(target, wanted, stage):
        if found != rows.expected:
            chunks = tuple(_windows(target, plan, rows.table)) if found else ()
            yield _Difference(rows.name, rows.expected, found, chunks)


def _windows(target: SqlTarget, plan: RestorePlan, table: Table) -> Iterator[int]:
    """Yield the chunks whose rows of a table differ, where a window identifies them."""
    if len(plan.chunks) > _MOST_WINDOWS:
        return
    for chunk in plan.chunks:
        bounds = [rows for bounded, rows in chunk.tables if bounded.table_name == table.table_name]
        files = [each for each in chunk.files if each.table.table_name == table.table_name]
        loaded = all(each.key in plan.ledger.files for each in files)
        expected = sum(map(plan.expected_rows, files))
        if bounds and loaded and target.counts([(table, bounds[0])]) != [expected]:
            yield chunk.chunk


def differences(
    target: SqlTarget, plan: RestorePlan, chunks: Sequence[int], stage: Stage = silent
) -> dict[int, dict[TableName, tuple[int, int]]]:
    """Return for each chunk rows expected and rows found of the tables whose rows differ from the manifest's."""
    wanted = [rows for chunk in chunks for rows in rows_of_chunk(plan, chunk)]
    different: dict[int, dict[TableName, tuple[int, int]]] = {chunk: {} for chunk in chunks}
    for rows, found in _count(target, wanted, stage, plan.absent):
        if found != rows.expected:
            different[rows.chunk][rows.name] = (rows.expected, found)
    return different


def rows_of_chunk(plan: RestorePlan, chunk: int) -> Iterator[TableRows]:
    """Yield the target's rows of a chunk. A table whose rows no window identifies is part of chunk 0, whole."""
    tables, own = plan.tables, plan.by_id.get(chunk)
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
        expected = sum(map(plan.expected_rows, files[name]))
        yield TableRows(tables[name], rows, expected, tuple(files[name]), chunk)


def table_counts(target: SqlTarget, plan: RestorePlan, stage: Stage = silent) -> dict[TableName, tuple[int, int]]:
    """Return rows expected and rows found, for every restored table.

    Where damage left out a table of a chunk, the rows that were loaded before are expected.
    """
    expected: Counter[TableName] = Counter()
    for chunk in plan.chunks:
        for file in chunk.files:
            if (chunk.chunk, file.table.table_name) not in plan.left_places:
                expected[file.table.table_name] += plan.expected_rows(file)
    for entry in plan.ledger.loaded:
        if (entry.chunk, entry.table) in plan.left_places:
            expected[entry.table] += entry.rows
    wanted = [TableRows(table, AllRows(), expected[table.table_name]) for table in plan.definition.tables]
    return {rows.name: (rows.expected, found) for rows, found in _count(target, wanted, stage, plan.absent)}
