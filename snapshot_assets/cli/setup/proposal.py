"""Proposes a plan for a database: what a first export would refuse is settled, table by table.

A refusal names its table or column. It becomes a field of the plan, and the source is asked again, until it refuses
nothing. The range and the length of its windows are proposed so that chunks have a sensible size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from typing import Any, NamedTuple

from snapshot_assets.cli.setup.estimates import EstimatedTable, estimated
from snapshot_assets.databases.protocol.refusals import Refusals
from snapshot_assets.databases.protocol.source import SchemaSource
from snapshot_assets.engine.export.preflight import check_rows, checked_schemas
from snapshot_assets.errors import (
    AmbiguousTimeIndexError,
    CarrierError,
    DatabaseDeniedError,
    SnapshotError,
    UnknownRelationError,
    UnsupportedTypeError,
)
from snapshot_assets.format.name_texts import written_name
from snapshot_assets.format.names import column_text, parse_column, parse_table, table_text
from snapshot_assets.format.relations import DatabaseSchema, Table
from snapshot_assets.format.units import counted, noun, time_text
from snapshot_assets.format.windows import TimeRange
from snapshot_assets.plan.plan import Plan

CHUNK_BYTES = 512 << 20
"""Bytes of a chunk in the source: some seconds of work, so that a retry or an interruption loses little."""
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_LENGTHS = (
    *(hours * _HOUR for hours in (1, 2, 3, 6, 12)),
    *(days * _DAY for days in (1, 7, 30, 90, 365, 3650, 36_500, 3_650_000)),
)
_MOST_WINDOWS = 2000
_OUTLIERS = 0.01
_HALVINGS = 30
_BEFORE_NOW, _AFTER_NOW = 36_500 * _DAY, 3_650 * _DAY
"""Where the times of a table's rows usually lie; 0001-01-01 and 9999-12-31 mostly stand for a time that is unknown."""
_FEW = 0.1
"""Share of a table's rows that may lie elsewhere without a window of their own."""

Estimate = Callable[[datetime, datetime], int]
"""Returns the estimated bytes of the rows of a range."""


class Windows(NamedTuple):
    """A range, its windows' length, and the estimated bytes of all rows in it."""

    start: datetime
    end: datetime
    length: timedelta
    bytes: int


