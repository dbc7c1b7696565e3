"""Rules about the fields of a plan, beyond their types: what contradicts another field, or has no effect beside it.

A rule about two fields is checked on the later one, for which `info.data` has the earlier ones if they are valid.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from pydantic import ValidationInfo

from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.databases.selection.selection import require_kept, require_selected, suggestion
from snapshot_assets.format.names import ColumnPath, NameRule, column_text, table_of
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import MIN_FILE_SIZE, MIN_TEXT_SIZE, duration_text, parse_file_size, time_text
from snapshot_assets.format.windows import count_windows
from snapshot_assets.plan.dagster_fields import DagsterFields
from snapshot_assets.plan.fields import DatabaseReference, FormatOptions, is_asset, is_windowed
from snapshot_assets.plan.location_template import changes_with_time, check_location, is_template
from snapshot_assets.plan.problems import raising_value_errors
from snapshot_assets.storage.location import parse_location

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}", re.ASCII)
"""Valid names of plans. Keys of Dagster resources start with the name, and may not start with `_`."""
_MIN_GRACE = timedelta(minutes=10)  # clocks of writers and store may differ by five minutes either way

RULES: dict[str, list[Callable[[Any, ValidationInfo], None]]] = {}
"""The rules of each field, by its name. A rule raises `ValueError`."""
_Rule = TypeVar("_Rule", bound=Callable[..., None])


class NotOf(Enum):
    """Marks a field that plans of a kind do not have: they refuse another value than its default, with this error."""

    QUERIES = "has no effect with kind: query, which copies one query; remove it"
    ASSETS = "has no effect on the DataFrames of a Dagster asset; remove it"
    SCHEMAS = "has no effect with schema_only: true; remove one of the two"
    SNAPSHOTS = "is a field of copies; write kind: query, or remove it"
    QUERIES_WITHOUT_WINDOWS = "has no effect: the query does not name :start and :end. Name them, or remove it"

    def check(self, info: ValidationInfo) -> None:
        """Raise `ValueError` if the plan is of this kind."""
        query = info.data.get("query")
        kinds = {
            NotOf.QUERIES: info.data.get("kind") == "query",
            NotOf.ASSETS: is_asset(info.data.get("source")),
            NotOf.SCHEMAS: info.data.get("schema_only"),
            NotOf.SNAPSHOTS: info.data.get("kind") not in ("query", None),
            NotOf.QUERIES_WITHOUT_WINDOWS: query is not None and not is_windowed(query),
        }
        if kinds[self]:
            raise ValueError(self.value)


def _rule(*fields: str) -> Callable[[_Rule], _Rule]:
    def add(rule: _Rule) -> _Rule:
        for field in fields:
            RULES.setdefault(field, []).append(rule)
        return rule

    return add


@_rule("name")
def _is_key_segment(name: str, _: ValidationInfo) -> None:
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a name; write a letter, then letters, digits and `_`, at most 100 characters"
        )


@_rule("to")
def _is_location(to: str, _: ValidationInfo) -> None:
    raising_value_errors(check_location)(to)


@_rule("target", "scratch")
def _is_another_database(reference: DatabaseReference | None, info: ValidationInfo) -> None:
    if is_asset(reference):
        raise ValueError("is a Dagster asset, which can only be a source; write a database")
    if info.field_name == "target" and reference is not None and reference == info.data.get("source"):
        raise ValueError(f"{reference} is the source itself; a restore goes into another database")


@_rule("kind")
def _suits_location_and_target(kind: str, info: ValidationInfo) -> None:
    if kind != "query" and is_template(info.data.get("to", "")):
        raise ValueError("only a plan of kind: query may have a location with names in braces")
    if kind == "query" and (info.data.get("target") or info.data.get("scratch")):
        raise ValueError("a copy of a query has no target or scratch; `snapshots import --from` restores it")


def check_kind_of_query(query: object, info: ValidationInfo) -> object:
    """Return a query; refuse one of a plan of another kind, and a missing one of a plan of kind `query`.

    Its text is parsed afterwards.
    """
    if info.data.get("kind") != "query":
        if query is not None:
            raise ValueError("only a plan of kind: query has one; write kind: query, or remove it")
    elif is_asset(info.data.get("source")):
        raise ValueError("needs a database as its source, which a Dagster asset is not")
    elif query is None:
        raise ValueError("is missing; write schema.table or SQL that reads")
    return query


@_rule("split_by")
def _divides_a_query(column: str | None, info: ValidationInfo) -> None:
    if column is not None and info.data.get("kind") != "query":
        raise ValueError("only a plan of kind: query has one; tables are divided without it. Remove it")


@_rule("schema_only")
def _has_a_schema(schema_only: bool, info: ValidationInfo) -> None:
    if schema_only and is_asset(info.data.get("source")):
        raise ValueError("a Dagster asset has no schema of its own to export; remove it")


@_rule("tables", "time_columns", "carriers", "exclude_columns", "mask")
def _of_selected_tables(named: Iterable[Any], info: ValidationInfo) -> None:
    _require_exported((key.table if isinstance(key, ColumnPath) else key for key in named), info)


@_rule("exclude_tables")
def _keeps_named_tables(patterns: tuple[str, ...], info: ValidationInfo) -> None:
    _require_kept(info.data.get("tables", ()), patterns)


@_rule("exclude_columns", "mask")
def _of_the_copied_table(named: Iterable[ColumnPath], info: ValidationInfo) -> None:
    query = info.data.get("query")
    if query is None or not named:
        return
    copied = table_of(query)
    if copied is None:
        raise ValueError("has no effect on SQL: select other columns or expressions in the query; remove it")
    if others := [path for path in named if not NameRule.CASE_IGNORED.same(path.table, copied)]:
        raise ValueError(f"{column_text(others[0])} is no column of {query}, which is copied; remove it")


@_rule("mask")
def _of_exported_columns(mask: dict[ColumnPath, str], info: ValidationInfo) -> None:
    if both := sorted(mask.keys() & set(info.data.get("exclude_columns", ()))):
        raise ValueError(f"{column_text(both[0])} is among exclude_columns too; remove it from one of them")


@_rule("time_columns", "carriers")
def _of_kept_columns(by_name: dict[Any, Any], info: ValidationInfo) -> None:
    named = [key if isinstance(key, ColumnPath) else ColumnPath(key, str(by_name[key])) for key in by_name]
    hidden = set(info.data.get("exclude_columns", ()))
    if info.field_name == "time_columns":
        hidden |= info.data.get("mask", {}).keys()
    if both := sorted(hidden.intersection(named)):
        raise ValueError(f"{column_text(both[0])} is among exclude_columns or mask; remove it from one of them")


@_rule("time_zone")
def _is_known_zone(zone: str, _: ValidationInfo) -> None:
    if zone != "UTC" and zone not in zoneinfo.available_timezones():
        raise ValueError(f"{zone!r} is not an IANA time zone. {suggestion(zone, zoneinfo.available_timezones())}")


@_rule("start_time")
def _is_where_windows_start(start: datetime | None, info: ValidationInfo) -> None:
    query = info.data.get("query")
    if start is None and query is not None and is_windowed(query):
        raise ValueError("is missing; the windows of :start and :end are counted from it")
    if start is None and info.data.get("kind") == "continuous" and not info.data.get("schema_only"):
        raise ValueError("is missing; a continuous plan counts its chunks from it, such as 2013-01-01T00:00:00Z")


@_rule("end_time")
def _is_after_start(end: datetime | None, info: ValidationInfo) -> None:
    if end is not None and info.data.get("kind") == "continuous":
        raise ValueError("a continuous plan has no end; remove end_time, or write kind: once")
    start = info.data.get("start_time")
    if end is not None and start is not None and end <= start:
        raise ValueError(f"{time_text(end)} is not after start_time {time_text(start)}")


@_rule("chunk_time_window")
def _cuts_the_range(length: timedelta, info: ValidationInfo) -> None:
    if not length:
        raise ValueError("0s is no length; write one such as 6h or 1d")
    start, end = info.data.get("start_time"), info.data.get("end_time")
    if start is not None and end is not None:
        raising_value_errors(lambda window: count_windows(start, end, window))(length)


@_rule("refresh_for")
def _bounds_a_look(value: timedelta | None, info: ValidationInfo) -> None:
    if value is not None and info.data.get("late_windows") != "changed":
        raise ValueError("it bounds how far back changes are looked for; write late_windows: changed, or remove it")


@_rule("late_windows")
def _changed_is_no_copy(value: int | str, info: ValidationInfo) -> None:
    if value == "changed" and info.data.get("kind") == "query":
        raise ValueError("the rows of a query have no versions in the source; write a number of windows")


@_rule("lag", "late_windows")
def _only_if_continuous(value: timedelta | int | str, info: ValidationInfo) -> None:
    kind, name = info.data.get("kind"), info.field_name
    if value and kind == "once":
        raise ValueError(f"only a continuous plan waits for late rows; remove {name}, or write kind: continuous")
    if value and kind == "query" and info.data.get("end_time") is not None:
        raise ValueError(f"only windows without an end wait for late rows; remove {name}, or end_time")


@_rule("partition_by", "manifest")
def _are_different(names: tuple[str, ...], _: ValidationInfo) -> None:
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]!r} is named twice; name each once")


@_rule("manifest")
def _can_be_loaded(names: tuple[str, ...], info: ValidationInfo) -> None:
    to = str(info.data.get("to", ""))
    if "redshift" in names and to and not to.startswith("s3://"):
        raise ValueError(f"redshift loads from s3:// only, and the copy goes to {to}. Remove it, or copy to s3://")


@_rule("single_file")
def _is_alone(single_file: bool, info: ValidationInfo) -> None:
    if not single_file:
        return
    conflicts = {
        "partition_by": "puts each partition into files of its own",
        "split_by": "lets several tasks write files",
    }
    for name, what in conflicts.items():
        if info.data.get(name):
            raise ValueError(f"contradicts {name}, which {what}; remove one of the two")
    if info.data.get("query") and is_windowed(info.data["query"]):
        raise ValueError("contradicts :start and :end in the query: each window has files of its own. Remove it")


@_rule("map_schemas", "map_tables")
def _gives_each_a_name_of_its_own(names: dict[Any, Any], info: ValidationInfo) -> None:
    of = partial(Renaming.of, ()) if info.field_name == "map_tables" else Renaming.of
    raising_value_errors(of)(names.items())


@_rule("restore_exclude_tables", "map_schemas", "map_tables", "verify_first")
def _has_a_database_to_act_on(value: Any, info: ValidationInfo) -> None:
    if value and info.data.get("target") is None and info.data.get("scratch") is None:
        raise ValueError("has no effect without a target or scratch to restore into; write one, or remove it")


@_rule("replicate_to")
def _is_another_location(replica: str | None, info: ValidationInfo) -> None:
    if replica is None:
        return
    if info.data.get("kind") == "query":
        raise ValueError("has no effect with kind: query; replicate a copy with `snapshots replicate`, or remove it")
    one = raising_value_errors(parse_location)(replica).uri
    other = raising_value_errors(parse_location)(info.data["to"]).uri if "to" in info.data else None
    overlaps = other is not None and (f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/"))
    if overlaps and info.data.get("storage") is None:
        raise ValueError(f"{one} overlaps the plan's location {other}; write a location outside it")


@_rule("replicate_delete")
def _has_a_replica(deletes: bool, info: ValidationInfo) -> None:
    if deletes and info.data.get("replicate_to", "") is None:
        raise ValueError("has no effect without replicate_to; write one, or remove it")


@_rule("format_options")
def _are_of_the_format(options: FormatOptions, info: ValidationInfo) -> None:
    if "format" in info.data:
        raising_value_errors(lambda name: options.of(name).check())(info.data["format"])


@_rule("iceberg")
def _reads_parquet(iceberg: object, info: ValidationInfo) -> None:
    if iceberg is not None and info.data.get("format", "parquet") != "parquet":
        raise ValueError(f"Iceberg reads Parquet, not {info.data['format']}; write format: parquet, or remove it")


@_rule("max_file_size")
def _suits_the_format(size: int, info: ValidationInfo) -> None:
    least = MIN_FILE_SIZE if info.data.get("format", "parquet") == "parquet" else MIN_TEXT_SIZE
    raising_value_errors(partial(parse_file_size, least=least))(size)
    if info.data.get("single_file"):
        raise ValueError("has no effect with single_file: true, whose file has up to 4GiB; remove one of them")


@_rule("grace")
def _outlasts_clocks(grace: timedelta, _: ValidationInfo) -> None:
    if grace < _MIN_GRACE:
        raise ValueError(
            f"{duration_text(grace)} is shorter than {duration_text(_MIN_GRACE)}, "
            "by which the clocks of writers and store may differ"
        )


@_rule("dagster")
def _has_what_it_acts_on(dagster: DagsterFields, info: ValidationInfo) -> None:
    fields, shown = info.data, dagster.table_assets
    if dagster.restore_on is not None and fields.get("target") is None:
        raise ValueError("restore_on needs a target to restore into; write target, or remove it")
    own = "/".join((*dagster.key_prefix, fields.get("name", "")))
    if dagster.restore_on in (f"{own}/restored", f"{own}/target"):
        raise ValueError(f"restore_on: {dagster.restore_on} is what a restore makes; write sealed, or another asset")
    if dagster.drill_cron is not None and fields.get("scratch") is None:
        raise ValueError("drill_cron needs a scratch database, for a drill; write scratch, or remove it")
    if dagster.compare_cron is not None and (fields.get("schema_only") or is_asset(fields.get("source"))):
        what = "a snapshot without rows" if fields.get("schema_only") else "an asset, whose rows cannot be read again"
        raise ValueError(f"compare_cron has no effect on {what}; remove it")
    if (query := fields.get("query")) is not None:
        dagster.check_for_query(scheduled=is_windowed(query) and not changes_with_time(fields.get("to", "")))
    if dagster.automation and (late := fields.get("late_windows")):
        lacking = (
            "does not look for what changed in the source" if late == "changed" else "exports no late_windows again"
        )
        raise ValueError(
            f"automation: true {lacking}; remove automation and turn the export schedule on, which does, or remove"
            " late_windows and let windows wait with lag"
        )
    if shown and fields.get("schema_only"):
        raise ValueError("table_assets has no effect with schema_only: true; remove it")
    if shown is True and not fields.get("tables"):
        raise ValueError(
            "table_assets: true needs the names of the tables, for which definitions do not ask the source; write"
            " table_assets: [schema.table, …], or list them in tables"
        )
    _require_exported(shown if isinstance(shown, tuple) else (), info)


def _require_exported(tables: Iterable[TableName], info: ValidationInfo) -> None:
    """Refuse tables that the other fields of a plan select no rows of, whatever database compares their names."""
    named, fields = list(tables), info.data
    selected = Selection(tuple(fields.get("schemas", ())), tuple(fields.get("tables", ())), names=NameRule.CASE_IGNORED)
    for table in named:
        raising_value_errors(lambda name: require_selected(name, selected))(table)
    _require_kept(named, fields.get("exclude_tables", ()))


def _require_kept(tables: Iterable[TableName], patterns: Sequence[str]) -> None:
    """Refuse tables that `exclude_tables` leaves out, whatever database compares their names."""
    selection = Selection(exclude_tables=tuple(patterns))
    for table in tables:
        raising_value_errors(lambda name: require_kept(name, selection))(table)
