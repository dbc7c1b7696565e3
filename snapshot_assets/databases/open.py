"""Finds the plug-in of a database by a URI, and opens sources and targets.

The kinds of this package are found without reading installed metadata: a checkout may have older ones, or none. Any
other kind is that of an entry point; see `contract`.
"""

from __future__ import annotations

import importlib
import re
import signal
import socket
import sys
from contextlib import AbstractContextManager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, cast

from snapshot_assets.databases.contract import CONTRACT, Access, DatabaseKind, DatabaseModule, TargetModule
from snapshot_assets.databases.protocol.checked_source import CheckedSource
from snapshot_assets.databases.protocol.checked_target import CheckedTarget
from snapshot_assets.databases.protocol.source import Database, DatabaseAddress
from snapshot_assets.errors import UnknownSourceError
from snapshot_assets.spans import span

if TYPE_CHECKING:
    from snapshot_assets.databases.protocol.sql_target import SqlTarget

GROUP = "snapshot_assets.databases"
"""The group of entry points by which installed packages register databases."""
BUILT_IN = {
    "postgresql": "snapshot_assets.databases.postgresql",
    "postgres": "snapshot_assets.databases.postgresql",
    "duckdb": "snapshot_assets.databases.duckdb",
    "mysql": "snapshot_assets.databases.mysql",
    "mariadb": "snapshot_assets.databases.mysql",
    "spark": "snapshot_assets.databases.spark",
    "asset": "snapshot_assets.databases.asset",
}
"""Modules of this package by name, as `pyproject.toml` registers them; no other package can replace one."""
_SOURCE = ("KIND", "open", "default_alias")
_TARGET = ("open_target", "scratch", "define", "rename", "type_for", "adapt")
_ALIAS = re.compile(r"[A-Za-z0-9_.-]{1,100}", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=:)")


def kind_of(uri: str) -> DatabaseKind:
    """Return the kind of a URI's database; that of an asset for a source that is no database.

    Raises:
        UnknownSourceError: No plug-in has the URI's scheme, or it is invalid.
    """
    match = _SCHEME.match(uri)
    return _plug_in(match.group().lower() if match else "").KIND


def kind_named(name: str) -> DatabaseKind:
    """Return the kind that documents record under a name; see `kind_of` for its errors."""
    return _plug_in(name).KIND


def modules_of(uri: str) -> tuple[str, ...]:
    """Return the modules that tasks need for a URI's database, beside this package: drivers, and another's plug-in."""
    kind = kind_of(uri)
    entry = None if kind.name in BUILT_IN else _entry_point(kind.name)
    return (*([entry.module] if entry else []), *kind.drivers)


def built_in_kinds() -> list[DatabaseKind]:
    """Return the kinds of this package."""
    return [importlib.import_module(module).KIND for module in dict.fromkeys(BUILT_IN.values())]


@cache
def _plug_in(name: str) -> TargetModule:
    """Return the module of a plug-in by a scheme or a kind's name; `KIND` says whether it is a target's."""
    if name in BUILT_IN:
        return cast(TargetModule, importlib.import_module(BUILT_IN[name]))
    if not name or (entry := _entry_point(name)) is None:
        forms = [kind.form for kind in built_in_kinds()]
        forms += [f"{other}:…" for other in sorted(entry_points(group=GROUP).names - BUILT_IN.keys())]
        scheme = f"{name}:" if name else "no scheme"  # the URI may contain a password
        raise UnknownSourceError(
            f"A source or target must be an alias of the configuration or a database URI; found one with {scheme}."
            f" Write one of: {', '.join(forms)}. Another kind needs a package that registers it under {GROUP}.",
            found=scheme,
        )
    try:
        module = entry.load()
    except Exception as error:  # whatever the code of another package raises
        raise _broken(entry, f"cannot be imported: {type(error).__name__}: {error}") from error
    kind = getattr(module, "KIND", None)
    if not isinstance(kind, DatabaseKind) or kind.contract != CONTRACT:
        found = f"is written for contract {kind.contract}" if isinstance(kind, DatabaseKind) else "has no KIND"
        raise _broken(entry, f"{found}; this package has contract {CONTRACT}")
    if missing := [each for each in (*_SOURCE, *(_TARGET if kind.target else ())) if not hasattr(module, each)]:
        raise _broken(entry, f"lacks {', '.join(missing)}")
    own = None if kind.name in BUILT_IN else _entry_point(kind.name)
    if own is None or own.value != entry.value:
        raise _broken(entry, f"has a KIND named {kind.name!r}, which is not registered for it")
    return cast(TargetModule, module)


