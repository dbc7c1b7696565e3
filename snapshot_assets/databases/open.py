"""Opens sources and targets by URI; the module of a database is imported when it is first used."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from typing import cast

from snapshot_assets.databases.source import Database, DatabaseAddress, DatabaseModule
from snapshot_assets.databases.target import Target, TargetModule
from snapshot_assets.errors import UnknownSourceError


@dataclass(frozen=True)
class _Kind:
    """One kind of database.

    Attributes:
        module: The module that opens it.
        form: The form of its URI.
        driver: Top-level package of an optional driver.
        extra: The extra of this package that installs the driver.
    """

    module: str
    form: str
    driver: str | None = None
    extra: str | None = None


_PACKAGE = "snapshot_assets.databases"
_POSTGRESQL = _Kind(
    f"{_PACKAGE}.postgresql", "postgresql://user@host/database", "adbc_driver_postgresql", "snapshot-assets[postgres]"
)
_KINDS: dict[str, tuple[str, _Kind]] = {
    "postgresql": ("postgresql", _POSTGRESQL),
    "postgres": ("postgresql", _POSTGRESQL),
    "duckdb": ("duckdb", _Kind(f"{_PACKAGE}.duckdb", "duckdb:///absolute/path.duckdb")),
    "spark": ("spark", _Kind(f"{_PACKAGE}.spark", "spark:catalog or spark:catalog.namespace")),
}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=:)")


def kind_of(uri: str) -> str:
    """Return the kind of a URI's database: `postgresql`, `duckdb` or `spark`.

    Raises:
        UnknownSourceError: The URI is of no known kind.
    """
    return _entry(uri)[0]


def default_alias(uri: str) -> str:
    """Return a public name from a URI, without user, password or host.

    Raises:
        UnknownSourceError: The URI is of no known kind, or has an invalid form.
    """
    return _module(uri).default_alias(uri)


def open_database(address: DatabaseAddress) -> Database:
    """Connect to a database.

    Raises:
        UnknownSourceError: The URI is of no known kind, has an invalid form, or its driver is missing.
        DatabaseUnavailableError: The database cannot be reached.
        DatabaseDeniedError: The database refused the user or password.
        DatabaseLockedError: Another process holds the database file.
        DatabaseError: The database does not exist, or it is damaged.
    """
    return _module(address.uri).open(address)


def target_module(uri: str) -> TargetModule:
    """Return the module for restores into a URI's kind of database.

    Raises:
        UnknownSourceError: The URI is of no known kind, or its driver is missing.
    """
    return cast(TargetModule, _module(uri))


def open_target(address: DatabaseAddress) -> Target:
    """Connect to a database as the target of a restore.

    Raises:
        UnknownSourceError: See `open_database`.
        DatabaseError: See `open_database`.
    """
    return target_module(address.uri).open_target(address)


def _entry(uri: str) -> tuple[str, _Kind]:
    match = _SCHEME.match(uri)
    entry = _KINDS.get(match.group().lower()) if match else None
    if entry is None:
        # The message must not quote the URI, which may contain a password.
        scheme = f"{match.group()}:" if match else "no scheme"
        forms = ", ".join(dict.fromkeys(kind.form for _, kind in _KINDS.values()))
        raise UnknownSourceError(
            f"A source or target must be an alias of the configuration or a database URI; found one with {scheme}."
            f" Write one of: {forms}.",
            found=scheme,
        )
    return entry


def _module(uri: str) -> DatabaseModule:
    kind = _entry(uri)[1]
    try:
        return cast(DatabaseModule, importlib.import_module(kind.module))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if kind.driver is None or missing not in (kind.driver, "adbc_driver_manager"):
            raise
        raise UnknownSourceError(
            f"{kind.form.partition(':')[0]}: needs the Python package {missing!r}, which is not installed."
            f" Install it with: pip install '{kind.extra}'.",
            missing=missing,
            extra=kind.extra,
        ) from error
