"""Federation: the locations of several writers, `<root>/<writer id>/<database>`, read as one.

Writers know nothing of each other, and nothing is written here: what belongs together is found by listing, and schemas
are brought together by the reader (seed, sections 1.3 "Writer Federation" and 2.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from snapshot_assets.catalog.replay import read_state
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.catalog.state import SealState, State
from snapshot_assets.catalog.versions import resolve_version
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
from snapshot_assets.format.arrow_types import arrow_type_text, wider_type
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.relations import Column, DatabaseSchema, Table, TableName
from snapshot_assets.format.windows import Window
from snapshot_assets.storage.base import ObjectStore

PRIMARY_KEY = "primary_key"
"""The one way to read overlapping windows: of the rows with one primary key, that of the newest seal stays."""

OpenBelow = Callable[..., ObjectStore]
"""Opens the store of a folder below the root by the names on the way to it."""


@dataclass(frozen=True)
class Member:
    """One writer's location, at a sealed revision.

    Attributes:
        writer: The writer's id: the name of its folder.
        state: The state at that revision.
        seal: The seal of it.
        schema: The newest schema of that state.
    """

    writer: str
    database: str
    store: ObjectStore
    state: State
    seal: SealState
    schema: DatabaseSchema

    @property
    def rank(self) -> tuple[object, str]:
        """What decides between rows with one key: when the revision was sealed, then the writer's id."""
        return self.seal.committed_at, self.writer

    @cached_property
    def tables(self) -> dict[TableName, Table]:
        """The member's tables by name."""
        return {table.table_name: table for table in self.schema.tables}

    def spans(self, name: TableName) -> list[Span]:
        """Return the chunks that have files of a table."""
        files: dict[int, list[DataFile]] = {}
        for known in self.state.live_files():
            if (known.file.schema, known.file.table) == name:
                files.setdefault(known.file.chunk, []).append(known.file)
        return [
            Span(self, None if chunk == UNTIMED_CHUNK else self.state.window(chunk), tuple(found))
            for chunk, found in files.items()
        ]

    def __str__(self) -> str:
        return f"writer {self.writer!r}"


@dataclass(frozen=True)
class Span:
    """The files that one chunk of a member has of a table.

    Attributes:
        window: The chunk's; None for chunk 0.
    """

    member: Member
    window: Window | None
    files: tuple[DataFile, ...]

    def __str__(self) -> str:
        return f"{self.window or 'chunk 0, without a window,'} of {self.member}"


@dataclass(frozen=True)
class FederatedTable:
    """A table of one name, of all members that have it.

    Attributes:
        table: Its columns are those of all members; files that lack one give NULL.
        groups: Its files; rows with one key are never in two groups, unless `deduplicated` is False.
        deduplicated: Whether rows of one group must be told apart by the table's primary key.
    """

    table: Table
    groups: tuple[tuple[Span, ...], ...]
    deduplicated: bool

    @property
    def files(self) -> list[tuple[Member, DataFile]]:
        """All files, each with the member that it belongs to."""
        return [(span.member, file) for group in self.groups for span in group for file in span.files]


