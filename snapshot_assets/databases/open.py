"""Opens sources and targets by URI; the module of a database is imported when it is first used."""

from __future__ import annotations

import importlib
import re
import socket
import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, cast

from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.databases.definition import Definition
from snapshot_assets.databases.protocol.source import Database, DatabaseAddress
from snapshot_assets.errors import UnknownSourceError
from snapshot_assets.format.relations import DatabaseSchema

if TYPE_CHECKING:
    import pyarrow as pa

    from snapshot_assets.databases.protocol.sql_target import SqlTarget

_FORMS = {
    "postgresql": "postgresql://user@host/database",
    "duckdb": "duckdb:///absolute/path.duckdb",
    "spark": "spark:catalog or spark:catalog.namespace",
    "asset": "asset:key of a Dagster asset, as a plan's source",
}
TARGETS = ("postgresql", "duckdb")
"""Kinds of databases that a snapshot can be restored into."""
_KINDS = {"spark": "Spark catalog", "asset": "Dagster asset"}
DRIVERS = {"postgresql": ("adbc_driver_postgresql", "adbc_driver_manager"), "duckdb": ("duckdb",)}
"""Packages that connect to a kind of database."""
_EXTRA = "snapshot-assets[postgres]"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=:)")


class DatabaseModule(Protocol):
    """What the package of a database offers."""

    def open(self, address: DatabaseAddress) -> Database:
        """Connect for reading; see `open_database`."""

    def default_alias(self, uri: str) -> str:
        """Return a public name from the URI, without user or password."""


class TargetModule(DatabaseModule, Protocol):
    """What the package of a database offers into which a snapshot can be restored."""

    ONE_WRITER: bool
    """Whether only one connection at a time may write."""

    def open_target(self, address: DatabaseAddress) -> SqlTarget:
        """Connect for writing; see `open_database`."""

    def scratch(self, address: DatabaseAddress, name: str) -> AbstractContextManager[DatabaseAddress]:
        """Create a database beside the one of an address, and drop it at the end; see `scratch_database`."""

    def define(self, schema: DatabaseSchema, *, expressions: bool = True, code: bool = False) -> Definition:
        """Return how to create a schema that comes from the same kind of database.

        Args:
            schema: What is restored; a selection may leave out tables that others refer to.
            expressions: Whether to restore the SQL text of the snapshot: defaults, checks, generated columns and
                views. If not, they are listed in `lost`.
            code: Whether to restore functions, triggers and other code; only PostgreSQL has any.

        Raises:
            DocumentError: A text of the documents is not a type, expression or query as expected.
            RestoreError: The same in PostgreSQL, or a table depends on one that is not restored; names the object.
            UnsupportedTypeError: The database cannot have a table.
        """

    def rename(self, schema: DatabaseSchema, renaming: Renaming) -> tuple[DatabaseSchema, tuple[str, ...]]:
        """Return documents of the same kind of database with new names, before `define`.

        Returns:
            The documents, and a sentence for each view that is left out because its query cannot be changed safely.

        Raises:
            PlanError: Two objects would have one name.
            DocumentError: An expression names what is renamed, and cannot be changed safely.
            RestoreError: A new name is too long, or the documents have another form than expected.
        """

    def type_for(self, arrow_type: pa.DataType) -> str:
        """Return the type for an Arrow type's values, for tables of another kind of database.

        Raises:
            UnsupportedTypeError: The database has no such type.
        """


def kind_of(uri: str) -> str:
    """Return the kind of a URI's database: `postgresql`, `duckdb` or `spark`; `asset` for a source that is none.

    Raises:
        UnknownSourceError: The URI is of no known kind.
    """
    match = _SCHEME.match(uri)
    kind = match.group().lower() if match else ""
    kind = "postgresql" if kind == "postgres" else kind
    if kind not in _FORMS:
        # The message must not quote the URI, which may contain a password.
        scheme = f"{match.group()}:" if match else "no scheme"
        raise UnknownSourceError(
            f"A source or target must be an alias of the configuration or a database URI; found one with {scheme}."
            f" Write one of: {', '.join(_FORMS.values())}.",
            found=scheme,
        )
    return kind


def default_alias(uri: str) -> str:
    """Return a public name from a URI, without user, password or host; see `open_database` for its errors."""
    return database_module(uri).default_alias(uri)


def open_database(address: DatabaseAddress) -> Database:
    """Connect to a database.

    Raises:
        UnknownSourceError: The URI is of no known kind, has an invalid form, or its driver is missing.
        DatabaseUnavailableError: The database cannot be reached.
        DatabaseDeniedError: The database refused the user or password.
        DatabaseLockedError: Another process holds the database file.
        DatabaseError: The database does not exist, or it is damaged.
    """
    return database_module(address.uri).open(address)


def database_module(uri: str) -> DatabaseModule:
    """Return the package for a URI's kind of database.

    Raises:
        UnknownSourceError: The URI is of no known kind, or its driver is missing.
    """
    kind = kind_of(uri)
    try:
        if kind == "postgresql":  # DuckDB and Spark import theirs where they connect
            for driver in DRIVERS[kind]:
                importlib.import_module(driver)
        return cast(DatabaseModule, importlib.import_module(f"snapshot_assets.databases.{kind}"))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in DRIVERS["postgresql"]:
            raise
        raise UnknownSourceError(
            f"{kind}: needs the Python package {missing!r}, which {sys.executable} on {socket.gethostname()} does not"
            f" have. Install it there with: pip install '{_EXTRA}'; for Spark's executors, with the packages of"
            " requirements/run.txt.",
            missing=missing,
            extra=_EXTRA,
        ) from error


def target_module(address: DatabaseAddress) -> TargetModule:
    """Return the package for a database into which a snapshot is restored.

    Raises:
        UnknownSourceError: It is no target, its URI is of no known kind, or its driver is missing.
    """
    refuse_as_target(f"target {address.alias}", kind_of(address.uri))
    return cast(TargetModule, database_module(address.uri))


def refuse_as_target(name: str, kind: str | None) -> None:
    """Refuse a database of a kind into which nothing can be restored; None is not known yet.

    Raises:
        UnknownSourceError: It is no target.
    """
    if kind is not None and kind not in TARGETS:
        of_spark = " Spark itself writes a snapshot's rows into a catalog: see docs/how-to/into-spark.md."
        raise UnknownSourceError(
            f"{name} is a {_KINDS[kind]}, into which nothing can be restored. Restore into a database: write"
            f" postgresql://host/database or duckdb:///absolute/path.duckdb.{of_spark if kind == 'spark' else ''}",
            found=kind,
        )


def open_target(address: DatabaseAddress) -> SqlTarget:
    """Connect to a database as the target of a restore; see `target_module` and `open_database` for errors."""
    return target_module(address).open_target(address)


def scratch_database(address: DatabaseAddress, name: str) -> AbstractContextManager[DatabaseAddress]:
    """Create an empty database beside another one, yield its address, and drop it at the end.

    The other one is on the same server, or a file in the same folder, and is not changed. If a run was killed, its
    scratch database is dropped when the next one of the same name is created.

    Raises:
        UnknownSourceError: See `target_module`.
        DatabaseError: It cannot be created, or another process uses it.
    """
    return target_module(address).scratch(address, name)
