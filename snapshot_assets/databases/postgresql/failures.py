"""Translates the driver's exceptions by SQLSTATE, or by libpq's text without an SQLSTATE."""

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
_TRANSIENT = ("08", "40", "53300", "55P03", "57P")
_DENIED = ("28", "42501", "3D000")
_UNKNOWN = ("42P01", "3F000")
_TRANSIENT_TEXT = re.compile(
    r"no connection to the server|closed the connection|terminating connection|connection to server was lost"
    r"|could not (?:receive|send) data|SSL SYSCALL|conflict with recovery|too many clients|connection slots"
    r"|deadlock detected|could not serialize access"
    r"|is (?:starting up|shutting down|not yet accepting)|in recovery mode|not accepting connections",
)
_TAIL = re.compile(r"\s*Query was:.*|\.?\s*SQLSTATE: \w{5}\s*\Z", re.DOTALL)
_HEAD = re.compile(r"\A(?:[A-Z_]+: )?(?:\[libpq\] )?(?:Failed to \w+(?: query)?(?: '.*?')?: )?", re.DOTALL)


def is_headless(error: BaseException) -> bool:
    """Return whether a stream ended before its first byte; the driver then loses the server's error."""
    return "Expected PGCOPY signature" in str(error)


def lacks_state(error: BaseException) -> bool:
    """Return whether the driver lost the SQLSTATE of a stream's error, as it does since 1.9, or the error itself."""
    text = str(error)
    without = "PGRES_FATAL_ERROR" in text and getattr(error, "sqlstate", None) is None
    return is_headless(error) or (without and not _TRANSIENT_TEXT.search(text))


def translated(error: BaseException, doing: str, secrets: Iterable[str], alive: bool) -> SnapshotError:
    """Return the error to raise for an error of an established connection.

    Args:
        error: The driver's error; that of a broken stream has no SQLSTATE.
        doing: The operation that failed, such as `PostgreSQL 'shop': reading public.orders`.
        secrets: Values that the message must not contain.
        alive: Whether the connection is still usable.
    """
    state: str | None = getattr(error, "sqlstate", None)
    message = f"{doing} failed: {_text(error, secrets)}"
    if is_headless(error):
        return DatabaseUnavailableError(
            f"{doing} failed: the server ended the query before its first row. The driver lost the error, and the query"
            " did not fail again. Look for the error in the server's log."
        )
    if state is None:
        lost = not alive or _TRANSIENT_TEXT.search(str(error))
        return DatabaseUnavailableError(message, doing=doing) if lost else DatabaseError(message, doing=doing)
    kind: type[SnapshotError] = DatabaseError
    if state.startswith(_TRANSIENT):
        kind = DatabaseUnavailableError
    elif state.startswith(_DENIED):
        kind = DatabaseDeniedError
    elif state.startswith(_UNKNOWN):
        kind = UnknownRelationError
    return kind(f"{message} (SQLSTATE {state})", sqlstate=state, doing=doing)


def connect_failure(error: BaseException, alias: str, secrets: Iterable[str]) -> DatabaseError:
    """Return the error to raise for a failed connection attempt, for which the driver gives no SQLSTATE.

    An error of the server starts with FATAL; only those of a busy server are transient. All others come from libpq and
    concern the network, except those about the URI.
    """
    reason = _text(error, secrets)
    original = str(error)
    if re.search(r"invalid (?:URI|percent|port|integer|sslmode|connection option)|unexpected character", original):
        return DatabaseDeniedError(f"The URI of PostgreSQL {alias!r} is invalid: {reason}")
    if "FATAL:" in original and not _TRANSIENT_TEXT.search(original):
        return DatabaseDeniedError(
            f"PostgreSQL {alias!r} refused the connection: {reason}. Check user, password and database name in its URI."
        )
    return DatabaseUnavailableError(f"PostgreSQL {alias!r} cannot be reached: {reason}")


def _text(error: BaseException, secrets: Iterable[str]) -> str:
    text = _HEAD.sub("", _TAIL.sub("", str(error)), count=1)
    return scrub(" ".join(text.split()), secrets).rstrip(".")
