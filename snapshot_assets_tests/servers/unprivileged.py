"""Folders and programs for another user, for servers that refuse to run as root.

If other users cannot enter the folder of this clone (root's home, a private temporary folder), the programs are copied
into the server's own folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

_TEMPORARY = ("/tmp", "/var/tmp")


def server_user() -> str | None:
    """Return the user for servers: None for this process's own, or an unprivileged one if that is root."""
    return "nobody" if os.geteuid() == 0 else None


def make_folder(prefix: str, user: str | None) -> Path:
    """Create a temporary folder that belongs to a user and that the user can enter.

    Args:
        prefix: Prefix of its name.
        user: The user; None for this process's own.

    Raises:
        RuntimeError: The user can enter no temporary folder.
    """
    places = dict.fromkeys((tempfile.gettempdir(), *_TEMPORARY)) if user else (tempfile.gettempdir(),)
    for place in filter(os.path.isdir, places):
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        if user is None:
            return folder
        shutil.chown(folder, user)
        if _succeeds("/bin/sh", "-c", 'cd "$1"', "sh", str(folder), user=user):
            return folder
        folder.rmdir()
    raise RuntimeError(
        f"The test server does not run as root but as {user!r}, which can enter none of {', '.join(places)}."
        " Set TMPDIR to a folder that every user can enter, or run the tests as another user than root."
    )


def runnable(program: Path, needs: Sequence[Path], folder: Path, user: str | None) -> Path:
    """Return the path at which a user can run a program: its own, or that of a copy with its libraries.

    Args:
        program: A program that takes `--version`.
        needs: Folders to copy, with their relative places: that of the program, and those of its libraries.
        folder: Folder for the copy; see `make_folder`.
        user: The user; None for this process's own.

    Raises:
        RuntimeError: The user cannot run the copy either.
    """
    if user is None or _succeeds(str(program), "--version", user=user):
        return program
    common, copy = Path(os.path.commonpath(needs)), folder / "programs"
    for each in needs:
        shutil.copytree(each, copy / each.relative_to(common), ignore=shutil.ignore_patterns("include"))
    for path in (copy, *copy.rglob("*")):
        shutil.chown(path, user)
    copied = copy / program.relative_to(common)
    if _succeeds(str(copied), "--version", user=user):
        return copied
    raise RuntimeError(
        f"The test server does not run as root but as {user!r}, which can run neither {program} nor its copy {copied}."
        " Set TMPDIR to a folder that every user can enter and that is not mounted noexec, or run the tests as another"
        " user than root."
    )


def _succeeds(*command: str, user: str) -> bool:
    try:
        done = subprocess.run(command, user=user, cwd="/", capture_output=True, env={"PATH": os.defpath})
    except PermissionError:
        return False
    return done.returncode == 0
