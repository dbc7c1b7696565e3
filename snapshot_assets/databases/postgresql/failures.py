"""The one place where an error of PostgreSQL becomes a text: by the fields that the server sent, never by its prose.

The server writes prose in the language of its `lc_messages`. A driver that loses the fields leaves libpq's text, of
which only the layout is used; the session says whether it still answers. The remedy is chosen by the SQLSTATE.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from snapshot_assets.databases.contract import ENCODED
from snapshot_assets.errors import (
    DatabaseDeniedError,
    DatabaseError,
    DatabaseUnavailableError,
    SnapshotError,
    TransientError,
    UnknownRelationError,
)
from snapshot_assets.format.scrub import scrub

_EXCLUDE = "or exclude the table (`exclude_tables`)"
_STANDBY = "set hot_standby_feedback = on there, raise max_standby_streaming_delay, or read the primary."
_REMEDIES = {
    "08": "A foreign server cannot be reached from PostgreSQL: bring it back",
    "HV": "A foreign server, or its wrapper, failed: check its options, its user mapping and the server itself",
    "42501": "Grant the role of the URI the right that the server names",
    "25006": "The server is a standby, or its transactions are read-only (default_transaction_read_only): use the"
    " address of the primary, or a role that may write",
    "53100": "Free space on the database server's disk; large sorts write temporary files there",
    "53300": "Let other sessions end, use fewer tasks at a time, or raise max_connections or the role's limit",
    "53400": "Raise the limit that the server names for this role, such as temp_file_limit",
    "55P03": "Another session holds a conflicting lock; pg_stat_activity and pg_locks show it",
    "57014": "A time limit or an administrator cancelled the statement. The session sets statement_timeout = 0, so lift"
    " the limit that a pooler or the server's provider sets for this role",
    "57P01": "An administrator ended the session, or the server shut down",
    "57P02": "Another process of the server crashed; the server's log has the cause",
    "57P03": "Wait until the server accepts connections",
    "57P05": "Lift the idle limit that a pooler sets for this role",
    "XX001": "Data on the server's disk is damaged: check it with pg_amcheck and restore it from a backup",
    "XX002": "An index on the server is damaged: check it with pg_amcheck and rebuild it by REINDEX",
}
NOT_UTF8 = "22021"
NO_NUL = {
    NOT_UTF8: "PostgreSQL holds no NUL in text. Remove it in the export, by a mask of the plan such as `replace(v,"
    " chr(0), '')`, or leave the table out (--exclude-tables). A dry run counts all such values (--dry-run)."
}
"""Remedies for loading texts, which are UTF-8."""
_EXCLUDABLE = ("08", "HV", "42501", "XX001")
_CONFLICT = "40001"
_UNSUPPORTED = "0A000"


def _remedy_of(state: str | None, *, answers: bool, standby: bool, selects: bool) -> str:
    """Return what to do about an error with an SQLSTATE as a sentence, "" if only the server's reason tells."""
    if standby and state == _CONFLICT:
        return f"The server is a standby, and its replay of changes cancelled the query: {_STANDBY}"
    if standby and state is None and not answers:
        return f"The server is a standby. If its replay of changes ended the session, {_STANDBY}"
    if standby and state == _UNSUPPORTED and selects:
        return (
            "The server is a standby, which holds no rows of unlogged tables. If the table is unlogged, or reads one,"
            " exclude it (`exclude_tables`) or read the primary."
        )
    found = next((each for each in (state, (state or "")[:2]) if each in _REMEDIES), None)
    if found is None:
        return ""
    return f"{_REMEDIES[found]}{f', {_EXCLUDE}' if selects and found in _EXCLUDABLE else ''}."


# 08: connection, here that of a foreign server, as HV00N; 40: serialisation, deadlock, and a standby's recovery
# conflict; 53300: too many connections; 55P03: lock not available; 57P: shutdown, crash, still starting, idle for long.
_TRANSIENT = ("08", "HV00N", "40", "53300", "55P03", "57P01", "57P02", "57P03", "57P05")
_DENIED = ("28", "42501", "3D000")
_UNKNOWN = ("42P01", "3F000")
_BUSY = re.compile(
    r"too many clients|connection slots|too many connections|terminating connection"
    r"|is (?:starting up|shutting down|not yet accepting)|in recovery mode|not accepting connections",
)
"""Refusals of a busy server, in English: an attempt to connect has no fields."""

