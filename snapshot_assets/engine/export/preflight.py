"""Checks of a source before anything is written: all that prevents an export is reported at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.totals import outside_end, refuse_outside
from snapshot_assets.databases.protocol.query import is_query
from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import AllRows, Rows, SchemaSource, TimelessRows, WindowRows
from snapshot_assets.databases.selection.hidden import hides
from snapshot_assets.databases.selection.selection import suggestion
from snapshot_assets.engine.export.hidden_values import hiding_values
from snapshot_assets.engine.export.start_snapshot import closed_end, exported_schema
from snapshot_assets.engine.progress import Stage, silent
from snapshot_assets.errors import PlanError, UnknownRelationError
from snapshot_assets.format.actions import Header, RowsOutside
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import rule_of
from snapshot_assets.format.relations import DatabaseSchema
from snapshot_assets.format.windows import TimeRange
from snapshot_assets.plan.plan import Plan
from snapshot_assets.spans import span

_NO_END = datetime.max.replace(tzinfo=UTC)

Rest = tuple[Callable[[TimeRange | None], Plan], State | None]
"""Returns the plan with its range, from the earliest and latest time; and the existing snapshot, if there is one."""


def checked_schemas(
    source: SchemaSource, plan: Plan, rest: Rest | None = None, *, with_bounds: bool = False
) -> tuple[DatabaseSchema, DatabaseSchema]:
    """Return the source's schema, and the part of it that a plan exports.

    Args:
        source: The open source.
        plan: The plan.
        rest: What the rows are checked with; None to check no rows.
        with_bounds: Whether the plan's range needs the earliest and latest time of the source.

    Raises:
        SnapshotError: Something prevents the export; several things are one error, which lists all.
    """
    refusals = Refusals()
    with span("introspect"):
        extracted = exported = source.extract(plan.selection, refusals)
    undecided = [table for table in extracted.tables if table.table_name in refusals.undecided]
    with refusals.noting(but=UnknownRelationError):  # where names are wrong, it is no news that nothing is selected
        decided = tuple(table for table in extracted.tables if table not in undecided)
        if decided or not undecided:
            exported = exported_schema(plan, extracted.model_copy(update={"tables": decided}))
    if rest is not None:
        resolve, state = rest
        timed = tuple(table for table in exported.tables if table.time_index is not None)
        bounds = source.time_bounds(timed, plan.time_zone) if with_bounds else None
        checked = exported.model_copy(update={"tables": (*exported.tables, *undecided)})
        ranged = plan
        with refusals.noting():
            ranged = resolve(TimeRange(*bounds) if bounds else None)
        with span("check rows"):
            check_rows(source, ranged, checked, state, refusals)
    refusals.raise_any()
    return extracted, exported


def require_table_assets(plan: Plan, schema: DatabaseSchema) -> None:
    """Refuse names in `table_assets` of which no rows are exported.

    Raises:
        PlanError: The source has no such table, or the plan leaves it out.
    """
    listed, names = plan.dagster.table_assets, rule_of(schema)
    exported = [table.table_name for table in schema.tables]
    for name in listed if isinstance(listed, tuple) else ():
        if not any(names.same(name, table) for table in exported):
            raise PlanError(
                f"plan {plan.name!r}: table_assets has {name}, of which no rows are exported."
                f" {suggestion(str(name), [str(each) for each in exported])}"
            )


def check_rows(
    source: SchemaSource, plan: Plan, schema: DatabaseSchema, state: State | None, refusals: Refusals
) -> None:
    """Note the values of rows to export that cannot be exported, and rows outside the range if the plan forbids them.

    It reads the rows once, by one query for each table, except those of windows that are completed in `state`.
    """
    if plan.schema_only:
        return
    timed, untimed = list(_rows(plan, state)), _reads_untimed(plan, state)
    for table in schema.tables:
        rows: list[Rows] = timed if table.time_index is not None else [AllRows()] if untimed else []
        if rows and not is_query(table):
            with hiding_values(hides(plan.selection)):
                unfit = source.unfit(table, rows)
            for error in unfit:
                refusals.note(error)
    if plan.fail_on_rows_outside and plan.start_time is not None:
        end = None if plan.kind == "continuous" else plan.end_time
        outside = _count_outside(source, schema, plan.start_time, end, plan.time_zone, silent)
        with refusals.noting():
            refuse_outside(outside, plan.start_time, end)


def _rows(plan: Plan, state: State | None) -> Iterator[Rows]:
    """Yield the rows of timed tables that remain to be exported: those from the first missing window on.

    A plan has no range where the range of its rows was refused: then all rows are checked.
    """
    start, end = plan.start_time, plan.end_time
    if plan.kind == "continuous":
        end = closed_end(plan, datetime.now(UTC))
    if state is not None and state.header is not None:
        missing = [chunk for chunk in state.missing() if chunk != UNTIMED_CHUNK]
        start = state.window(missing[0]).start if missing else state.header.end
    elif start is None:
        yield AllRows()
        return
    if start is not None and end is not None and start < end:
        yield WindowRows(start, end, plan.time_zone)
    if _reads_untimed(plan, state) and plan.null_time == "chunk0":
        yield TimelessRows()


def _reads_untimed(plan: Plan, state: State | None) -> bool:
    return state is None or plan.kind == "continuous" or UNTIMED_CHUNK in state.missing()


def outside_of(
    source: SchemaSource, header: Header, schema: DatabaseSchema, *, refused: bool, stage: Stage = silent
) -> list[RowsOutside]:
    """Count the rows outside a snapshot's range, by table of the schema; `refused` if the plan allows none.

    Raises:
        RowsOutsideError: There are some, and the plan allows none.
    """
    if header.start is None or header.end is None or header.schema_only:
        return []
    end = outside_end(header)
    with span("count rows outside"):
        outside = _count_outside(source, schema, header.start, end, header.time_zone, stage)
    if refused:
        refuse_outside(outside, header.start, end)
    return outside


def _count_outside(
    source: SchemaSource,
    schema: DatabaseSchema,
    start: datetime,
    end: datetime | None,
    zone: str,
    stage: Stage,
) -> list[RowsOutside]:
    """Count the rows of timed tables before a range or after it, by table; without an end, those before it."""
    timed = [table for table in schema.tables if table.time_index is not None]
    outside = []
    for number, table in enumerate(timed, 1):
        if rows := source.count_outside(table, start, end or _NO_END, zone):
            outside.append(RowsOutside(table.schema_name, table.name, rows))
        stage("counting rows outside the range", number, len(timed))
    return outside
