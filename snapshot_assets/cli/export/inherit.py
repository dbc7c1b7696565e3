"""Fields of a plan that a call of `snapshots export create` leaves to the snapshot that it resumes."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.cli.location import place_of
from snapshot_assets.errors import DamageError, ObjectNotFoundError, PlanError, SnapshotExistsError
from snapshot_assets.format.actions import Header
from snapshot_assets.format.header import FileFormat
from snapshot_assets.format.names import ColumnPath, Spellings, column_text, rule_of, table_text
from snapshot_assets.format.relations import Carrier, DatabaseSchema
from snapshot_assets.plan.read_configuration import Needed, load_configuration


def with_inherited(options: argparse.Namespace, given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the plan that a call gives, and those of the snapshot at `--to` that it does not give.

    A field that differs from the snapshot's is refused later; see `check_same_plan`.

    Args:
        options: The call.
        given: Fields of the plan that the call gives.

    Raises:
        PlanError: The snapshot is continuous, and the call gives no start; or it names no source, and the
            configuration does not have the snapshot's.
        SnapshotExistsError: A time column, a carrier, or `--schema-only`, differs from the snapshot's.
    """
    if "to" not in given or options.plan is not None or options.force:
        return given
    store = place_of(options).store()
    state = Catalog.open(store).state
    if state.header is None or state.header.query or state.deleted:
        return given
    if state.header.kind == "continuous" and "start_time" not in given:
        raise PlanError(
            f"The snapshot at {store.uri} is continuous: only its plan has the lag, which decides how far it goes on."
            " Give --plan NAME; or, if no plan exports it, all options of the call that began it, with --start-time."
        )
    if "source" not in given:
        _check_source(options, state.header.source, store.uri)
    fields = _fields(state.header)
    if state.header.schema_only:
        return fields | given
    if given.get("schema_only"):
        raise SnapshotExistsError(
            f"The snapshot at {store.uri} has data, and --schema-only is given. Leave it out, choose another location,"
            " or give --force to replace the snapshot by a new one.",
            fields=["schema_only"],
        )
    written, default = FileFormat.parse(state.header.format), vars(FileFormat())
    fields["format_options"] = {
        name: value for name, value in vars(written).items() if name != "name" and value != default[name]
    }
    try:
        schema = read_schema(store, state.schemas[state.schema_id])
    except (DamageError, ObjectNotFoundError):  # the export writes it again, from what the call gives
        return fields | given
    time_columns = _time_columns(schema, given)
    if given.get("format", fields["format"]) != fields["format"]:
        fields["format_options"] = {}
    merged = {
        "time_columns": time_columns,
        "carriers": _carriers(schema, given),
        "format_options": fields["format_options"] | given.get("format_options", {}),
    }
    return fields | given | {name: value for name, value in merged.items() if value}


def _fields(header: Header) -> dict[str, Any]:
    fields = {
        "name": header.name,
        "source": header.source,
        "catalog": header.catalog or None,
        "kind": header.kind,
        "schemas": header.requested_schemas,
        "tables": header.requested_tables,
        "exclude_tables": header.exclude_tables,
        "exclude_columns": header.exclude_columns,
        "mask": dict(header.mask),
        "schema_only": header.schema_only,
        "time_zone": header.time_zone,
        "grace": timedelta(microseconds=header.grace),
    }
    if not header.schema_only:  # a plan without data may not have these
        fields |= {
            "start_time": header.requested_start,
            "end_time": header.requested_end,
            "chunk_time_window": timedelta(microseconds=header.chunk_time_window),
            "format": FileFormat.parse(header.format).name,
            "null_time": header.null_time,
            "untimed_tables": header.untimed_tables,
        }
    return {name: value for name, value in fields.items() if value}


def _time_columns(schema: DatabaseSchema, given: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the time columns that a call gives, and of the snapshot's other tables, or those that a call selects.

    They name tables as the snapshot does.

    Raises:
        SnapshotExistsError: The call gives a table another time column.
    """
    own = {each.name for each in schema.schemas}  # large objects are a table of no schema
    found = {table_text(each.table_name): each.time_index for each in schema.tables if each.schema_name in own}
    names = rule_of(schema)
    spellings = Spellings(names, found)
    selected = None if given.get("tables") is None else set(map(spellings.of, given["tables"]))
    there = {name: column for name, column in found.items() if selected is None or name in selected}
    here = {spellings.of(name): column for name, column in given.get("time_columns", {}).items()}
    for name, column in here.items():
        if name in there and not names.same(there[name] or "", column or ""):
            raise SnapshotExistsError(
                f"The location holds a snapshot in which the time column of {name} is {there[name] or 'null'}, and it"
                f" is {column or 'null'} here. Leave --time-column out, choose another location, or give --force to"
                " replace the snapshot by a new one.",
                fields=["time_columns"],
            )
    return there | here


def _carriers(schema: DatabaseSchema, given: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns of a snapshot's tables that travel as text, of those only that a call selects.

    Raises:
        SnapshotExistsError: The call gives a column another carrier.
    """
    spellings = Spellings(rule_of(schema), (table_text(each.table_name) for each in schema.tables))
    selected = None if given.get("tables") is None else set(map(spellings.of, given["tables"]))
    paths = {
        column_text(ColumnPath(table.table_name, column.name)): column.carrier.value
        for table in schema.tables
        if selected is None or table_text(table.table_name) in selected
        for column in table.columns
    }
    columns = Spellings(rule_of(schema), paths)
    chosen = {columns.of(name): carrier for name, carrier in given.get("carriers", {}).items()}
    for name, carrier in chosen.items():
        if paths.get(name, carrier) != carrier:
            raise SnapshotExistsError(
                f"The location holds a snapshot in which {name} travels as {paths[name]}, and it is to travel as"
                f" {carrier} here. Leave --carrier out, choose another location, or give --force to replace the"
                " snapshot by a new one.",
                fields=["carriers"],
            )
    return {name: carrier for name, carrier in paths.items() if carrier == Carrier.TEXT.value} | chosen


def _check_source(options: argparse.Namespace, source: str, uri: str) -> None:
    configuration = load_configuration(options.config, needed=Needed(aliases=[source]))
    if source not in configuration.sources:
        file = configuration.path or "the configuration"
        raise PlanError(
            f"--source missing: the snapshot at {uri} was begun from {source!r}, which {file} does not name, and a"
            " snapshot keeps no address of a database. Give --source S."
        )
