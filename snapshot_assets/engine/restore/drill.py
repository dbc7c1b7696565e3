"""Restore drills: restore a snapshot into an empty database, and compare every value with the snapshot's.

Only values prove that rows are the same. Each side becomes the sum of its rows' hashes, because neither keeps an order;
see `row_sums` for which values are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.protocol.source import Database, Scan
from snapshot_assets.engine.files.row_sums import row_sums
from snapshot_assets.engine.jobs import shared_jobs
from snapshot_assets.engine.progress import Progress
from snapshot_assets.engine.reports import reporter
from snapshot_assets.engine.restore.files import as_carried, changed_carriers
from snapshot_assets.engine.restore.loader import Task, batches_of, errors_naming, stored_schema
from snapshot_assets.engine.restore.row_counts import TableRows, rows_of_chunk
from snapshot_assets.engine.restore.target import IMPORT
from snapshot_assets.errors import RestoreError, SchemaIncompleteError, SnapshotError
from snapshot_assets.format.relations import TableName
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
    every = [rows for chunk in plan.chunks for rows in rows_of_chunk(plan, chunk.chunk)]
    for rows in (each for each in every if each.name not in plan.absent):
        files = rows.files if plan.same_kind else ()
        changes = [changed_carriers(plan.source.documents, file) for file in files] or [{}]
        if plan.same_kind and all(change == changes[0] for change in changes):
            by_value.append(rows._replace(table=as_carried(rows.table, changes[0])))
        else:
            by_number.append(rows)
    jobs = shared_jobs(by_value, lambda each: sum(file.file.bytes for file in each.files))
    try:
        yield from run.runner.map(_compare_rows, [Task(run.address, run.store, tuple(job)) for job in jobs])
    except BaseException:
        run.runner.interrupt()
        raise
    with run.target() as target:
        for rows in by_number:
            found = target.counts([(rows.table, rows.rows)])[0]
            yield ComparedRows(rows.chunk, rows.name, rows.expected, found, rows.expected == found)


def _compare_rows(task: Task[TableRows]) -> Iterator[ComparedRows]:
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
            expected = row_sums(schema, reporter().counted(restored))
            with database.scan(Scan(work.table, work.rows)) as batches:
                found = row_sums(schema, (batch.select(schema.names) for batch in batches))
        return ComparedRows(work.chunk, work.name, expected.rows, found.rows, expected == found)
    except SnapshotError as error:
        return ComparedRows(work.chunk, work.name, error=error)


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
