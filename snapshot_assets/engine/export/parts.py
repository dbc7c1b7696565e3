"""The parts of a snapshot, and their comparison with the source.

A *part* is the rows of one table in one chunk, or a range of them (see `division`). Its columns are compared by the
schema documents, its rows by what the source knows of them (`Database.changes_since`), or by value: as sums of the rows
of both sides, which tasks compute.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Generic, TypeVar

import pyarrow as pa

from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.protocol.source import (
    AllRows,
    Answer,
    Database,
    DatabaseAddress,
    ExportedRows,
    Scan,
    SchemaSource,
    Verdict,
)
from snapshot_assets.engine.export.division import Portion
from snapshot_assets.engine.export.planning import Planner
from snapshot_assets.engine.export.run import OpenExport
from snapshot_assets.engine.files.batches import visible
from snapshot_assets.engine.files.read import TextOf, TextSchema, read_batches, text_schemas
from snapshot_assets.engine.files.row_sums import row_sums
from snapshot_assets.engine.jobs import shared_jobs
from snapshot_assets.engine.reports import reporter
from snapshot_assets.errors import (
    CarrierError,
    DamageError,
    ObjectNotFoundError,
    SnapshotError,
    TaskFailedError,
    foreign_text,
)
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.chunk_parts import KeyRange
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import table_text
from snapshot_assets.format.predicates import Predicate, columns_of
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets.format.windows import partition_key
from snapshot_assets.storage.base import ObjectStore

_OF_ONE_PART = (DamageError, ObjectNotFoundError, CarrierError)
_UNASKED = Answer(Verdict.UNKNOWN)
_Result = TypeVar("_Result")
Place = tuple[int, Portion]
"""What no other part has: its chunk, and its table or range."""


@dataclass(frozen=True)
class Part:
    """The rows of one table in one chunk, or a range of them.

    Attributes:
        scan: How the source reads them; None if the source has no such rows any more.
        files: The chunk's files of the table.
        exported: How many rows were exported.
        answer: Whether they changed since.
        erased: How many of the exported rows compactions have left out since.
        fence: The state of the source that the export read.
        range: The range; None for all rows.
        window: Partition key of the chunk's window; None for chunk 0.
    """

    chunk: int
    table: TableName
    scan: Scan | None
    files: tuple[DataFile, ...]
    exported: int
    answer: Answer = _UNASKED
    erased: int = 0
    fence: Mapping[str, str] = field(default_factory=dict)
    range: KeyRange | None = None
    window: str | None = None

    @property
    def changed(self) -> bool:
        """Whether the rows have to be exported again."""
        return self.answer.verdict is Verdict.CHANGED

    @property
    def place(self) -> Place:
        """The chunk, and the table or range."""
        return self.chunk, self.range or self.table

    def with_range(self, other: Part) -> Part:
        """Return two changed ranges of a table as one part, for people."""
        found = [part.answer.found for part in (self, other)]
        rows = None if None in found else sum(filter(None, found))
        return replace(self, exported=self.exported + other.exported, answer=replace(self.answer, found=rows))

    @property
    def name(self) -> str:
        """Its name in records of comparisons."""
        return f"{self.chunk}/{table_text(self.table)}"


def parts_of(opened: OpenExport, state: State, chunks: Iterable[int], *, whole: bool = False) -> list[Part]:
    """Return the tables of completed chunks: those that the source has rows of, and those that it had.

    The answer is known of parts whose table or columns are others in the source.

    Args:
        opened: The run.
        state: The snapshot's state, the newest or an older one.
        chunks: Ids of its chunks; those that are not completed are passed over.
        whole: Whether all rows of a table are one part, also where the log has ranges of them.
    """
    planner = opened.make_planner(state, opened.schema)
    if whole:
        planner = replace(
            planner, untimed={each.table_name: {AllRows(): each.table_name} for each in planner.schema.tables}
        )
    written = cache(lambda schema_id: _by_name(read_schema(opened.catalog.store, state.schemas[schema_id])))
    present = _by_name(opened.schema)
    # Many files have one schema, so each table of it is compared once.
    differ = cache(lambda schema_id, name: _columns(written(schema_id).get(name)) != _columns(present.get(name)))
    parts = [part for chunk in chunks if state.completed(chunk) for part in _parts(planner, chunk)]
    return [
        replace(part, answer=Answer(Verdict.CHANGED, "the columns are others"))
        if part.scan and any(differ(file.schema_id, part.table) for file in part.files)
        else part
        for part in parts
    ]


def _parts(planner: Planner, chunk: int) -> Iterator[Part]:
    action = planner.state.chunks[chunk].chunk
    window = None if chunk == UNTIMED_CHUNK else partition_key(planner.state.window(chunk))
    scans = [(scan, planner.range_of(scan)) for scan in planner.scans(chunk)]
    range_of = {attempt: each for _, each in scans if each for attempt in each.attempts}
    files: defaultdict[Portion, list[DataFile]] = defaultdict(list)
    for known in planner.state.live_files(chunk):
        files[range_of.get(known.file.attempt) or TableName(known.file.schema, known.file.table)].append(known.file)
    erased = {TableName(each.schema, each.table): each.rows for each in action.erased}
    for scan, key_range in scans:
        name = scan.table.table_name
        own, left_out = tuple(files.pop(key_range or name, ())), erased.get(name, 0)
        exported = sum(file.rows for file in own) + left_out
        yield Part(chunk, name, scan, own, exported, _UNASKED, left_out, action.fence, key_range, window)
    gone = Answer(Verdict.CHANGED, "the source has no such rows any more")
    for left in files.values():
        name = TableName(left[0].schema, left[0].table)
        yield Part(chunk, name, None, tuple(left), sum(file.rows for file in left), gone, window=window)


def _by_name(schema: DatabaseSchema) -> dict[TableName, Table]:
    return {table.table_name: table for table in schema.tables}


def _columns(table: Table | None) -> list[tuple[object, ...]] | None:
    """Return how a table's values are written; None without the table."""
    if table is None:
        return None
    return [(each.name, each.type, each.arrow_type, each.carrier, each.generated) for each in table.columns]


