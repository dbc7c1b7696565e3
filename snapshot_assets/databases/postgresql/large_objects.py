"""Large objects as rows: one table of pages, which a snapshot holds in chunk 0 like any table without a time index.

The table does not exist in PostgreSQL. A source reads it from the server's functions, and a target writes it with them,
so that neither needs to be a superuser. In a database of another kind it becomes a table with these rows.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.protocol.ledger import FILES
from snapshot_assets.databases.protocol.target import LEDGER_SCHEMA
from snapshot_assets.databases.sql import literal
from snapshot_assets.errors import DatabaseDeniedError, RestoreError, TargetNotEmptyError
from snapshot_assets.format.relations import Column, Table, TableName
from snapshot_assets.format.units import counted

LARGE_OBJECTS = TableName("snapshot_assets", "large_objects")
"""Name of the table."""

OPTION = "large_objects"
"""The option of its document that distinguishes it from a user's table of that name."""

_PAGE_BYTES = 1 << 20
_READ = 0x40000
"""INV_READ: the mode of `lo_open` that reads the state of the transaction."""

_OWN = f'"{LEDGER_SCHEMA}"."large_objects"'
"""The ledger's list of the large objects that imports made: others are never written to or deleted."""

# OFFSET 0 makes the server open each large object once, and close it after its size is known.
_SIZES = f"""
    SELECT m.oid, f.size, obj_description(m.oid, 'pg_largeobject') AS comment FROM pg_catalog.pg_largeobject_metadata m
    CROSS JOIN LATERAL (
        SELECT pg_catalog.lo_lseek64(o.fd, 0, 2) + pg_catalog.lo_close(o.fd) AS size
        FROM (SELECT pg_catalog.lo_open(m.oid, {_READ}) AS fd OFFSET 0) o OFFSET 0) f"""
_OWN_SIZES = f"{_SIZES} WHERE m.oid IN (SELECT l.oid::pg_catalog.oid FROM {_OWN} l)"


def _pages(sizes: str) -> str:
    return f"""
    SELECT s.oid, p.page, s.comment FROM ({sizes}) s
    CROSS JOIN LATERAL pg_catalog.generate_series(
        0, pg_catalog.int4(greatest((s.size + {_PAGE_BYTES - 1}) / {_PAGE_BYTES}, 1)) - 1) p (page)"""


ROWS = f"""(
    SELECT l.oid::pg_catalog.int8 AS oid, l.page,
        pg_catalog.lo_get(l.oid, l.page::pg_catalog.int8 * {_PAGE_BYTES}, {_PAGE_BYTES}) AS data,
        CASE l.page WHEN 0 THEN l.comment END AS comment
    FROM ({_pages(_SIZES)}) l) AS large_objects"""
"""FROM item of the rows; an empty large object has an empty page."""

ROWS_WITHOUT_DATA = f"({_pages(_SIZES)}) AS large_objects"
"""FROM item of as many rows, for counting them."""

COLUMNS = {"oid": "bigint", "page": "integer", "data": "bytea", "comment": "text"}
"""Columns and types of the rows."""

_STAGE = TableName("pg_temp", "snapshot_assets_pages")

_COUNT = """
SELECT count(*) AS objects, count(*) FILTER (WHERE NOT (
    pg_has_role(m.lomowner, 'USAGE') OR current_setting('lo_compat_privileges')::bool
    OR EXISTS (SELECT FROM aclexplode(m.lomacl) a WHERE a.privilege_type = 'SELECT' AND (
        a.grantee = 0 OR pg_has_role(a.grantee, 'USAGE'))))) AS denied
FROM pg_largeobject_metadata m
"""


def is_large_objects(table: Table) -> bool:
    """Return whether a document is that of the large objects."""
    return table.table_name == LARGE_OBJECTS and OPTION in table.options


def large_objects_table(session: PostgresqlConnection) -> Table | None:
    """Return the document of the large objects, None if there are none.

    Raises:
        DatabaseDeniedError: This user may not read some of them.
    """
    rows = session.rows(_COUNT, "looking for large objects", optional="large objects")
    if not rows or not rows[0]["objects"]:
        return None
    [row] = rows
    if row["denied"]:
        raise DatabaseDeniedError(
            f"This user may not read {row['denied']:,} of {counted(row['objects'], 'large object')}. Grant SELECT on"
            " them, or give"
            " --skip-large-objects (in a plan: `large_objects: skip`), and they are left out.",
            large_objects=row["denied"],
        )
    return Table(
        schema_name=LARGE_OBJECTS.schema,
        name=LARGE_OBJECTS.table,
        columns=(
            Column(name="oid", type="bigint", arrow_type="int64", nullable=False),
            Column(name="page", type="integer", arrow_type="int32", nullable=False),
            Column(name="data", type="bytea", arrow_type="binary", nullable=False),
            Column(name="comment", type="text", arrow_type="string"),
        ),
        options={OPTION: {"page_bytes": _PAGE_BYTES}},
        comment="Large objects of PostgreSQL, in pages.",
    )


def count_large_objects(session: PostgresqlConnection) -> int:
    """Return how many large objects there are."""
    return sum(row["objects"] for row in session.rows(_COUNT, "looking for large objects", optional="large objects"))


