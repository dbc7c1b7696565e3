"""What a compaction does, decided on the log alone: which files of which table and chunk are merged, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.catalog.state.file_columns import FileState
from snapshot_assets.catalog.state.file_pruning import Deletions, deletions, written_schemas
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import DocumentError, PlanError, UnknownRelationError
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.predicates import Predicate
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets.storage.base import ObjectStore

Dedupe = Literal["", "primary_key"]
TARGET_BYTES = 256 << 20
"""Size at which a merged file is closed, unless another is asked for."""
_NONE = Deletions({}, frozenset())


@dataclass(frozen=True)
class Wanted:
    """What a compaction is asked for.

    Attributes:
        target_size: Bytes at which a merged file is closed and the next begun.
        chunks: Chunks to be compacted whole, however their files are; empty for those that need it.
        tables: Tables to be compacted whole, likewise.
        dedupe: `primary_key` removes all but the newest of several rows of a chunk and table with one primary key,
            which is the one whose file was added by the latest revision.
    """

    target_size: int = TARGET_BYTES
    chunks: tuple[int, ...] = ()
    tables: tuple[TableName, ...] = ()
    dedupe: Dedupe = ""

    @property
    def named(self) -> bool:
        """Whether chunks or tables are named, which are then compacted whole."""
        return bool(self.chunks or self.tables)


@dataclass(frozen=True)
class Group:
    """Files of one table and chunk that are to be merged.

    Attributes:
        files: The files, oldest first: by revision that added them, then by path.
        kept: Paths of the table's other files in the chunk.
        reasons: Why: `small files`, `tombstones`, `duplicates` or `asked for`.
        deleting: By path, the predicates of the tombstones that may delete rows of a file.
        table: The table as the newest schema has it that has it.
        schema_id: That schema.
        dedupe: Whether duplicates are removed.
    """

    chunk: int
    files: tuple[DataFile, ...]
    kept: frozenset[str]
    reasons: tuple[str, ...]
    deleting: Mapping[str, tuple[Predicate, ...]]
    table: Table
    schema_id: int
    dedupe: bool

    @property
    def rows(self) -> int:
        """Rows that are read."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Bytes that are read; about as many are written."""
        return sum(file.bytes for file in self.files)

    def files_after(self, target_size: int) -> int:
        """Return about how many files there will be in place of these."""
        return -(-self.bytes // target_size)


@dataclass(frozen=True)
class CompactionPlan:
    """All that a compaction would do.

    Attributes:
        base_revision: The head that it was planned on.
    """

    base_revision: int
    target_size: int
    groups: tuple[Group, ...]

    @property
    def files_before(self) -> int:
        """Files that are merged."""
        return sum(len(group.files) for group in self.groups)

    @property
    def files_after(self) -> int:
        """About how many files there will be in their place."""
        return sum(group.files_after(self.target_size) for group in self.groups)

    @property
    def bytes_before(self) -> int:
        """Bytes of the files that are merged, and of those in their place at most, but for what encoding changes."""
        return sum(group.bytes for group in self.groups)

    def by_chunk(self) -> dict[int, tuple[Group, ...]]:
        """Return the groups of each chunk, ascending."""
        found: defaultdict[int, list[Group]] = defaultdict(list)
        for group in self.groups:
            found[group.chunk].append(group)
        return {chunk: tuple(found[chunk]) for chunk in sorted(found)}


class SchemaDocuments:
    """The schemas of a state, each read once and only when it is asked for."""

    def __init__(self, store: ObjectStore, state: State) -> None:
        self._store = store
        self._known: dict[int, DatabaseSchema] = {}
        self.schemas = dict(state.schemas)

    def table(self, schema_id: int, name: TableName) -> Table | None:
        """Return a table as a schema has it; None if that lacks it."""
        tables = {table.table_name: table for table in self._document(schema_id).tables}
        return tables.get(name)

    def deletions(self, state: State) -> dict[TableName, Deletions]:
        """Return what tombstones delete of the tables that have some; schemas are read only if there is one."""
        names = {TableName(each.schema, each.table) for each in state.tombstones.values()}
        documents = {number: self._document(number) for number in self.schemas} if names else {}
        return {name: deletions(state, name, written_schemas(documents, name)) for name in names}

    def _document(self, schema_id: int) -> DatabaseSchema:
        if schema_id not in self._known:
            self._known[schema_id] = read_schema(self._store, self.schemas[schema_id])
        return self._known[schema_id]

    def newest(self, name: TableName, files: Iterable[DataFile]) -> tuple[int, Table]:
        """Return the newest schema that has a table, and the table there: it may have been dropped since.

        Raises:
            DocumentError: Not even the schemas that its files were written with have it.
        """
        for schema_id in sorted({max(self.schemas), *(file.schema_id for file in files)}, reverse=True):
            table = self.table(schema_id, name)
            if table is not None:
                return schema_id, table
        raise DocumentError(f"No schema that files of {name} were written with has that table.", table=str(name))


def plan_compaction(state: State, documents: SchemaDocuments, wanted: Wanted) -> CompactionPlan:
    """Decide what is compacted; see `Wanted`.

    Compacted are, of completed chunks, two or more files of a table that are smaller than half the target size, and
    files that tombstones may delete rows of: one whose statistics exclude a tombstone has no such row, and stays as it
    is. So the tombstone stays pending, and costs its readers nothing. What is asked for, and what is searched for
    duplicates, is compacted whole; duplicates are searched where files of several attempts meet, since one scan finds
    each row once.

    Raises:
        PlanError: A named chunk is not completed, or a named table has no primary key to find duplicates by.
        UnknownRelationError: A named table has no files and is not in the newest schema.
    """
    _check_named(state, documents, wanted)
    chunks = wanted.chunks or [chunk for chunk in state.files.chunks() if state.completed(chunk)]
    deleted = documents.deletions(state)
    groups = [group for chunk in sorted(set(chunks)) for group in _groups(state, documents, wanted, deleted, chunk)]
    return CompactionPlan(state.revision, wanted.target_size, tuple(groups))


def _check_named(state: State, documents: SchemaDocuments, wanted: Wanted) -> None:
    for chunk in wanted.chunks:
        if chunk not in (known := state.expected_chunks()) and not state.completed(chunk):
            last = f"the last one is {known[-1]}" if known else "it has none"
            raise PlanError(f"The snapshot has no chunk {chunk}; {last}.", chunk=chunk)
        if not state.completed(chunk):
            raise PlanError(
                f"Chunk {chunk} is {state.status(chunk).value}; only completed chunks can be compacted.", chunk=chunk
            )
    for name in wanted.tables:
        table = documents.table(state.schema_id, name)
        if table is None and not any(_name(known.file) == name for known in state.live_files()):
            raise UnknownRelationError(f"The snapshot has no table {name}.", table=str(name))
        if wanted.dedupe and table is not None and table.primary_key is None:
            raise PlanError(f"Table {name} has no primary key to find duplicates by.", table=str(name))


def _name(file: DataFile) -> TableName:
    return TableName(file.schema, file.table)


def _groups(
    state: State, documents: SchemaDocuments, wanted: Wanted, deleted: Mapping[TableName, Deletions], chunk: int
) -> Iterator[Group]:
    by_table: defaultdict[TableName, list[FileState]] = defaultdict(list)
    for known in state.live_files(chunk):
        by_table[_name(known.file)].append(known)
    for name, files in sorted(by_table.items()):
        if not wanted.tables or name in wanted.tables:
            group = _group(documents, wanted, name, files, deleted.get(name, _NONE))
            if group is not None:
                yield group


def _group(
    documents: SchemaDocuments, wanted: Wanted, name: TableName, known: Sequence[FileState], deleted: Deletions
) -> Group | None:
    files = [each.file for each in sorted(known, key=lambda each: (each.added, each.file.path))]
    deleting = {file.path: found for file in files if (found := deleted.of(file.path))}
    schema_id, table = documents.newest(name, files)
    reasons = {
        "asked for": files if wanted.named else [],
        "duplicates": files if wanted.dedupe and table.primary_key and _attempts(files) > 1 else [],
        "small files": _small(files, wanted.target_size),
        "tombstones": [file for file in files if file.path in deleting],
    }
    chosen = {file.path for some in reasons.values() for file in some}
    if not chosen:
        return None
    kept = frozenset(file.path for file in files if file.path not in chosen)
    return Group(
        chunk=files[0].chunk,
        files=tuple(file for file in files if file.path in chosen),
        kept=kept,
        reasons=tuple(reason for reason, some in reasons.items() if some),
        deleting={path: found for path, found in deleting.items() if path in chosen},
        table=table,
        schema_id=schema_id,
        dedupe=bool(wanted.dedupe and table.primary_key and not kept),
    )


def _attempts(files: Sequence[DataFile]) -> int:
    return len({file.attempt for file in files})


def _small(files: Sequence[DataFile], target_size: int) -> list[DataFile]:
    small = [file for file in files if 2 * file.bytes < target_size]
    return small if len(small) > 1 else []
