"""The plan: everything that defines one dataset's snapshots, checked before anything runs.

A plan is written in `snapshots.yaml` (see `snapshot_assets.plan.configuration`) or built in Python. Both report all
mistakes at once:

    Plan(
        name="flights",
        source="duckdb:///data/flights.duckdb",
        to="s3://backups/flights",
        start_time="2013-01-01T00:00:00Z",
        end_time="2014-01-01T00:00:00Z",
        chunk_time_window="7d",
        tables=["main.flights", "main.weather"],
        time_columns={"main.airports": None},
    )

The module connects to nothing and imports neither Dagster nor Spark.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from snapshot_assets.databases.selection import suggestion
from snapshot_assets.databases.source import Selection
from snapshot_assets.format.file_formats import FileFormat
from snapshot_assets.format.names import ColumnPath, table_text
from snapshot_assets.format.relations import Carrier, TableName
from snapshot_assets.format.units import MIN_FILE_SIZE, MIN_TEXT_SIZE, duration_text, parse_file_size, time_text
from snapshot_assets.format.windows import count_windows
from snapshot_assets.plan.fields import ColumnOfTable, Duration, FileSize, FormatOptions, Table, Time
from snapshot_assets.plan.problems import plan_error, problems_of, raising_value_errors
from snapshot_assets.plan.query_fields import query_of, table_of
from snapshot_assets.plan.retention import RetentionFields
from snapshot_assets.plan.source_fields import SourceFields

_MB = 1 << 20
MAX_PARALLELISM = 64
"""Most chunks that are processed in parallel."""
_MIN_GRACE = timedelta(minutes=10)  # clocks of writers and store may differ by five minutes either way


_NOT_OF_QUERIES = (
    "schema_only",
    "schemas",
    "tables",
    "time_zone",
    "time_columns",
    "null_time",
    "untimed_tables",
    "retention",
)

_DATA_FIELDS = (
    "start_time",
    "end_time",
    "chunk_time_window",
    "lag",
    "parallelism",
    "format",
    "format_options",
    "max_file_size",
    "time_columns",
    "carriers",
    "null_time",
    "untimed_tables",
    "chunks_per_run",
)


class Plan(SourceFields):
    """One dataset's plan: source, location, tables, range, windows, format and limits.

    Durations are written `90m`, `6h`, `7d`; sizes `256MB`; times in RFC 3339 with a zone; tables `schema.table`.
    A contradiction between fields is reported with all other mistakes.

    Raises:
        PlanError: A field is wrong; `attributes["problems"]` lists every mistake.
    """

    schema_only: bool = Field(False, description="Export the schema and no rows.")
    schemas: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (), description="Schemas to export; empty for all.", examples=["[public, sales]"]
    )
    tables: tuple[Table, ...] = Field(
        (), description="Tables to export; empty for all.", examples=["[public.trips, sales.orders]"]
    )
    start_time: Time | None = Field(None, description="First instant of the range.", validate_default=True)
    end_time: Time | None = Field(None, description="First instant after the range.")
    chunk_time_window: Duration = Field(timedelta(days=1), description="Length of a window.", validate_default=True)
    lag: Duration = Field(
        timedelta(0), description="How long after its end a window of a continuous plan may still receive rows."
    )
    time_zone: str = Field(
        "UTC", description="Zone in which timestamps without one are read.", examples=["Europe/Paris"]
    )
    time_columns: dict[Table, Annotated[str, Field(min_length=1)] | None] = Field(
        default_factory=dict,
        description="Time index by table; null makes the table untimed.",
        examples=["{public.trips: picked_up_at, public.zones: null}"],
    )
    carriers: dict[ColumnOfTable, Carrier] = Field(
        default_factory=dict,
        description="Carrier of a column's values, to override that of its type.",
        examples=["{public.trips.fare: text}"],
    )
    null_time: Literal["chunk0", "fail"] = Field("chunk0", description="Rows without a finite time.")
    untimed_tables: Literal["export", "skip", "fail"] = Field("export", description="Tables without a time index.")
    parallelism: int = Field(1, ge=1, le=MAX_PARALLELISM, description="Chunks processed in parallel.")
    chunks_per_run: int | None = Field(None, ge=1, description="Chunks of one Dagster run; null for all in one run.")
    format: Literal["parquet", "csv", "json"] = Field("parquet", description="Format of the data files.")
    format_options: FormatOptions = Field(
        default_factory=FormatOptions,
        description="How csv and json files are written.",
        examples=["{header: true, delimiter: ';', compression: zstd}"],
    )
    max_file_size: FileSize = Field(
        256 * _MB, description="Size at which a data file is closed: from 16MB, csv and json from 64kB."
    )
    seal_verify: Literal["new", "full"] = Field(
        "new", description="What a seal hashes: files no earlier seal verified (if none, up to 1 GB), or all."
    )
    single_writer: bool = Field(
        False, description="Promise that no other writer uses the location: allows a store without conditional creates."
    )
    grace: Duration = Field(timedelta(hours=24), description="Age below which garbage collection deletes nothing.")
    retention: RetentionFields = Field(
        default_factory=RetentionFields,
        description="How long revisions stay readable, and which get tags and savepoints; nothing expires by default.",
        examples=["{keep_for: 30d, tag: {create_time: 02:00, num_retained_max: 7}}"],
    )

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            problems = problems_of(error, type(self), secret=("source", "target", "storage"))
            raise plan_error(f"plan {fields.get('name', '(without name)')!r}", problems) from None

    @property
    def selection(self) -> Selection:
        """The exported part of the source."""
        carriers = {(table, column): carrier for (table, column), carrier in self.carriers.items()}
        if self.query is not None:
            table = table_of(self.query)
            if table is None:
                return Selection(carriers=carriers, query=query_of(self.name, self.query))
            return Selection(tables=(table,), time_columns={table: None}, carriers=carriers)
        return Selection(self.schemas, self.tables, self.time_columns, carriers)

    @property
    def windowed(self) -> bool:
        """Whether the rows are exported by windows."""
        return self.query is None or _is_windowed(self.query)

    @property
    def range_kind(self) -> Literal["once", "continuous"]:
        """Whether the range is fixed, or grows with time: that of a query does if it has windows and no end."""
        if self.kind == "query":
            return "continuous" if self.windowed and self.end_time is None else "once"
        return self.kind

    @property
    def file_format(self) -> FileFormat:
        """The format of the data files, with its options."""
        return self.format_options.of(self.format)

    def resolved(self, start: datetime, end: datetime) -> Self:
        """Return the plan with the ends that it omits filled in.

        Args:
            start: Used if `start_time` is missing.
            end: Used if `end_time` is missing and the plan is not continuous.

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

    @field_validator(*_NOT_OF_QUERIES)
    @classmethod
    def _has_tables_to_act_on(cls, value: Any, info: ValidationInfo) -> Any:
        default = cls.model_fields[str(info.field_name)].get_default(call_default_factory=True)
        if info.data.get("kind") == "query" and value != default:
            raise ValueError("has no effect with kind: query, which copies one query; remove it")
        return value

    @field_validator("end_time", "chunk_time_window", "lag", "chunks_per_run")
    @classmethod
    def _has_windows_to_act_on(cls, value: Any, info: ValidationInfo) -> Any:
        default = cls.model_fields[str(info.field_name)].get_default(call_default_factory=True)
        query = info.data.get("query")
        if query is not None and value != default and not _is_windowed(query):
            raise ValueError("has no effect: the query does not name :start and :end. Name them, or remove it")
        return value

    @field_validator("schemas", "tables")
    @classmethod
    def _in_order_once(cls, names: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(sorted(set(names)))  # the same selection is the same plan, however it is written

    @field_validator("tables")
    @classmethod
    def _within_schemas(cls, tables: tuple[TableName, ...], info: ValidationInfo) -> tuple[TableName, ...]:
        _require_selected(tables, info.data.get("schemas", ()), ())
        return tables

    @field_validator("time_columns", "carriers")
    @classmethod
    def _of_selected_tables(cls, by_name: dict[Any, Any], info: ValidationInfo) -> dict[Any, Any]:
        tables = [key.table if isinstance(key, ColumnPath) else key for key in by_name]
        _require_selected(tables, info.data.get("schemas", ()), info.data.get("tables", ()))
        return by_name

    @field_validator("start_time")
    @classmethod
    def _start_if_continuous(cls, start: datetime | None, info: ValidationInfo) -> datetime | None:
        kind, query = info.data.get("kind"), info.data.get("query")
        if kind == "query" and query is not None:
            return _start_of_query(start, query)
        if start is None and kind == "continuous" and not info.data.get("schema_only"):
            raise ValueError("is missing; a continuous plan counts its chunks from it, such as 2013-01-01T00:00:00Z")
        return start

    @field_validator("end_time")
    @classmethod
    def _end_after_start(cls, end: datetime | None, info: ValidationInfo) -> datetime | None:
        if end is not None and info.data.get("kind") == "continuous":
            raise ValueError("a continuous plan has no end; remove end_time, or write kind: once")
        start = info.data.get("start_time")
        if end is not None and start is not None and end <= start:
            raise ValueError(f"{time_text(end)} is not after start_time {time_text(start)}")
        return end

    @field_validator("chunk_time_window")
    @classmethod
    def _cuts_the_range(cls, length: timedelta, info: ValidationInfo) -> timedelta:
        if not length:
            raise ValueError("0s is no length; write one such as 6h or 1d")
        start, end = info.data.get("start_time"), info.data.get("end_time")
        if start is not None and end is not None:
            raising_value_errors(lambda window: count_windows(start, end, window))(length)
        return length

    @field_validator("lag")
    @classmethod
    def _only_if_continuous(cls, lag: timedelta, info: ValidationInfo) -> timedelta:
        if lag and info.data.get("kind") == "once":
            raise ValueError("only a continuous plan waits; remove lag, or write kind: continuous")
        return lag

    @field_validator("format_options")
    @classmethod
    def _are_of_the_format(cls, options: FormatOptions, info: ValidationInfo) -> FormatOptions:
        if "format" in info.data:
            raising_value_errors(options.of)(info.data["format"]).check()
        return options

    @field_validator("max_file_size")
    @classmethod
    def _suits_the_format(cls, size: int, info: ValidationInfo) -> int:
        least = MIN_FILE_SIZE if info.data.get("format", "parquet") == "parquet" else MIN_TEXT_SIZE
        return raising_value_errors(partial(parse_file_size, least=least))(size)

    @field_validator("time_zone")
    @classmethod
    def _is_known_zone(cls, zone: str) -> str:
        if zone != "UTC" and zone not in zoneinfo.available_timezones():
            raise ValueError(f"{zone!r} is not an IANA time zone. {suggestion(zone, zoneinfo.available_timezones())}")
        return zone

    @field_validator("grace")
    @classmethod
    def _outlasts_clocks(cls, grace: timedelta) -> timedelta:
        if grace < _MIN_GRACE:
            raise ValueError(
                f"{duration_text(grace)} is shorter than {duration_text(_MIN_GRACE)}, "
                "by which the clocks of writers and store may differ"
            )
        return grace

    @field_validator(*_DATA_FIELDS)
    @classmethod
    def _has_rows_to_act_on(cls, value: Any, info: ValidationInfo) -> Any:
        default = cls.model_fields[str(info.field_name)].get_default(call_default_factory=True)
        if info.data.get("schema_only") and value != default:
            raise ValueError("has no effect with schema_only: true; remove one of the two")
        return value


def _is_windowed(query: str) -> bool:
    parsed = query_of("query", query)
    return parsed is not None and parsed.windowed


def _start_of_query(start: datetime | None, query: str) -> datetime | None:
    """Refuse a range of a query without windows, and windows without a start."""
    windowed = _is_windowed(query)
    if windowed and start is None:
        raise ValueError("is missing; the windows of :start and :end are counted from it")
    if start is not None and not windowed:
        raise ValueError("has no effect: the query does not name :start and :end. Name them, or remove it")
    return start


def _require_selected(tables: Iterable[TableName], schemas: Sequence[str], selected: Sequence[TableName]) -> None:
    """Refuse tables outside the selected schemas or tables."""
    for table in tables:
        if schemas and table.schema not in schemas:
            raise ValueError(f"{table_text(table)} lies outside schemas [{', '.join(schemas)}]; add {table.schema!r}")
        if selected and table not in selected:
            raise ValueError(f"{table_text(table)} is not among tables; add it there, or remove it here")