def _entry_point(name: str) -> EntryPoint | None:
    """Return the entry point of a name, in any case, as schemes have none; None if there is none."""
    found = {entry.value: entry for entry in entry_points(group=GROUP) if entry.name.lower() == name.lower()}
    if len(found) > 1:
        several = " and ".join(sorted(map(_label, found.values())))
        raise UnknownSourceError(f"{name}: is registered by {several}. Uninstall all but one.", found=name)
    return next(iter(found.values()), None)


def _label(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version} ({entry.value})" if entry.dist else entry.value


def _broken(entry: EntryPoint, why: str) -> UnknownSourceError:
    return UnknownSourceError(
        f"{entry.name}: the plug-in of {_label(entry)} {why}. Install a version of it that fits this package, or"
        " uninstall it.",
        found=entry.name,
    )


def default_alias(uri: str) -> str:
    """Return a public name from a URI, without user, password or host.

    Raises:
        UnknownSourceError: See `open_database`; or a plug-in returns another text, which may have a password.
    """
    alias = database_module(uri).default_alias(uri)
    kind = kind_of(uri)
    if kind.access is not Access.ASSET and not (isinstance(alias, str) and _ALIAS.fullmatch(alias)):
        raise UnknownSourceError(
            f"{kind.name}: default_alias() of its plug-in returned a text that is no alias: 1 to 100 of A-Z, a-z, 0-9,"
            " `_`, `.` and `-`. Write the database under an alias of your own in the configuration.",
            found=kind.name,
        )
    return alias


def open_database(address: DatabaseAddress) -> Database:
    """Connect to a database.

    Raises:
        UnknownSourceError: The URI is of no known kind, has an invalid form, or its driver is missing.
        DatabaseUnavailableError: The database cannot be reached.
        DatabaseDeniedError: The database refused the user or password.
        DatabaseLockedError: Another process holds the database file.
        DatabaseError: The database does not exist, or it is damaged.
        PlugInError: The plug-in raised an error of another package.
    """
    with span("connect"):
        kind = kind_of(address.uri)
        import_drivers(kind)
        plug_in = CheckedSource(kind.name, address.uri, database_module(address.uri))
        return cast(Database, CheckedSource(kind.name, address.uri, plug_in.open(address)))


def database_module(uri: str) -> DatabaseModule:
    """Return the plug-in for a URI's kind of database; see `kind_of` for its errors."""
    return _plug_in(kind_of(uri).name)


def import_drivers(kind: DatabaseKind) -> None:
    """Import the drivers of a kind of database.

    Raises:
        UnknownSourceError: One is missing.
    """
    try:
        for driver in kind.drivers:
            importlib.import_module(driver)
        # ADBC imports Polars, after which the system resumes calls on Ctrl-C, and Python's handler waits for their end.
        signal.siginterrupt(signal.SIGINT, True)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in (driver.partition(".")[0] for driver in kind.drivers):
            raise
        package = kind.requirement or missing
        raise UnknownSourceError(
            f"{kind.name}: needs the Python package {missing!r}, which {sys.executable} on {socket.gethostname()} does"
            f" not have. Install it there, and for Spark's executors, with: pip install '{package}'.",
            missing=missing,
            extra=package,
        ) from error


def target_module(address: DatabaseAddress) -> TargetModule:
    """Return the plug-in for a database into which a snapshot is restored.

    Raises:
        UnknownSourceError: It is no target, its URI is of no known kind, or its driver is missing.
    """
    kind = kind_of(address.uri)
    refuse_as_target(f"target {address.alias}", kind)
    import_drivers(kind)
    return cast(TargetModule, CheckedTarget(kind.name, address.uri, _plug_in(kind.name)))


def refuse_as_target(name: str, kind: DatabaseKind | None) -> None:
    """Refuse a database of a kind into which nothing can be restored; None is not known yet.

    Raises:
        UnknownSourceError: It is no target.
    """
    if kind is not None and not kind.target:
        forms = " or ".join(each.form for each in built_in_kinds() if each.target)
        instead = f" {kind.instead}" if kind.instead else ""
        raise UnknownSourceError(
            f"{name} is a {kind.title}, into which nothing can be restored. Restore into a database: write"
            f" {forms}.{instead}",
            found=kind.name,
        )


def open_target(address: DatabaseAddress) -> SqlTarget:
    """Connect to a database as the target of a restore; see `target_module` and `open_database` for errors."""
    with span("connect"):
        opened = target_module(address).open_target(address)
        return cast("SqlTarget", CheckedTarget(kind_of(address.uri).name, address.uri, opened))


def scratch_database(address: DatabaseAddress, name: str) -> AbstractContextManager[DatabaseAddress]:
    """Create an empty database beside another one, yield its address, and drop it at the end.

    The other one is on the same server, or a file in the same folder, and is not changed. If a run was killed, its
    scratch database is dropped when the next one of the same name is created.

    Raises:
        UnknownSourceError: See `target_module`.
        DatabaseError: It cannot be created, or another process uses it.
    """
    return target_module(address).scratch(address, name)
