"""The plan: everything that defines one dataset's snapshots, checked before anything runs.

A plan is written in `snapshots.yaml` (see `snapshot_assets.plan.read_configuration`) or built in Python. Both report
all mistakes at once:

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

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from snapshot_assets.errors import PlanError
from snapshot_assets.format.header import FileFormat
from snapshot_assets.format.units import MAX_FILE_SIZE, MIN_FILE_SIZE, MIN_TEXT_SIZE, duration_text, parse_file_size
from snapshot_assets.format.windows import Window, closed_count, plan_windows, window_at
from snapshot_assets.plan.dagster_fields import DagsterFields
from snapshot_assets.plan.fields import Duration, FileSize, FormatOptions
from snapshot_assets.plan.problems import plan_error, problems_of, raising_value_errors
from snapshot_assets.plan.query_fields import changes_with_time
from snapshot_assets.plan.range_fields import is_windowed
from snapshot_assets.plan.replica_fields import ReplicaFields
from snapshot_assets.plan.retention import RetentionFields
from snapshot_assets.plan.selection_fields import require_exported
from snapshot_assets.plan.source_fields import is_asset
from snapshot_assets.plan.spark_settings import SparkSettings

_MB = 1 << 20
MAX_PARALLELISM = 64
"""Most chunks that are processed in parallel."""
MAX_TASKS = 1024
"""Most tasks of a chunk."""
_MIN_GRACE = timedelta(minutes=10)  # clocks of writers and store may differ by five minutes either way

_NOT_OF_QUERIES = (
    "schema_only",
    "schemas",
    "tables",
    "exclude_tables",
    "time_zone",
    "time_columns",
    "null_time",
    "untimed_tables",
    "large_objects",
    "retention",
    "fail_on_rows_outside",
)

_NOT_OF_ASSETS = (
    "schemas",
    "tables",
    "exclude_tables",
    "carriers",
    "null_time",
    "untimed_tables",
    "large_objects",
    "fail_on_rows_outside",
    "late_windows",
    "chunks_per_run",
)

DATA_FIELDS = (
    "start_time",
    "end_time",
    "chunk_time_window",
    "lag",
    "late_windows",
    "fail_on_rows_outside",
    "parallelism",
    "parts_per_chunk",
    "format",
    "format_options",
    "max_file_size",
    "time_columns",
    "carriers",
    "null_time",
    "untimed_tables",
    "chunks_per_run",
)
"""Fields that have no effect on a plan without data; see `NO_DATA`."""
NO_DATA = "has no effect with schema_only: true; remove one of the two"


class Plan(ReplicaFields):
    """One dataset's plan: source, location, tables, range, windows, format and limits.

    Durations are written `90m`, `6h`, `7d`; sizes `256MiB`; times in RFC 3339 with a zone; tables `schema.table`.
    A contradiction between fields is reported with all other mistakes.

    Raises:
        PlanError: A field is wrong; `attributes["problems"]` lists every mistake.
    """

    spark: SparkSettings = Field(
        default_factory=dict,
        exclude=True,
        repr=False,
        description="Settings of the Spark session, which override those of the configuration.",
        examples=["{master: spark://host:7077, spark.executor.memory: 4g}"],
    )
    parallelism: int | None = Field(
        None, ge=1, le=MAX_PARALLELISM, description="Chunks processed in parallel; null for Spark's cores, at most 8."
    )
    parts_per_chunk: int | None = Field(
        None, ge=1, le=MAX_TASKS, description="Most tasks that read a table's part of a chunk; null for Spark's cores."
    )
    import_slots: int | None = Field(
        None, ge=1, le=MAX_TASKS, description="Most tasks that load a chunk; null for Spark's cores."
    )
    with_code: bool = Field(
        False,
        description="Whether restores create functions, triggers, rules, policies and other code too: SQL that runs.",
    )
    format: Literal["parquet", "csv", "json"] = Field("parquet", description="Format of the data files.")
    format_options: FormatOptions = Field(
        default_factory=FormatOptions,
        description="How csv and json files are written.",
        examples=["{header: true, delimiter: ';', compression: zstd}"],
    )
    max_file_size: FileSize = Field(
        256 * _MB, description="Size at which a data file is closed: from 16MiB, csv and json from 64KiB."
    )
    seal_verify: Literal["new", "full"] = Field(
        "new", description="What a seal hashes: files no earlier seal verified (if none, up to 1 GiB), or all."
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
    dagster: DagsterFields = Field(
        default_factory=DagsterFields,
        description="How Dagster shows and automates the plan's assets.",
        examples=["{group: finance, owners: [team:data], default_status: running}"],
    )

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            problems = problems_of(error, type(self), secret=("source", "target", "scratch", "storage", "spark"))
            raise plan_error(f"plan {fields.get('name', '(without name)')!r}", problems) from None

    @property
    def file_format(self) -> FileFormat:
        """The format of the data files, with its options."""
        return self.format_options.of(self.format)

    @property
    def file_size(self) -> int:
        """Bytes at which a data file is closed."""
        return MAX_FILE_SIZE if self.single_file else self.max_file_size

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

    @classmethod
    def _is_given(cls, value: Any, info: ValidationInfo) -> bool:
        """Return whether a field has another value than its default."""
        return bool(value != cls.model_fields[str(info.field_name)].get_default(call_default_factory=True))

    @field_validator(*_NOT_OF_QUERIES)
    @classmethod
    def _has_tables_to_act_on(cls, value: Any, info: ValidationInfo) -> Any:
        if info.data.get("kind") == "query" and cls._is_given(value, info):
            raise ValueError("has no effect with kind: query, which copies one query; remove it")
        return value

    @field_validator(*_NOT_OF_ASSETS)
    @classmethod
    def _acts_on_a_database(cls, value: Any, info: ValidationInfo) -> Any:
        if is_asset(info.data.get("source")) and cls._is_given(value, info):
            raise ValueError("has no effect on the DataFrames of a Dagster asset; remove it")
        return value

    @field_validator("dagster")
    @classmethod
    def _has_databases_to_restore_into(cls, dagster: DagsterFields, info: ValidationInfo) -> DagsterFields:
        if dagster.restore_on is not None and info.data.get("target") is None:
            raise ValueError("restore_on needs a target to restore into; write target, or remove it")
        own = "/".join((*dagster.key_prefix, info.data.get("name", "")))
        if dagster.restore_on in (f"{own}/restored", f"{own}/target"):
            raise ValueError(
                f"restore_on: {dagster.restore_on} is what a restore makes; write sealed, or another asset"
            )
        if dagster.drill_cron is not None and info.data.get("scratch") is None:
            raise ValueError("drill_cron needs a scratch database, for a drill; write scratch, or remove it")
        return dagster

    @field_validator("dagster")
    @classmethod
    def _has_effects(cls, dagster: DagsterFields, info: ValidationInfo) -> DagsterFields:
        if (query := info.data.get("query")) is not None:
            dagster.refuse_for_query(scheduled=is_windowed(query) and not changes_with_time(info.data.get("to", "")))
        if dagster.automation and info.data.get("late_windows"):
            raise ValueError(
                "automation: true exports no late_windows again; remove automation and turn the export schedule on,"
                " which does, or remove late_windows and let windows wait with lag"
            )
        return dagster

    @field_validator("dagster")
    @classmethod
    def _has_tables_to_show(cls, dagster: DagsterFields, info: ValidationInfo) -> DagsterFields:
        wanted = dagster.table_assets
        if not wanted:
            return dagster
        if info.data.get("schema_only"):
            raise ValueError("table_assets has no effect with schema_only: true; remove it")
        if wanted is True and not info.data.get("tables"):
            raise ValueError(
                "table_assets: true needs the names of the tables, for which definitions do not ask the source; write"
                " table_assets: [schema.table, …], or list them in tables"
            )
        require_exported(wanted if isinstance(wanted, tuple) else (), info)
        return dagster

    @field_validator(*DATA_FIELDS)
    @classmethod
    def _has_rows_to_act_on(cls, value: Any, info: ValidationInfo) -> Any:
        if info.data.get("schema_only") and cls._is_given(value, info):
            raise ValueError(NO_DATA)
        return value

    @field_validator("format_options")
    @classmethod
    def _are_of_the_format(cls, options: FormatOptions, info: ValidationInfo) -> FormatOptions:
        if "format" in info.data:
            raising_value_errors(lambda name: options.of(name).check())(info.data["format"])
        return options

    @field_validator("max_file_size")
    @classmethod
    def _suits_the_format(cls, size: int, info: ValidationInfo) -> int:
        least = MIN_FILE_SIZE if info.data.get("format", "parquet") == "parquet" else MIN_TEXT_SIZE
        size = raising_value_errors(partial(parse_file_size, least=least))(size)
        if info.data.get("single_file"):
            raise ValueError("has no effect with single_file: true, whose file has up to 4GiB; remove one of them")
        return size

    @field_validator("grace")
    @classmethod
    def _outlasts_clocks(cls, grace: timedelta) -> timedelta:
        if grace < _MIN_GRACE:
            raise ValueError(
                f"{duration_text(grace)} is shorter than {duration_text(_MIN_GRACE)}, "
                "by which the clocks of writers and store may differ"
            )
        return grace


def require_range(plan: Plan) -> None:
    """Refuse a plan whose windows are unknown when Dagster loads its definitions.

    Raises:
        PlanError: `start_time` is missing, or `end_time` of a plan that is not continuous.
    """
    if plan.schema_only or not plan.windowed:
        return
    missing = [name for name in ("start_time", "end_time") if getattr(plan, name) is None]
    if plan.range_kind == "continuous":
        missing.remove("end_time")
    if missing:
        known = "" if plan.source_asset else ". Only the command line resolves an open range"
        raise PlanError(
            f"plan {plan.name!r} has no {' and no '.join(missing)}, which its Dagster partitions need; give the range, "
            f"or kind: continuous with a start_time{known}"
        )


def windows_of(plan: Plan, now: datetime | None = None) -> tuple[Window, ...]:
    """Return the plan's windows in order; for a continuous plan, the closed ones.

    Args:
        plan: A plan that `require_range` accepts.
        now: The current time, for a continuous plan; by default the clock's.

    Raises:
        PlanError: The plan omits an end of its range.
    """
    require_range(plan)
    if plan.start_time is None:
        return ()
    if plan.end_time is None:
        closed = closed_count(plan.start_time, plan.chunk_time_window, now or datetime.now(UTC), plan.lag)
        return tuple(window_at(plan.start_time, plan.chunk_time_window, index) for index in range(1, closed + 1))
    return plan_windows(plan.start_time, plan.end_time, plan.chunk_time_window)
