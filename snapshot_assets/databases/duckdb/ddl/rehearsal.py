"""Rehearses statements in an empty database in memory, to find those that DuckDB would refuse.

A file that a restore writes to is not touched: DuckDB loses its lock if a process opens the file a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from snapshot_assets.databases.definition.statements import FailedStatement, ObjectKey, Statement
from snapshot_assets.databases.duckdb.ddl.tables import TARGET
from snapshot_assets.databases.sql import identifier


@dataclass(frozen=True)
class Lacking(Statement):
    """Needs what no other statement makes, such as a macro: it fails unless the target has that.

    Attributes:
        reason: DuckDB's message.
    """

    reason: str = ""

    @classmethod
    def of(cls, made: Statement, reason: str) -> Lacking:
        """Return a statement as one that lacks something."""
        return cls(made.key, made.sql, made.table, made.unless, made.there, made.reads, reason)


def rehearse(statements: Sequence[Statement]) -> list[FailedStatement]:
    """Return the statements that fail; of several that make one object, the first that does."""
    failed: dict[ObjectKey, FailedStatement] = {}
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH ':memory:' AS {identifier(TARGET)}; USE {identifier(TARGET)}")
        connection.execute("SET autoload_known_extensions = false; SET autoinstall_known_extensions = false")
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        for statement in statements:
            if statement.key in failed:
                continue
            try:
                if not any(connection.execute(query).fetchall() for query in statement.skips):
                    connection.execute(statement.sql)
            except duckdb.Error as error:
                text = " ".join(str(error).split())
                lacks = isinstance(error, duckdb.CatalogException)
                failed[statement.key] = FailedStatement(statement, text, lacks=lacks)
    return list(failed.values())
