"""Rehearses statements in an empty database in memory, to find those that DuckDB would refuse.

A file that a restore writes to is not touched: DuckDB loses its lock if a process opens the file a second time.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from snapshot_assets.databases.duckdb.ddl.tables import TARGET
from snapshot_assets.databases.sql import identifier
from snapshot_assets.databases.target import FailedStatement, Statement


def rehearse(statements: Sequence[Statement]) -> list[FailedStatement]:
    """Return the statements that fail; of several that make one object, the first that does."""
    failed: dict[str, FailedStatement] = {}
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH ':memory:' AS {identifier(TARGET)}; USE {identifier(TARGET)}")
        connection.execute("SET autoload_known_extensions = false; SET autoinstall_known_extensions = false")
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        for statement in statements:
            if statement.makes in failed:
                continue
            try:
                if not (statement.unless and connection.execute(statement.unless).fetchall()):
                    connection.execute(statement.sql)
            except duckdb.Error as error:
                text = " ".join(str(error).split())
                failed[statement.makes] = FailedStatement(statement, text, lacks="does not exist" in text)
    return list(failed.values())
