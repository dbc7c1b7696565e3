"""Connects with settings in the start-up packet, where they precede those of roles and databases.

The driver runs statements of its own before the first one of a session: a `statement_timeout` would end them, and
`quote_all_identifiers` would hide types from it. The session sets all settings again, for poolers that ignore them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, unquote

from snapshot_assets.databases.postgresql.failures import is_of_server

if TYPE_CHECKING:
    from adbc_driver_manager import AdbcDatabase
    from adbc_driver_manager.dbapi import Connection

SETTINGS = {
    # The driver takes all texts for UTF-8. The server converts them, and refuses those that have no such form.
    "client_encoding": "UTF8",
    # The text of values. A restore reads it under the same settings.
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lc_monetary": "C",
    "xmlbinary": "base64",
    "xmloption": "content",
    "quote_all_identifiers": "off",
    "standard_conforming_strings": "on",
    # Only names in pg_catalog are printed without their schema, as in pg_dump.
    "search_path": "",
    # A policy that would hide rows causes an error instead.
    "row_security": "off",
    # A chunk has no time limit; a session that holds a state is idle for hours.
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "transaction_timeout": "0",
    # Bodies of functions may name what is created after them, as in pg_dump.
    "check_function_bodies": "off",
    # Compiling takes longer than it saves in plain scans.
    "jit": "off",
    # All rows of a cursor are read.
    "cursor_tuple_fraction": "1",
    # What would change the meaning of texts and conditions, leave out rows, or end the session at its first error.
    "array_nulls": "on",
    "transform_null_equals": "off",
    "gin_fuzzy_search_limit": "0",
    "exit_on_error": "off",
    # The driver prints notices.
    "client_min_messages": "warning",
}
"""Settings of every connection. The server's version may not know all of them; those are left out."""

_LATER = ("search_path",)
"""Settings that only the session sets: `SET … TO DEFAULT` would return to the value of the packet."""

_AT_FIRST = {"client_encoding": "SQL_ASCII"}
"""Other values in the packet: the driver reads all names of types, which in an SQL_ASCII database may be no UTF-8."""

_SPECIAL, _ESCAPED = re.compile(r"[\\ ]"), r"\\\g<0>"

_refused: dict[str, set[str]] = {}
"""By URI, the settings that its server refused, so that every further connection succeeds at the first try."""

_idle: dict[str, AdbcDatabase] = {}
"""By its URI, the driver's object for a database that a connection left behind, for the next one; at most one.

To make such an object, the driver reads all types and columns of the database, over a connection of its own. An object
has no connection itself, and may be older than types of the database: every query here returns types of `pg_catalog`
only, which all servers have. It serves one connection at a time, because it counts them without a lock.
"""


def connect(uri: str, settings: Mapping[str, str]) -> Connection:
    """Connect, leaving out of the start-up packet what the server does not know and what a pooler refuses.

    Args:
        uri: Where to connect. Options in it, or else in `PGOPTIONS`, are kept; those of `settings` precede them.
        settings: Settings by name, which any user may set.

    Raises:
        adbc_driver_manager.Error: The connection fails.
    """
    import adbc_driver_manager

    refused = _refused.setdefault(uri, set())
    while True:
        sent = {name: value for name, value in {**settings, **_AT_FIRST}.items() if name not in {*_LATER, *refused}}
        try:
            return _connect(_with_options(uri, sent) if sent else uri)
        except adbc_driver_manager.Error as error:
            # The names of settings in a message are not translated. Poolers that take no settings at the start, such as
            # PgBouncer, name the packet's parameter `options`.
            words = set(re.findall(r"\w+", str(error).lower())) if is_of_server(str(error)) else set()
            named = {name for name in sent if "options" in words or name.lower() in words}
            if not named:
                raise
            refused |= named


class _Lent:
    """The driver's object for a database, which its connection closes after itself."""

    def __init__(self, uri: str, database: AdbcDatabase) -> None:
        self._uri, self._database = uri, database

    def close(self) -> None:
        """Keep the object in place of the one that was kept."""
        with suppress(KeyError):  # another thread may take the last one
            while _idle:
                _idle.popitem()[1].close()
        _idle[self._uri] = self._database


def _connect(uri: str) -> Connection:
    import adbc_driver_postgresql
    from adbc_driver_manager import AdbcConnection
    from adbc_driver_manager.dbapi import Connection

    database = _idle.pop(uri, None) or adbc_driver_postgresql.connect(uri)
    try:
        connection = AdbcConnection(database)
    except BaseException:
        database.close()
        raise
    return Connection(cast("AdbcDatabase", _Lent(uri, database)), connection, autocommit=True)


def _with_options(uri: str, settings: Mapping[str, str]) -> str:
    """Return a URI with settings after its own options; libpq takes the last `options`."""
    scheme, _, rest = uri.partition("://")
    user = rest[: rest.find("@") + 1] if "@" in rest.partition("/")[0] else ""
    place, _, query = rest.removeprefix(user).partition("?")
    parameters = query.split("&") if query else []
    given = [unquote(each.partition("=")[2]) for each in parameters if each.startswith("options=")]
    own = [f"-c {name}={_SPECIAL.sub(_ESCAPED, value)}" for name, value in settings.items()]
    options = " ".join([*(given[-1:] or filter(None, [os.environ.get("PGOPTIONS")])), *own])
    return f"{scheme}://{user}{place}?{'&'.join([*parameters, f'options={quote(options)}'])}"
