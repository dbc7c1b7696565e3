"""Planning a compaction from the log alone: which files of which table and chunk are merged, and why.

A savepoint compacts everything, so that no tombstone is pending (FORMAT.md, section 6), then pins the result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins.objects import UncompactedError, create_savepoint, sealed_head
from snapshot_assets.catalog.schemas import read_schemas
from snapshot_assets.catalog.state.file_columns import FileState
from snapshot_assets.catalog.state.file_pruning import (
    Deletions,
    deletions,
    match_files,
    pending_tombstones,
    written_schemas,
)
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import SavepointState
from snapshot_assets.catalog.state.state import Token
from snapshot_assets.engine.compact.options import CompactionOptions
from snapshot_assets.engine.files.read import TextOf, TextSchema, text_schemas
from snapshot_assets.engine.files.target import FileSums
from snapshot_assets.errors import (
    CompactionFailedError,
    ConflictError,
    DocumentError,
    NoSnapshotError,
    PlanError,
    UnknownRelationError,
)
from snapshot_assets.format.actions import Chunk, DataFile
from snapshot_assets.format.layout import UNTIMED_CHUNK, folders_of
from snapshot_assets.format.names import Spellings, rule_of, table_text
from snapshot_assets.format.predicates import Predicate
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets.storage.base import ObjectStore

_NONE = Deletions({}, frozenset())


@dataclass(frozen=True)
class Group(FileSums):
    """Files of one table and chunk that are merged.

    Attributes:
        files: The files, folder by folder of their partitions, the oldest of each first: by revision that added them,
            then by path.
        kept: Paths of the table's other files in the chunk.
        reasons: Why: `small files`, `tombstones`, `duplicates` or `asked for`.
        deleting: By path, the predicates of the tombstones that may delete rows of a file.
        texts: By path, what a text file does not say about itself.
        table: The table in the newest schema that contains it.
        schema_id: The id of that schema.
        dedupe: Whether duplicates are removed.
    """

    chunk: int
    files: tuple[DataFile, ...]
    kept: frozenset[str]
    reasons: tuple[str, ...]
    deleting: Mapping[str, tuple[Predicate, ...]]
    texts: Mapping[str, TextSchema | None]
    table: Table
    schema_id: int
    dedupe: bool


@dataclass(frozen=True)
class ChunkCompaction:
    """A chunk to compact.

    Attributes:
        chunk: The chunk at the planned revision.
        window: The window as text; "" for chunk 0.
        zone: IANA zone of times without one.
        groups: The files to merge, one group a table.
    """

    chunk: Chunk
    window: str
    zone: str
    groups: tuple[Group, ...]

    @property
    def files(self) -> int:
        """Number of files that are merged."""
        return sum(len(group.files) for group in self.groups)

    @property
    def bytes(self) -> int:
        """Bytes of the files that are merged."""
        return sum(group.bytes for group in self.groups)


@dataclass(frozen=True)
class CompactionPlan:
    """All that a compaction does; `CompactRun.execute` does exactly this.

    Attributes:
        token: The snapshot and revision that it was planned on.
        chunks: The chunks to compact, ascending.
    """

    token: Token
    options: CompactionOptions
    chunks: tuple[ChunkCompaction, ...]

    @property
    def groups(self) -> tuple[Group, ...]:
        """The files to merge, by chunk and table."""
        return tuple(group for each in self.chunks for group in each.groups)

    @property
    def files_before(self) -> int:
        """Files that are merged."""
        return sum(chunk.files for chunk in self.chunks)

    @property
    def files_after(self) -> int:
        """Estimated number of files that replace them."""
        folders = [some for group in self.groups for some in by_folder(group.files).values()]
        return sum(-(-sum(file.bytes for file in some) // self.options.target_size) for some in folders)

    @property
    def bytes_before(self) -> int:
        """Bytes of the files that are merged. Those that replace them take about as many, or fewer."""
        return sum(chunk.bytes for chunk in self.chunks)


def plan_compaction(store: ObjectStore, state: State, options: CompactionOptions) -> CompactionPlan:
    """Plan a compaction of completed chunks; see `CompactionOptions`.

    A table's files in a chunk are merged where two or more are smaller than half the target size, unless it is divided
    by its primary key: a merge of any of its files for another reason makes it one part again. Files that tombstones
    may delete rows of are rewritten. A file whose statistics exclude a tombstone stays as it is: the tombstone stays
    pending for it, which costs readers nothing. Named tables and chunks, and tables searched for duplicates, are
    compacted whole. Files of a partitioned copy stay in their folders. Duplicates are searched only across several
    attempts, since one scan returns each row once.

    Raises:
        NoSnapshotError: There is no snapshot.
        PlanError: A named chunk is not completed, a named table has no primary key to find duplicates by, or
            duplicates are to be found in a partitioned copy.
        UnknownRelationError: A named table has no files and is not in the newest schema.
    """
    if state.header is None:
        raise NoSnapshotError(f"There is no snapshot at {store.uri}.", uri=store.uri)
    documents, header = read_schemas(store, state), state.header
    newest = documents[state.schema_id]
    if options.tables:  # the snapshot's source decides how names are compared
        known = {_name(each.file) for each in state.live_files()} | {table.table_name for table in newest.tables}
        spellings = Spellings(rule_of(newest), known)
        options = replace(options, tables=tuple(dict.fromkeys(map(spellings.of, options.tables))))
    _check_named(state, newest, options)
    chunks = options.chunks or [chunk for chunk in state.files.chunks() if state.completed(chunk)]
    names = {TableName(each.schema, each.table) for each in state.tombstones.values()}
    deleted = {name: deletions(state, name, written_schemas(documents, name)) for name in names}
    text_of = text_schemas(header, documents)
    planned: list[ChunkCompaction] = []
    for chunk in sorted(set(chunks)):
        by_table: defaultdict[TableName, list[FileState]] = defaultdict(list)
        for each in state.live_files(chunk):
            by_table[_name(each.file)].append(each)
        ranged = frozenset(attempt for each in state.chunks[chunk].chunk.ranges for attempt in each.attempts)
        groups = [
            _group(documents, options, files, deleted.get(name, _NONE), text_of, ranged)
            for name, files in sorted(by_table.items())
            if not options.tables or name in options.tables
        ]
        if merged := tuple(group for group in groups if group is not None):
            window = str(state.window(chunk)) if chunk != UNTIMED_CHUNK else ""
            planned.append(ChunkCompaction(state.chunks[chunk].chunk, window, header.time_zone, merged))
    return CompactionPlan(Token(state.snapshot_id, state.revision, state.schema_id), options, tuple(planned))


def _check_named(state: State, newest: DatabaseSchema, options: CompactionOptions) -> None:
    if options.dedupe and state.header is not None and state.header.partition_by:
        raise PlanError(
            f"The copy is partitioned by {', '.join(state.header.partition_by)}. Its files are merged folder by folder,"
            " which does not find duplicates in two folders. Compact without --dedupe."
        )
    for chunk in options.chunks:
        if chunk not in (known := state.expected_chunks()) and not state.completed(chunk):
            last = f"the last one is {known[-1]}" if known else "it has none"
            raise PlanError(f"The snapshot has no chunk {chunk}; {last}.", chunk=chunk)
        if not state.completed(chunk):
            raise PlanError(
                f"Chunk {chunk} is {state.status(chunk).value}; only completed chunks can be compacted.", chunk=chunk
            )
    for name in options.tables:
        table = next((each for each in newest.tables if each.table_name == name), None)
        if table is None and not any(_name(known.file) == name for known in state.live_files()):
            raise UnknownRelationError(f"The snapshot has no table {name}.", table=table_text(name))
        if options.dedupe and table is not None and table.primary_key is None:
            raise PlanError(f"Table {name} has no primary key to find duplicates by.", table=table_text(name))


def _name(file: DataFile) -> TableName:
    return TableName(file.schema, file.table)


def _group(
    documents: Mapping[int, DatabaseSchema],
    options: CompactionOptions,
    known: Sequence[FileState],
    deleted: Deletions,
    text_of: TextOf,
    ranged: frozenset[str],
) -> Group | None:
    files = [each.file for each in sorted(known, key=lambda each: (each.added, each.file.path))]
    deleting = {file.path: found for file in files if (found := deleted.of(file.path))}
    schema_id, table = _newest(documents, files)
    attempts = len({file.attempt for file in files})
    mergeable = [file for file in files if 2 * file.bytes < options.target_size and file.attempt not in ranged]
    small = by_folder(mergeable).values()
    reasons = {
        "asked for": files if options.chunks or options.tables else [],
        "duplicates": files if options.dedupe and table.primary_key and attempts > 1 else [],
        "small files": [file for some in small if len(some) > 1 for file in some],
        "tombstones": [file for file in files if file.path in deleting],
    }
    chosen = {file.path for some in reasons.values() for file in some}
    if not chosen:
        return None
    kept = frozenset(file.path for file in files if file.path not in chosen)
    return Group(
        chunk=files[0].chunk,
        files=tuple(file for some in by_folder(files).values() for file in some if file.path in chosen),
        kept=kept,
        reasons=tuple(reason for reason, some in reasons.items() if some),
        deleting={path: found for path, found in deleting.items() if path in chosen},
        texts={file.path: text_of(file) for file in files if file.path in chosen},
        table=table,
        schema_id=schema_id,
        dedupe=bool(options.dedupe and table.primary_key and not kept),
    )


def by_folder(files: Iterable[DataFile]) -> dict[str, list[DataFile]]:
    """Return files by the folders of their partitions, which a compaction keeps apart; of one table and chunk."""
    folders: defaultdict[str, list[DataFile]] = defaultdict(list)
    for file in files:
        folders[folders_of(file.path)].append(file)
    return folders


def _newest(documents: Mapping[int, DatabaseSchema], files: Sequence[DataFile]) -> tuple[int, Table]:
    """Return the newest schema that contains a table, which may have been dropped since, and the table there."""
    name = _name(files[0])
    for schema_id in sorted(documents, reverse=True):
        with suppress(KeyError):
            return schema_id, documents[schema_id].table(name)
    raise DocumentError(f"No schema that files of {name} were written with has that table.", table=table_text(name))


_TRIES = 10
"""Most attempts to compact or pin the head; without other writers, three are enough."""


def compact_and_pin(
    catalog: Catalog, compact: Callable[[CompactionPlan], None], *, automatic: bool = False
) -> SavepointState:
    """Compact everything, then pin the result; what other writers commit meanwhile is compacted too.

    Args:
        catalog: The location, opened for writing.
        compact: Executes a compaction plan of the location.
        automatic: Whether a retention rule creates the savepoint, and may delete it.

    Raises:
        UnsealedError: The head is not sealed, perhaps because of another writer; nothing was pinned.
        CompactionFailedError: Chunks cannot be compacted, and no other writer changed them.
        ConflictError: Other writers kept changing data.
    """
    for _ in range(_TRIES):
        catalog.refresh()
        state = catalog.require_snapshot()
        sealed_head(state)
        planned = state.data_revision  # a refresh changes the state itself
        plan = next(compactions(catalog.store, state), None)
        if plan is not None:
            try:
                compact(plan)
            except CompactionFailedError:
                if catalog.refresh().data_revision == planned:  # nothing changed: the next try fails too
                    raise
            continue
        with suppress(UncompactedError):
            return create_savepoint(catalog, state.data_revision, automatic=automatic)
    raise ConflictError(
        f"Other writers changed data at {catalog.store.uri} again and again while it was compacted, last in revision "
        f"{catalog.refresh().data_revision}; no savepoint was made. Run again when no export or deletion is at work.",
        uri=catalog.store.uri,
        revision=catalog.state.data_revision,
    )


def compactions(store: ObjectStore, state: State) -> Iterator[CompactionPlan]:
    """Yield the compactions that a savepoint needs; execute each before you take the next.

    The first is the default compaction. It leaves files whose statistics exclude a tombstone that is still pending for
    them. The second rewrites these whole, so that no tombstone is pending.
    """
    tables: set[TableName] = set()
    chunks: set[int] = set()
    for revision, each in pending_tombstones(state).items():
        table = TableName(each.schema, each.table)
        tables.add(table)
        chunks.update(match.file.chunk for match in match_files(state, table, older_than=revision))
    filtered = CompactionOptions(chunks=tuple(sorted(chunks)), tables=tuple(sorted(tables)))
    for options in (CompactionOptions(), filtered) if tables else (CompactionOptions(),):
        plan = plan_compaction(store, state, options)
        if plan.groups:
            yield plan
