"""Schemas by the names that documents use, and back.

DuckDB nests schemas. A top-level schema is named by its own name, one inside another by the dotted names of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from snapshot_assets.databases.duckdb.sql import qualified
from snapshot_assets.errors import UnknownRelationError, UnsupportedTypeError
from snapshot_assets.format.relations import TableName

_SCHEMAS = """
    SELECT oid, schema_name, parent_schema_oid FROM duckdb_schemas() WHERE database_name = ? ORDER BY oid
"""


class OpenDatabase(Protocol):
    """An open database whose catalog can be asked.

    Attributes:
        alias: Its public name.
        database: Its name in SQL.
    """

    alias: str
    database: str

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[Any]:
        """Return all rows of a query."""
        ...


class Schemas:
    """The schemas of an open database.

    Attributes:
        names: Name in documents by DuckDB's object id.
    """

    def __init__(self, session: OpenDatabase) -> None:
        self._database = session.database
        found = {oid: (name, parent) for oid, name, parent in session.rows(_SCHEMAS, [session.database])}
        paths = {oid: _path(oid, found) for oid in found}
        self.names: dict[int, str] = {oid: ".".join(path) for oid, path in paths.items()}
        self._paths: dict[str, tuple[str, ...]] = {}
        for path in paths.values():
            name = ".".join(path)
            if name in self._paths:
                raise UnsupportedTypeError(
                    f"DuckDB {session.alias!r} has two schemas that are both written {name!r}: one with a dot in its"
                    " name, one inside another. Rename one of them.",
                    schema=name,
                )
            self._paths[name] = path

    def relation(self, name: TableName) -> str:
        """Return the quoted, fully qualified name of a table or view.

        Raises:
            UnknownRelationError: Its schema does not exist.
        """
        path = self._paths.get(name.schema)
        if path is None:
            raise UnknownRelationError(
                f"Schema {name.schema!r} of table {str(name)!r} is no longer there. Export into a new snapshot.",
                table=str(name),
            )
        return qualified((self._database, *path, name.table))


def _path(oid: int, found: Mapping[int, tuple[str, int | None]]) -> tuple[str, ...]:
    name, parent = found[oid]
    return (name,) if parent is None else (*_path(parent, found), name)
