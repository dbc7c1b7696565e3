"""Compares the rows of a target with the snapshot's: by number after each import, by value in restore drills.

Only a count shows that rows are missing that the ledger lists, and only values prove that rows are the same. For these,
each side becomes the sum of its rows' hashes, because neither keeps an order. DuckDB computes them, and so treats as
equal what it treats as equal: 0.0 and -0.0, and intervals of one length.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.protocol.source import AllRows, Database, Rows, Scan
from snapshot_assets.databases.protocol.sql_target import SqlTarget
from snapshot_assets.engine.jobs import shared_jobs
from snapshot_assets.engine.progress import Progress, Stage, silent
from snapshot_assets.engine.reports import reporter
from snapshot_assets.engine.restore.decide import numbered
from snapshot_assets.engine.restore.files import FilePlan, as_carried, changed_carriers
from snapshot_assets.engine.restore.loader import Task, batches_of, errors_naming, stored_schema
from snapshot_assets.engine.restore.target import IMPORT
from snapshot_assets.errors import RestoreError, SchemaIncompleteError, SnapshotError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.format.units import counted, noun
from snapshot_assets.storage.base import ObjectStore

if TYPE_CHECKING:
    from snapshot_assets.engine.restore.plan import RestorePlan
    from snapshot_assets.engine.restore.run import RestoreRun

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

    def __str__(self) -> str:
        where = f" (other rows than loaded in {numbered(self.chunks)})" if self.chunks else ""
        return f"{self.table}: {loaded_and_found(self.loaded, self.found)}{where}"


def _count(target: SqlTarget, wanted: Sequence[TableRows], stage: Stage) -> list[int]:
    """Count rows, many small tables at once; returns a number for each of `wanted`."""
    found: list[int] = []
    group, size = list[TableRows](), 0
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
        added: Whether more rows than were loaded are an error too, unless tables may have other users' rows.
        stage: Takes how many tables are counted.

    Raises:
        RestoreError: Rows are missing, or there are more; names the tables with both numbers.
    """
    every = {chunk.chunk for chunk in plan.chunks}
    whole = not plan.only or plan.only >= every
    if whole:
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
    wanted = [TableRows(table, AllRows(), loaded[table.table_name]) for table in tables]
    for rows, found in zip(wanted, _count(target, wanted, stage), strict=True):
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
    there = [each for each in wanted if each.name not in plan.absent]
    counts = iter(_count(target, there, stage))
    different: dict[int, dict[TableName, tuple[int, int]]] = {chunk: {} for chunk in chunks}
    for rows in wanted:
        found = 0 if rows.name in plan.absent else next(counts)
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
    there = [rows for rows in wanted if rows.name not in plan.absent]
    found = dict(zip((rows.name for rows in there), _count(target, there, stage), strict=True))
    return {rows.name: (rows.expected, found.get(rows.name, 0)) for rows in wanted}


_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "memory_limit": "192MiB",
}
"""Settings of DuckDB in memory. Without external access it would end the process where the working folder is gone."""


@dataclass(frozen=True)
class ComparedRows:
    """The comparison of one table's rows of a chunk.

    Attributes:
        expected: Rows in the snapshot.
        found: Rows in the target.
        equal: Whether these are the same rows, each equally often.
        error: Why they could not be compared.
    """

    chunk: int
    table: TableName
    expected: int = 0
    found: int = 0
    equal: bool = False
    error: SnapshotError | None = None


def compare(run: RestoreRun) -> Iterator[ComparedRows]:
    """Compare the rows of a target with those of the snapshot; yields each table of each chunk.

    A target of the snapshot's own kind is compared by value. Another kind holds values in other types, so only its rows
    are counted; so are those of a chunk whose files carry a column in several ways. Rows that other programs wrote to
    the target count as different. Tables that could not be made are left out.
    """
    plan = run.current()
    by_value: list[TableRows] = []
    by_number: list[TableRows] = []
    for chunk in plan.chunks:
        for rows in rows_of_chunk(plan, chunk.chunk):
            if rows.name not in plan.absent:
                carried = _as_carried(plan, rows) if plan.same_kind else None
                (by_number if carried is None else by_value).append(carried or rows)
    jobs = shared_jobs(by_value, lambda each: sum(file.file.bytes for file in each.files))
    try:
        yield from run.runner.map(compare_rows, [Task(run.address, run.store, tuple(job)) for job in jobs])
    except BaseException:
        run.runner.interrupt()
        raise
    with run.target() as target:
        for rows in by_number:
            found = target.counts([(rows.table, rows.rows)])[0]
            yield ComparedRows(rows.chunk, rows.name, rows.expected, found, rows.expected == found)


