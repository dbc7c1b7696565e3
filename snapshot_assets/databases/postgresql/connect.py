"""Connects with settings in the start-up packet, where they precede those of roles and databases.

The driver runs statements of its own before the first one of a session: a `statement_timeout` would end them, and
`quote_all_identifiers` would hide types from it. The session sets all settings again, for poolers that ignore them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from snapshot_assets.databases.postgresql.failures import is_of_server

if TYPE_CHECKING:
    import adbc_driver_postgresql.dbapi as adbc

_LATER = ("search_path",)
"""Settings that only the session sets: `SET … TO DEFAULT` would return to the value of the packet."""

_AT_FIRST = {"client_encoding": "SQL_ASCII"}
"""Other values in the packet: the driver reads all names of types, which in an SQL_ASCII database may be no UTF-8."""

_SPECIAL, _ESCAPED = re.compile(r"[\\ ]"), r"\\\g<0>"

_refused: dict[str, set[str]] = {}
"""By URI, the settings that its server refused, so that every further connection succeeds at the first try."""


def connect(uri: str, settings: Mapping[str, str]) -> adbc.Connection:
    """Connect, leaving out of the start-up packet what the server does not know and what a pooler refuses.

    Args:
        uri: Where to connect. Options in it, or else in `PGOPTIONS`, are kept; those of `settings` precede them.
        settings: Settings by name, which any user may set.

    Raises:
        adbc_driver_manager.Error: The connection fails.
    """
    import adbc_driver_manager
    import adbc_driver_postgresql.dbapi as adbc

    refused = _refused.setdefault(uri, set())
    while True:
        sent = {name: value for name, value in {**settings, **_AT_FIRST}.items() if name not in {*_LATER, *refused}}
        try:
            return adbc.connect(_with_options(uri, sent) if sent else uri, autocommit=True)
        except adbc_driver_manager.Error as error:
            # The names of settings in a message are not translated. Poolers that take no settings at the start, such as
            # PgBouncer, name the packet's parameter `options`.
            words = set(re.findall(r"\w+", str(error).lower())) if is_of_server(str(error)) else set()
            named = {name for name in sent if "options" in words or name.lower() in words}
            if not named:
                raise
            refused |= named


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
