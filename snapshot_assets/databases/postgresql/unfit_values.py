"""Finds values that cannot be exported or restored, by one query for each table.

Native carriers cannot hold NaN, infinite times and 24:00. A `regclass` that names a view is loaded before the view is
created, so it could never be restored. A database of encoding SQL_ASCII holds any bytes, and files hold UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from snapshot_assets.databases.postgresql.read_forms import expression
from snapshot_assets.databases.postgresql.types import SourceType
from snapshot_assets.databases.protocol.encodings import valid_start
from snapshot_assets.databases.selection.hidden import mask_of, masked
from snapshot_assets.databases.sql import identifier, literal
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

_SHOWN_BYTES = 4


class UnfitCheck(NamedTuple):
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

    def bytes_query(self, keys: Sequence[str]) -> str:
        """Return the select list of the first invalid bytes, as `bytes`, and of `keys` as `k0`, `k1`, …."""
        valid = literal(valid_start(self.encoding))
        rest = f"pg_catalog.convert_to(pg_catalog.regexp_replace({self.text}, {valid}, ''), 'SQL_ASCII')"
        shown = f"pg_catalog.encode(pg_catalog.substr({rest}, 1, {_SHOWN_BYTES}), 'hex') AS bytes"
        escaped = "pg_catalog.encode(pg_catalog.convert_to(({key})::pg_catalog.text, 'SQL_ASCII'), 'escape')"
        return ", ".join([shown, *(f"{escaped.format(key=key)} AS k{number}" for number, key in enumerate(keys))])


def decoding_mask(column: str, source: SourceType) -> str | None:
    """Return a mask that decodes a column from LATIN1; None for a type that cuts texts off after some bytes."""
    if source.modifier >= 0 or source.builtin in ("name", "_name"):
        return None
    text = f"{identifier(column)}::text"
    return f"convert_from(convert(convert_to({text}, 'SQL_ASCII'), 'LATIN1', 'UTF8'), 'UTF8')"


def unfit_checks(
    table: Table, types: Mapping[str, SourceType], encoding_of: Callable[[Column], str | None] | None
) -> Iterator[UnfitCheck]:
    """Yield the checks of a table's columns whose type has values that do not fit, or that no restore could load.

    Args:
        table: The table's document.
        types: The types of its columns.
        encoding_of: Returns the encoding of a text column, if the database's is SQL_ASCII.
    """
    for column in table.columns:
        source = types[column.name]
        mask = mask_of(table, column.name)
        if encoding_of is not None and column.arrow_type == "string":
            text = f'({expression(column.name, source, column.carrier, mask)})::pg_catalog.text COLLATE pg_catalog."C"'
            encoding = encoding_of(column)
            yield UnfitCheck(column, f"{text} !~ {literal(valid_start(encoding) + '$')}", "", text, encoding)
        value = f"({identifier(column.name) if mask is None else masked(mask, source.text)})::pg_catalog."
        builtin = source.builtin or ""
        element = builtin.removeprefix("_")
        if column.carrier is Carrier.NATIVE and builtin in _CONDITIONS:
            condition, found = _CONDITIONS[builtin]
            yield UnfitCheck(column, condition.format(value=f"{value}{builtin}"), found)
        elif builtin in _NAMES_LATE:
            yield UnfitCheck(column, _NAMES_LATE[builtin].format(value=f"{value}{builtin}"), "")
        elif element in _NAMES_LATE:
            each = _NAMES_LATE[element].format(value="u.name")
            elements = f"pg_catalog.unnest({value}{element}[]) u (name)"
            yield UnfitCheck(column, f"EXISTS (SELECT FROM {elements} WHERE {each})", "")