def _as_carried(plan: RestorePlan, rows: TableRows) -> TableRows | None:
    """Return rows with the table's columns carried as in their files; None if the files differ in that."""
    documents = plan.source.documents
    changes = [changed_carriers(documents[each.file.schema_id], each.source, each.table) for each in rows.files] or [{}]
    same = all(change == changes[0] for change in changes)
    return rows._replace(table=as_carried(rows.table, changes[0])) if same else None


def compare_rows(task: Task[TableRows]) -> Iterator[ComparedRows]:
    """Compare rows in the target with those in the snapshot's files, one table of a chunk after the other."""
    try:
        database = open_database(task.address)
    except SnapshotError as error:
        yield from (ComparedRows(work.chunk, work.name, error=error) for work in task.works)
        return
    with closing(database):
        for work in task.works:
            yield _compare(task.store, work, database)


def _compare(store: ObjectStore, work: TableRows, database: Database) -> ComparedRows:
    try:
        with reporter().work(work.chunk, database.interrupt), errors_naming(str(work.name)):
            schema = stored_schema(work.table)
            restored = (batch for file in work.files for batch in batches_of(store, file, work.table, schema))
            expected = _sum_of(schema, reporter().counted(restored))
            with database.scan(Scan(work.table, work.rows)) as batches:
                found = _sum_of(schema, (batch.select(schema.names) for batch in batches))
        return ComparedRows(work.chunk, work.name, expected[0], found[0], expected == found)
    except SnapshotError as error:
        return ComparedRows(work.chunk, work.name, error=error)


def _sum_of(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> tuple[int, int]:
    """Return the number of rows, and the sum of their hashes."""
    import duckdb  # here, because whatever restores would load it, and so would definitions

    if not schema.names:  # PostgreSQL has tables without columns
        return sum(batch.num_rows for batch in batches), 0
    # SQL must not take the name of a column for that of the rows.
    numbered = pa.schema([field.with_name(f"c{number}") for number, field in enumerate(schema)])
    renamed = (pa.RecordBatch.from_arrays(batch.columns, schema=numbered) for batch in batches)
    with duckdb.connect(config=_CONFIG) as connection:
        connection.register("given", pa.RecordBatchReader.from_batches(numbered, renamed))
        query = "SELECT count(*), coalesce(sum(hash(given)::HUGEINT), 0) FROM given"
        [(rows, total)] = connection.execute(query).fetchall()
        return rows, total


Counting = Callable[[str, int], AbstractContextManager[Progress]]
"""Counts an activity on a number of chunks until its context ends."""

PIN_FOR = timedelta(days=7)
"""How long the revision of a drill stays pinned if the drill is killed."""


def newest_tag(state: State) -> str | None:
    """Return the newest tag as a version, apart from those of imports; None without one."""
    tags = [known.pin for name, known in state.tags.items() if not name.startswith(IMPORT)]
    return f"tag:{max(tags, key=lambda tag: tag.created_at).name}" if tags else None


def drill(run: RestoreRun, counting: Counting) -> tuple[RestorePlan, list[ComparedRows]]:
    """Restore everything into an empty database, and compare all rows. The revision stays pinned meanwhile.

    Raises:
        SchemaIncompleteError: Steps of the schema failed; the rows are the same.
        RestoreError: Rows differ; names the tables.
        SnapshotError: The restore failed.
    """
    run.pin_for = PIN_FOR
    try:
        plan = run.begin()
        with counting("restoring", len(plan.chunks)) as progress, closing(run.restore()) as outcomes:
            for outcome in outcomes:
                progress.outcome(outcome)
        incomplete: SchemaIncompleteError | None = None
        try:
            run.finish(unpin=False)
        except SchemaIncompleteError as error:  # the rows are compared first
            incomplete = error
        with counting("comparing", len(plan.chunks)):
            compared = list(compare(run))
        _refuse_differing(compared)
        if incomplete is not None:
            raise incomplete
    except BaseException:
        with suppress(SnapshotError):  # the first error counts, and the tag has a time to live
            run.unpin()
        raise
    run.unpin()
    return plan, compared


def _refuse_differing(compared: Sequence[ComparedRows]) -> None:
    for each in compared:
        if each.error is not None:
            raise each.error
    different = [each for each in compared if not each.equal]
    if different:
        named = "; ".join(
            f"{each.table} in chunk {each.chunk}: {counted(each.expected, 'row')} in the snapshot,"
            f" {each.found:,} restored"
            for each in different[:5]
        )
        raise RestoreError(
            f"The restored rows differ from the snapshot's in {counted(len(different), 'place')}: {named}. The"
            " location is unchanged; keep it, and report this with the versions of the program and of the database.",
            tables=sorted({str(each.table) for each in different}),
        )
