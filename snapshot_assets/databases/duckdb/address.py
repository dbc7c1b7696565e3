"""DuckDB URIs: `duckdb:///absolute/path.duckdb`, percent-encoded."""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from snapshot_assets.errors import UnknownSourceError

_FORM = "duckdb:///absolute/path.duckdb"


def path_of(uri: str) -> str:
    """Return the file a URI names.

    Raises:
        UnknownSourceError: It is no `duckdb:` URI of an absolute path, or carries a host, query or fragment.
    """
    parts = urlsplit(uri)
    if parts.scheme.lower() != "duckdb":
        raise _refused(f"its scheme is {parts.scheme!r}")
    if parts.netloc:
        raise _refused("it names a host; an absolute path begins with a third slash")
    if parts.query or parts.fragment:
        raise _refused("it has a query or fragment; write `%23` for `#` in a file name")
    path = unquote(parts.path, errors="strict") if _decodable(parts.path) else None
    if path is None or "\0" in path:
        raise _refused("its percent-encoding is not UTF-8 text")
    if "?" in path:
        raise _refused("DuckDB takes a `?` in a file's name for the beginning of a query; rename the file")
    if not os.path.isabs(path) or path.endswith("/"):
        raise _refused(f"{path!r} is not the absolute path of a file")
    return path


def default_alias(uri: str) -> str:
    """Return the file's name without its suffix, as an alias.

    Raises:
        UnknownSourceError: The URI names no file.
    """
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", PurePosixPath(path_of(uri)).stem)
    return (name if re.match(r"[A-Za-z_]", name) else f"_{name}")[:100]


def _decodable(path: str) -> bool:
    try:
        unquote(path, errors="strict")
    except UnicodeDecodeError:
        return False
    return True


def _refused(reason: str) -> UnknownSourceError:
    # Without the URI: where a host is named, a password may stand beside it.
    return UnknownSourceError(f"A duckdb: URI is refused because {reason}. Write {_FORM}.")
