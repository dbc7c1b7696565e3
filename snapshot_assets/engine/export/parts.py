"""The parts of a snapshot, and their comparison with the source.

A *part* is the rows of one table in one chunk. Its columns are compared by the schema documents, its rows by what the
source knows of them (`Database.changes_since`), or by value: as sums of the rows of both sides, which tasks compute.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Generic, TypeVar

import pyarrow as pa

from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.protocol.source import Answer, Database, DatabaseAddress, ExportedRows, Scan, Verdict
from snapshot_assets.engine.export.run import OpenExport
from snapshot_assets.engine.files.batches import visible
from snapshot_assets.engine.files.read import TextOf, TextSchema, read_batches, text_schemas
from snapshot_assets.engine.files.row_sums import RowSums, row_sums
from snapshot_assets.engine.jobs import shared_jobs
from snapshot_assets.engine.reports import reporter
from snapshot_assets.errors import SnapshotError, TaskFailedError
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.predicates import Predicate, columns_of
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets.storage.base import ObjectStore

_UNASKED = Answer(Verdict.UNKNOWN)
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Part:
    """The rows of one table in one chunk.

    Attributes:
        scan: How the source reads them; None if the source has no such rows any more.
        files: The chunk's files of the table.
        exported: How many rows were exported.
        answer: Whether they changed since.
        erased: How many of the exported rows compactions have left out since.
    """

    chunk: int
    table: TableName
    scan: Scan | None
    files: tuple[DataFile, ...]
    exported: int
    answer: Answer = _UNASKED
    erased: int = 0

    @property
    def changed(self) -> bool:
        """Whether the rows have to be exported again."""
        return self.answer.verdict is Verdict.CHANGED

    @property
    def place(self) -> tuple[int, TableName]:
        """What no other part has: the chunk and the table."""
        return self.chunk, self.table


def parts_of(opened: OpenExport, chunks: Iterable[int]) -> list[Part]:
    """Return the tables of completed chunks: those that the source has rows of, and those that it had.

    The answer is known of parts whose table or columns are others in the source.
    """
    state, store = opened.catalog.state, opened.catalog.store
    written = cache(lambda schema_id: _by_name(read_schema(store, state.schemas[schema_id])))
    present = _by_name(opened.schema)
    # Many files have one schema, so each table of it is compared once.
    differ = cache(lambda schema_id, name: _columns(written(schema_id).get(name)) != _columns(present.get(name)))
    parts = [part for chunk in chunks if state.completed(chunk) for part in _parts(opened, chunk)]
    return [
        replace(part, answer=Answer(Verdict.CHANGED, "the columns are others"))
        if part.scan and any(differ(file.schema_id, part.table) for file in part.files)
        else part
        for part in parts
    ]


def _parts(opened: OpenExport, chunk: int) -> Iterator[Part]:
    state = opened.catalog.state
    files: defaultdict[TableName, list[DataFile]] = defaultdict(list)
    for known in state.live_files(chunk):
        files[TableName(known.file.schema, known.file.table)].append(known.file)
    erased = {TableName(each.schema, each.table): each.rows for each in state.chunks[chunk].chunk.erased}
    for scan in opened.make_planner(state, opened.schema).scans(chunk):
        name = scan.table.table_name
        own, left_out = tuple(files.pop(name, ())), erased.get(name, 0)
        yield Part(chunk, name, scan, own, sum(file.rows for file in own) + left_out, erased=left_out)
    gone = Answer(Verdict.CHANGED, "the source has no such rows any more")
    for name, left in files.items():
        yield Part(chunk, name, None, tuple(left), sum(file.rows for file in left), gone)


def _by_name(schema: DatabaseSchema) -> dict[TableName, Table]:
    return {table.table_name: table for table in schema.tables}


def _columns(table: Table | None) -> list[tuple[object, ...]] | None:
    """Return how a table's values are written; None without the table."""
    if table is None:
        return None
    return [(each.name, each.type, each.arrow_type, each.carrier, each.generated) for each in table.columns]


def answers_of(opened: OpenExport, parts: Sequence[Part], counts: Sequence[int]) -> list[Answer]:
    """Return what the source knows of the rows of parts, taken for as many rows as given; see `changes_since`."""
    assert opened.source is not None
    asked = []
    for part, count in zip(parts, counts, strict=True):
        assert part.scan is not None
        fence = opened.catalog.state.chunks[part.chunk].chunk.fence
        asked.append(ExportedRows(part.scan.table, part.scan.rows, count, fence))
    return opened.source.database.changes_since(asked)