_SERVERS = re.compile(r": (?P<severity>\w[^:\n]*):  (?P<text>.*)", re.DOTALL)
"""The server's part of libpq's text: two blanks follow the severity."""

_TYPES = "Failed to build type mapping table"
"""What the driver says if it cannot read the types as it connects."""

_LIBPQ_HEAD = re.compile(r"\A(?:[A-Z_]+: )?(?:\[libpq\] )?(?:Failed to connect: )?")
_LIBPQ_ASIDE = re.compile(r"\n\t[^\n]*")
"""What libpq asks or advises below a line of its own."""

_LIBPQ_CLOSED = re.compile(r"\n(?:server closed the connection|SSL connection has been closed).*", re.DOTALL)
_FULL = re.compile(r"too many|connection slots")
_LABELS = {"MESSAGE_DETAIL": "DETAIL", "MESSAGE_HINT": "HINT"}
_AGAIN = "Running again continues."
_LONGEST_SQL = 160


def fields_of(error: BaseException) -> dict[str, str]:
    """Return the fields of a server's error, such as `MESSAGE_PRIMARY`; none if the driver lost them."""
    found = {}
    for pair in getattr(error, "details", None) or ():
        name, value = (each.decode(errors="replace") if isinstance(each, bytes) else each for each in pair)
        found[name.removeprefix("PG_DIAG_")] = value
    return found


def lacks_state(error: BaseException) -> bool:
    """Return whether the driver lost the fields of a stream's error, or the error itself."""
    return _is_headless(error) or ("PGRES_FATAL_ERROR" in str(error) and "SQLSTATE" not in fields_of(error))


def translated(
    error: BaseException,
    doing: str,
    sql: str,
    secrets: Iterable[str],
    *,
    answers: bool,
    standby: bool,
    selects: bool,
    passes: bool,
    remedies: Mapping[str, str],
) -> SnapshotError:
    """Return the error to raise for an error of an established connection.

    Its attributes are `doing`, `reason` (the text without operation, remedy and SQL), and as far as known `sqlstate`,
    `remedy`, `table` and `column`.

    Args:
        error: The driver's error.
        doing: The operation that failed, such as `PostgreSQL 'shop': reading public.orders`.
        sql: The statement.
        secrets: Values that the message must not contain.
        answers: Whether the connection still answers.
        standby: Whether the server replays the write-ahead log of another.
        selects: Whether the operation reads tables that the plan may leave out.
        passes: Whether a query that ran again, because the driver lost its error, succeeded.
        remedies: Sentences by SQLSTATE that hold for this operation alone.
    """
    fields = fields_of(error)
    state = fields.get("SQLSTATE")
    kind: type[SnapshotError] = DatabaseError
    if state is None:
        kind = DatabaseError if answers and not passes else DatabaseUnavailableError
    elif state.startswith(_TRANSIENT):
        kind = DatabaseUnavailableError
    elif state.startswith(_DENIED):
        kind = DatabaseDeniedError
    elif state.startswith(_UNKNOWN):
        kind = UnknownRelationError
    reason = scrub(_reason(error, fields, doing, sql), secrets)
    general = _remedy_of(state, answers=answers, standby=standby, selects=selects)
    remedy = remedies.get(state or "", general)
    again = _AGAIN if issubclass(kind, TransientError) else ""
    shown = f"SQL: {_short(scrub(sql, secrets))}"
    text = " ".join(filter(None, (f"{doing} failed: {_ended(reason)}", remedy, again, shown)))
    attributes = {"sqlstate": state, "remedy": remedy, "table": _table(fields), "column": fields.get("COLUMN_NAME")}
    known = {name: value for name, value in attributes.items() if value}
    return kind(text, doing=doing, reason=reason, **known)


def is_of_server(text: str) -> bool:
    """Return whether libpq's text of a failed connection contains an error of the server, in any language."""
    return _SERVERS.search(text) is not None


