"""The data source `snapshot`, which Spark calls in its Python processes to plan and to read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from snapshot_assets.engine.reading.federated import plan_federated
from snapshot_assets.engine.reading.options import ReadOptions, parse_options
from snapshot_assets.engine.reading.planning import TableRead, choose_read
from snapshot_assets.engine.reading.tasks import PlannedRead, TimeIndex, metadata_work, table_work
from snapshot_assets.engine.session import master_of, send_package
from snapshot_assets.engine.session_settings import is_local
from snapshot_assets.engine.time_range import clock_change, in_zone
from snapshot_assets.errors import PlanError
from snapshot_assets.storage.location import FILE, Location
from snapshot_assets.storage.options import VARIABLES, StoreOptions, open_store

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Setting without which Spark fails a read whose reader takes filters."""

_LOWER, _UPPER = (EqualTo, GreaterThan, GreaterThanOrEqual), (EqualTo, LessThan, LessThanOrEqual)
_AFTER = timedelta(microseconds=1)
"""From a time that belongs to a range to its end: Spark's times have microseconds."""


def pushed_range(filters: Iterable[Filter], column: str, zone: str) -> tuple[datetime | None, datetime | None]:
    """Return the start and the end of the times that filters leave; None for an end that they leave open.

    All filters are true for every row.
    """
    starts, ends = [], []
    for each in filters:
        if isinstance(each, (*_LOWER, *_UPPER)) and each.attribute == (column,):
            is_local = not (isinstance(each.value, datetime) and each.value.tzinfo)
            for time in _instants(each.value, zone):
                margin = clock_change(time, zone) if is_local else timedelta()
                starts += [time - margin] if isinstance(each, _LOWER) else []
                ends += [time + _AFTER + margin] if isinstance(each, _UPPER) else []
    return max(starts, default=None), min(ends, default=None)


def _instants(value: Any, zone: str) -> Iterator[datetime]:
    """Yield a value as an instant, unless it is no time, or lies at an end of the calendar."""
    if not isinstance(value, date) or not 1 < value.year < 9999:
        return
    if isinstance(value, datetime) and value.tzinfo is not None:
        yield value.astimezone(UTC)
    else:
        local = pa.array([value], pa.timestamp("us") if isinstance(value, datetime) else pa.date32())
        yield in_zone(local.cast(pa.timestamp("us")), zone).cast(pa.timestamp("us", "UTC"))[0].as_py()


_REDACTED = "(?i:account_key|service_account)"
"""Names of options whose values Spark would show in plans; it redacts those of other secrets itself."""

_REDACTION = "spark.sql.redaction.options.regex"


def register(spark: SparkSession, storage: Mapping[str, StoreOptions | None] | None = None) -> None:
    """Let a Spark session read snapshots with `spark.read.format("snapshot")`, and in SQL with `USING snapshot`.

    From then on the session redacts options that hold secrets wherever it shows options. Credentials in this process's
    environment (`AWS_…`, `AZURE_…` and so on) are read at this call. So is `spark.sql.python.filterPushdown.enabled`:
    if it is true, a query's comparisons with times leave files out.

    Args:
        spark: The session.
        storage: `StoreOptions` by URI scheme, such as `dict(load_configuration().storage)`. Options of a read override
            them. Pass secrets here rather than in SQL, which Spark shows as it is.
    """
    send_package(spark)
    hidden = spark.conf.get(_REDACTION) or ""
    if _REDACTED not in hidden:
        spark.conf.set(_REDACTION, "|".join(filter(None, (hidden, _REDACTED))))
    options = {scheme: each for scheme, each in (storage or {}).items() if each is not None}
    pushes = (spark.conf.get(PUSHDOWN, None) or "").lower() == "true"
    variables = {name: value for name, value in os.environ.items() if name in VARIABLES}

    # Spark sends the class, with these attributes, to its processes.
    class RegisteredSource(SnapshotSource):
        _storage = options
        _environment = variables
        _master = master_of(spark)
        _pushes = pushes

    spark.dataSource.register(RegisteredSource)


