"""The options of a read, checked before anything is opened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

from snapshot_assets.catalog.listing import METADATA_TABLES
from snapshot_assets.databases.selection.selection import suggestion
from snapshot_assets.engine.time_range import TimeFilter
from snapshot_assets.errors import PlanError
from snapshot_assets.format.names import parse_table
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import parse_given_time
from snapshot_assets.storage.location import Location, parse_location
from snapshot_assets.storage.options import CREDENTIALS, StoreOptions

_READ = ("path", "table", "columns", "version", "since", "start", "end", "verify")
_FEDERATED = ("federation", "database", "dedupe")
_STORE = tuple(field.name for field in fields(StoreOptions))
_ALL = _READ + _FEDERATED + _STORE
_TYPES = {field.name: str(field.type).removesuffix(" | None") for field in fields(StoreOptions)}
_CREDENTIALS = {"account_name"}.union(*CREDENTIALS.values())
_COLUMN = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^",]*[^",\s]))\s*(?:,|$)')


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """Which rows of a location are read.

    Attributes:
        table: The table; a text for a metadata table such as `$files`.
        columns: Its columns, in order; empty for all.
        version: The version as the user wrote it; None if omitted.
        since: The first version of `$diff`; None if omitted.
        start: Rows from this time on; None for all.
        end: Rows before this time; None for all.
        verify: Whether every file is hashed before its first row.
    """

    table: TableName | str
    columns: tuple[str, ...] = ()
    version: str | None = None
    since: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    verify: bool = True


@dataclass(frozen=True, kw_only=True)
class ReadOptions(RowOptions):
    """Options of a read by Spark.

    Attributes:
        location: The location.
        store: How to reach it.
        federation: Whether the location is a folder of several writers' locations, read as one.
        database: The database of a federation; None if all writers have the same one.
        dedupe: How overlapping windows of writers are read; None refuses them.
    """

    location: Location
    store: StoreOptions
    federation: bool = False
    database: str | None = None
    dedupe: str | None = None

    def narrowed(self, revision: int, start: datetime | None, end: datetime | None) -> ReadOptions:
        """Return the options of the same read at a revision that they chose, in a further range of time."""
        first = max(filter(None, (self.start, start)), default=None)
        last = min(filter(None, (self.end, end)), default=None)
        if first is not None and last is not None and first >= last:
            last = first + timedelta(microseconds=1)  # a range is never empty; Spark's filters leave no row
        return replace(self, version=f"rev:{revision}", start=first, end=last)


def parse_options(given: Mapping[str, str], storage: Mapping[str, StoreOptions]) -> ReadOptions:
    """Parse Spark's options of a read, with names in lower case; they override the storage options of their scheme.

    Raises:
        PlanError: An option is unknown, missing or wrong.
        LocationUriError: The path is not a valid location.
    """
    for name in given:
        if name not in _ALL:
            raise PlanError(f"{name!r} is not an option of the snapshot source. {suggestion(name, _ALL)}")
    if "path" not in given:
        raise PlanError("the location is missing: name it in load(), such as .load('s3://backups/shop')")
    federation = _switch("federation", given.get("federation", "false"))
    location = parse_location(given["path"], allow_root=federation)
    options = ReadOptions(
        location=location,
        store=_store(given, storage.get(location.scheme)),
        table=_table(given.get("table")),
        columns=_columns(given["columns"]) if "columns" in given else (),
        version=given.get("version"),
        since=given.get("since"),
        start=_time("start", given.get("start")),
        end=_time("end", given.get("end")),
        verify=_switch("verify", given.get("verify", "true")),
        federation=federation,
        database=given.get("database"),
        dedupe=given.get("dedupe"),
    )
    # Options that have no effect beside each other are refused.
    table = options.table
    TimeFilter(options.start, options.end)  # refuses an empty range
    if isinstance(table, str) and (options.start or options.end):
        raise PlanError(f"{table} has no rows in time: leave start and end out")
    if isinstance(table, str) and options.version is not None and not METADATA_TABLES[table].versioned:
        raise PlanError(f"{table} shows the whole location: leave version out")
    if options.since is not None and table != "$diff":
        raise PlanError(f"table {table} shows no changes: leave since out, or read the table $diff")
    if table == "$diff" and options.since is None:
        raise PlanError("$diff shows what changed since a version: name it in the option since, such as rev:12")
    if options.federation and isinstance(table, str):
        raise PlanError(f"{table} is a table of one writer's location: load <root>/<writer id>/<database>")
    for name in ("database", "dedupe"):
        if not options.federation and getattr(options, name) is not None:
            raise PlanError(f"option {name} is for a read with option federation")
    return options


def _table(text: str | None) -> TableName | str:
    if text is None:
        raise PlanError(
            "the option table is missing: name one such as public.trips, or one of " + ", ".join(METADATA_TABLES)
        )
    if not text.startswith("$"):
        return parse_table(text)
    if text not in METADATA_TABLES:
        raise PlanError(f"there is no metadata table {text!r}. {suggestion(text, METADATA_TABLES)}")
    return text


def _columns(text: str) -> tuple[str, ...]:
    columns: list[str] = []
    position = 0
    while match := _COLUMN.match(text, position):
        columns.append(match[1].replace('""', '"') if match[1] is not None else match[2])
        position = match.end()
        if position == len(text) and not match[0].endswith(","):
            break
    else:
        raise PlanError(
            f"columns {text!r} is not a list of columns: write such as id, fare, with a name that holds a comma or a"
            ' quote in double quotes: "net, fare"'
        )
    if twice := sorted({name for name in columns if columns.count(name) > 1}):
        raise PlanError(f"columns {text!r} names {', '.join(map(repr, twice))} twice")
    return tuple(columns)


def _time(name: str, text: str | None) -> datetime | None:
    try:
        return None if text is None else parse_given_time(text)
    except PlanError as error:
        raise PlanError(f"option {name}: {error}") from None


def parse_versions(text: str | None) -> dict[str, str] | None:
    """Return the version of each writer of a federation, such as of `3837527170=12, 2815898179=tag:friday`.

    Raises:
        PlanError: The text is invalid.
    """
    if text is None:
        return None
    pairs = [entry.strip().partition("=") for entry in text.split(",")]
    if not all(writer and version for writer, _, version in pairs) or len({pair[0] for pair in pairs}) < len(pairs):
        raise PlanError(
            f"option version is {text!r}; for a federation write the version of each writer, such as 'a=12, b=tag:x'"
        )
    return {writer: version for writer, _, version in pairs}


def _switch(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise PlanError(f"option {name} is {text!r}; write true or false")
    return text.lower() == "true"


def _store(given: Mapping[str, str], known: StoreOptions | None) -> StoreOptions:
    """Return storage options; the given ones override the configured, and replace its credentials as a whole."""
    values: dict[str, Any] = {name: _typed(name, given[name]) for name in _STORE if name in given}
    if any(name in given for name in _CREDENTIALS):
        values = dict.fromkeys(_CREDENTIALS) | values
    return replace(known or StoreOptions(), **values)


def _typed(name: str, text: str) -> str | bool | int | float:
    """Return a storage option in its type; Spark's options are texts."""
    kind = _TYPES[name]
    if kind == "bool":
        return _switch(name, text)
    if kind == "str":
        return text
    try:
        return int(text) if kind == "int" else float(text)
    except ValueError:
        raise PlanError(f"option {name} is {text!r}; write a{' whole' * (kind == 'int')} number") from None