def connect_failure(error: BaseException, alias: str, secrets: Iterable[str]) -> DatabaseError:
    """Return the error to raise for a failed connection attempt, for which the driver gives no fields.

    Only errors of a busy server are transient. All others than the server's come from libpq and concern the network,
    except those about the URI.
    """
    original = str(error)
    server = _SERVERS.search(original)
    reason = scrub(_line(_LIBPQ_ASIDE.sub("", _LIBPQ_HEAD.sub("", original))).rstrip("."), secrets)
    if re.search(r"invalid (?:URI|percent|port|integer|sslmode|connection option)|unexpected character", original):
        return DatabaseDeniedError(f"The URI of PostgreSQL {alias!r} is invalid: {reason}. {ENCODED}")
    if _TYPES in original:
        return DatabaseError(
            f"PostgreSQL {alias!r}: the driver could not read the types of the database: {reason}. A server that speaks"
            " only PostgreSQL's protocol, without pg_type and pg_attribute, is no source."
        )
    if server is None:
        remedy = "Check host and port in its URI, and whether the server runs."
        return DatabaseUnavailableError(f"PostgreSQL {alias!r} cannot be reached: {reason}. {remedy} {_AGAIN}")
    if _BUSY.search(original):
        remedy = _remedy_of("53300" if _FULL.search(original) else "57P03", answers=False, standby=False, selects=False)
        return DatabaseUnavailableError(f"PostgreSQL {alias!r} cannot be reached: {reason}. {remedy} {_AGAIN}")
    return DatabaseDeniedError(
        f"PostgreSQL {alias!r} refused the connection: {reason}. Check user, password and database name in its URI."
    )


def _reason(error: BaseException, fields: Mapping[str, str], doing: str, sql: str) -> str:
    """Return the server's reason, with detail, hint and the first line of the context, and the SQLSTATE.

    The message is followed by the error's table and column, as far as it does not name them.
    """
    if _is_headless(error):
        return (
            "the server ended the query before its first row. The driver lost the error, and the query did not fail"
            " again. Look for the error in the server's log"
        )
    if "MESSAGE_PRIMARY" not in fields:
        return _without_fields(str(error), sql)
    message = fields["MESSAGE_PRIMARY"]
    table, column = _table(fields), fields.get("COLUMN_NAME")
    missing = [
        text
        for text, name in ((f"table {table}", table), (f"column {column}", column))
        if name and not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", f"{doing} {message}")
    ]
    parts = [_line(message) + (f" ({', '.join(missing)})" if missing else "")]
    parts += [f"{label}: {_line(fields[name])}" for name, label in _LABELS.items() if name in fields]
    if context := fields.get("CONTEXT", "").partition("\n")[0]:
        parts.append(f"CONTEXT: {_short(context)}")
    return f"{' '.join([*map(_ended, parts[:-1]), parts[-1].rstrip('.')])} (SQLSTATE {fields['SQLSTATE']})"


def _table(fields: Mapping[str, str]) -> str | None:
    table = fields.get("TABLE_NAME")
    return f"{fields['SCHEMA_NAME']}.{table}" if table and "SCHEMA_NAME" in fields else table


def _without_fields(text: str, sql: str) -> str:
    """Return libpq's text without what the driver and libpq put around the server's.

    The driver puts some statements before it, and cuts the whole at a fixed length.
    """
    _, found, rest = text.partition("Failed to execute query '")
    if found and not rest.startswith(f"{sql}': "):
        return "the session ended, and the driver cut the reason off. Look for it in the server's log"
    text = rest.removeprefix(f"{sql}'") if found else text
    server = _SERVERS.search(text)
    if server is None:
        return _line(_LIBPQ_HEAD.sub("", text).removeprefix(": ")).rstrip(".")
    return _line(_LIBPQ_CLOSED.sub("", server["text"])).rstrip(".")


def _is_headless(error: BaseException) -> bool:
    """Return whether a stream ended before its first byte; the driver then loses the server's error."""
    return "Expected PGCOPY signature" in str(error)


def _line(text: str) -> str:
    return " ".join(text.split())


def _short(text: str) -> str:
    line = _line(text)
    return line if len(line) <= _LONGEST_SQL else f"{line[: _LONGEST_SQL - 1]}…"


def _ended(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
