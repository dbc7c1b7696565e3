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
from urllib.parse import quote, unquote, urlsplit

from snapshot_assets.databases.contract import DatabaseKind, alias_of, later
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.errors import DatabaseError, UnknownSourceError
from snapshot_assets.format.names import NameRule
from snapshot_assets.scratch_folders import scratch_folder

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
    return alias_of(PurePosixPath(path_of(uri)).stem)


def _refused(reason: str) -> UnknownSourceError:
    # Without the URI: where a host is named, a password may stand beside it.
    return UnknownSourceError(f"A duckdb: URI is refused because {reason}. Write {KIND.form}.")


# An alias can be made from a URI without loading DuckDB.
open = later(f"{__name__}.source", "DuckDBDatabase")
open_target = later(f"{__name__}.target", "DuckDBTarget")
define = later(f"{__name__}.ddl", "define")
rename = later(f"{__name__}.renaming", "rename")
type_for = later(f"{__name__}.types", "type_for")
adapt = later(f"{__name__}.foreign_keys", "adapt")


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
