"""SQL text: the only place where names and values of foreign origin become SQL.

Values are written into the statement, not bound: a bound parameter makes the driver leave COPY for a much slower
protocol.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime

from snapshot_assets.format.relations import TableName

_LONGEST_NAME = 63
"""Bytes of a name that PostgreSQL keeps; it cuts off the rest."""


def fitting(name: str) -> str:
    """Return a name that PostgreSQL does not cut: a longer one ends in its hash, so that no two become one."""
    encoded = name.encode()
    if len(encoded) <= _LONGEST_NAME:
        return name
    end = f"_{hashlib.sha256(encoded).hexdigest()[:8]}"
    return encoded[: _LONGEST_NAME - len(end)].decode(errors="ignore") + end


def identifier(name: str) -> str:
    """Return a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def qualified(name: TableName) -> str:
    """Return a relation's quoted, schema-qualified name."""
    return f"{identifier(name.schema)}.{identifier(name.table)}"


def literal(value: str) -> str:
    """Return a string constant, whatever `standard_conforming_strings` says."""
    quoted = "'" + value.replace("'", "''") + "'"
    return f" E{quoted.replace(chr(92), chr(92) * 2)}" if "\\" in value else quoted


def instant(moment: datetime) -> str:
    """Return a `timestamptz` constant of an aware moment."""
    return f"{literal(moment.isoformat())}::pg_catalog.timestamptz"


def oid_array(oids: Iterable[int]) -> str:
    """Return an `oid[]` constant."""
    return f"'{{{','.join(str(int(oid)) for oid in oids)}}}'::pg_catalog.oid[]"
