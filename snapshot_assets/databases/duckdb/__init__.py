"""DuckDB database files: as a source opened read-only in each task, as a target with one writer.

A URI is `duckdb:///absolute/path.duckdb[?memory_limit=1GiB]`, the path percent-encoded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from snapshot_assets.databases.contract import DatabaseKind
from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.databases.definition import Definition
from snapshot_assets.databases.protocol.source import Database, DatabaseAddress
from snapshot_assets.errors import DatabaseError, UnknownSourceError
from snapshot_assets.format.names import NameRule
from snapshot_assets.format.relations import DatabaseSchema
from snapshot_assets.scratch_folders import scratch_folder

if TYPE_CHECKING:
    import pyarrow as pa

    from snapshot_assets.databases.protocol.sql_target import SqlTarget

__all__ = ["KIND", "adapt", "default_alias", "define", "open", "open_target", "rename", "scratch", "type_for"]

KIND = DatabaseKind(
    contract=1,
    name="duckdb",
    title="DuckDB",
    form="duckdb:///absolute/path.duckdb",
    target=True,
    names=NameRule.ASCII_CASE_IGNORED,
    drivers=("duckdb",),
    one_writer=True,  # while a process writes to a file, no other process can open it
    local_file=True,
)
_MEMORY = re.compile(r"memory_limit=(\d{1,6}(?:MB|MiB|GB|GiB))")

# The imports are not at the top: an alias can be made from a URI without loading DuckDB.


def path_of(uri: str) -> str:
    """Return the path of the file that a URI names.

    Raises:
        UnknownSourceError: The URI has no absolute path, another scheme, a host, a fragment or an invalid query.
    """
    parts = urlsplit(uri)
    if parts.scheme.lower() != "duckdb":
        raise _refused(f"its scheme is {parts.scheme!r}")
    if parts.netloc:
        raise _refused("it names a host; an absolute path begins with a third slash")
    if parts.fragment:
        raise _refused("it has a fragment; write `%23` for `#` in a file name")
    memory_limit_of(uri)
    try:
        path = unquote(parts.path, errors="strict")
    except UnicodeDecodeError:
        raise _refused("its percent-encoding is not UTF-8 text") from None
    if "\0" in path:
        raise _refused("its path has a NUL character")
    if "?" in path:
        raise _refused("DuckDB takes a `?` in a file's name for the beginning of a query; rename the file")
    if not os.path.isabs(path) or path.endswith("/"):
        raise _refused(f"{path!r} is not the absolute path of a file")
    return path


def memory_limit_of(uri: str) -> str | None:
    """Return the memory that DuckDB may use, in DuckDB's notation; None if the URI does not limit it.

    Raises:
        UnknownSourceError: The URI has a query that is not `memory_limit=` and a size.
    """
    query = urlsplit(uri).query
    if not query:
        return None
    match = _MEMORY.fullmatch(query)
    if match is None:
        raise _refused("its query is not understood; the only one is `?memory_limit=`, such as `?memory_limit=1GiB`")
    return match.group(1)


def default_alias(uri: str) -> str:
    """Return the file's name without its suffix, as an alias; see `path_of`."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", PurePosixPath(path_of(uri)).stem)
    return (name if re.match(r"[A-Za-z_]", name) else f"_{name}")[:100]


def _refused(reason: str) -> UnknownSourceError:
    # Without the URI: where a host is named, a password may stand beside it.
    return UnknownSourceError(f"A duckdb: URI is refused because {reason}. Write {KIND.form}.")


def open(address: DatabaseAddress) -> Database:
    """Open a database file read-only; see `DuckDBDatabase`."""
    from snapshot_assets.databases.duckdb.source import DuckDBDatabase

    return DuckDBDatabase(address)


def open_target(address: DatabaseAddress) -> SqlTarget:
    """Open a database file for writing, or create it; see `DuckDBTarget`."""
    from snapshot_assets.databases.duckdb.target import DuckDBTarget

    return DuckDBTarget(address)


def define(schema: DatabaseSchema, *, expressions: bool = True, code: bool = False) -> Definition:
    """Return the statements that create a schema; see `TargetModule.define`. `code` changes nothing."""
    from snapshot_assets.databases.duckdb.ddl import define as define_schema

    return define_schema(schema, expressions=expressions)


def rename(schema: DatabaseSchema, renaming: Renaming) -> tuple[DatabaseSchema, tuple[str, ...]]:
    """Return documents with new names, and what is lost; see `TargetModule.rename`."""
    from snapshot_assets.databases.duckdb.renaming import rename as rename_schema

    return rename_schema(schema, renaming)


def type_for(arrow_type: pa.DataType) -> str:
    """Return the type that holds an Arrow type's values exactly; see `TargetModule.type_for`."""
    from snapshot_assets.databases.duckdb.types import type_for as type_text

    return type_text(arrow_type)


def adapt(schema: DatabaseSchema) -> tuple[DatabaseSchema, tuple[str, ...]]:
    """Return documents without what DuckDB has not, and what is lost; see `TargetModule.adapt`."""
    from snapshot_assets.databases.duckdb.foreign_keys import adapt as adapt_schema

    return adapt_schema(schema)


@contextmanager
def scratch(address: DatabaseAddress, name: str) -> Iterator[DatabaseAddress]:
    """Yield the address of a file in a new folder beside the file that is named; see `TargetModule.scratch`."""
    query, parent = urlsplit(address.uri).query, Path(path_of(address.uri)).parent
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(scratch_folder(parent, name))
        except OSError as error:
            raise DatabaseError(
                f"No scratch database can be created in {parent}: {error.strerror}. Create the folder, or make it"
                " writable."
            ) from error
        path = quote(str(folder / f"{name}.duckdb"))
        yield replace(address, uri=f"duckdb://{path}{'?' if query else ''}{query}")
