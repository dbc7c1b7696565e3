"""One table of several writers: its columns, its files, and whether their windows overlap.

Writers need not agree on schemas, so the reader merges them (InfluxDB IOx, "Reader-based Schema Enforcement").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from snapshot_assets.catalog.state.fold import SealState, State
from snapshot_assets.errors import FederationError
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.arrow_types import arrow_type_text, wider_type
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import Column, DatabaseSchema, Table, TableName
from snapshot_assets.format.windows import Window
from snapshot_assets.storage.base import ObjectStore

PRIMARY_KEY = "primary_key"
"""The only way to read overlapping windows: of all rows with a primary key, the row of the newest seal stays."""


@dataclass(frozen=True)
class Member:
    """One writer's location, at a sealed revision.

    Attributes:
        writer: The writer's id: the name of its folder.
        schema: The newest schema of that state.
    """

    writer: str
    database: str
    store: ObjectStore
    state: State
    seal: SealState
    schema: DatabaseSchema

    @cached_property
    def tables(self) -> dict[TableName, Table]:
        """The member's tables by name."""
        return {table.table_name: table for table in self.schema.tables}

    def spans(self, name: TableName) -> list[Span]:
        """Return the chunks that have files of a table."""
        files: dict[int, list[DataFile]] = {}
        for live in self.state.live_files():
            if (live.file.schema, live.file.table) == name:
                files.setdefault(live.file.chunk, []).append(live.file)
        windows = {chunk: None if chunk == UNTIMED_CHUNK else self.state.window(chunk) for chunk in files}
        return [Span(self, windows[chunk], tuple(of_chunk)) for chunk, of_chunk in files.items()]

    def __str__(self) -> str:
        return f"writer {self.writer!r}"


@dataclass(frozen=True)
class Span:
    """The files of one table in one chunk of a member.

    Attributes:
        window: The chunk's window; None for chunk 0.
    """

    member: Member
    window: Window | None
    files: tuple[DataFile, ...]

    def __str__(self) -> str:
        return f"{self.window or 'chunk 0, without a window,'} of {self.member}"


@dataclass(frozen=True)
class FederatedTable:
    """A table of all members that have it.

    Attributes:
        table: It has the columns of all members. Files without a column give NULL.
        groups: Its files. If `deduplicated`, rows with one key are never in two groups.
        deduplicated: Whether the reader must keep one row of each primary key in a group.
    """

    table: Table
    groups: tuple[tuple[Span, ...], ...]
    deduplicated: bool


def federated_table(name: TableName, having: Sequence[Member], *, dedupe: bool) -> FederatedTable:
    """Return the table of the members that have it.

    Args:
        name: The table's name.
        having: The members that have it, the highest rank first.
        dedupe: Whether overlapping windows are accepted.

    Raises:
        FederationError: Members disagree on the table, or windows of two members overlap. Names both.
    """
    table = _merged(name, having)
    spans = [span for member in having for span in member.spans(name)]
    if not dedupe:
        groups = _overlapping(spans)
        _refuse_overlap(name, groups)
        return FederatedTable(table, groups, False)
    key = _key(name, having)
    with_time = table.time_index is None or table.time_index in key
    # If the key lacks the time, rows with one key may be in any windows.
    return FederatedTable(table, _overlapping(spans) if with_time else (tuple(spans),), True)


def _merged(name: TableName, members: Sequence[Member]) -> Table:
    """Return the table of the highest rank, with the additional columns of the other members."""
    first = members[0].tables[name]
    columns = {column.name: (column, members[0]) for column in first.columns}
    for member in members[1:]:
        table = member.tables[name]
        if table.time_index != first.time_index:
            raise FederationError(
                f"The time index of table {name} is {first.time_index or 'none'} for {members[0]} and "
                f"{table.time_index or 'none'} for {member}; their windows cannot be compared.",
                table=table_text(name),
            )
        for column in table.columns:
            first_column = columns.setdefault(column.name, (column, member))
            columns[column.name] = (_widened(name, first_column, (column, member)), first_column[1])
    return first.model_copy(update={"columns": tuple(column for column, _ in columns.values())})


def _widened(name: TableName, one: tuple[Column, Member], other: tuple[Column, Member]) -> Column:
    """Return a column that holds the values of two columns without loss."""
    kinds = [column.arrow_field().type for column, _ in (one, other)]
    wider = wider_type(*kinds)
    if wider is None:
        raise FederationError(
            f"Column {name}.{one[0].name} is {kinds[0]} for {one[1]} and {kinds[1]} for {other[1]}; one table"
            " cannot hold both. Read the writers one by one.",
            table=table_text(name),
            column=one[0].name,
        )
    return one[0].model_copy(update={"arrow_type": arrow_type_text(wider)})


def _key(name: TableName, members: Sequence[Member]) -> tuple[str, ...]:
    """Return the primary key, which all members must share."""
    keys = []
    for member in members:
        key = member.tables[name].primary_key
        if key is None:
            raise FederationError(
                f"Table {name} has no primary key for {member}, so its rows cannot be deduplicated by it.",
                table=table_text(name),
            )
        keys.append(key.columns)
    for member, columns in zip(members, keys, strict=True):
        if set(columns) != set(keys[0]):
            raise FederationError(
                f"The primary key of table {name} is {', '.join(keys[0])} for {members[0]} and {', '.join(columns)} for"
                f" {member}.",
                table=table_text(name),
            )
    return keys[0]


def _overlapping(spans: Sequence[Span]) -> tuple[tuple[Span, ...], ...]:
    """Return spans in groups, so that windows of two groups never overlap. All chunks 0 are one group."""
    untimed = [span for span in spans if span.window is None]
    groups: list[list[Span]] = [untimed] if untimed else []
    end = None
    timed = [(span.window, span.member.writer, span) for span in spans if span.window is not None]
    for window, _, span in sorted(timed, key=lambda each: (each[0].range, each[1])):
        if end is not None and window.start < end:
            groups[-1].append(span)
            end = max(end, window.end)
        else:
            groups.append([span])
            end = window.end
    return tuple(map(tuple, groups))


def _refuse_overlap(name: TableName, groups: Iterable[Sequence[Span]]) -> None:
    for group in groups:
        if len(group) > 1:
            raise FederationError(
                f"Table {name}: {group[0]} overlaps {group[1]}, so rows may be duplicated. Give each writer its own"
                f" time ranges, or read with dedupe={PRIMARY_KEY}: of all rows with a key, the row of the newest seal"
                " stays.",
                table=table_text(name),
                writers=(group[0].member.writer, group[1].member.writer),
            )
