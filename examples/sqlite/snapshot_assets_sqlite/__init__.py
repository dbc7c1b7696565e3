"""SQLite files as sources of snapshots. A URI is `sqlite:///absolute/path.db`, the path percent-encoded."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from snapshot_assets.databases.contract import DatabaseKind, alias_of
from snapshot_assets.databases.protocol.source import Database, DatabaseAddress
from snapshot_assets.errors import UnknownSourceError
from snapshot_assets.format.names import NameRule

KIND = DatabaseKind(
    contract=1,
    name="sqlite",
    title="SQLite",
    form="sqlite:///absolute/path.db",
    names=NameRule.ASCII_CASE_IGNORED,
    local_file=True,
)


def path_of(uri: str) -> str:
    """Return the path that a URI names, or raise an `UnknownSourceError`."""
    parts = urlsplit(uri)
    path = unquote(parts.path)
    if parts.netloc or parts.query or parts.fragment or not path.startswith("/") or path.endswith("/"):
        raise UnknownSourceError(f"A sqlite: URI must be the absolute path of a file; write {KIND.form}.")
    return path


def default_alias(uri: str) -> str:
    """Return the file's name without its suffix, as an alias."""
    return alias_of(PurePosixPath(path_of(uri)).stem)


def open(address: DatabaseAddress) -> Database:
    """Open a file for reading."""
    from snapshot_assets_sqlite.source import SqliteDatabase  # Arrow and `sqlite3` are imported only here

    return SqliteDatabase(address)
