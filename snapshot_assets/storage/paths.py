"""Object paths: relative, plain, and the same on every store."""

from __future__ import annotations

import re

from snapshot_assets.errors import UnsafePathError

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_path(path: str) -> str:
    """Return `path` if it names an object below the location on every store.

    Raises:
        UnsafePathError: It is absolute, empty, or has empty, `.` or `..` segments, a backslash or a control character.
    """
    if any(segment in ("", ".", "..") for segment in path.split("/")) or "\\" in path or _CONTROL.search(path):
        raise UnsafePathError(
            f"Path {path[:200]!r} cannot be an object; expected segments separated by /, none of them empty, "
            "'.' or '..', without backslashes and control characters.",
            path=path,
        )
    return path


def folder_of(prefix: str) -> str:
    """Return the folder that a listing prefix names, without its closing slash; empty for the whole location.

    Raises:
        UnsafePathError: The prefix is not made of whole plain segments.
    """
    return check_path(prefix.removesuffix("/")) if prefix else ""
