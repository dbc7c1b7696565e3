"""Scratch databases: created beside a database of the same server, and dropped after use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from urllib.parse import parse_qsl, quote, urlencode

from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.source import DatabaseAddress
from snapshot_assets.databases.sql import identifier, literal
from snapshot_assets.errors import DatabaseError

_MOST_BYTES = 63
"""Bytes of a name; the server cuts longer ones."""

_OURS = "Scratch database of snapshot_assets: dropped after use, or by the next one of this name."


@contextmanager
def scratch(address: DatabaseAddress, name: str) -> Iterator[DatabaseAddress]:
    """Yield the address of a new database; see `DatabaseModule.scratch`."""
    name = name.encode()[:_MOST_BYTES].decode(errors="ignore")
    own = replace(address, uri=_uri_of(address.uri, name))
    with closing(PostgresqlConnection(address)) as server:
        _drop_leftover(server, address, name)
        server.execute(f"CREATE DATABASE {identifier(name)}", f"creating the scratch database {name}")
        try:
            server.execute(f"COMMENT ON DATABASE {identifier(name)} IS {literal(_OURS)}", "commenting on it")
            with closing(PostgresqlConnection(own)):  # while it is open, no other run takes it for a leftover
                yield own
        finally:
            server.execute(f"DROP DATABASE {identifier(name)} WITH (FORCE)", f"dropping the scratch database {name}")


def _drop_leftover(server: PostgresqlConnection, address: DatabaseAddress, name: str) -> None:
    query = (
        "SELECT pg_catalog.shobj_description(oid, 'pg_database') AS comment FROM pg_catalog.pg_database"
        f" WHERE datname = {literal(name)}"
    )
    for row in server.rows(query, "looking for a scratch database"):
        if row["comment"] != _OURS:
            raise DatabaseError(
                f"PostgreSQL {address.alias!r} has a database {name!r}, which this program did not create. Rename or"
                " drop it, or give another server.",
                found=name,
            )
        server.execute(f"DROP DATABASE {identifier(name)}", f"dropping {name}, which a killed run left, or one uses")


def _uri_of(uri: str, database: str) -> str:
    """Return a URI with another database, for each way in which libpq takes its name."""
    scheme, _, rest = uri.partition("://")
    address, _, query = rest.partition("?")
    user, at, host = address.rpartition("@")
    options = urlencode(
        [each for each in parse_qsl(query, keep_blank_values=True) if each[0] != "dbname"], quote_via=quote
    )
    return f"{scheme}://{user}{at}{host.partition('/')[0]}/{quote(database, safe='')}{'?' if options else ''}{options}"
