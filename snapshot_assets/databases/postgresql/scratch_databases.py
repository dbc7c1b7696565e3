"""Scratch databases: created beside a database of the same server, and dropped after use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from urllib.parse import quote

from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.errors import DatabaseError, DatabaseLockedError, SnapshotError

_MOST_BYTES = 63
"""Bytes of a name; the server cuts longer ones."""

_OURS = "Scratch database of snapshot_assets: dropped after use, or by the next one of this name."


@contextmanager
def scratch(address: DatabaseAddress, name: str) -> Iterator[DatabaseAddress]:
    """Yield the address of a new database; see `TargetModule.scratch`."""
    name = name.encode()[:_MOST_BYTES].decode(errors="ignore")
    drop = f"DROP DATABASE {identifier(name)} WITH (FORCE)", f"dropping the scratch database {name}"
    with closing(PostgresqlConnection(address)) as server:
        _lock(server, address, name)
        _drop_leftover(server, address, name)
        server.execute(f"CREATE DATABASE {identifier(name)}", f"creating the scratch database {name}")
        try:
            server.execute(f"COMMENT ON DATABASE {identifier(name)} IS {literal(_OURS)}", "commenting on it")
            yield replace(address, uri=_uri_of(address.uri, name), encoding=None)
        except BaseException:
            with suppress(SnapshotError):  # the first error counts, and the next one of this name drops it
                server.execute(*drop)
            raise
        server.execute(*drop)


def _lock(server: PostgresqlConnection, address: DatabaseAddress, name: str) -> None:
    """Lock the name until the connection is closed; the server ends the lock of a killed run, too."""
    [row] = server.rows(
        f"SELECT pg_catalog.pg_try_advisory_lock(pg_catalog.hashtext({literal(name)})) AS locked", f"locking {name}"
    )
    if not row["locked"]:
        raise DatabaseLockedError(
            f"PostgreSQL {address.alias!r}: another run uses the scratch database {name!r}. Run again when it ends.",
            name=name,
        )


def _drop_leftover(server: PostgresqlConnection, address: DatabaseAddress, name: str) -> None:
    query = (
        "SELECT pg_catalog.shobj_description(oid, 'pg_database') AS comment FROM pg_catalog.pg_database"
        f" WHERE datname = {literal(name)}"
    )
    for row in server.rows(query, "looking for a scratch database"):
        if row["comment"] != _OURS:
            raise DatabaseError(
                f"PostgreSQL {address.alias!r} has a database {name!r} without the comment of a scratch database. Drop"
                " it if nobody needs it; otherwise rename it, or give another server.",
                name=name,
            )
        server.execute(f"DROP DATABASE {identifier(name)} WITH (FORCE)", f"dropping {name}, which a killed run left")


def _uri_of(uri: str, database: str) -> str:
    """Return a URI with another database, for each way in which libpq takes its name."""
    scheme, _, rest = uri.partition("://")
    address, _, query = rest.partition("?")
    user, at, host = address.rpartition("@")
    options = "&".join(each for each in query.split("&") if each.partition("=")[0] != "dbname")
    return f"{scheme}://{user}{at}{host.partition('/')[0]}/{quote(database, safe='')}{'?' if options else ''}{options}"
