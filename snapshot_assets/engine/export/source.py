"""Opens the source of a run once, and keeps one state of it for all tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.open import kind_of, open_database
from snapshot_assets.databases.source import DatabaseAddress, SchemaSource
from snapshot_assets.databases.spark.source import SparkCatalogDatabase
from snapshot_assets.engine.export.planning import FramePlanner, Planner, ScanPlanner
from snapshot_assets.format.relations import DatabaseSchema

Session = Callable[[], SparkSession]


@dataclass(frozen=True)
class Source:
    """An open source.

    Attributes:
        address: The database that tasks connect to; it names the held state, if the database supports one.
        database: The connection for planning and counting.
        make_planner: Makes the planner of a snapshot's chunks from its state and schema.
        check: Raises `ConsistencyLostError` if the held state is lost.
        held: Whether all tasks read one state of the source.
    """

    address: DatabaseAddress
    database: SchemaSource
    make_planner: Callable[[State, DatabaseSchema], Planner]
    check: Callable[[], None]
    held: bool


@contextmanager
def open_source(address: DatabaseAddress, session: Session, most_parts: int) -> Iterator[Source]:
    """Open a source, and hold its current state until the context ends, if it supports that.

    Args:
        address: Alias and URI.
        session: Returns the Spark session; called only for a Spark catalog.
        most_parts: Most slices of one table's scan.

    Raises:
        DatabaseError: It cannot be opened; see `open_database`.
    """
    if kind_of(address.uri) == "spark":
        with closing(SparkCatalogDatabase(address, session())) as catalog:
            yield Source(
                address,
                catalog,
                lambda state, schema: FramePlanner(state, schema, catalog),
                check=lambda: None,
                held=False,
            )
        return
    with closing(open_database(address)) as holder, holder.hold() as held:
        held_address = replace(address, consistency=held.token)
        with closing(open_database(held_address)) as database:
            yield Source(
                held_address,
                database,
                lambda state, schema: ScanPlanner(state, schema, database, most_parts),
                held.check,
                held=True,
            )