@dataclass(frozen=True)
class Sides:
    """The rows of one part as snapshot and source have them, for a task to read.

    Attributes:
        texts: What its text files do not say about themselves, by file.
        zone: IANA zone of times without one.
        pending: By file, the predicates of the tombstones that delete rows of it.
        deleted: The predicates of all tombstones since the export, whose rows compactions may have left out.
    """

    part: Part
    texts: tuple[TextSchema | None, ...]
    zone: str
    pending: tuple[tuple[Predicate, ...], ...]
    deleted: tuple[Predicate, ...]

    @property
    def scan(self) -> Scan:
        """How the source reads the rows."""
        assert self.part.scan is not None
        return self.part.scan

    @property
    def schema(self) -> pa.Schema:
        """The columns of both sides."""
        return self.scan.table.arrow_schema()

    def snapshot(self, store: ObjectStore, *, all_rows: bool, verify: bool = True) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files, or only those that no tombstone deletes."""
        for file, text, pending in zip(self.part.files, self.texts, self.pending, strict=True):
            deleted = () if all_rows else pending
            yield from read_batches(store, file, self.schema, text, verify=verify, zone=self.zone, deleted=deleted)

    @contextmanager
    def source(self, database: Database, *, all_rows: bool) -> Iterator[Iterator[pa.RecordBatch]]:
        """Open the rows of the source, or only those that no tombstone since the export deletes."""
        filters = [] if all_rows else [(predicate, columns_of(predicate)) for predicate in self.deleted]
        here = DataFile("The source", *self.part.table, self.part.chunk, "", 0, 0, "", 0, 0)  # for errors
        with database.scan(self.scan) as batches:
            yield (visible(batch, filters, here, self.zone) for batch in reporter().counted(batches))

    def hidden(self, store: ObjectStore) -> int:
        """Return how many rows of the files tombstones delete."""
        total = 0
        for file, text, pending in zip(self.part.files, self.texts, self.pending, strict=True):
            if pending:
                left = read_batches(store, file, pa.schema([]), text, zone=self.zone, deleted=pending)
                total += file.rows - sum(batch.num_rows for batch in left)
        return total


@dataclass(frozen=True)
class Values:
    """How the values of a part compare.

    Attributes:
        found: How many rows the source has.
        equal: Whether the source has the rows of the files, with those that tombstones delete.
        alike: Whether both sides are equal without the rows that tombstones delete, and the source has no more of
            these than were deleted.
        hidden: How many rows of the files tombstones delete.
    """

    found: int
    equal: bool
    alike: bool
    hidden: int


def compare_values(store: ObjectStore, sides: Sides, database: Database) -> Values:
    """Compare the values of one part; the files are hashed first.

    Raises:
        SnapshotError: The source or a file cannot be read, or a file is damaged.
    """

    def summed(all_rows: bool) -> list[RowSums]:
        rows = row_sums(sides.schema, sides.snapshot(store, all_rows=all_rows, verify=all_rows))
        with sides.source(database, all_rows=all_rows) as batches:
            return [rows, row_sums(sides.schema, batches)]

    expected, found = summed(all_rows=True)
    equal, hidden = expected == found, sides.hidden(store)
    alike = equal
    if not equal and sides.deleted:
        left, right = summed(all_rows=False)
        alike = left == right and found.rows - right.rows <= sides.part.erased + hidden
    return Values(found.rows, equal, alike, hidden)


@dataclass(frozen=True)
class _Task(Generic[_Result]):
    """What one task reads over one connection."""

    address: DatabaseAddress
    store: ObjectStore
    read: Callable[[ObjectStore, Sides, Database], _Result]
    works: tuple[Sides, ...]


def read_parts(
    opened: OpenExport, parts: Sequence[Part], read: Callable[[ObjectStore, Sides, Database], _Result]
) -> Iterator[tuple[Part, _Result | SnapshotError]]:
    """Read both sides of parts, in tasks; yields each part with the result, or with the error of its reading."""
    assert opened.source is not None
    state, store = opened.catalog.state, opened.catalog.store
    assert state.header is not None
    documents = {number: read_schema(store, state.schemas[number]) for number in state.files.schema_ids()}
    text_of, by_place = text_schemas(state.header, documents), {part.place: part for part in parts}
    jobs = shared_jobs(parts, lambda part: sum(file.bytes for file in part.files))
    works = (tuple(_sides(state, part, text_of) for part in job) for job in jobs)
    tasks = [_Task(opened.source.address, store, read, work) for work in works]
    runner = opened.run.runner
    try:
        for place, result in runner.map(_run, tasks):
            yield by_place[place], result
    except BaseException:
        runner.interrupt()
        raise


def _sides(state: State, part: Part, text_of: TextOf) -> Sides:
    """Return how to read a part; tombstones delete rows that were exported before them only."""
    assert state.header is not None
    through = [file.tombstones_through for file in part.files]
    since = min(state.chunks[part.chunk].exported, *through) if through else state.chunks[part.chunk].exported
    own = {at: each.predicate for at, each in state.tombstones.items() if (each.schema, each.table) == part.table}
    pending = tuple(tuple(predicate for at, predicate in own.items() if at > newest) for newest in through)
    deleted = tuple(predicate for at, predicate in own.items() if at > since)
    return Sides(part, tuple(map(text_of, part.files)), state.header.time_zone, pending, deleted)


def _run(task: _Task[_Result]) -> Iterator[tuple[tuple[int, TableName], _Result | SnapshotError]]:
    """Read parts one after the other; a failed one does not stop the others."""
    try:
        database = open_database(task.address)
    except SnapshotError as error:
        yield from ((work.part.place, error) for work in task.works)
        return
    with closing(database):
        for work in task.works:
            part = work.part
            try:
                with reporter().work(part.chunk, database.interrupt):
                    yield part.place, task.read(task.store, work, database)
            except SnapshotError as error:
                yield part.place, error
            except Exception as error:  # an error of a driver or of Arrow
                text = f"{part.table}: {type(error).__name__}: {error}"
                yield part.place, TaskFailedError(text, chunk=part.chunk)
