"""Which exported rows changed in the source: by the source's own versions of rows, else by comparing values.

A *part* is the rows of one table in one chunk. Its columns are compared by the schema documents, its rows by what the
source knows of them (`Database.changes_since`). What stays unknown is read from source and snapshot, and compared by
value. So a part is never taken for unchanged without proof.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial

from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.protocol.source import Answer, Database, DatabaseAddress, ExportedRows, Scan, Verdict
from snapshot_assets.engine.export.run import OpenExport
from snapshot_assets.engine.files.read import TextSchema, read_batches, text_schemas
from snapshot_assets.engine.files.row_sums import row_sums
from snapshot_assets.engine.jobs import shared_jobs
from snapshot_assets.engine.progress import Stage, silent
from snapshot_assets.engine.reports import reporter
from snapshot_assets.errors import PlanError, SnapshotError, TaskFailedError
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets.format.units import counted, noun
from snapshot_assets.storage.base import ObjectStore

_UNASKED = Answer(Verdict.UNKNOWN)


@dataclass(frozen=True)
class Part:
    """The rows of one table in one chunk.

    Attributes:
        scan: How the source reads them; None if the source has no such rows any more.
        files: The chunk's files of the table.
        exported: How many rows were exported.
        answer: Whether they changed since.
    """

    chunk: int
    table: TableName
    scan: Scan | None
    files: tuple[DataFile, ...]
    exported: int
    answer: Answer = _UNASKED

    @property
    def changed(self) -> bool:
        """Whether the rows have to be exported again."""
        return self.answer.verdict is Verdict.CHANGED


@dataclass(frozen=True)
class Changes:
    """What was found about the parts of some chunks.

    Attributes:
        parts: All parts that were looked at; none is unknown.
        proved: Chunks of which a part was unknown, and its values are the same: their fence moves to this run's, so
            that the next run need not compare them.
        compared: How many parts were compared by value.
    """

    parts: tuple[Part, ...]
    proved: frozenset[int] = frozenset()
    compared: int = 0

    @property
    def only(self) -> dict[int, frozenset[TableName]]:
        """The tables to export again by chunk, as `OpenExport.commits` takes them."""
        tables: defaultdict[int, set[TableName]] = defaultdict(set)
        for chunk in self.proved:
            tables[chunk] = set()
        for part in self.parts:
            if part.changed:
                tables[part.chunk].add(part.table)
        return {chunk: frozenset(names) for chunk, names in sorted(tables.items())}

    @property
    def changed(self) -> list[Part]:
        """The parts that changed, by chunk and table."""
        return sorted((part for part in self.parts if part.changed), key=lambda part: (part.chunk, part.table))

    @property
    def chunks(self) -> int:
        """How many chunks were looked at."""
        return len({part.chunk for part in self.parts})

    def __str__(self) -> str:
        looked = f"{counted(self.chunks, 'chunk')} looked at for changes"
        if self.compared:
            looked += f", {counted(self.compared, 'table')} in them compared by value"
        changed = len({part.chunk for part in self.changed})
        return f"{looked}: " + (f"{changed:,} {noun(changed, 'has', 'have')} changed" if changed else "nothing changed")


def chunks_to_look_at(opened: OpenExport, now: datetime) -> list[int]:
    """Return the completed chunks to look at: that of the untimed tables, and windows of the plan's `refresh_for`."""
    state, bound = opened.catalog.state, opened.run.plan.refresh_for
    completed = [chunk for chunk in sorted({*state.expected_chunks(), UNTIMED_CHUNK}) if state.completed(chunk)]
    return [
        chunk
        for chunk in completed
        if chunk == UNTIMED_CHUNK or bound is None or state.window(chunk).end >= now - bound
    ]


def find_changes(opened: OpenExport, chunks: Sequence[int], stage: Stage = silent) -> Changes:
    """Find out which rows of chunks changed in the source since they were exported.

    The source is read in the state that the run's tasks read, so what is exported next is what was compared.

    Args:
        opened: The run.
        chunks: Ids of the chunks; those that are not completed are passed over.
        stage: Takes how many parts were compared by value.

    Raises:
        PlanError: The source is an asset: Dagster knows which of its partitions changed.
        SnapshotError: The source or a file cannot be read.
    """
    source = opened.source
    if source is None:
        raise PlanError(
            "The rows come from a Dagster asset, so its partitions show what changed: materialise those of the windows."
        )
    parts = [part for chunk in chunks if opened.catalog.state.completed(chunk) for part in _parts(opened, chunk)]
    parts = _answered(opened, parts)
    unknown = [part for part in parts if part.answer.verdict is Verdict.UNKNOWN]
    if not unknown:
        return Changes(tuple(parts))
    if not source.held:  # a Spark catalog, which tasks cannot read by themselves: what is unknown is exported again
        unproved = (replace(part, answer=replace(part.answer, verdict=Verdict.CHANGED)) for part in parts)
        return Changes(tuple(unproved))
    compared = {(part.chunk, part.table): part for part in _compared(opened, unknown, stage)}
    every = tuple(compared.get((part.chunk, part.table), part) for part in parts)
    return Changes(every, frozenset(part.chunk for part in unknown if not part.answer.lasting), len(unknown))