def propose_windows(bounds: TimeRange | None, estimate: Estimate, now: datetime, *, continuous: bool) -> Windows:
    """Return windows of about `CHUNK_BYTES` each.

    Args:
        bounds: Earliest and latest time of the source's rows; None if there are none.
        estimate: Estimates the rows of a range.
        now: The current time.
        continuous: Whether new windows are exported as they close, which should happen each day.
    """
    if bounds is None:
        today = _floor(now, _DAY)
        return Windows(today - _DAY, today, _DAY, 0)  # a window that has closed
    start, end = bounds.start, _later(bounds.end, timedelta(microseconds=1))
    if start.year == MINYEAR:  # sources move the bounds by days at the ends of Python's range
        start = datetime.min.replace(tzinfo=UTC)
    if end.year == MAXYEAR:
        end = datetime.max.replace(tzinfo=UTC)
    size = estimate(start, end)
    low, high = start, end  # the part with nearly all rows: some rows may have times such as 1970 or 9999
    for _ in range(_HALVINGS if size > CHUNK_BYTES else 0):
        middle = low + (high - low) / 2
        if estimate(low, middle) < _OUTLIERS * size:
            low = middle
        elif estimate(middle, high) < _OUTLIERS * size:
            high = middle
        else:
            break
    ideal = (high - low) / max(1, -(-size // CHUNK_BYTES))
    until = max(end, now) if continuous else end
    fitting = [each for each in _LENGTHS if (until - start) / each <= _MOST_WINDOWS]
    wanted = min(ideal, _DAY) if continuous else ideal
    length = max((each for each in fitting if each <= wanted), default=fitting[0])
    unit = min(length, _DAY)
    last = _floor(end, unit)
    return Windows(_floor(start, unit), last if last == end else _later(last, unit), length, size)


def _floor(moment: datetime, unit: timedelta) -> datetime:
    """Return the last multiple of a unit since midnight that is not after a moment."""
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + (moment - midnight) // unit * unit


def _later(moment: datetime, by: timedelta) -> datetime:
    try:
        return moment + by
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


_ROUNDS = 20
_LARGE_OBJECTS = "large_objects"
"""Option of the table that stands for PostgreSQL's large objects, and does not exist."""
_FIRST = re.compile(
    "creat|insert|event|occur|record|order|moment|measur|logged|added|start|begin|^ts$|^time", re.IGNORECASE
)
_CHANGES = re.compile(
    "updat|modif|chang|edit|delet|remov|expir|end|finish|clos|until|due|last|ship|deliver|seen", re.IGNORECASE
)
_UPDATED = re.compile("updat|modif|(?<!ex)chang|(?:^|_)last|(?:^|_)edit", re.IGNORECASE)
"""Names of columns that a trigger or the application usually sets at each update, which moves the row."""


@dataclass
class Proposal:
    """A plan, and why it is as it is.

    Attributes:
        plan: The plan.
        reasons: A remark on a field's entry, by field and key; the keys of lists are their values.
        tables: The exported tables, with estimated sizes.
        windows: The range and its windows.
        note: What the range leaves out, or that it divides nothing; "" if it holds all timed rows.
    """

    plan: Plan
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)
    tables: list[EstimatedTable] = field(default_factory=list)
    windows: Windows | None = None
    note: str = ""

    def add(self, name: str, key: Any, value: Any, shown: str, reason: str) -> None:
        """Add an entry to a field of the plan."""
        given = getattr(self.plan, name)
        entries = {**given, key: value} if isinstance(given, dict) else (*given, key)
        self.plan = self.plan.changed(**{name: entries})
        self.reasons[name, shown] = reason


def propose(source: SchemaSource, plan: Plan, now: datetime) -> Proposal:
    """Return a plan that exports a source without refusals.

    Args:
        source: The open source.
        plan: The plan so far: its name, source, location and kind, and for a continuous one any start.
        now: The current time.

    Raises:
        SnapshotError: The source refuses something that no field of a plan settles.
    """
    found = Proposal(plan)
    schema = _settled(found, lambda refusals: source.extract(found.plan.selection, refusals))
    schema = _without_updated(source, found, schema)
    schema = _with_dates(source, found, schema)
    _propose_range(source, found, schema, now)

    def check(refusals: Refusals) -> DatabaseSchema:
        schema = source.extract(found.plan.selection, refusals)
        check_rows(source, found.plan, schema, None, refusals)
        return schema

    schema = _settled(found, check)
    chosen = found.plan.time_columns
    named = [table for table in schema.tables if _LARGE_OBJECTS not in table.options]
    for table in named:
        found.reasons.setdefault(("time_columns", table_text(table.table_name)), _usual_reason(table))
    times = {table.table_name: table.time_index for table in named if table.table_name not in chosen}
    found.plan = found.plan.changed(time_columns=dict(chosen) | times)
    checked_schemas(source, found.plan)
    found.tables = [estimated(source, found.plan, each, found.windows and found.windows.end) for each in schema.tables]
    return found


def _settled(found: Proposal, ask: Callable[[Refusals], DatabaseSchema]) -> DatabaseSchema:
    """Ask until nothing is refused, and add a field to the plan for each refusal."""
    for _ in range(_ROUNDS):
        refusals = Refusals()
        schema = ask(refusals)
        if not refusals.errors:
            return schema
        tables = {table_text(table.table_name): table for table in schema.tables}
        for error in refusals.errors:
            _settle(found, error, tables)
    refusals.raise_any()
    return schema


def _settle(found: Proposal, error: SnapshotError, tables: dict[str, Table]) -> None:
    """Add the field that settles a refusal; raises the error if none does."""
    facts = error.attributes
    table = tables.get(str(facts.get("table", "")))
    match error:
        case AmbiguousTimeIndexError() if table is not None:
            chosen, others = best_time_column(table, facts["candidates"])
            if _UPDATED.search(chosen):
                _add_untimed(found, table, f"{others} change")
            else:
                reason = f"chosen by its name among {others}; another of them may be right"
                found.add("time_columns", table.table_name, chosen, table_text(table.table_name), reason)
        case UnsupportedTypeError() if "column" in facts:
            path = parse_column(facts["column"])
            reason = f"left out: its type {facts['type']} cannot be exported"
            found.add("exclude_columns", path, None, column_text(path), reason)
        case CarrierError():
            path = parse_column(facts["column"])
            reason = "as text, because it holds values that the native carrier cannot hold"
            found.add("carriers", path, "text", column_text(path), reason)
        case DatabaseDeniedError() if "table" in facts:
            _leave_out(found, facts["table"], tables, "left out: this user may not read it")
        case _ if table is not None and not table.columns:
            _leave_out(found, facts["table"], tables, "left out: it has no columns")
        case _:
            raise error


def _leave_out(found: Proposal, name: str, tables: dict[str, Table], reason: str) -> None:
    table = tables.get(name)
    path = table.table_name if table is not None else parse_table(name)
    found.add("exclude_tables", written_name(*path), None, written_name(*path), reason)


def best_time_column(table: Table, candidates: Iterable[str]) -> tuple[str, str]:
    """Return the column that most likely holds the time at which a row came into being, and all candidates as text.

    Such a time does not change afterwards, so that no row moves to another window.
    """
    names = tuple(candidates)
    leading = {each.columns[0] for each in table.indexes if each.columns}
    if table.primary_key is not None and table.primary_key.columns:
        leading.add(table.primary_key.columns[0])

    def rank(name: str) -> int:
        column = table.column(name)
        named = 4 * bool(_FIRST.search(name)) - 4 * bool(_CHANGES.search(name))
        return named + 2 * (not column.nullable) + (name in leading)

    return max(names, key=rank), ", ".join(names)


def _without_updated(source: SchemaSource, found: Proposal, schema: DatabaseSchema) -> DatabaseSchema:
    """Export tables untimed whose only timestamp changes with the row; a hypertable is divided by its own."""
    changed = False
    for table in schema.tables:
        name, chosen = table.time_index, table.table_name in found.plan.time_columns
        if name is not None and not chosen and not table.options.get("hypertable") and _UPDATED.search(name):
            _add_untimed(found, table, f"its only timestamp column {name} changes")
            changed = True
    return source.extract(found.plan.selection) if changed else schema


def _add_untimed(found: Proposal, table: Table, which: str) -> None:
    reason = f"{which} when a row is updated, by the name: chunk 0; name the column if it never changes"
    found.add("time_columns", table.table_name, None, table_text(table.table_name), reason)


def _with_dates(source: SchemaSource, found: Proposal, schema: DatabaseSchema) -> DatabaseSchema:
    """Let large tables without a timestamp have a date as their time index, if they have one."""
    changed = False
    for table in schema.tables:
        dates = [column.name for column in table.columns if column.type.lower() == "date"]
        if table.time_index is not None or not dates or table.table_name in found.plan.time_columns:
            continue
        if (estimated(source, found.plan, table, None).bytes or 0) > CHUNK_BYTES:
            chosen, others = best_time_column(table, dates)
            reason = f"a large table without a timestamp; its dates: {others}"
            found.add("time_columns", table.table_name, chosen, table_text(table.table_name), reason)
            changed = True
    return source.extract(found.plan.selection) if changed else schema


def _propose_range(source: SchemaSource, found: Proposal, schema: DatabaseSchema, now: datetime) -> None:
    timed = tuple(table for table in schema.tables if table.time_index is not None)
    if not schema.tables and not schema.views:
        raise UnknownRelationError("The source has no table that this user can export; nothing was written.")
    near = TimeRange(now - _BEFORE_NOW, now + _AFTER_NOW)
    few = [table for table in timed if _few_outside(source, table, near)]
    ends = [source.time_bounds((table,), within=near if table in few else None) for table in timed]
    known = [each for each in ends if each is not None]
    bounds = TimeRange(min(start for start, _ in known), max(end for _, end in known)) if known else None

    def estimate(start: datetime, end: datetime) -> int:
        plan = found.plan.changed(start_time=start)
        return sum(estimated(source, plan, table, end).bytes or 0 for table in timed)

    continuous = found.plan.kind == "continuous"
    windows = propose_windows(bounds, estimate, now, continuous=continuous)
    found.windows = windows
    if bounds is None:
        found.note = "No row has a time, so the range divides nothing: all rows are in chunk 0."
    left = {table.table_name: source.count_outside(table, windows.start, windows.end) for table in few}
    if rows := sum(left.values()):
        named = ", ".join(f"{name} {count:,}" for name, count in left.items() if count)
        found.note = (
            f"{counted(rows, 'row')} {noun(rows, 'has a time', 'have times')} outside {time_text(windows.start)} …"
            f" {time_text(windows.end)}, far from all others ({named}). The proposed range leaves them out, and exports"
            " report them; to export them, widen the range, or write the table's time column as null."
        )
    end = {} if continuous else {"end_time": windows.end}
    found.plan = found.plan.changed(start_time=windows.start, chunk_time_window=windows.length, **end)


def _few_outside(source: SchemaSource, table: Table, near: TimeRange) -> bool:
    """Return whether some of a table's rows have times outside a range, but few of all."""
    outside = source.count_outside(table, *near)
    return outside > 0 and outside <= _FEW * source.count_outside(table, near.start, near.start)


def _usual_reason(table: Table) -> str:
    if table.time_index is not None:
        return "the time column that partitions it" if table.options.get("hypertable") else "its only timestamp column"
    dates = [column.name for column in table.columns if column.type.lower() == "date"]
    return f"no timestamp: whole in chunk 0; it has dates: {', '.join(dates)}" if dates else "no timestamp: chunk 0"
