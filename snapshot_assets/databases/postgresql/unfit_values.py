"""Finds values that cannot be exported or restored, by one query for each table.

Native carriers cannot hold NaN, infinite times and 24:00. A `regclass` that names a view is loaded before the view is
created, so it could never be restored. A database of encoding SQL_ASCII holds any bytes, and files hold UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from snapshot_assets.databases.postgresql.read_forms import expression
from snapshot_assets.databases.postgresql.scan import Scanner
from snapshot_assets.databases.protocol.encodings import valid_start
from snapshot_assets.databases.protocol.source import Rows
from snapshot_assets.databases.selection.columns import columnless_rows, undecodable, unfit_value, unrestorable
from snapshot_assets.databases.selection.hidden import mask_of, masked
from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.errors import SnapshotError
from snapshot_assets.format.relations import Carrier, Column, Table

_CONDITIONS = {
    "numeric": ("{value} = 'NaN'::pg_catalog.numeric", "NaN"),
    "date": ("NOT pg_catalog.isfinite({value})", "infinity or -infinity"),
    "time": ("{value} = '24:00:00'::pg_catalog.time", "24:00:00"),
    **{
        name: (
            f"NOT pg_catalog.isfinite({{value}}) OR {{value}} > '294247-01-10 04:00:54.775807+00'::pg_catalog.{name}",
            "infinity, -infinity or a time after the year 294246",
        )
        for name in ("timestamp", "timestamptz")
    },
}
"""By type: a condition of unfit values, and what they are called."""

_CREATED_LATE = "c.oid >= 16384 AND c.relkind NOT IN ('r', 'p', 'S', 'c') AND NOT EXISTS (" + (
    "SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass"
    " AND d.objid = c.oid AND d.deptype = 'e')"
)
_NAMES_LATE = {
    "regclass": f"EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = {{value}} AND {_CREATED_LATE})",
    "regtype": (
        "EXISTS (SELECT FROM pg_catalog.pg_type y JOIN pg_catalog.pg_class c ON c.oid = y.typrelid"
        f" WHERE {{value}} IN (y.oid, y.typarray) AND {_CREATED_LATE})"
    ),
}
"""By type: a condition of values that name what a restore creates after the rows, such as a view or an index."""

_LATE = "the name of a view, an index or a foreign table, which a restore creates only after the rows, if at all"

_SHOWN_BYTES = 4


class _Check(NamedTuple):
    """The condition of a column's unfit values, and what they are called.

    Attributes:
        found: "" for names of what is created late, and for bytes that are no UTF-8.
        text: The carried value that has such bytes; "" for the other checks.
        encoding: The encoding that its bytes should have; None is UTF-8.
    """

    column: Column
    condition: str
    found: str
    text: str = ""
    encoding: str | None = None


def find_unfit(
    scanner: Scanner, table: Table, rows: Sequence[Rows], *, undefined_encoding: bool
) -> list[SnapshotError]:
    """Return an error for each column of a table with values that do not fit; see `Database.unfit`.

    Args:
        scanner: Where to read.
        table: The table's document.
        rows: Which of its rows are read.
        undefined_encoding: Whether the database's encoding is SQL_ASCII.
    """
    checks = list(_checks(scanner, table, undefined_encoding=undefined_encoding))
    if table.columns and not checks:
        return []
    found = [f"coalesce(pg_catalog.bool_or({each.condition}), false)" for each in checks] or ["count(*) > 0"]
    values = ", ".join(f"{text} AS c{number}" for number, text in enumerate(found))
    query = f"SELECT {values} FROM {scanner.from_item(table)} WHERE {scanner.any_of(table, rows)}"
    [row] = scanner.rows_of(table, query, f"looking for values of {table.table_name} that do not fit")
    if not checks:
        return [columnless_rows(table.table_name)] if row["c0"] else []
    errors: list[SnapshotError] = []
    for number, check in enumerate(checks):
        if not row[f"c{number}"]:
            continue
        if check.found:
            errors.append(unfit_value(table, check.column, check.found, early=True))
        elif check.text:
            errors.append(_undecodable(scanner, table, rows, check))
        else:
            errors.append(unrestorable(table, check.column, _LATE))
    return errors


def _undecodable(scanner: Scanner, table: Table, rows: Sequence[Rows], check: _Check) -> SnapshotError:
    """Return the error for a text that is not in its encoding, with its first invalid bytes and its row's key."""
    keys, name = scanner.row_keys(table), check.column.name
    valid = literal(valid_start(check.encoding))
    rest = f"pg_catalog.convert_to(pg_catalog.regexp_replace({check.text}, {valid}, ''), 'SQL_ASCII')"
    shown = [f"pg_catalog.encode(pg_catalog.substr({rest}, 1, {_SHOWN_BYTES}), 'hex') AS bytes"]
    for number, key in enumerate(keys.values()):
        as_bytes = f"pg_catalog.convert_to(({key})::pg_catalog.text, 'SQL_ASCII')"
        shown.append(f"pg_catalog.encode({as_bytes}, 'escape') AS k{number}")
    query = (
        f"SELECT {', '.join(shown)} FROM {scanner.from_item(table)}"
        f" WHERE ({scanner.any_of(table, rows)}) AND {check.condition} LIMIT 1"
    )
    [row] = scanner.rows_of(table, query, f"looking for bytes of {table.table_name} that are no text")
    place = ", ".join(f"{key} = {row[f'k{number}']}" for number, key in enumerate(keys))
    found = f"0x{row['bytes']} in the row with {place}" if place else f"0x{row['bytes']}"
    source, mask = scanner.types_of(table)[name], None
    if source.modifier < 0 and source.builtin not in ("name", "_name"):  # those cut texts off after some bytes
        as_bytes = f"convert_to({identifier(name)}::text, 'SQL_ASCII')"
        mask = f"convert_from(convert({as_bytes}, 'LATIN1', 'UTF8'), 'UTF8')"
    return undecodable(table, check.column, found, mask, check.encoding)


def _checks(scanner: Scanner, table: Table, *, undefined_encoding: bool) -> Iterator[_Check]:
    """Yield the checks of the columns whose type has values that do not fit, or that no restore could load."""
    types = scanner.types_of(table)
    for column in table.columns:
        source = types[column.name]
        mask = mask_of(table, column.name)
        if undefined_encoding and column.arrow_type == "string":
            text = f'({expression(column.name, source, column.carrier, mask)})::pg_catalog.text COLLATE pg_catalog."C"'
            encoding = scanner.encoding_of(table, column)
            yield _Check(column, f"{text} !~ {literal(valid_start(encoding) + '$')}", "", text, encoding)
        value = f"({identifier(column.name) if mask is None else masked(mask, source.text)})::pg_catalog."
        builtin = source.builtin or ""
        element = builtin.removeprefix("_")
        if column.carrier is Carrier.NATIVE and builtin in _CONDITIONS:
            condition, found = _CONDITIONS[builtin]
            yield _Check(column, condition.format(value=f"{value}{builtin}"), found)
        elif builtin in _NAMES_LATE:
            yield _Check(column, _NAMES_LATE[builtin].format(value=f"{value}{builtin}"), "")
        elif element in _NAMES_LATE:
            each = _NAMES_LATE[element].format(value="u.name")
            elements = f"pg_catalog.unnest({value}{element}[]) u (name)"
            yield _Check(column, f"EXISTS (SELECT FROM {elements} WHERE {each})", "")
