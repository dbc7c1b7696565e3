"""Starts a snapshot, or resumes one: its header, schema documents and range."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.manifest import write_hints
from snapshot_assets.catalog.schemas import describe_schema, read_schema, write_documents
from snapshot_assets.databases.protocol.source import DatabaseAddress, SchemaSource, Selection
from snapshot_assets.databases.sql import qualified
from snapshot_assets.errors import PlanError, SnapshotExistsError, UnknownRelationError
from snapshot_assets.format.actions import Header
from snapshot_assets.format.names import ColumnPath, Spellings, column_text, rule_of, table_of, table_text
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets.format.units import counted, time_text
from snapshot_assets.format.windows import TimeRange, Window, closed_count, window_at
from snapshot_assets.plan.plan import Plan

_MICROSECOND = timedelta(microseconds=1)


def exported_schema(plan: Plan, schema: DatabaseSchema) -> DatabaseSchema:
    """Apply the plan's rule for untimed tables to the source's schema.

    Raises:
        PlanError: There are untimed tables, and the plan has `untimed_tables: fail`; or a copied table has no columns.
        UnknownRelationError: The plan selects nothing.
        UnsupportedTypeError: A column's values cannot name folders; see `check_partition_columns`.
    """
    from snapshot_assets.engine.files.write import check_partition_columns

    untimed = [table for table in schema.tables if table.time_index is None]
    if untimed and plan.untimed_tables == "fail":
        names = ", ".join(str(table.table_name) for table in untimed)
        raise PlanError(
            f"untimed_tables is fail, and these tables have no time index: {names}. Name one under time_columns, or "
            "write untimed_tables: export (each goes whole into chunk 0) or skip."
        )
    exported = tuple(table for table in schema.tables if table.time_index or plan.untimed_tables == "export")
    if not exported and not schema.views:
        raise UnknownRelationError("The plan selects no table of the source; check schemas, tables and exclude_tables.")
    for table in exported:
        if plan.kind == "query" and not table.columns:
            raise PlanError(f"{table.table_name} has no columns, so its rows hold nothing that files could keep.")
    for table in exported if plan.partition_by else ():
        check_partition_columns(table, partition_columns(plan, table, schema))
    return schema.model_copy(update={"tables": exported})


def partition_columns(plan: Plan, table: Table, schema: DatabaseSchema) -> tuple[str, ...]:
    """Return the columns whose values name folders, as a table of a schema spells them."""
    spellings = Spellings(rule_of(schema), (column.name for column in table.columns))
    return tuple(map(spellings.of, plan.partition_by))


def spelled_plan(plan: Plan, source: SchemaSource, schema: DatabaseSchema) -> Plan:
    """Return a plan that the source accepts, with names of schemas, tables and columns as the source spells them."""
    fields = _spelled_fields(plan, source.spelled(plan.selection))
    if plan.partition_by:
        [table] = schema.tables
        fields["partition_by"] = partition_columns(plan, table, schema)
    return plan.changed(**fields) if fields else plan


def _spelled_fields(plan: Plan, selection: Selection) -> dict[str, Any]:
    """Return the fields whose names a selection, the plan's in the catalog's spelling, has in another spelling."""
    fields: dict[str, Any] = {
        "exclude_columns": tuple(sorted(ColumnPath(*path) for path in selection.exclude_columns)),
        "mask": {ColumnPath(*path): sql for path, sql in sorted(selection.masks.items())},
        "carriers": {ColumnPath(*path): carrier for path, carrier in selection.carriers.items()},
    }
    if plan.query is None:
        fields |= {
            "schemas": tuple(sorted(selection.schemas)),
            "tables": tuple(sorted(selection.tables)),
            "time_columns": dict(selection.time_columns),
            "exclude_tables": tuple(sorted(selection.exclude_tables)),
        }
    elif selection.tables and selection.tables[0] != table_of(plan.query):
        plain = table_text(selection.tables[0])
        fields["query"] = plain if table_of(plain) == selection.tables[0] else qualified(selection.tables[0])
    return {name: value for name, value in fields.items() if value != getattr(plan, name)}


def skipped_tables(plan: Plan, schema: DatabaseSchema) -> tuple[TableName, ...]:
    """Return the tables of the source that the plan's rule for untimed tables leaves out."""
    if plan.untimed_tables != "skip":
        return ()
    return tuple(table.table_name for table in schema.tables if table.time_index is None)


def skipped_text(tables: Sequence[TableName]) -> str:
    """Return a sentence that names the skipped tables."""
    named = ", ".join(map(table_text, tables))
    return f"not exported, without a time index (untimed_tables: skip): {named}"


def header_of(plan: Plan, schemas: Sequence[str], source: DatabaseAddress, written: Plan, now: datetime) -> Header:
    """Return the header of a snapshot that a plan starts.

    Its range is resolved in the plan, and not in the `written` one; `now` decides on the last closed window.
    """
    end = plan.end_time if plan.range_kind == "once" else closed_end(plan, now)
    by_windows = bool(plan.source_asset) or (plan.kind == "query" and plan.windowed)  # then there is no chunk 0
    return Header(
        name=plan.name,
        source=source.alias,
        catalog=plan.catalog or "",
        schemas=tuple(schemas),
        start=plan.start_time,
        end=end,
        chunk_time_window=plan.chunk_time_window // _MICROSECOND,
        kind=plan.range_kind,
        format=plan.file_format.text(),
        schema_only=plan.schema_only,
        time_zone=plan.time_zone,
        null_time="fail" if by_windows else plan.null_time,
        untimed_tables="skip" if by_windows else plan.untimed_tables,
        grace=plan.grace // _MICROSECOND,
        requested_schemas=tuple(sorted(plan.schemas)),
        requested_tables=tuple(sorted(map(table_text, plan.tables))),
        query=plan.query or "",
        partition_by=plan.partition_by,
        single_file=plan.single_file,
        manifest=plan.manifest,
        requested_start=time_text(written.start_time) if written.start_time else "",
        requested_end=time_text(written.end_time) if written.end_time else "",
        exclude_tables=plan.exclude_tables,
        exclude_columns=tuple(sorted(map(column_text, plan.exclude_columns))),
        mask={column_text(column): sql for column, sql in plan.mask.items()},
        encoding=source.encoding or "",
    )


