"""Restore drills: restore a snapshot into an empty database, and compare every value with the snapshot's.

Only values prove that rows are the same. Each side becomes the sum of its rows' hashes, because neither keeps an order;
see `row_sums` for which values are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.protocol.source import Database, Scan
from snapshot_assets.databases.selection.hidden import without_masks
from snapshot_assets.engine.files.read import check_hash
from snapshot_assets.engine.files.row_sums import row_sums
from snapshot_assets.engine.jobs import shared_jobs
from snapshot_assets.engine.progress import Progress
from snapshot_assets.engine.reports import reporter
from snapshot_assets.engine.restore.files import as_carried, changed_carriers
from snapshot_assets.engine.restore.loader import Task, batches_of, errors_naming, stored_schema
from snapshot_assets.engine.restore.read_back import decoder, read_back, tables_of
from snapshot_assets.engine.restore.row_counts import TableRows, rows_of_chunk
from snapshot_assets.engine.restore.target import IMPORT
from snapshot_assets.errors import CarrierError, RestoreError, SchemaIncompleteError, SnapshotError
from snapshot_assets.format.relations import Carrier, Table, TableName
from snapshot_assets.format.units import counted
from snapshot_assets.storage.base import ObjectStore

if TYPE_CHECKING:
    from snapshot_assets.engine.restore.plan import RestorePlan
    from snapshot_assets.engine.restore.run import RestoreRun


@dataclass(frozen=True)
class ComparedRows:
    """The comparison of one table's rows of a chunk.

    Attributes:
        expected: Rows in the snapshot.
        found: Rows in the target.
        equal: Whether these are the same rows, each equally often, in the columns that were compared.
        uncompared: Columns whose values were not compared.
        error: Why they could not be compared.
    """

    chunk: int
    table: TableName
    expected: int = 0
    found: int = 0
    equal: bool = False
    uncompared: tuple[str, ...] = ()
    error: SnapshotError | None = None


@dataclass(frozen=True)
class _Work:
    """Rows to compare.

    Attributes:
        rows: The rows, of the table as the files carry it.
        made: The table as the target is read.
        mixed: Columns that some files carry as text and others do not.
    """

    rows: TableRows
    made: Table
    mixed: frozenset[str] = frozenset()


def compare(run: RestoreRun, chunks: Iterable[int] | None = None) -> Iterator[ComparedRows]:
    """Compare a target's rows of some chunks, or all, with the snapshot's by value; yields each table of each chunk.

    A target of another kind is read by its own documents, in the types of the files; see `read_back`. Columns that
    cannot be read so are named in the result, and so are those that files of one chunk carry in several ways. Rows that
    other programs wrote to the target count as different. Tables that could not be made are left out.
    """
    plan = run.current()
    ids = plan.by_id if chunks is None else chunks
    every = [rows for chunk in ids for rows in rows_of_chunk(plan, chunk) if rows.name not in plan.absent]
    own = {} if plan.same_kind else tables_of(run.address, {rows.name for rows in every})
    jobs = shared_jobs([_work(plan, rows, own) for rows in every], lambda each: _bytes(each.rows))
    try:
        yield from run.runner.map(_compare_rows, [Task(run.address, run.store, tuple(job)) for job in jobs])
    except BaseException:
        run.runner.interrupt()
        raise


def _bytes(rows: TableRows) -> int:
    return sum(each.file.bytes for each in rows.files)


def _work(plan: RestorePlan, rows: TableRows, own: Mapping[TableName, Table]) -> _Work:
    """Return how to compare rows; `own` has the documents of a target of another kind."""
    if not plan.same_kind:
        read = {column.name: column for column in own[rows.name].columns}
        columns = tuple(read.get(column.name, column) for column in rows.table.columns)
        update = {"columns": columns, "time_index": rows.table.time_index}
        return _Work(rows, own[rows.name].model_copy(update=update))
    every = [changed_carriers(plan.source.documents, file) for file in rows.files]
    mixed = {name for changed in every for name in changed if not all(name in other for other in every)}
    # Text holds all values of a column that is read although it is not compared.
    carried = {
        name: column
        for changed in every
        for name, column in changed.items()
        if name not in mixed or column.carrier is Carrier.TEXT
    }
    table = without_masks(as_carried(rows.table, carried))
    return _Work(rows._replace(table=table), table, frozenset(mixed))


def _compare_rows(task: Task[_Work]) -> Iterator[ComparedRows]:
    """Compare rows in the target with those in the snapshot's files, one table of a chunk after the other."""
    try:
        database = open_database(task.address)
    except SnapshotError as error:
        yield from (ComparedRows(work.rows.chunk, work.rows.name, error=error) for work in task.works)
        return
    with closing(database):
        for work in task.works:
            yield _compare(task.store, work, database)


def _compare(store: ObjectStore, work: _Work, database: Database) -> ComparedRows:
    rows = work.rows
    try:
        with reporter().work(rows.chunk, database.interrupt), errors_naming(str(rows.name)):
            stored = stored_schema(rows.table)
            decoders = {each.name: decoder(work.made.column(each.name), each.type) for each in stored}
            chosen = {name: decode for name, decode in decoders.items() if decode and name not in work.mixed}
            schema = pa.schema([field for field in stored if field.name in chosen])
            restored = (batch for file in rows.files for batch in batches_of(store, file, rows.table, schema))
            expected = row_sums(schema, reporter().counted(restored))
            unlike: set[str] = set()
            with database.scan(Scan(work.made, rows.rows)) as batches:
                found = row_sums(schema, (read_back(batch, schema, chosen, unlike) for batch in batches))
            if not (equal := expected == found and not unlike):
                for file in rows.files:  # a file that is damaged since it was loaded says nothing about the target
                    check_hash(store, file.file)
        left = tuple(name for name in stored.names if name not in chosen)
        return ComparedRows(rows.chunk, rows.name, expected.rows, found.rows, equal, left)
    except CarrierError as error:  # of a value in the target; its text is that of an export
        return ComparedRows(rows.chunk, rows.name, error=_not_read_back(error))
    except SnapshotError as error:
        return ComparedRows(rows.chunk, rows.name, error=error)


def _not_read_back(error: CarrierError) -> RestoreError:
    column, kind, value = (error.attributes[name] for name in ("column", "type", "value"))
    text = f"Column {column} ({kind}) of the target holds {value}, which no data file can hold, so the rows differ."
    return RestoreError(text, **error.attributes)


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
        run.check_ended()
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
