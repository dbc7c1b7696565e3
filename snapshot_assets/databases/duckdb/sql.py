"""Names in DuckDB SQL; `databases/sql.py` quotes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from snapshot_assets.databases.sql import identifier
from snapshot_assets.errors import UnknownRelationError, UnsupportedTypeError
from snapshot_assets.format.relations import TableName

_SCHEMAS = """
    SELECT oid, schema_name, parent_schema_oid FROM duckdb_schemas() WHERE database_name = ? ORDER BY oid
"""


def identifiers(names: Sequence[str]) -> str:
    """Return a list of quoted identifiers in parentheses."""
    return f"({', '.join(map(identifier, names))})"


def qualified(path: Sequence[str]) -> str:
    """Return a quoted name of several parts."""
    return ".".join(map(identifier, path))


class _Connected(Protocol):
    alias: str
    database: str

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[Any]: ...


class Schemas:
    """The schemas of an open database, by the names that documents use.

    DuckDB nests schemas. A document names a nested schema by the dotted names of the outer schemas and its own.

    Args:
        connected: The open database: its public name, its name in SQL, and its queries.

    Attributes:
        names: Name in documents by DuckDB's object id.

    Raises:
        UnsupportedTypeError: Two schemas have one name in documents.
    """

    def __init__(self, connected: _Connected) -> None:
        self._database = connected.database
        schemas = {oid: (name, parent) for oid, name, parent in connected.rows(_SCHEMAS, [connected.database])}
        paths = {oid: _path(oid, schemas) for oid in schemas}
        self.names: dict[int, str] = {oid: ".".join(path) for oid, path in paths.items()}
        self._paths: dict[str, tuple[str, ...]] = {}
        for path in paths.values():
            name = ".".join(path)
            if name in self._paths:
                raise UnsupportedTypeError(
                    f"DuckDB {connected.alias!r} has two schemas that are both written {name!r}: one with a dot in its"
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
                f"Schema {name.schema!r} of table {str(name)!r} no longer exists. Export into a new snapshot.",
                table=str(name),
            )
        return qualified((self._database, *path, name.table))


def _path(oid: int, schemas: Mapping[int, tuple[str, int | None]]) -> tuple[str, ...]:
    name, parent = schemas[oid]
    return (name,) if parent is None else (*_path(parent, schemas), name)
