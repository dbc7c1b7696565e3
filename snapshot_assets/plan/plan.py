"""The plan: everything that defines one dataset's snapshots, checked before anything runs.

A plan is written in `snapshots.yaml` or built in Python. Both report all mistakes at once:

    Plan(
        name="flights",
        source="duckdb:///data/flights.duckdb",
        to="s3://backups/flights",
        start_time="2013-01-01T00:00:00Z",
        end_time="2014-01-01T00:00:00Z",
        tables=["main.flights", "main.weather"],
    )

It connects to nothing and imports neither Dagster nor Spark.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from snapshot_assets.catalog.seals.ssh import Signing
from snapshot_assets.databases.asset import key_of
from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.format.header import FileFormat
from snapshot_assets.format.names import table_of
from snapshot_assets.format.relations import Carrier
from snapshot_assets.format.units import MAX_FILE_SIZE
from snapshot_assets.plan.dagster_fields import DagsterFields
from snapshot_assets.plan.fields import (
    SORTED,
    UNORDERED,
    ColumnOfTable,
    Duration,
    FileSize,
    FormatOptions,
    Iceberg,
    LateWindows,
    Masks,
    QueryText,
    Reference,
    Storage,
    Table,
    TablePattern,
    Time,
    is_asset,
    is_windowed,
    query_of,
)
from snapshot_assets.plan.location_template import changes_with_time
from snapshot_assets.plan.problems import plan_error, problems_of
from snapshot_assets.plan.retention import RetentionFields
from snapshot_assets.plan.rules import RULES, NotOf, check_kind_of_query
from snapshot_assets.plan.spark_settings import SparkSettings

MAX_PARALLELISM = 64
"""Most chunks that are processed in parallel."""
MAX_TASKS = 1024
"""Most tasks of a chunk."""
DEFAULT_FILE_SIZE = 256 << 20

_Name = Annotated[str, Field(min_length=1)]


class Plan(BaseModel):
    """One dataset's plan: source, location, tables, range, windows, format and limits.

    Durations are written `90m`, `6h`, `7d`; sizes `256MiB`; times in RFC 3339 with a zone; tables `schema.table`.
    A contradiction between fields is reported with all other mistakes.

    Raises:
        PlanError: A field is wrong; `attributes["problems"]` lists every mistake.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str = Field(description="Name of the plan, and key prefix of its assets.", examples=["flights"])
    source: Reference = Field(
        description="Database to export: an alias of the configuration, or a URI; or the Dagster asset whose"
        " DataFrames are the rows.",
        examples=["postgresql://host/database", "duckdb:///abs/path.duckdb", "asset:reports/daily"],
    )
    to: str = Field(description="Location of the snapshots.", examples=["s3://bucket/prefix", "file:///srv/snapshots"])
    target: Reference | None = Field(None, description="Database that `restored` imports into.")
    scratch: Reference | None = Field(
        None, description="Database beside which a restore drill creates one of its own, and drops it after use."
    )
    storage: Storage | None = Field(
        None,
        exclude=True,
        description="Storage options of the location, where neither configuration nor environment has them.",
    )
    signing: Signing | None = Field(
        None,
        exclude=True,
        description="How seals are signed, and whose signatures count, where the configuration does not say it.",
        examples=["{key: ~/.ssh/seals, allowed_signers: /etc/snapshots/allowed_signers}", "{key: agent}"],
    )
    catalog: str | None = Field(None, min_length=1, description="Name of the catalog in the manifest.")
    kind: Literal["once", "continuous", "query"] = Field(
        "once",
        description="`once`: a fixed range. `continuous`: all closed windows, without an end. `query`: a copy of a"
        " query's rows.",
        validate_default=True,
    )
    query: Annotated[QueryText | None, BeforeValidator(check_kind_of_query)] = Field(
        None,
        description="What a plan of kind `query` copies: a table, or SQL that reads. SQL that names `:start` and"
        " `:end` is copied by windows.",
        examples=["SELECT origin, count(*) AS flights FROM flights GROUP BY origin"],
        validate_default=True,
    )
    split_by: str | None = Field(
        None,
        min_length=1,
        description="Column of the query by whose ranges several tasks read it: an integer, date, timestamp or uuid.",
    )
    schema_only: Annotated[bool, NotOf.QUERIES] = Field(False, description="Export the schema and no rows.")
    schemas: Annotated[tuple[_Name, ...], UNORDERED, NotOf.QUERIES, NotOf.ASSETS] = Field(
        (), description="Schemas to export; empty for all.", examples=["[public, sales]"]
    )
    tables: Annotated[tuple[Table, ...], UNORDERED, NotOf.QUERIES, NotOf.ASSETS] = Field(
        (), description="Tables to export; empty for all.", examples=["[public.trips, sales.orders]"]
    )
    exclude_tables: Annotated[tuple[TablePattern, ...], UNORDERED, NotOf.QUERIES, NotOf.ASSETS] = Field(
        (),
        description="Tables and views to leave out: patterns in which `*` and `?` stand for any text and character.",
        examples=["[public.audit, '*.tmp_*']"],
    )
    exclude_columns: Annotated[tuple[ColumnOfTable, ...], UNORDERED] = Field(
        (), description="Columns to leave out, with what needs them.", examples=["[public.users.password]"]
    )
    mask: Masks = Field(
        default_factory=dict,
        description="SQL of the source that is exported in place of a column's values; the manifest shows it.",
        examples=["{public.users.email: md5(email)}"],
    )
    time_zone: Annotated[str, NotOf.QUERIES] = Field(
        "UTC", description="Zone in which timestamps without one are read.", examples=["Europe/Paris"]
    )
    time_columns: Annotated[dict[Table, _Name | None], NotOf.QUERIES, NotOf.SCHEMAS] = Field(
        default_factory=dict,
        description="Time index by table; null makes the table untimed.",
        examples=["{public.trips: picked_up_at, public.zones: null}"],
    )
    carriers: Annotated[dict[ColumnOfTable, Carrier], NotOf.ASSETS, NotOf.SCHEMAS] = Field(
        default_factory=dict,
        description="Carrier of a column's values, to override that of its type.",
        examples=["{public.trips.fare: text}"],
    )
    null_time: Annotated[Literal["chunk0", "fail"], NotOf.QUERIES, NotOf.ASSETS, NotOf.SCHEMAS] = Field(
        "chunk0", description="Rows without a finite time."
    )
    untimed_tables: Annotated[Literal["export", "skip", "fail"], NotOf.QUERIES, NotOf.ASSETS, NotOf.SCHEMAS] = Field(
        "export", description="Tables without a time index."
    )
    large_objects: Annotated[Literal["export", "skip"] | None, NotOf.QUERIES, NotOf.ASSETS] = Field(
        None,
        description="PostgreSQL's large objects, which belong to chunk 0 when the whole database is exported, or a"
        " table that has a column for their oids. Required if the plan hides such a column.",
    )
    start_time: Annotated[Time | None, NotOf.SCHEMAS, NotOf.QUERIES_WITHOUT_WINDOWS] = Field(
        None, description="First instant of the range.", validate_default=True
    )
    end_time: Annotated[Time | None, NotOf.SCHEMAS, NotOf.QUERIES_WITHOUT_WINDOWS] = Field(
        None, description="First instant after the range."
    )
    chunk_time_window: Annotated[Duration, NotOf.SCHEMAS, NotOf.QUERIES_WITHOUT_WINDOWS] = Field(
        timedelta(days=1), description="Length of a window.", validate_default=True
    )
    lag: Annotated[Duration, NotOf.SCHEMAS, NotOf.QUERIES_WITHOUT_WINDOWS] = Field(
        timedelta(0), description="How long after its end a window of a continuous plan may still receive rows."
    )
    late_windows: Annotated[LateWindows, NotOf.ASSETS, NotOf.SCHEMAS, NotOf.QUERIES_WITHOUT_WINDOWS] = Field(
        0,
        description="How many windows the schedule exports or copies again with each new one, for late rows; `changed`"
        " for all tables whose rows changed in the source, window by window.",
    )
    refresh_for: Annotated[Duration | None, NotOf.ASSETS, NotOf.SCHEMAS, NotOf.QUERIES] = Field(
        None, description="How far back `late_windows: changed` looks: windows that ended earlier stay. Null for all."
    )
    fail_on_rows_outside: Annotated[bool, NotOf.QUERIES, NotOf.ASSETS, NotOf.SCHEMAS] = Field(
        False, description="Fail, and do not seal, if the source has rows outside the range."
    )
    chunks_per_run: Annotated[int | None, NotOf.ASSETS, NotOf.SCHEMAS, NotOf.QUERIES_WITHOUT_WINDOWS] = Field(
        None, ge=1, description="Chunks of one Dagster run; null for all in one run."
    )
    partition_by: Annotated[tuple[_Name, ...], NotOf.SNAPSHOTS] = Field(
        (),
        description="Columns of a query by whose values its files are divided among Hive folders, outermost first.",
        examples=["[country, year]"],
    )
    single_file: Annotated[bool, NotOf.SNAPSHOTS] = Field(
        False, description="Whether one task writes all rows of a query to one file, of up to 4GiB; more rows fail."
    )
    manifest: Annotated[
        tuple[Literal["redshift", "snowflake"], ...],
        SORTED,
        NotOf.SNAPSHOTS,
    ] = Field(
        (),
        description="Databases that load the copy of a query: each gets a list of the files, `redshift.manifest` or"
        " `snowflake.sql`.",
        examples=["[redshift]"],
    )
    restore_exclude_tables: tuple[TablePattern, ...] = Field(
        (),
        description="Tables and views of the snapshot that a restore leaves out: patterns, as in `exclude_tables`.",
        examples=["[public.audit, '*.tmp_*']"],
    )
    map_schemas: dict[_Name, _Name] = Field(
        default_factory=dict,
        description="New names of schemas in the target, by those of the snapshot.",
        examples=["{public: restored}"],
    )
    map_tables: dict[Table, Table] = Field(
        default_factory=dict,
        description="New names of tables and views in the target, by those of the snapshot; precede `map_schemas`.",
        examples=["{public.orders: public.orders_of_may}"],
    )
    verify_first: bool = Field(
        False, description="Whether a restore hashes the whole snapshot before it loads the first row."
    )
    replicate_to: str | None = Field(
        None,
        description="Location in another store to which each export replicates the plan's location, byte for byte.",
        examples=["s3://second-bucket/prefix"],
    )
    replicate_delete: bool = Field(
        False, description="Whether a replication to `replicate_to` deletes there what the location has deleted."
    )
    spark: SparkSettings = Field(
        default_factory=dict,
        exclude=True,
        repr=False,
        description="Settings of the Spark session, which override those of the configuration.",
        examples=["{master: spark://host:7077, spark.executor.memory: 4g}"],
    )
    parallelism: Annotated[int | None, NotOf.SCHEMAS] = Field(
        None, ge=1, le=MAX_PARALLELISM, description="Chunks processed in parallel; null for Spark's cores, at most 8."
    )
    parts_per_chunk: Annotated[int | None, NotOf.SCHEMAS] = Field(
        None, ge=1, le=MAX_TASKS, description="Most tasks that read a table's part of a chunk; null for Spark's cores."
    )
    import_slots: int | None = Field(
        None, ge=1, le=MAX_TASKS, description="Most tasks that load a chunk; null for Spark's cores."
    )
    with_code: bool = Field(
        False, description="Whether restores create functions, triggers, rules, policies and other code: SQL that runs."
    )
    format: Annotated[Literal["parquet", "csv", "json"], NotOf.SCHEMAS] = Field(
        "parquet", description="Format of the data files."
    )
    format_options: Annotated[FormatOptions, NotOf.SCHEMAS] = Field(
        default_factory=FormatOptions,
        description="How csv and json files are written.",
        examples=["{header: true, delimiter: ';', compression: zstd}"],
    )
    iceberg: Annotated[Iceberg, NotOf.SCHEMAS] = Field(
        None,
        description="Whether each seal also writes Iceberg metadata, by which other engines read the snapshots in"
        " place; or which tables get it, and the catalog that they are registered in.",
        examples=["true", "{tables: [public.orders], catalog: {type: sql, uri: sqlite:////srv/iceberg.db}}"],
    )
    max_file_size: Annotated[FileSize, NotOf.SCHEMAS] = Field(
        DEFAULT_FILE_SIZE, description="Size at which a data file is closed: from 16MiB, csv and json from 64KiB."
    )
    seal_verify: Literal["new", "full"] = Field(
        "new", description="What a seal hashes: files no earlier seal verified (if none, up to 1 GiB), or all."
    )
    single_writer: bool = Field(
        False, description="Promise that no other writer uses the location: allows a store without conditional creates."
    )
    grace: Duration = Field(timedelta(hours=24), description="Age below which garbage collection deletes nothing.")
    retention: Annotated[RetentionFields, NotOf.QUERIES] = Field(
        default_factory=RetentionFields,
        description="How long revisions stay readable, and which get tags and savepoints; nothing expires by default.",
        examples=["{keep_for: 30d, tag: {create_time: 02:00, num_retained_max: 7}}"],
    )
    dagster: DagsterFields = Field(
        default_factory=DagsterFields,
        description="How Dagster shows and automates the plan's assets.",
        examples=["{group: finance, owners: [team:data], default_status: running}"],
    )

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            secret = ("source", "target", "scratch", "storage", "signing", "spark")
            problems = problems_of(error, type(self), secret)
            raise plan_error(f"plan {fields.get('name', '(without name)')!r}", problems) from None

    @field_validator("*")
    @classmethod
    def _check_rules(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields[str(info.field_name)]
        if value != field.get_default(call_default_factory=True):
            for mark in field.metadata:
                if isinstance(mark, NotOf):
                    mark.check(info)
        for rule in RULES.get(str(info.field_name), ()):
            rule(value, info)
        return value

    @property
    def source_asset(self) -> tuple[str, ...]:
        """Key of the Dagster asset whose DataFrames are the rows; empty if a database has them."""
        return key_of(self.source.uri) if self.source.uri is not None and is_asset(self.source) else ()

    @property
    def selection(self) -> Selection:
        """The exported part of the source."""
        carriers = {(table, column): carrier for (table, column), carrier in self.carriers.items()}
        if self.query is not None:
            table = table_of(self.query)
            if table is None:
                return Selection(carriers=carriers, query=query_of(self.name, self.query), split_by=self.split_by)
            return Selection(
                tables=(table,), time_columns={table: None}, carriers=carriers, split_by=self.split_by, **self._hidden
            )
        return Selection(
            self.schemas,
            self.tables,
            self.time_columns,
            carriers,
            exclude_tables=self.exclude_tables,
            large_objects=None if self.large_objects is None else self.large_objects == "export",
            **self._hidden,
        )

    @property
    def frame_selection(self) -> Selection:
        """What the plan says about tables that a user's own DataFrames hold."""
        return Selection(time_columns=self.time_columns, **self._hidden)

    @property
    def _hidden(self) -> dict[str, Any]:
        return {
            "exclude_columns": tuple((table, column) for table, column in self.exclude_columns),
            "masks": {(table, column): sql for (table, column), sql in self.mask.items()},
        }

    @property
    def windowed(self) -> bool:
        """Whether the rows are exported by windows."""
        return self.query is None or is_windowed(self.query)

    @property
    def range_kind(self) -> Literal["once", "continuous"]:
        """Whether the range is fixed, or grows with time: that of a query does if it has windows and no end."""
        if self.kind == "query":
            return "continuous" if self.windowed and self.end_time is None else "once"
        return self.kind

    @property
    def scheduled(self) -> bool:
        """Whether a schedule catches up with the plan's windows: not where each copy has another location."""
        return self.kind != "query" or (self.windowed and not changes_with_time(self.to))

    @property
    def renaming(self) -> Renaming:
        """The new names in the target."""
        return Renaming.of(self.map_schemas.items(), self.map_tables.items())

    @property
    def file_format(self) -> FileFormat:
        """The format of the data files, with its options."""
        return self.format_options.of(self.format)

    @property
    def file_size(self) -> int:
        """Bytes at which a data file is closed."""
        return MAX_FILE_SIZE if self.single_file else self.max_file_size

    def resolved(self, start: datetime, end: datetime) -> Self:
        """Return the plan with `start` and `end` as the ends that it omits; a continuous plan has no end.

        Raises:
            PlanError: The resulting range is empty or has too many windows.
        """
        end_time = None if self.kind == "continuous" else self.end_time or end
        return self.changed(start_time=self.start_time or start, end_time=end_time)

    def changed(self, **fields: Any) -> Self:
        """Return the plan with changed fields, checked like any plan.

        Raises:
            PlanError: A new value is wrong, or contradicts another field.
        """
        return type(self)(**{name: getattr(self, name) for name in self.model_fields_set} | fields)
