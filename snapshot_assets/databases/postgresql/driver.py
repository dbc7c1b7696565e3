"""Finds out what the driver's COPY takes, which differs between its versions.

Up to 1.11 the driver copies bytes into a column of any type. From 1.12 on it looks at the column's type, and refuses
bytes for `numeric` before it sends a row. Each combination of types is tried once in a process, with no rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.postgresql.wire.texts import ENCODERS
from snapshot_assets.databases.postgresql.write_forms import Receiver
from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.errors import DatabaseError, TransientError
from snapshot_assets.format.relations import TableName

Pair = tuple[pa.DataType, Receiver]
"""A stream's Arrow type, and the column that it is copied into."""

_TABLE = TableName("pg_temp", "snapshot_assets_types")
_TYPES = f"""
SELECT min(t.oid::pg_catalog.regtype::text) AS type, p.prosrc AS function
FROM pg_catalog.pg_type t JOIN pg_catalog.pg_proc p ON p.oid = t.typreceive
WHERE t.typnamespace = 'pg_catalog'::pg_catalog.regnamespace AND p.prosrc IN ({", ".join(map(literal, ENCODERS))})
GROUP BY p.prosrc ORDER BY p.prosrc
"""

_taken: dict[Pair, bool] = {}


def refused(connection: PostgresqlConnection, columns: Mapping[str, Pair]) -> set[str]:
    """Return the columns that the driver refuses to copy into, in a transaction, which makes a temporary table."""
    _try(connection, [(name, pair) for name, pair in columns.items() if pair not in _taken])
    return {name for name, pair in columns.items() if not _taken[pair]}


def _try(connection: PostgresqlConnection, columns: list[tuple[str, Pair]]) -> None:
    """Record which columns the driver takes; an error does not say which, so each half is tried again."""
    if not columns:
        return
    doing = "trying the driver"
    definitions = ", ".join(f"{identifier(name)} {receiver.type}" for name, (_, receiver) in columns)
    connection.execute("SAVEPOINT tried", doing)
    connection.execute(f"CREATE TEMPORARY TABLE {_TABLE.table} ({definitions})", doing)
    try:
        connection.copy(_TABLE, pa.schema((name, kind) for name, (kind, _) in columns).empty_table())
        taken = True
    except DatabaseError as error:
        if isinstance(error, TransientError) or "sqlstate" in error.attributes:  # the server's
            raise
        taken = False
    connection.execute("ROLLBACK TO SAVEPOINT tried", doing)
    if taken or len(columns) == 1:
        _taken.update((pair, taken) for _, pair in columns)
        return
    half = len(columns) // 2
    _try(connection, columns[:half])
    _try(connection, columns[half:])


def refused_types(connection: PostgresqlConnection) -> list[str]:
    """Return PostgreSQL's own types whose values the driver refuses as bytes, in a transaction, which goes on."""
    types = {row["type"]: row["function"] for row in connection.rows(_TYPES, "listing types")}
    return sorted(refused(connection, {name: (pa.binary(), Receiver(name, types[name])) for name in types}))
