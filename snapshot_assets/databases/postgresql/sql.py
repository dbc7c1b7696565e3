"""Writes values in PostgreSQL's SQL; names are quoted by `databases.sql`.

Statements contain their values: with bound parameters the driver would not use COPY, but a much slower protocol.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime


def literal(value: str) -> str:
    """Return a string constant, independent of `standard_conforming_strings`."""
    quoted = "'" + value.replace("'", "''") + "'"
    return f" E{quoted.replace(chr(92), chr(92) * 2)}" if "\\" in value else quoted


def instant(moment: datetime) -> str:
    """Return a `timestamptz` constant of an aware moment."""
    return f"{literal(moment.isoformat())}::pg_catalog.timestamptz"


def oid_array(oids: Iterable[int]) -> str:
    """Return an `oid[]` constant."""
    return f"'{{{','.join(str(int(oid)) for oid in oids)}}}'::pg_catalog.oid[]"
