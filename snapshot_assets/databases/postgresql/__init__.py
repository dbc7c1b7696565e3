"""PostgreSQL 14 and later, through ADBC, whose driver converts between COPY's binary stream and Arrow."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, unquote

from snapshot_assets.databases.contract import DatabaseKind, later
from snapshot_assets.databases.convert.renaming import LONGEST
from snapshot_assets.format.relations import DatabaseSchema

__all__ = ["KIND", "adapt", "default_alias", "define", "open", "open_target", "rename", "scratch", "type_for"]

KIND = DatabaseKind(
    contract=1,
    name="postgresql",
    title="PostgreSQL",
    form="postgresql://host/database",
    target=True,
    longest_name=LONGEST,
    drivers=("adbc_driver_postgresql.dbapi", "adbc_driver_manager"),
    requirement="snapshot-assets[postgres]",
    fields=("encoding", "copy", "consistency"),
    code=True,
    holder_reads=True,
    mend_indexes="check the indexes with amcheck, and REINDEX TABLE {table}",
)


def default_alias(uri: str) -> str:
    """Return the database's name: no user, password or host, even for a URI that libpq would refuse.

    Args:
        uri: `postgresql://[user[:password]@][host][:port][,…][/database][?options]`.
    """
    rest, _, query = uri.partition("://")[2].partition("?")
    database = parse_qs(query).get("dbname", [unquote(rest.rpartition("@")[2].partition("/")[2])])[0]
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", database).strip("-.")[:100] or "postgresql"


# The driver is imported where a database is opened.
open = later(f"{__name__}.source", "PostgresqlDatabase")
open_target = later(f"{__name__}.target", "PostgresqlTarget")
scratch = later(f"{__name__}.target", "scratch")
define = later(f"{__name__}.ddl", "define")
rename = later(f"{__name__}.renaming", "rename")
type_for = later(f"{__name__}.types", "type_for")


def adapt(schema: DatabaseSchema) -> tuple[DatabaseSchema, tuple[str, ...]]:
    """Return converted documents as they are: PostgreSQL can have all that a conversion keeps."""
    return schema, ()