class SnapshotSource(DataSource):
    """The data source. Spark creates it for every load, with its options, and pickles it between processes.

    A DataFrame's version is fixed when it is created: all its queries read the same revision.
    """

    _storage: ClassVar[Mapping[str, StoreOptions]] = {}
    _environment: ClassVar[Mapping[str, str]] = {}
    _master: ClassVar[str] = "local"
    _pushes: ClassVar[bool] = False
    _planned: PlannedRead | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "snapshot"

    def schema(self) -> StructType:
        """Return Spark's schema of the read; see `parse_options` and `open_read` for errors."""
        self._planned = self._plan()
        return self._planned.schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the planned read; raises `PlanError` if the caller gave another schema than its own."""
        planned = self._planned or self._plan()
        if [(f.name, f.dataType) for f in schema] != [(f.name, f.dataType) for f in planned.schema]:
            raise PlanError(
                f"The schema {schema.simpleString()} is not the table's, which is {planned.schema.simpleString()}."
                " Leave it out; the option columns chooses columns."
            )
        self._planned = None  # every task gets this object, without the other tasks' work
        if self._pushes and planned.time_index is not None:
            return PushingReader(planned, planned.time_index, self._plan)
        return SnapshotReader(planned)

    def _plan(self, *further: Any) -> PlannedRead:
        """Plan the read; see `parse_options` and `open_read` for errors.

        Args:
            *further: Arguments of `ReadOptions.narrowed`, for a part of a read that was planned before.
        """
        options = parse_options(self.options, self._storage)
        options = options.narrowed(*further) if further else options
        chosen = open_read(options, self._master, self._environment)
        return table_work(chosen) if isinstance(chosen, TableRead) else chosen


def open_read(options: ReadOptions, master: str, environment: Mapping[str, str]) -> TableRead | PlannedRead:
    """Open a location, whose storage options `environment` completes, and choose what to read.

    Raises:
        PlanError: The location is a folder, and the master's tasks run on other machines. See `choose_read` and
            `plan_federated` for others.
    """
    location = options.location
    if location.scheme == FILE and not is_local(master):
        raise PlanError(
            f"{location.uri} can be on one machine only, and Spark's master is {master or 'unknown'!r}, whose tasks run"
            " on others. Use object storage (s3, gs, azblob, oss), or a local master."
        )
    variables = environment or os.environ  # Spark users may register the class itself, without an environment
    store = open_store(location, options.store, variables)
    if options.federation:
        return plan_federated(
            store,
            lambda *names: open_store(reduce(Location.child, names, location), options.store, variables),
            options,
        )
    chosen = choose_read(store, options)
    return metadata_work(chosen) if isinstance(chosen, pa.Table) else chosen


class SnapshotReader(DataSourceReader):
    """Executes a planned read. It is pickled without the work: each task gets only its own."""

    def __init__(self, planned: PlannedRead) -> None:
        self._read = planned.read
        self._work: Sequence[Any] = planned.work

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_work": ()}

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each task's work."""
        return [InputPartition(work) for work in self._work]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition; see `reader.read_batches`."""
        # Without partitions, Spark makes one without a value.
        yield from () if partition.value is None else self._read(partition.value)


class PushingReader(SnapshotReader):
    """A reader whose files are also left out by the comparisons of a query with times; `plan` plans a part of it."""

    def __init__(self, planned: PlannedRead, index: TimeIndex, plan: Callable[..., PlannedRead]) -> None:
        super().__init__(planned)
        self._index = index
        self._plan: Callable[..., PlannedRead] | None = plan

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_plan": None}

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # Spark's name
        """Plan again for the range of time that filters leave; returns all of them, for Spark to evaluate."""
        start, end = pushed_range(filters, self._index.column, self._index.zone)
        if self._plan is not None and (start or end):
            planned = self._plan(self._index.revision, start, end)
            self._read, self._work = planned.read, planned.work
        return filters
