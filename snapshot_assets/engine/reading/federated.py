"""Reads several writers' locations as one (InfluxDB IOx, "Writer Federation")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from snapshot_assets.catalog.federation import FederatedTable, Federation, Member, OpenBelow, Span, open_federation
from snapshot_assets.catalog.schemas import read_schemas
from snapshot_assets.databases.spark.types import batch_schema, spark_schema
from snapshot_assets.engine.reading.options import ReadOptions, parse_versions
from snapshot_assets.engine.reading.planning import (
    FilePart,
    FileRows,
    chosen_columns,
    file_parts,
    needs_documents,
    time_range_of,
)
from snapshot_assets.engine.reading.tasks import PlannedRead, grouped
from snapshot_assets.engine.time_range import TimeFilter
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets.storage.base import ObjectStore

Key = tuple[object, ...]
Work = list[tuple[int, list[FilePart]]]
"""Parts of files, each list with the number of its member; the highest rank first."""


def plan_federated(root: ObjectStore, open_below: OpenBelow, options: ReadOptions) -> PlannedRead:
    """Choose a revision of each member and the files to read. Opens logs and schema documents, no data.

    The root is the folder above the writers' folders; `open_below` opens a location by the names of its writer and
    database.

    Raises:
        FederationError: Members disagree on the table, or windows of two overlap.
        PlanError: There is no such column, or the table cannot be read by time; see also `open_federation`.
    """
    assert isinstance(options.table, TableName)
    federation = open_federation(
        root,
        open_below,
        database=options.database,
        version=parse_versions(options.version),
        dedupe=options.dedupe,
    )
    found = federation.table(options.table)
    chosen = chosen_columns(found.table.arrow_schema(), options.columns, str(options.table), federation.names)
    schema = batch_schema(chosen)
    if federation.dedupe:
        return _plan_deduplicated(federation, found, schema, options)
    rows: list[FileRows] = []
    work: list[Work] = []
    for number, member in enumerate(federation.members):
        time_range = time_range_of(options, member.state, found.table)
        rows.append(FileRows(member.store, found.table, schema, time_range, options.verify, _zone(member)))
        work += [[(number, group)] for group in grouped(_parts(member, found.table, time_range))]
    return PlannedRead(spark_schema(schema), partial(_read_members, tuple(rows)), work)


def _parts(member: Member, table: Table, time_range: TimeFilter | None, *, dropped: bool = False) -> list[FilePart]:
    needed = needs_documents(member.state, table.table_name, time_range)
    documents = read_schemas(member.store, member.state) if needed else {}
    return file_parts(member.state, table, documents, time_range, dropped=dropped)


def _zone(member: Member) -> str:
    assert member.state.header is not None
    return member.state.header.time_zone


def _read_members(members: Sequence[FileRows], work: Work) -> Iterator[pa.RecordBatch]:
    """Read parts of members' files, in Spark's processes."""
    for number, parts in work:
        yield from members[number](parts)


# Rows with one key


def _plan_deduplicated(
    federation: Federation, found: FederatedTable, schema: pa.Schema, options: ReadOptions
) -> PlannedRead:
    """Plan to read whole files: the newest row of a key must be known before the time range filters rows."""
    table = found.table
    assert table.primary_key is not None
    ranges = [time_range_of(options, member.state, table) for member in federation.members]
    needed = [*table.primary_key.columns, *([table.time_index] if ranges[0] and table.time_index else [])]
    wide = list(schema) + [
        table.column(name).arrow_field() for name in dict.fromkeys(needed) if name not in schema.names
    ]
    rows = tuple(
        FileRows(member.store, table, pa.schema(wide), None, options.verify, _zone(member))
        for member in federation.members
    )
    read = _DistinctRows(rows, table, tuple(schema.names), table.primary_key.columns, tuple(ranges))
    groups = [
        group
        for group in found.groups
        if (first := ranges[0]) is None
        or any(span.window and first.overlaps(span.window.start, span.window.end) for span in group)
    ]
    parts = [
        {part.file.path: part for part in _parts(member, table, None, dropped=True)} for member in federation.members
    ]
    return PlannedRead(spark_schema(schema), read, [_work(federation, group, parts) for group in groups])


def _work(federation: Federation, group: Sequence[Span], parts: Sequence[Mapping[str, FilePart]]) -> Work:
    """Return the parts of a group. Of files that are deleted whole, the keys are read if older rows may have them."""
    found: Work = []
    for number, member in reversed(list(enumerate(federation.members))):
        paths = [file.path for span in group if span.member is member for file in span.files]
        own = [parts[number][path] for path in paths if found or not parts[number][path].dropped]
        if own:
            found.insert(0, (number, own))
    return found


@dataclass(frozen=True)
class _DistinctRows:
    """Reads groups of files, and of rows with one key only those of the member of the highest rank.

    Duplicates within one member stay. A row that a member's tombstone deletes hides those of lower ranks too: these are
    older versions of the deleted row.

    Attributes:
        members: How the files of each member are read, whole.
        names: The columns to return.
        key: The columns of the primary key.
        ranges: By member, the time range; None for all rows.
    """

    members: tuple[FileRows, ...]
    table: Table
    names: tuple[str, ...]
    key: tuple[str, ...]
    ranges: tuple[TimeFilter | None, ...]

    def __call__(self, work: Work) -> Iterator[pa.RecordBatch]:
        known: set[Key] = set()  # keys of members of higher ranks
        for place, (number, parts) in enumerate(work):
            own: set[Key] = set()
            for part in parts:
                for batch in () if part.dropped else self.members[number]([part]):
                    if len(work) > 1:  # else no other member has rows of the group
                        keys = self._keys(batch)
                        own.update(keys)
                        batch = batch.filter(pa.array([key not in known for key in keys], pa.bool_()))
                    yield self._wanted(number, batch)
                if part.deleted and place + 1 < len(work):
                    own.update(self._all_keys(number, part))
            known |= own

    def _wanted(self, number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        time_range = self.ranges[number]
        return (time_range.filter(batch, self.table) if time_range else batch).select(self.names)

    def _all_keys(self, number: int, part: FilePart) -> Iterator[Key]:
        """Yield the keys of a file, also those of deleted rows."""
        rows = self.members[number]
        schema = pa.schema([rows.schema.field(name) for name in self.key])
        unread = part.dropped  # a file that is read a second time was hashed before
        for batch in replace(rows, schema=schema, verify=rows.verify and unread)([replace(part, deleted=())]):
            yield from self._keys(batch)

    def _keys(self, batch: pa.RecordBatch) -> list[Key]:
        return list(zip(*(_values(batch.column(name)) for name in self.key), strict=True))


def _values(array: pa.Array) -> list[object]:
    """Return comparable values; times as numbers, since Python has no nanoseconds."""
    if pa.types.is_temporal(array.type):
        array = array.cast(pa.int32() if array.type.bit_width == 32 else pa.int64())
    values: list[object] = array.to_pylist()
    return values