def _parts(opened: OpenExport, chunk: int) -> Iterator[Part]:
    """Yield the tables of a completed chunk: those that the source has rows of, and those that it had."""
    state = opened.catalog.state
    files: defaultdict[TableName, list[DataFile]] = defaultdict(list)
    for known in state.live_files(chunk):
        files[TableName(known.file.schema, known.file.table)].append(known.file)
    erased = {TableName(each.schema, each.table): each.rows for each in state.chunks[chunk].chunk.erased}
    for scan in opened.make_planner(state, opened.schema).scans(chunk):
        name = scan.table.table_name
        own = tuple(files.pop(name, ()))
        yield Part(chunk, name, scan, own, sum(file.rows for file in own) + erased.get(name, 0))
    gone = Answer(Verdict.CHANGED, "the source has no such rows any more")
    for name, left in files.items():
        yield Part(chunk, name, None, tuple(left), sum(file.rows for file in left), gone)


def _answered(opened: OpenExport, parts: Sequence[Part]) -> list[Part]:
    """Answer by the documents of the schemas, and where these are the same, by what the source knows of its rows."""
    assert opened.source is not None
    state, store = opened.catalog.state, opened.catalog.store
    documents = cache(lambda schema_id: read_schema(store, state.schemas[schema_id]))
    known: dict[int, Part] = {}
    asked: dict[int, ExportedRows] = {}
    for number, part in enumerate(parts):
        if part.scan is None:
            known[number] = part
        elif any(_columns_differ(documents(file.schema_id), part.scan.table) for file in part.files):
            known[number] = replace(part, answer=Answer(Verdict.CHANGED, "the columns are others"))
        else:
            fence = state.chunks[part.chunk].chunk.fence
            asked[number] = ExportedRows(part.scan.table, part.scan.rows, part.exported, fence)
    answers = dict(zip(asked, opened.source.database.changes_since(list(asked.values())), strict=True))
    return [known.get(number) or replace(part, answer=answers[number]) for number, part in enumerate(parts)]


def _columns_differ(written: DatabaseSchema, table: Table) -> bool:
    """Return whether values were written in other columns than a table has now."""
    before = next((each for each in written.tables if each.table_name == table.table_name), None)
    if before is None:
        return True
    ways = [
        [(each.name, each.type, each.arrow_type, each.carrier, each.generated) for each in some.columns]
        for some in (before, table)
    ]
    return ways[0] != ways[1]


@dataclass(frozen=True)
class _Comparison:
    """One part to compare by value.

    Attributes:
        texts: What its text files do not say about themselves, by file.
        zone: IANA zone of times without one.
    """

    part: Part
    texts: tuple[TextSchema | None, ...]
    zone: str


@dataclass(frozen=True)
class _Task:
    """What one task compares over one connection."""

    address: DatabaseAddress
    store: ObjectStore
    works: tuple[_Comparison, ...]


@dataclass(frozen=True)
class _Compared:
    """The values of one part: how many rows the source has, and whether they are the snapshot's."""

    chunk: int
    table: TableName
    found: int = 0
    equal: bool = False
    error: SnapshotError | None = None


def _compared(opened: OpenExport, parts: Sequence[Part], stage: Stage) -> Iterator[Part]:
    """Compare parts by value, in tasks; yields each with its answer."""
    assert opened.source is not None
    state, store = opened.catalog.state, opened.catalog.store
    assert state.header is not None
    documents = {number: read_schema(store, state.schemas[number]) for number in state.files.schema_ids()}
    text_of = text_schemas(state.header, documents)
    works = [_Comparison(part, tuple(map(text_of, part.files)), state.header.time_zone) for part in parts]
    jobs = shared_jobs(works, lambda work: sum(file.bytes for file in work.part.files))
    by_key = {(part.chunk, part.table): part for part in parts}
    runner = opened.run.runner
    tasks = [_Task(opened.source.address, store, tuple(job)) for job in jobs]
    try:
        for number, result in enumerate(runner.map(_compare, tasks), 1):
            if result.error is not None:
                raise result.error
            stage("comparing", number, len(parts))
            verdict, reason = (Verdict.UNCHANGED, "") if result.equal else (Verdict.CHANGED, "other values")
            yield replace(by_key[result.chunk, result.table], answer=Answer(verdict, reason, result.found))
    except BaseException:
        runner.interrupt()
        raise


def _compare(task: _Task) -> Iterator[_Compared]:
    """Compare parts in source and snapshot, one after the other; a failed one does not stop the others."""
    try:
        database = open_database(task.address)
    except SnapshotError as error:
        yield from (_Compared(work.part.chunk, work.part.table, error=error) for work in task.works)
        return
    with closing(database):
        for work in task.works:
            part = work.part
            try:
                with reporter().work(part.chunk, database.interrupt):
                    yield _compare_values(task.store, work, database)
            except SnapshotError as error:
                yield _Compared(part.chunk, part.table, error=error)
            except Exception as error:  # an error of a driver or of Arrow
                described = TaskFailedError(f"{part.table}: {type(error).__name__}: {error}", chunk=part.chunk)
                yield _Compared(part.chunk, part.table, error=described)


def _compare_values(store: ObjectStore, work: _Comparison, database: Database) -> _Compared:
    part = work.part
    assert part.scan is not None
    schema = part.scan.table.arrow_schema()
    read = partial(read_batches, store, schema=schema, verify=True, zone=work.zone)
    files = zip(part.files, work.texts, strict=True)
    expected = row_sums(schema, (batch for file, text in files for batch in read(file=file, text=text)))
    with database.scan(part.scan) as batches:
        found = row_sums(schema, reporter().counted(batches))
    return _Compared(part.chunk, part.table, found.rows, expected == found)
