"""Restores schemas without rows, and dumps them."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

from snapshot_assets.databases.postgresql.ddl import define
from snapshot_assets.databases.postgresql.target import PostgresqlTarget
from snapshot_assets.databases.source import DatabaseAddress, Selection
from snapshot_assets.databases.target import Definition, Statement
from snapshot_assets.format.relations import DatabaseSchema
from snapshot_assets_tests.databases.postgresql.helpers import opened
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

EVERYTHING = Path(__file__).with_name("everything.sql").read_text()
"""A schema with every kind of object that can be restored."""

ROWS = Path(__file__).with_name("everything_rows.sql").read_text()
"""Rows for it."""


def extracted(uri: str, selection: Selection | None = None) -> DatabaseSchema:
    """Return the documents of a database after a way through JSON, as in a snapshot."""
    with opened(uri) as database:
        return DatabaseSchema.model_validate_json(database.extract(selection or Selection()).model_dump_json())


def in_schemas(*scripts: str) -> str:
    """Return scripts as one, each in a schema of its own."""
    return "".join(
        f"CREATE SCHEMA c{number}; SET search_path = c{number};\n{each}" for number, each in enumerate(scripts)
    )


def run(uri: str, statements: tuple[Statement, ...]) -> None:
    """Run statements one by one in one transaction, as a restore does."""
    with closing(PostgresqlTarget(DatabaseAddress("target", uri))) as target, target._transaction():
        target._run(statements)


def restore(schema: DatabaseSchema, uri: str, *, expressions: bool = True) -> Definition:
    """Create a schema in a database."""
    definition = define(schema, expressions=expressions)
    run(uri, definition.before)
    run(uri, definition.after)
    return definition


def schema_dump(server: PostgresqlServer, uri: str) -> str:
    """Return what pg_dump prints of a schema, without the random key of its `\\restrict` line."""
    text = server.pg_dump(uri, "--schema-only", "--no-owner", "--no-privileges")
    return re.sub(r"(?m)^(\\(?:un)?restrict) .*$", r"\1", text)
