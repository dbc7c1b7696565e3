"""Federation: the locations of several writers, `<root>/<writer id>/<database>`, read as one.

Writers are independent, and federation writes nothing: a listing finds the locations. They need not agree on schemas,
so the reader merges them (InfluxDB IOx, "Writer Federation" and "Reader-based Schema Enforcement").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.catalog.state.fold import SealState, State
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.errors import (
    DamageError,
    FederationError,
    LocationDeletedError,
    NoSnapshotError,
    PlanError,
    UnknownRelationError,
    UnsupportedVersionError,
    VersionNotFoundError,
)
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.arrow_types import arrow_type_text, wider_type
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import NameRule, Spellings, rule_of, table_text
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
        groups: Its files. If the federation deduplicates, the reader must keep one row of each primary key in a group;
            rows with one key are never in two groups.
    """

    table: Table
    groups: tuple[tuple[Span, ...], ...]


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


OpenBelow = Callable[..., ObjectStore]
"""Opens the store of a folder below the root, given the names on its path."""


@dataclass(frozen=True)
class Federation:
    """Locations read as one.

    Attributes:
        members: By rank, the highest first: the time of the seal, then the writer's id.
        dedupe: Whether overlapping windows are accepted.
    """

    root: str
    members: tuple[Member, ...]
    dedupe: bool = False

    @property
    def tables(self) -> list[TableName]:
        """The names of all tables."""
        return sorted({name for member in self.members for name in member.tables})

    @property
    def names(self) -> NameRule:
        """How names are compared: as the members' source does."""
        return rule_of(self.members[0].schema)

    def table(self, name: TableName) -> FederatedTable:
        """Return a table.

        Raises:
            UnknownRelationError: No member has it.
            FederationError: Members disagree on it, or windows of two members overlap. Names both.
        """
        name = Spellings(self.names, self.tables).of(name)
        having = [member for member in self.members if name in member.tables]
        if not having:
            names = ", ".join(map(str, self.tables)) or "none"
            raise UnknownRelationError(f"No writer below {self.root} has a table {name}; there are {names}.")
        table = _merged(name, having)
        spans = [span for member in having for span in member.spans(name)]
        key = _key(name, having) if self.dedupe else ()
        if self.dedupe and table.time_index is not None and table.time_index not in key:
            return FederatedTable(table, (tuple(spans),))  # rows with one key may be in any windows
        groups = _overlapping(spans)
        for one, other, *_ in (group for group in groups if len(group) > 1 and not self.dedupe):
            raise FederationError(
                f"Table {name}: {one} overlaps {other}, so rows may be duplicated. Give each writer its own time ranges"
                f", or read with dedupe={PRIMARY_KEY}: of all rows with a key, the row of the newest seal stays.",
                table=table_text(name),
                writers=(one.member.writer, other.member.writer),
            )
        return FederatedTable(table, groups)


def open_federation(
    root: ObjectStore,
    open_below: OpenBelow,
    *,
    database: str | None = None,
    version: Mapping[str, str] | None = None,
    dedupe: str | None = None,
) -> Federation:
    """Find the members below a root, and read each at a sealed revision.

    Args:
        root: The folder above the writers' folders.
        open_below: Opens a location by the names of its writer and database.
        database: The database; None if all writers have the same one.
        version: A version of each writer, as users write it; other writers are left out. None for the newest seals.
        dedupe: `primary_key` accepts overlapping windows; None refuses them.

    Raises:
        NoSnapshotError: There is no member, or no member has a seal.
        VersionNotFoundError: A version or a writer does not exist.
        PlanError: There are several databases, or `dedupe` is unknown.
        DamageError: A member cannot be read. Names it.
    """
    if dedupe not in (None, PRIMARY_KEY):
        raise PlanError(f"dedupe is {dedupe!r}; the only way is {PRIMARY_KEY!r}")
    locations = _locations(root, open_below)
    database = database or _only_database(root, locations)
    writers = [writer for writer, name in locations if name == database]
    if missing := sorted(set(version or ()) - set(writers)):
        raise VersionNotFoundError(
            f"There is no writer {missing[0]!r} of {database!r} below {root.uri}; there are {', '.join(writers)}."
        )
    wanted: Mapping[str, str | None] = dict.fromkeys(writers) if version is None else version
    opened = [_open(open_below(each, database), each, database, wanted[each]) for each in sorted(wanted)]
    members = [member for member in opened if member is not None]
    if not members:
        raise NoSnapshotError(f"No writer of {database!r} below {root.uri} has sealed a snapshot.", location=root.uri)
    members.sort(key=lambda member: (member.seal.committed_at, member.writer), reverse=True)
    return Federation(root.uri, tuple(members), dedupe is not None)


def _locations(root: ObjectStore, open_below: OpenBelow) -> list[tuple[str, str]]:
    """Return writer and database of every location two levels below a root, sorted."""
    return [
        (writer, database)
        for writer in root.folders()
        for database in open_below(writer).folders()
        if "transactions" in open_below(writer, database).folders()
    ]


def _only_database(root: ObjectStore, locations: Iterable[tuple[str, str]]) -> str:
    names = sorted({database for _, database in locations})
    if len(names) > 1:
        raise PlanError(f"Below {root.uri} are the databases {', '.join(names)}; name one of them")
    if not names:
        raise NoSnapshotError(f"There is no location <writer id>/<database> below {root.uri}.", location=root.uri)
    return names[0]


def _open(store: ObjectStore, writer: str, database: str, version: str | None) -> Member | None:
    """Return a member; None if it was deleted, or if it has no seal and no version is requested."""
    try:
        head = read_state(store)
        if version is None and (head.deleted or not head.seals):
            return None
        revision = head.seals[-1].revision if version is None else resolve_version(version, head)
        state = head if head.sealed and revision == head.seals[-1].revision else read_state(store, through=revision)
        schema = read_schema(store, state.schemas[state.schema_id])
    except LocationDeletedError:
        return None
    except (DamageError, UnsupportedVersionError, VersionNotFoundError) as error:
        message = f"Writer {writer!r} ({store.uri}) cannot be read: {error}"
        raise type(error)(message, **error.attributes | {"writer": writer}) from error
    seal = next(each for each in head.seals if each.revision == revision)
    return Member(writer, database, store, state, seal, schema)