@dataclass(frozen=True)
class Federation:
    """Locations read as one.

    Attributes:
        members: By rank, the highest first.
        waiting: Writers that have sealed nothing yet, and are not part of it.
        dedupe: Whether overlapping windows are accepted.
    """

    root: str
    members: tuple[Member, ...]
    waiting: tuple[str, ...] = ()
    dedupe: bool = False

    @property
    def version(self) -> dict[str, int]:
        """The sealed revision by writer; given to `open_federation`, it reads the same again."""
        return {member.writer: member.seal.revision for member in sorted(self.members, key=lambda m: m.writer)}

    @property
    def tables(self) -> list[TableName]:
        """The names of all tables."""
        return sorted({name for member in self.members for name in member.tables})

    def table(self, name: TableName) -> FederatedTable:
        """Return a table.

        Raises:
            UnknownRelationError: No member has it.
            FederationError: Members disagree on it, or windows of two overlap; names both.
        """
        having = [member for member in self.members if name in member.tables]
        if not having:
            known = ", ".join(map(str, self.tables)) or "none"
            raise UnknownRelationError(f"No writer below {self.root} has a table {name}; there are {known}.")
        table = _merged(name, having)
        spans = [span for member in having for span in member.spans(name)]
        if not self.dedupe:
            groups = _overlapping(spans)
            _refuse_overlap(name, groups)
            return FederatedTable(table, groups, False)
        key = _key(name, having)
        with_time = table.time_index is None or table.time_index in key
        # A key that does not hold the time may have moved to any other window.
        return FederatedTable(table, _overlapping(spans) if with_time else (tuple(spans),), True)


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
        database: Which database; None if all writers have the same one.
        version: By writer, a version as people write it; other writers are left out. None for the newest seal of each.
        dedupe: `primary_key` accepts overlapping windows; None refuses them.

    Raises:
        NoSnapshotError: There is no member, or nothing was sealed yet.
        VersionNotFoundError: A member has no such version, or there is no such writer.
        PlanError: There are several databases, or `dedupe` is unknown.
        DamageError: A member cannot be read; names it.
    """
    if dedupe not in (None, PRIMARY_KEY):
        raise PlanError(f"dedupe is {dedupe!r}; the only way is {PRIMARY_KEY!r}")
    found = find_members(root, open_below)
    database = database or _only_database(root, found)
    writers = [writer for writer, name in found if name == database]
    if missing := sorted(set(version or ()) - set(writers)):
        raise VersionNotFoundError(
            f"There is no writer {missing[0]!r} of {database!r} below {root.uri}; there are {', '.join(writers)}."
        )
    members, waiting = [], []
    for writer in writers if version is None else sorted(version):
        member = _open(open_below(writer, database), writer, database, (version or {}).get(writer))
        if member is None:
            waiting.append(writer)
        else:
            members.append(member)
    if not members:
        raise NoSnapshotError(f"No writer of {database!r} below {root.uri} has sealed a snapshot.", location=root.uri)
    ranked = sorted(members, key=lambda member: member.rank, reverse=True)
    return Federation(root.uri, tuple(ranked), tuple(waiting), dedupe is not None)


def find_members(root: ObjectStore, open_below: OpenBelow) -> list[tuple[str, str]]:
    """Return writer and database of every location two levels below a root, sorted."""
    return [
        (writer, database)
        for writer in root.folders()
        for database in open_below(writer).folders()
        if "transactions" in open_below(writer, database).folders()
    ]


def _only_database(root: ObjectStore, found: Iterable[tuple[str, str]]) -> str:
    names = sorted({database for _, database in found})
    if len(names) > 1:
        raise PlanError(f"Below {root.uri} are the databases {', '.join(names)}; name one of them")
    if not names:
        raise NoSnapshotError(
            f"There is no location <writer id>/<database> below {root.uri}.",
            location=root.uri,
        )
    return names[0]


def _open(store: ObjectStore, writer: str, database: str, version: str | None) -> Member | None:
    """Return a member; None if it was deleted, or has sealed nothing and no version of it is asked for."""
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
    seal = next(known for known in head.seals if known.revision == revision)
    return Member(writer, database, store, state, seal, schema)


# Tables of one name


def _merged(name: TableName, members: Sequence[Member]) -> Table:
    """Return the table that holds the rows of all: the highest rank's, with what columns the others have besides."""
    first = members[0].tables[name]
    columns = {column.name: (column, members[0]) for column in first.columns}
    for member in members[1:]:
        table = member.tables[name]
        if table.time_index != first.time_index:
            raise FederationError(
                f"The time index of table {name} is {first.time_index or 'none'} for {members[0]} and "
                f"{table.time_index or 'none'} for {member}; their windows cannot be compared.",
                table=str(name),
            )
        for column in table.columns:
            known = columns.setdefault(column.name, (column, member))
            columns[column.name] = (_widened(name, known, (column, member)), known[1])
    return first.model_copy(update={"columns": tuple(column for column, _ in columns.values())})


def _widened(name: TableName, known: tuple[Column, Member], other: tuple[Column, Member]) -> Column:
    """Return a column that holds the values of two without loss."""
    kinds = [column.arrow_field().type for column, _ in (known, other)]
    wider = wider_type(*kinds)
    if wider is None:
        raise FederationError(
            f"Column {name}.{known[0].name} is {kinds[0]} for {known[1]} and {kinds[1]} for {other[1]}; one table"
            " cannot hold both. Read the writers one by one.",
            table=str(name),
            column=known[0].name,
        )
    return known[0].model_copy(update={"arrow_type": arrow_type_text(wider)})


def _key(name: TableName, members: Sequence[Member]) -> tuple[str, ...]:
    """Return the primary key that all members have."""
    keys = []
    for member in members:
        key = member.tables[name].primary_key
        if key is None:
            raise FederationError(
                f"Table {name} has no primary key for {member}, so its rows cannot be told apart by it.",
                table=str(name),
            )
        keys.append(key.columns)
    for member, columns in zip(members, keys, strict=True):
        if set(columns) != set(keys[0]):
            raise FederationError(
                f"The primary key of table {name} is {', '.join(keys[0])} for {members[0]} and {', '.join(columns)} for"
                f" {member}.",
                table=str(name),
            )
    return keys[0]


def _overlapping(spans: Sequence[Span]) -> tuple[tuple[Span, ...], ...]:
    """Return spans in groups: no window of one overlaps one of another group. Chunks 0 are a group."""
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
                f"Table {name}: {group[0]} overlaps {group[1]}, so rows may be there twice. Let each writer have time"
                f" ranges of its own, or read with dedupe={PRIMARY_KEY}: of rows with one key, that of the newest seal"
                " stays.",
                table=str(name),
                writers=(group[0].member.writer, group[1].member.writer),
            )