def closed_end(plan: Plan, now: datetime) -> datetime | None:
    """Return the end of a continuous plan's last closed window; None if no window has closed."""
    if plan.start_time is None:
        return None
    count = closed_count(plan.start_time, plan.chunk_time_window, now, plan.lag)
    return window_at(plan.start_time, plan.chunk_time_window, count).end if count else None


def next_export(plan: Plan, exported_until: datetime | None) -> datetime | None:
    """Return from when on a continuous plan's next window can be exported; None if that is after the year 9999."""
    start = exported_until or plan.start_time
    assert start is not None
    try:
        return start + plan.chunk_time_window + plan.lag
    except OverflowError:
        return None


def open_windows_text(windows: Iterable[Window], now: datetime) -> str | None:
    """Return a sentence that names the windows of a fixed range, in order, that have not closed; None if all have."""
    still_open = [window for window in windows if window.end > now]
    if not still_open:
        return None
    return (
        f"Not closed yet: {counted(len(still_open), 'window')}, {time_text(still_open[0].start)} to"
        f" {time_text(still_open[-1].end)}. Rows that come later are not in the snapshot until these windows are"
        " exported again with replace. With kind: continuous, windows are exported once they close."
    )


def start_snapshot(
    catalog: Catalog, header: Header, schema: DatabaseSchema, *, force: bool = False, fixed_tables: bool = False
) -> rules.SchemaContent:
    """Start the snapshot, or extend and complete the existing one; `force` starts another in its place.

    `fixed_tables` refuses tables other than those of the finished chunks.

    Returns:
        The schema's documents, which the log now names.

    Raises:
        SnapshotExistsError: A snapshot of another plan exists, or tables or time indexes differ from those of finished
            chunks; nothing was written.
    """
    names = rule_of(schema)
    content, files = describe_schema(schema)
    if catalog.state.header is not None and not force:
        rules.check_same_plan(catalog.state.header, header, names)
        if rules.schema_id_of(catalog.state, content) != catalog.state.schema_id:
            _check_same_cut(catalog, schema, fixed_tables)
    committed = rules.schema_id_of(catalog.state, content) is not None
    write_documents(catalog.store, files, known=committed)
    revision = catalog.commit(rules.begin(header, content, force=force, names=names))
    token = catalog.token()
    added = catalog.commit(rules.add_schema(token, content))
    if not committed and (revision or added):  # until the log names them, they can be collected as garbage
        write_documents(catalog.store, files, known=True)
    if header.kind == "continuous" and header.end is not None:
        catalog.commit(rules.extend(token, header.end))
    if revision is not None:
        write_hints(catalog.store, catalog.state, catalog.refresh)
    return content


def _check_same_cut(catalog: Catalog, schema: DatabaseSchema, fixed_tables: bool) -> None:
    """Refuse a time index or tables that differ from those of finished chunks: rows would be lost."""
    state = catalog.state
    if not any(state.completed(chunk) for chunk in state.chunks):
        return
    before = {t.table_name: t.time_index for t in read_schema(catalog.store, state.schemas[state.schema_id]).tables}
    after = {t.table_name: t.time_index for t in schema.tables}
    different = [
        f"the time index of {name} is {before[name] or 'none'} there and {after[name] or 'none'} here"
        for name in sorted(set(before) & set(after))
        if before[name] != after[name]
    ]
    spellings = Spellings(rule_of(schema), after)
    renamed = {name: new for name in sorted(before) if (new := spellings.of(name)) != name}
    different += [f"{name} there is {new} here, one table in two spellings" for name, new in renamed.items()]
    if fixed_tables:
        different += [f"{name} is not in the snapshot" for name in sorted(set(after) - set(before))]
        different += [f"{name} is not in the source" for name in sorted(set(before) - set(after))]
    if different:
        raise SnapshotExistsError(
            f"The source no longer fits the finished chunks: {'; '.join(different)}. Restore tables and time_columns "
            "as they were, or give --force to start a new snapshot.",
            different=different,
        )


def resolve_range(plan: Plan, existing: Header | None, bounds: TimeRange | None, now: datetime) -> Plan:
    """Fill in the ends that a plan omits: from the existing snapshot, else from the source and the clock.

    `bounds` are the earliest and latest time in the source; None if it has no timed row.

    Returns:
        The plan with both ends. For a source without timed rows, the range is the second before `now`.
    """
    second = timedelta(seconds=1)
    if existing is not None and existing.kind == "once" and existing.start and existing.end:
        return plan.resolved(existing.start, existing.end)
    this_second = now.replace(microsecond=0)
    start = bounds.start.replace(microsecond=0) if bounds else this_second
    return plan.resolved(start, max(this_second, start) + second)
