"""Connects through the driver, and finds out what its COPY takes, which differs between its versions.

Settings are in the start-up packet, where they precede those of roles and databases. The driver runs statements of its
own before the first one of a session: a `statement_timeout` would end them, and `quote_all_identifiers` would hide
types from it. The session sets all settings again, for poolers that ignore them.

Up to 1.11 the driver copies bytes into a column of any type. From 1.12 on it looks at the column's type, and refuses
bytes for `numeric` before it sends a row. Each combination of types is tried once in a process, with no rows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import pyarrow as pa

from snapshot_assets.databases.postgresql.failures import is_of_server
from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.postgresql.wire.texts import ENCODERS
from snapshot_assets.databases.postgresql.write_forms import Receiver
from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.errors import DatabaseError, TransientError
from snapshot_assets.format.relations import TableName

if TYPE_CHECKING:
    import adbc_driver_postgresql.dbapi as adbc


Pair = tuple[pa.DataType, Receiver]
"""A stream's Arrow type, and the column that it is copied into."""

_PACKAGE = "adbc-driver-postgresql"
_TABLE = TableName("pg_temp", "snapshot_assets_types")
_TYPES = f"""
SELECT min(t.oid::pg_catalog.regtype::text) AS type, p.prosrc AS function
FROM pg_catalog.pg_type t JOIN pg_catalog.pg_proc p ON p.oid = t.typreceive
WHERE t.typnamespace = 'pg_catalog'::pg_catalog.regnamespace AND p.prosrc IN ({", ".join(map(literal, ENCODERS))})
GROUP BY p.prosrc ORDER BY p.prosrc
"""

_taken: dict[Pair, bool] = {}


def driver_text() -> str:
    """Return the driver's package and version."""
    return f"{_PACKAGE} {version(_PACKAGE)}"


def refused(connection: PostgresqlConnection, columns: Mapping[str, Pair]) -> set[str]:
    """Return the columns that the driver refuses to copy into, in a transaction, which goes on.

    Args:
        connection: The target, whose user may make temporary tables.
        columns: By name, the Arrow type of a stream's column, and the target's column.
    """
    _try(connection, [(name, pair) for name, pair in columns.items() if pair not in _taken])
    return {name for name, pair in columns.items() if not _taken[pair]}


def _try(connection: PostgresqlConnection, columns: list[tuple[str, Pair]]) -> None:
    """Record which columns the driver takes; an error does not say which, so each half is tried again."""
    if not columns:
        return
    taken = _takes(connection, dict(columns))
    if taken or len(columns) == 1:
        _taken.update((pair, taken) for _, pair in columns)
        return
    half = len(columns) // 2
    _try(connection, columns[:half])
    _try(connection, columns[half:])


def _takes(connection: PostgresqlConnection, columns: Mapping[str, Pair]) -> bool:
    doing = "trying the driver"
    definitions = ", ".join(f"{identifier(name)} {receiver.type}" for name, (_, receiver) in columns.items())
    connection.execute("SAVEPOINT tried", doing)
    connection.execute(f"CREATE TEMPORARY TABLE {_TABLE.table} ({definitions})", doing)
    try:
        connection.copy(_TABLE, pa.schema((name, kind) for name, (kind, _) in columns.items()).empty_table())
        taken = True
    except DatabaseError as error:
        if isinstance(error, TransientError) or "sqlstate" in error.attributes:  # the server's
            raise
        taken = False
    connection.execute("ROLLBACK TO SAVEPOINT tried", doing)
    return taken


def refused_types(connection: PostgresqlConnection) -> list[str]:
    """Return PostgreSQL's own types whose values the driver refuses as bytes, in a transaction, which goes on."""
    types = {row["type"]: row["function"] for row in connection.rows(_TYPES, "listing types")}
    return sorted(refused(connection, {name: (pa.binary(), Receiver(name, types[name])) for name in types}))


_LATER = ("search_path",)
"""Settings that only the session sets: `SET … TO DEFAULT` would return to the value of the packet."""

_AT_FIRST = {"client_encoding": "SQL_ASCII"}
"""Other values in the packet: the driver reads all names of types, which in an SQL_ASCII database may be no UTF-8."""

_SPECIAL, _ESCAPED = re.compile(r"[\\ ]"), r"\\\g<0>"

_refused: dict[str, set[str]] = {}
"""By URI, the settings that its server refused, so that every further connection succeeds at the first try."""


def connect(uri: str, settings: Mapping[str, str]) -> adbc.Connection:
    """Connect, leaving out of the start-up packet what the server does not know and what a pooler refuses.

    Args:
        uri: Where to connect. Options in it, or else in `PGOPTIONS`, are kept; those of `settings` precede them.
        settings: Settings by name, which any user may set.

    Raises:
        adbc_driver_manager.Error: The connection fails.
    """
    import adbc_driver_manager
    import adbc_driver_postgresql.dbapi as adbc

    refused = _refused.setdefault(uri, set())
    while True:
        sent = {name: value for name, value in {**settings, **_AT_FIRST}.items() if name not in {*_LATER, *refused}}
        try:
            return adbc.connect(_with_options(uri, sent) if sent else uri, autocommit=True)
        except adbc_driver_manager.Error as error:
            new = _named(sent, str(error))
            if not new:
                raise
            refused |= new


def _named(sent: Mapping[str, str], message: str) -> set[str]:
    """Return the settings to which a message objects, by the names in it, which no language translates.

    Poolers that take no settings at the start, such as PgBouncer, name the packet's parameter `options`.
    """
    words = set(re.findall(r"\w+", message.lower())) if is_of_server(message) else set()
    return {name for name in sent if "options" in words or name.lower() in words}


def _with_options(uri: str, settings: Mapping[str, str]) -> str:
    """Return a URI with settings after its own options; libpq takes the last `options`."""
    scheme, _, rest = uri.partition("://")
    user = rest[: rest.find("@") + 1] if "@" in rest.partition("/")[0] else ""
    place, _, query = rest.removeprefix(user).partition("?")
    parameters = query.split("&") if query else []
    given = [unquote(each.partition("=")[2]) for each in parameters if each.startswith("options=")]
    own = [f"-c {name}={_SPECIAL.sub(_ESCAPED, value)}" for name, value in settings.items()]
    options = " ".join([*(given[-1:] or filter(None, [os.environ.get("PGOPTIONS")])), *own])
    return f"{scheme}://{user}{place}?{'&'.join([*parameters, f'options={quote(options)}'])}"
