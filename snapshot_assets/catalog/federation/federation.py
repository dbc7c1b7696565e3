"""Federation: the locations of several writers, `<root>/<writer id>/<database>`, read as one.

Writers are independent, and federation writes nothing: a listing finds the locations (InfluxDB IOx, "Writer
Federation").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from snapshot_assets.catalog.federation.table import PRIMARY_KEY, FederatedTable, Member, federated_table
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.errors import (
    DamageError,
    LocationDeletedError,
    NoSnapshotError,
    PlanError,
    UnknownRelationError,
    UnsupportedVersionError,
    VersionNotFoundError,
)
from snapshot_assets.format.names import NameRule, Spellings, rule_of
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore

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
        return rule_of(self.members[0].schema.database)

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
        return federated_table(name, having, dedupe=self.dedupe)


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