def insert_large_objects(target: PostgresqlConnection, table: Table, portions: Iterable[pa.Table]) -> None:
    """Write pages in a transaction: create the large objects that do not exist yet, under their own oids.

    Pages of one object may lie in several files. Only one connection at a time writes, until its transaction ends.

    Args:
        target: Where to write.
        table: The document.
        portions: The rows.

    Raises:
        TargetNotEmptyError: The target has large objects of the same numbers that no import made.
    """
    lock = "pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('snapshot_assets large objects', 0))"
    target.rows(f"SELECT {lock} IS NULL AS got", "waiting for other large objects")
    target.execute(f"CREATE TABLE IF NOT EXISTS {_OWN} (oid bigint PRIMARY KEY)", "making the ledger of large objects")
    definitions = ", ".join(f"{column} {kind}" for column, kind in COLUMNS.items())
    target.execute(f"CREATE TEMPORARY TABLE {_STAGE.table} ({definitions}) ON COMMIT DROP", "staging large objects")
    for portion in portions:
        target.copy(_STAGE, portion)
        _refuse_others(target)
        _write_pages(target, int(table.options[OPTION]["page_bytes"]))
        target.execute(f"TRUNCATE {_STAGE}", "emptying the staging table of large objects")
    target.execute(f"DROP TABLE {_STAGE}", "dropping the staging table of large objects")


def _refuse_others(target: PostgresqlConnection) -> None:
    """Refuse staged pages of large objects that exist, and that no import made; else record them as an import's."""
    rows = target.rows(
        f"SELECT DISTINCT s.oid FROM {_STAGE} s JOIN pg_catalog.pg_largeobject_metadata m"
        f" ON m.oid = s.oid::pg_catalog.oid WHERE s.oid NOT IN (SELECT oid FROM {_OWN}) ORDER BY s.oid",
        "looking for large objects of others",
    )
    if rows:
        some = ", ".join(str(row["oid"]) for row in rows[:5]) + (" …" if len(rows) > 5 else "")
        raise TargetNotEmptyError(
            f"The snapshot and the target both have large objects {some}, and no import of this snapshot made those of"
            " the target. Nothing of them was changed. Give the target's another number, or delete them with"
            f" lo_unlink; or restore without {LARGE_OBJECTS}: name the other tables with --tables.",
            large_objects=[row["oid"] for row in rows],
        )
    target.execute(
        f"INSERT INTO {_OWN} SELECT DISTINCT oid FROM {_STAGE} ON CONFLICT DO NOTHING", "recording large objects"
    )


def _write_pages(target: PostgresqlConnection, page_bytes: int) -> None:
    target.rows(
        "SELECT pg_catalog.count(pg_catalog.lo_create(s.oid::pg_catalog.oid)) AS created"
        f" FROM (SELECT DISTINCT oid FROM {_STAGE}) s WHERE NOT EXISTS ("
        "SELECT FROM pg_catalog.pg_largeobject_metadata m WHERE m.oid = s.oid::pg_catalog.oid)",
        "creating large objects",
    )
    target.rows(
        "SELECT pg_catalog.count(pg_catalog.lo_put(s.oid::pg_catalog.oid,"
        f" s.page::pg_catalog.int8 * {page_bytes}, s.data)::text) AS written FROM {_STAGE} s"
        " WHERE pg_catalog.length(s.data) > 0",
        "writing large objects",
    )
    statements = f"SELECT pg_catalog.format('COMMENT ON LARGE OBJECT %s IS %L', oid, comment) AS sql FROM {_STAGE}"
    for row in target.rows(f"{statements} WHERE comment IS NOT NULL", "reading comments of large objects"):
        target.execute(row["sql"], "commenting on a large object")


def delete_large_objects(target: PostgresqlConnection) -> None:
    """Delete the large objects that imports made.

    Raises:
        RestoreError: An import of an earlier version made some, and recorded none.
    """
    if not _recorded(target):
        name = LARGE_OBJECTS
        loaded = f"SELECT 1 AS one FROM {FILES} WHERE rows > 0 AND table_schema = {literal(name.schema)}"
        if target.rows(f"{loaded} AND table_name = {literal(name.table)}", "reading the ledger"):
            raise RestoreError(
                "An earlier version of this program restored the target's large objects, and did not record which"
                " those are, so they cannot be told from others and none was replaced. List them:"
                f" CREATE TABLE {_OWN} AS SELECT oid::bigint FROM pg_largeobject_metadata WHERE …; ALTER TABLE {_OWN}"
                " ADD PRIMARY KEY (oid); then run again.",
            )
        return
    target.rows(
        "SELECT pg_catalog.count(pg_catalog.lo_unlink(m.oid)) AS deleted FROM pg_catalog.pg_largeobject_metadata m"
        f" WHERE m.oid IN (SELECT l.oid::pg_catalog.oid FROM {_OWN} l)",
        "deleting large objects",
    )
    target.execute(f"DELETE FROM {_OWN}", "deleting large objects from the ledger")


def _recorded(target: PostgresqlConnection) -> bool:
    query = f"SELECT pg_catalog.to_regclass({literal(_OWN)}) IS NOT NULL AS there"
    return bool(target.rows(query, "looking for the ledger of large objects")[0]["there"])


def pages_of_imports(target: PostgresqlConnection) -> str:
    """Return the FROM item of the pages that imports wrote; of all, where an earlier version recorded none."""
    return f"({_pages(_OWN_SIZES)}) AS large_objects" if _recorded(target) else ROWS_WITHOUT_DATA


def has_large_objects(target: PostgresqlConnection) -> bool:
    """Return whether a database has any."""
    query = "SELECT EXISTS (SELECT FROM pg_catalog.pg_largeobject_metadata) AS any"
    return bool(target.rows(query, "looking for large objects")[0]["any"])
