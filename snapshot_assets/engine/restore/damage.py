"""Damage at the location: what keeps a revision from being restored, what is left out, and which older schema is used.

A file that was written with a damaged schema is still restored if its own columns are those of the older schema.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from snapshot_assets.catalog.log.scan import LogScan
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.faults import Fault, FaultKind
from snapshot_assets.engine.restore.settings import RestoreSettings
from snapshot_assets.errors import (
    DamageError,
    ForeignLocationError,
    ForkError,
    GapError,
    LostLogError,
    ObjectNotFoundError,
    PartlyRestoredError,
    UnsupportedVersionError,
)
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.header import format_of
from snapshot_assets.format.layout import UNTIMED_CHUNK, checkpointed_revision, transaction_path
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import DatabaseSchema, TableName
from snapshot_assets.format.units import counted, noun, time_text
from snapshot_assets.storage.base import ObjectStore

if TYPE_CHECKING:
    from snapshot_assets.engine.restore.files import FilePlan
    from snapshot_assets.engine.restore.plan import RestorePlan
    from snapshot_assets.engine.restore.steps import FailedStep

SHOWN = 10
"""Most damage that a message names."""

_OF_LOGS = frozenset({FaultKind.CHUNK_CHECKSUM, FaultKind.SNAPSHOT_CHECKSUM, FaultKind.DUPLICATE, FaultKind.COVERAGE})
"""Faults by which the log contradicts itself."""

KEEP_GOING = (
    "--keep-going (in Dagster keep_going: true) restores everything but the windows of tables that need damaged files;"
    " `snapshots export verify` names these files."
)

_OLDER = "--at VERSION restores a version that the log has."

_OLDER_SCHEMA = (
    "--keep-going (in Dagster keep_going: true) restores with the newest schema whose documents are intact, schema"
)

_NO_SCHEMA = "No older schema of this version is intact, so --keep-going cannot restore it either."

_NO_FOOTER = "is stored as text files, which do not record the types of their columns"


def refuse_needed_damage(
    store: ObjectStore, damage: Sequence[Fault], scan: LogScan, state: State, settings: RestoreSettings
) -> OlderSchema | None:
    """Refuse damage of what a restore needs; returns the schema that takes the place of the newest one, if any does."""
    needed = [each for each in damage if _is_needed(each, scan, state, settings)]
    newest = {ref.path for ref in state.schemas[state.schema_id].files}
    schemas = [each for each in needed if each.object in newest]
    older = _older_schema(store, state) if schemas else None
    if settings.keep_going and older is not None:
        needed = [each for each in needed if each not in schemas]
    way = ""
    if schemas and older is None:
        way = _NO_SCHEMA
    elif older is not None and not settings.keep_going:
        way = f"{_OLDER_SCHEMA} {older.number}."
    elif settings.version is None and scan.reaches_end and all(each.kind is FaultKind.LOG for each in needed):
        way = _OLDER
    refuse_damage(store.uri, [each.message for each in needed], way)
    return older


def refuse_damage(uri: str, damage: Sequence[str], way: str = "") -> None:
    """Refuse a restore if objects that it needs are damaged; `way` is how to restore what does not need them.

    Raises:
        DamageError: There is damage; lists the first faults.
    """
    if damage:
        more = f" and {len(damage) - SHOWN} more" if len(damage) > SHOWN else ""
        raise DamageError(
            f"{uri} is damaged, and nothing was restored: {' '.join(damage[:SHOWN])}{more}{way and ' '}{way}",
            faults=list(damage),
        )


def _is_needed(fault: Fault, scan: LogScan, state: State, settings: RestoreSettings) -> bool:
    """Return whether a fault keeps the revision's state or its newest schema from being known.

    A lost end of the log matters only if the newest version is to be restored.
    """
    if fault.kind is not FaultKind.LOG:
        newest = state.schemas[state.schema_id].files
        return fault.kind in {*_OF_LOGS, FaultKind.SIGNATURE} or any(ref.path == fault.object for ref in newest)
    errors = [error for path, error in scan.faults if path == fault.object]
    lost = settings.version is None and any(_is_lost_end(scan, error) for error in errors)
    # Two transactions claim one place: nothing shows which is this log's.
    forked = checkpointed_revision(fault.object) is None and any(isinstance(error, ForkError) for error in errors)
    return lost or forked or not scan.reaches_end


def _is_lost_end(scan: LogScan, error: Exception) -> bool:
    following = transaction_path(scan.state.revision + 1)
    return isinstance(error, LostLogError | UnsupportedVersionError) or (
        isinstance(error, GapError) and error.attributes.get("object") == following
    )


def contradicts_log(scan: LogScan, error: Exception) -> bool:
    """Return whether an object contradicts the log, so that nothing may be committed to it."""
    return isinstance(error, ForeignLocationError | ForkError) or _is_lost_end(scan, error)


@dataclass(frozen=True)
class OlderSchema:
    """An older schema that takes the place of the newest one.

    Attributes:
        number: Its id.
        newest: Id of the newest schema, which is damaged.
        rows: By table that the older schema lacks, rows of the files that were written with the newest one.
        unlike: By table, how its files that were written with the newest schema differ from the older one.
        faults: The reason that each of these files is left out, by path.
    """

    number: int
    newest: int
    document: DatabaseSchema
    rows: Mapping[TableName, int] = field(default_factory=dict)
    unlike: Mapping[TableName, str] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)

    def warnings(self) -> Iterator[str]:
        """Yield what the restore may lack because of it, a sentence or two each."""
        yield (
            f"Schema {self.newest}, the newest, is damaged: the import uses schema {self.number}. It lacks every table,"
            " column, key, index and view that was added or changed since, and has those that were dropped."
        )
        for name, rows in sorted(self.rows.items()):
            yield (
                f"Table {table_text(name)} is not in schema {self.number}:"
                f" {counted(rows, 'row')} {noun(rows, 'is', 'are')} left out."
            )
        yield from (text for _, text in sorted(self.unlike.items()))


def intact_schemas(store: ObjectStore, state: State) -> Iterator[tuple[int, DatabaseSchema]]:
    """Yield the schemas of a state whose documents are intact, with their ids, the newest first."""
    for number in sorted(state.schemas, reverse=True):
        with suppress(DamageError, ObjectNotFoundError):
            yield number, read_schema(store, state.schemas[number])


def _older_schema(store: ObjectStore, state: State) -> OlderSchema | None:
    """Return the schema to restore with if the newest one is damaged; None if no schema of the state is intact.

    Reads one data file of each table that was written with the newest schema: all its files have the same columns.
    """
    number, document = next(intact_schemas(store, state), (0, None))
    if document is None:
        return None
    tables = {table.table_name: table.arrow_schema() for table in document.tables}
    files: dict[TableName, list[DataFile]] = {}
    for known in state.live_files():
        if known.file.schema_id == state.schema_id:
            files.setdefault(TableName(known.file.schema, known.file.table), []).append(known.file)
    rows = Counter({name: sum(each.rows for each in some) for name, some in files.items() if name not in tables})
    text = format_of(state.header).is_text
    unlike = {
        name: f"Table {table_text(name)} {found}: its files of schema {state.schema_id} are left out."
        for name, some in files.items()
        if name in tables and (found := _NO_FOOTER if text else _difference(store, some, tables[name], number))
    }
    faults = {each.path: f"{each.path}: {unlike[name]}" for name in unlike for each in files[name]}
    return OlderSchema(number, state.schema_id, document, rows, unlike, faults)


def _difference(store: ObjectStore, files: list[DataFile], wanted: pa.Schema, number: int) -> str:
    """Return how the columns of a table's files differ from an older schema; "" if they do not."""
    found = next((columns for file in files if (columns := _columns(store, file)) is not None), None)
    if found is None:
        return "has no readable file that shows its columns"
    added = [f"{each.name} ({each.type})" for each in found if each.name not in wanted.names]
    gone = [name for name in wanted.names if name not in found.names]
    other = [
        f"{each.name} ({each.type}, before {wanted.field(each.name).type})"
        for each in found
        if each.name in wanted.names and each.type != wanted.field(each.name).type
    ]
    kinds = {"additional": added, "dropped": gone, "changed": other}
    parts = [f"{kind} columns {', '.join(names)}" for kind, names in kinds.items() if names]
    return f"has, compared with schema {number}, {' and '.join(parts)}" if parts else ""