def answered(database: SchemaSource, parts: Sequence[Part]) -> list[Part]:
    """Return parts with what the source knows of their rows (`changes_since`), unless they are known to be changed."""
    asked = [
        ExportedRows(part.scan.table, part.scan.rows, part.exported, part.fence)
        for part in parts
        if part.scan and not part.changed
    ]
    answers = iter(database.changes_since(asked))
    return [part if part.changed else replace(part, answer=next(answers)) for part in parts]


@dataclass(frozen=True)
class Sides:
    """The rows of one part as snapshot and source have them, for a task to read.

    Rows that tombstones delete are in neither side: files may still have them, and the source may have kept them.

    Attributes:
        texts: What its text files do not say about themselves, by file.
        zone: IANA zone of times without one.
        deleted: The predicates of the tombstones since the export.
    """

    part: Part
    texts: tuple[TextSchema | None, ...]
    zone: str
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

    def snapshot(self, store: ObjectStore, *, verify: bool = True) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files, which are hashed first if they are to be verified."""
        for file, text in zip(self.part.files, self.texts, strict=True):
            yield from read_batches(store, file, self.schema, text, verify=verify, zone=self.zone, deleted=self.deleted)

    def source(self, database: Database, every: Callable[[int], None] = lambda rows: None) -> Generator[pa.RecordBatch]:
        """Yield the rows of the source; `every` gets the number of rows of each batch with those that are deleted."""
        filters = [(predicate, columns_of(predicate)) for predicate in self.deleted]
        here = DataFile("The source", *self.part.table, self.part.chunk, "", 0, 0, "", 0, 0)  # for errors
        with database.scan(self.scan) as batches:
            for batch in reporter().counted(batches):
                every(batch.num_rows)
                yield visible(batch, filters, here, self.zone)


@dataclass(frozen=True)
class Values:
    """How the values of a part compare.

    Attributes:
        found: How many rows the source has, with those that tombstones delete.
        deleted: How many of the exported rows tombstones delete.
        equal: Whether the source has the rows of the snapshot, and no more deleted ones than were deleted.
    """

    found: int
    deleted: int
    equal: bool


def compare_values(store: ObjectStore, sides: Sides, database: Database) -> Values:
    """Compare the values of one part; the files are hashed first.

    Raises:
        SnapshotError: The source or a file cannot be read, or a file is damaged.
    """
    read = list[int]()
    expected = row_sums(sides.schema, sides.snapshot(store))
    with closing(sides.source(database, read.append)) as batches:
        found = row_sums(sides.schema, batches)
    every, deleted = sum(read), sides.part.exported - expected.rows
    return Values(every, deleted, expected == found and every - found.rows <= deleted)


@dataclass(frozen=True)
class _Task(Generic[_Result]):
    """What one task reads over one connection."""

    address: DatabaseAddress
    store: ObjectStore
    read: Callable[[ObjectStore, Sides, Database], _Result]
    works: tuple[Sides, ...]


def read_parts(
    opened: OpenExport, state: State, parts: Sequence[Part], read: Callable[[ObjectStore, Sides, Database], _Result]
) -> Iterator[tuple[Part, _Result | SnapshotError]]:
    """Read both sides of parts of a state, in tasks; yields each with the result.

    Or with the error of a damaged file, or of a value that no file can hold, which the source got since the export.

    Raises:
        SnapshotError: The source or the store cannot be read.
    """
    assert opened.source is not None
    assert state.header is not None
    store = opened.catalog.store
    documents = {number: read_schema(store, state.schemas[number]) for number in state.files.schema_ids()}
    text_of, by_place = text_schemas(state.header, documents), {part.place: part for part in parts}
    jobs = shared_jobs(parts, lambda part: sum(file.bytes for file in part.files))
    works = (tuple(_sides(state, part, text_of) for part in job) for job in jobs)
    tasks = [_Task(opened.source.address, store, read, work) for work in works]
    runner = opened.run.runner
    try:
        for place, result in runner.map(_run, tasks):
            if isinstance(result, SnapshotError) and not isinstance(result, _OF_ONE_PART):
                raise result
            yield by_place[place], result
    except BaseException:
        runner.interrupt()
        raise


def reason_of(error: SnapshotError) -> str:
    """Return in short why a part could not be compared, given the error that `read_parts` yielded."""
    return "a value that no file can hold" if isinstance(error, CarrierError) else "a file is damaged"


def _sides(state: State, part: Part, text_of: TextOf) -> Sides:
    """Return how to read a part; tombstones delete rows that were exported before them only.

    Once a compaction has left out deleted rows, when the others were exported is not known any more.
    """
    assert state.header is not None
    through = [file.tombstones_through for file in part.files]
    since = 0 if part.erased else min([state.chunks[part.chunk].exported, *through])
    own = ((at, each) for at, each in state.tombstones.items() if (each.schema, each.table) == part.table)
    deleted = tuple(each.predicate for at, each in own if at > since)
    return Sides(part, tuple(map(text_of, part.files)), state.header.time_zone, deleted)


def _run(task: _Task[_Result]) -> Iterator[tuple[Place, _Result | SnapshotError]]:
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
                yield part.place, TaskFailedError(f"{part.table}: {foreign_text(error)}", chunk=part.chunk)
