"""What an export of a source would read: its tables, and how many bytes the database estimates for each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime

from snapshot_assets.cli.output import only_results_on_stdout
from snapshot_assets.databases.contract import Access
from snapshot_assets.databases.open import kind_named, kind_of, open_database
from snapshot_assets.databases.protocol.source import (
    AllRows,
    Database,
    DatabaseAddress,
    Rows,
    Scan,
    SchemaSource,
    WindowRows,
)
from snapshot_assets.errors import SnapshotError, TransientError
from snapshot_assets.format.relations import Table
from snapshot_assets.format.units import human_bytes
from snapshot_assets.format.windows import closed_count, count_windows
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan


@dataclass(frozen=True)
class EstimatedTable:
    """A table to export.

    Attributes:
        bytes: Estimated bytes of its rows in the range; None if the database cannot estimate them. Partitions without
            statistics count with all their rows.
        analyzed: Whether the database has statistics of the table. Without them, `bytes` is the size of all its rows.
    """

    table: Table
    bytes: int | None
    analyzed: bool = True

    @property
    def text(self) -> str:
        """The size as people read it."""
        if self.bytes is None:
            return "unknown"
        return human_bytes(self.bytes) + ("" if self.analyzed else " in all, never analyzed")


@contextmanager
def opened_source(configuration: Configuration, plan: Plan) -> Iterator[SchemaSource]:
    """Open a plan's source; for a Spark catalog, in the session that an export would use."""
    address: DatabaseAddress = configuration.source(plan.source)
    if kind_of(address.uri).access is not Access.SESSION:
        with closing(open_database(address)) as database:
            yield database
        return
    from snapshot_assets.databases.spark.source import SparkCatalogDatabase
    from snapshot_assets.engine.session_start import start_session

    with only_results_on_stdout():
        session = start_session(configuration.spark_settings(plan))
    with closing(SparkCatalogDatabase(address, session)) as catalog:
        yield catalog


def estimated(source: SchemaSource, plan: Plan, table: Table, end: datetime | None) -> EstimatedTable:
    """Return a table with the estimated size of what a plan exports of it.

    Args:
        source: The open source.
        plan: The plan, its start resolved.
        table: The table.
        end: The end of the plan's range.

    Raises:
        TransientError: The source is out of reach.
    """
    rows: Rows = AllRows()
    if (table.time_index is not None or table.options.get("windowed")) and plan.start_time is not None:
        rows = WindowRows(plan.start_time, max(end or plan.start_time, plan.start_time), plan.time_zone)
    if kind_named(source.kind).access is Access.SESSION:
        return EstimatedTable(table, None)
    database: Database = source  # type: ignore[assignment]
    try:
        scan = Scan(table, rows)
        unanalyzed = database.unanalyzed(scan)
        if unanalyzed is not None and unanalyzed.whole:
            return EstimatedTable(table, unanalyzed.bytes, analyzed=False)
        return EstimatedTable(table, database.estimate(scan) + (unanalyzed.bytes if unanalyzed else 0))
    except TransientError:
        raise
    except SnapshotError:  # such as a view whose plan the database cannot make; an export reads it in one task
        return EstimatedTable(table, None)


def window_count(plan: Plan, now: datetime) -> int:
    """Return how many windows a plan has by now."""
    if plan.schema_only or plan.start_time is None or not plan.windowed:
        return 0
    if plan.range_kind == "continuous":
        return closed_count(plan.start_time, plan.chunk_time_window, now, plan.lag)
    assert plan.end_time is not None
    return count_windows(plan.start_time, plan.end_time, plan.chunk_time_window)
