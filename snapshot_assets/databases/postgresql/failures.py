"""The driver's exceptions as the package's own: by SQLSTATE, and by libpq's words where it gives none."""

from __future__ import annotations

import re
from collections.abc import Iterable

from snapshot_assets.errors import (
    DatabaseDeniedError,
    DatabaseError,
    DatabaseUnavailableError,
    SnapshotError,
    UnknownRelationError,
)
from snapshot_assets.format.scrub import scrub

# 08: connection; 40: serialisation, deadlock, and a standby's recovery conflict; 53300: too many connections;
# 55P03: lock not available; 57P: shutdown, crash, still starting.
_PASSING = ("08", "40", "53300", "55P03", "57P")
_DENIED = ("28", "42501", "3D000")
_UNKNOWN = ("42P01", "3F000")
_PASSING_WORDS = re.compile(
    r"no connection to the server|closed the connection|terminating connection|connection to server was lost"
    r"|could not (?:receive|send) data|SSL SYSCALL|conflict with recovery|too many clients|connection slots"
    r"|deadlock detected|could not serialize access"
    r"|is (?:starting up|shutting down|not yet accepting)|in recovery mode|not accepting connections",
)
_TAIL = re.compile(r"\s*Query was:.*|\.?\s*SQLSTATE: \w{5}\s*\Z", re.DOTALL)
_HEAD = re.compile(r"\A(?:[A-Z_]+: )?(?:\[libpq\] )?(?:Failed to \w+(?: query)?(?: '.*?')?: )?", re.DOTALL)


def is_headless(error: BaseException) -> bool:
    """Tell whether a stream ended before its first byte, which the driver reports without the server's error."""
    return "Expected PGCOPY signature" in str(error)


def translated(error: BaseException, doing: str, secrets: Iterable[str], alive: bool) -> SnapshotError:
    """Return the error to raise for a driver's error of an established connection.

    Args:
        error: What the driver raised. A stream that breaks off raises `OSError`, without an SQLSTATE.
        doing: What was being done, such as `PostgreSQL 'shop': reading public.orders`.
        secrets: Values that must not appear in the message.
        alive: Whether the connection can still be used.
    """
    state: str | None = getattr(error, "sqlstate", None)
    message = f"{doing} failed: {_told(error, secrets)}"
    if is_headless(error):
        return DatabaseUnavailableError(
            f"{doing} failed: the server ended the query before its first row, and did not repeat the error, which the"
            " driver lost. The server's log has it."
        )
    if state is None:
        if not alive or _PASSING_WORDS.search(str(error)):
            return DatabaseUnavailableError(message)
        return DatabaseError(message)
    kind: type[SnapshotError] = DatabaseError
    if state.startswith(_PASSING):
        kind = DatabaseUnavailableError
    elif state.startswith(_DENIED):
        kind = DatabaseDeniedError
    elif state.startswith(_UNKNOWN):
        kind = UnknownRelationError
    return kind(f"{message} (SQLSTATE {state})", sqlstate=state)


def connect_failure(error: BaseException, alias: str, secrets: Iterable[str]) -> DatabaseError:
    """Return the error to raise when no connection came about; the driver gives no SQLSTATE then.

    The server's own refusal begins with FATAL: of those, only being busy passes. What libpq itself reports is the
    network, except where it cannot even read the URI.
    """
    told = _told(error, secrets)
    text = str(error)
    if re.search(r"invalid (?:URI|percent|port|integer|sslmode|connection option)|unexpected character", text):
        return DatabaseDeniedError(f"The URI of PostgreSQL {alias!r} is not one that libpq understands: {told}")
    if "FATAL:" in text and not _PASSING_WORDS.search(text):
        return DatabaseDeniedError(
            f"PostgreSQL {alias!r} refused the connection: {told}. Check user, password and database name in the URI"
            " of this source."
        )
    return DatabaseUnavailableError(f"PostgreSQL {alias!r} cannot be reached: {told}")


def _told(error: BaseException, secrets: Iterable[str]) -> str:
    text = _HEAD.sub("", _TAIL.sub("", str(error)), count=1)
    return scrub(" ".join(text.split()), secrets).rstrip(".")
