"""Opens the source of a run, with the state that all of its tasks read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.contract import Access
from snapshot_assets.databases.open import kind_of, open_database
from snapshot_assets.databases.protocol.source import DatabaseAddress, SchemaSource
from snapshot_assets.databases.spark.source import SparkCatalogDatabase
from snapshot_assets.engine.export.planning import FramePlanner, Planner, ScanPlanner
from snapshot_assets.engine.session import Session
from snapshot_assets.format.relations import DatabaseSchema


@dataclass(frozen=True)
class Source:
    """An open source.

    Attributes:
        address: The database that tasks connect to; it names the held state, if the database supports one.
        database: The connection for planning and counting.
        make_planner: Makes the planner of a snapshot's chunks from its state and schema.
        check: Raises `ConsistencyLostError` if the held state is lost.
        held: Whether all tasks read one state of the source.
        unshared: Why tasks read states of their own; see `HeldState`. A Spark catalog does not say.
    """

    address: DatabaseAddress
    database: SchemaSource
    make_planner: Callable[[State, DatabaseSchema], Planner]
    check: Callable[[], None]
    held: bool
    unshared: str = ""

    @property
    def by_tasks(self) -> bool:
        """Whether tasks open it by its address."""
        return kind_of(self.address.uri).access is Access.CONNECTION

    def of_tables(self, schema: DatabaseSchema) -> Source:
        """Return it for a run that reads these tables: it holds no state if one has rows of none; see `stateless`."""
        why = self.database.stateless(schema)
        return replace(self, held=False, unshared=f"{self.unshared} {why}".lstrip()) if why else self


@contextmanager
def open_source(
    address: DatabaseAddress,
    session: Session,
    most_parts: Callable[[], int],
    readers: Callable[[], int] | None,
    split_by: str | None = None,
    range_bytes: int = 0,
) -> Iterator[Source]:
    """Open a source, and hold its current state until the context ends, if it supports that.

    The session is started only for a Spark catalog. For `readers`, see `Database.hold`; None if no task reads.

    Raises:
        DatabaseError: It cannot be opened; see `open_database`.
    """
    kind = kind_of(address.uri)
    if kind.access is Access.SESSION:
        with closing(SparkCatalogDatabase(address, session())) as catalog:
            yield Source(address, catalog, partial(FramePlanner, catalog=catalog), lambda: None, held=False)
        return
    with closing(open_database(address)) as holder, holder.hold(readers or (lambda: 0)) as held:
        held_address = replace(address, consistency=held.token)
        with nullcontext(holder) if kind.holder_reads else closing(open_database(held_address)) as database:
            make_planner = partial(
                ScanPlanner,
                database=database,
                most_parts=most_parts,
                split_by=split_by,
                range_bytes=range_bytes,
                counts=not held.unshared,
            )
            unshared = held.unshared if readers else ""
            yield Source(held_address, database, make_planner, held.check, not unshared, unshared)
