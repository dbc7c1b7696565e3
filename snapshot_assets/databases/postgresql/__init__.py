"""PostgreSQL 14 and later, through ADBC, whose driver converts between COPY's binary stream and Arrow."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, unquote

from snapshot_assets.databases.postgresql.ddl import define
from snapshot_assets.databases.postgresql.renaming import rename
from snapshot_assets.databases.postgresql.source import PostgresqlDatabase
from snapshot_assets.databases.postgresql.target import PostgresqlTarget, scratch
from snapshot_assets.databases.postgresql.types import type_for

__all__ = ["ONE_WRITER", "default_alias", "define", "open", "open_target", "rename", "scratch", "type_for"]

ONE_WRITER = False
open = PostgresqlDatabase
open_target = PostgresqlTarget


def default_alias(uri: str) -> str:
    """Return the database's name: no user, password or host, even for a URI that libpq would refuse.

    Args:
        uri: `postgresql://[user[:password]@][host][:port][,…][/database][?options]`.
    """
    rest, _, query = uri.partition("://")[2].partition("?")
    database = parse_qs(query).get("dbname", [unquote(rest.rpartition("@")[2].partition("/")[2])])[0]
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", database).strip("-.") or "postgresql"