def _columns(store: ObjectStore, file: DataFile) -> pa.Schema | None:
    """Return the columns of a file; None if its footer cannot be read, which verification or loading reports."""
    try:
        with store.open_reader(file.path) as source, pq.ParquetFile(source) as parquet:
            return parquet.schema_arrow
    except (ObjectNotFoundError, DamageError, pa.ArrowException, OSError):
        return None


@dataclass(frozen=True)
class LeftOut:
    """A table of a chunk that is not restored, because files of it are damaged.

    Attributes:
        window: The chunk's window as text; "" for chunk 0.
        rows: Rows of its files.
        faults: The faults of its damaged files.
    """

    table: TableName
    chunk: int
    window: str
    rows: int
    faults: tuple[str, ...]

    def __str__(self) -> str:
        where = f" in {self.window}" if self.window else f" in chunk {self.chunk}"
        return f"{table_text(self.table)}{where}: {counted(self.rows, 'row')} expected. {' '.join(self.faults)}"

    @property
    def facts(self) -> dict[str, Any]:
        """The table and window as JSON has them."""
        facts = {"table": table_text(self.table), "chunk": self.chunk, "window": self.window or None}
        return facts | {"rows": self.rows, "faults": list(self.faults)}


def left_out(plan: RestorePlan) -> list[LeftOut]:
    """Return the tables of the chosen chunks that a restore leaves out."""

    def place(file: FilePlan) -> tuple[int, TableName]:
        return file.file.chunk, file.table.table_name

    left = []
    for (chunk, table), some in groupby(sorted(plan.left_of_chosen, key=place), place):
        files = [each.file for each in some]
        window = None if chunk == UNTIMED_CHUNK else plan.state.window(chunk)
        text = f"{time_text(window.start)}/{time_text(window.end)}" if window else ""
        faults = tuple(plan.damaged[file.path] for file in files if file.path in plan.damaged)
        left.append(LeftOut(table, chunk, text, sum(file.rows for file in files), faults))
    return left


def partly_restored(plan: RestorePlan, failed: Sequence[FailedStep]) -> PartlyRestoredError:
    """Return the error of a restore that has done everything but what damage left out, and steps that failed."""
    left = left_out(plan)
    rows = sum(each.rows for each in left)
    named = " ".join(map(str, left[:SHOWN]))
    more = f" And {len(left) - SHOWN:,} more." if len(left) > SHOWN else ""
    steps = f" {counted(len(failed), 'schema step')} failed." if failed else ""
    files = f"{counted(rows, 'row')} {noun(rows, 'is', 'are')} left out, because files are damaged: {named}{more}"
    older = " ".join(plan.source.older.warnings()) if plan.source.older else ""
    altered = " Before that, give the target's tables the columns that they lack, or drop them." if older else ""
    return PartlyRestoredError(
        f"{older}{older and left and ' '}{files if left else ''}{steps} Everything else that was asked for is restored."
        " Bring the damaged objects, which `snapshots export verify` names, back from a copy or a replica; then run"
        " again: only what was left out is loaded."
        f"{altered}",
        left_out=[each.facts for each in left],
        steps=[each.facts for each in failed],
    )
