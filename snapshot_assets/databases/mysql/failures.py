"""Errors of the driver as the package's own, by MySQL's error numbers, never by the texts, which have a language."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pymysql

from snapshot_assets.errors import (
    DatabaseDeniedError,
    DatabaseError,
    DatabaseUnavailableError,
    SnapshotError,
    TransientError,
    UnknownRelationError,
)
from snapshot_assets.format.scrub import scrub

LOST = (0, 2006, 2013, 2014, 2055)
"""The session has ended: the driver's numbers, 0 for a connection that is closed."""

_UNREACHABLE = (2002, 2003, 2005)
# 1020: a row changed since the state was taken; 1047: the node of a cluster does not take part; 1205, 1213: lock wait
# and deadlock; 1317, 1927, 3169: KILL; 1637: too many transactions; 4031: idle for long.
_TRANSIENT = (
    *(LOST + _UNREACHABLE),
    *(1020, 1040, 1047, 1053, 1077, 1079, 1080, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1205, 1213, 1226, 1317, 1637),
    *(1927, 3169, 4031),
)
_DENIED = (1044, 1045, 1130, 1142, 1143, 1227, 1251, 1370, 1410, 1698, 1820, 1862, 3118, 4151)
_UNKNOWN = (1146, 1109)
_READ_ONLY = (1290, 1792, 1836, 3100)
_REMEDIES = {
    **dict.fromkeys(
        (1040, 1203, 1226),
        "Let other sessions end, use fewer tasks at a time (spark.master: local[2]), or raise the limit, such as"
        " max_connections of the server, or that of this user which the server names",
    ),
    **dict.fromkeys((1044, 1142, 1143, 1227, 1370), "Grant the user of the URI the right that the server names"),
    **dict.fromkeys((1045, 1698), "Check user and password in the URI, and from which hosts the user may connect"),
    **dict.fromkeys(_READ_ONLY, "Use the address of a server that may write, or let it (read_only, super_read_only)"),
    1049: "Create the database, or check its name in the URI",
    1130: "Let the user connect from this host, or connect from another one",
    **dict.fromkeys((1820, 1862), "The password has expired: set a new one (ALTER USER … IDENTIFIED BY …)"),
    1153: "Raise max_allowed_packet on the server",
    1205: "Another session holds a conflicting lock, such as that of ALTER TABLE or LOCK TABLES: see SHOW FULL"
    " PROCESSLIST and SHOW ENGINE INNODB STATUS",
    **dict.fromkeys(_UNREACHABLE, "Check host and port in the URI, and whether the server runs"),
    **dict.fromkeys((1317, 1927, 1969, 3024), "A time limit or an administrator ended the statement or the session"),
    **dict.fromkeys((1021, 1114), "Free space on the database server's disk, or raise its limit for temporary tables"),
    1412: "The table was altered, truncated or rebuilt after the state was taken. Start a new run, and run no such"
    " statements during it",
    2026: "Let the server have TLS, check its certificate (ssl_ca), or write ssl=disabled in the URI",
    4031: "Lift the idle limit that the server has for this user",
}


def number_of(error: BaseException) -> int | None:
    """Return the number of a driver's error; None for one that has none."""
    number = error.args[0] if error.args else None
    return number if isinstance(number, int) else None


def translate(error: Exception, doing: str, secrets: Iterable[str] = ()) -> DatabaseError | UnknownRelationError:
    """Return the error to raise for one of the driver; `doing` is what failed, such as `MySQL 'shop': reading a.b`."""
    number = number_of(error)
    text = str(error.args[1]) if number is not None and len(error.args) > 1 else str(error)
    if number == 0 or not text:
        text = "the session has ended"
    kind: type[SnapshotError] = DatabaseError
    per_hour = number == 1226 and "per_hour" in text  # the name of the limit, in each language
    if (number in _TRANSIENT and not per_hour) or isinstance(error, OSError):
        kind = DatabaseUnavailableError
    elif number in _DENIED:
        kind = DatabaseDeniedError
    elif number in _UNKNOWN:
        kind = UnknownRelationError
    text = text.partition(" (using password")[0]  # whose value is no secret, but looks like one
    reason = scrub(" ".join(text.split()).rstrip("."), secrets) + (f" (error {number})" if number else "")
    remedy = _REMEDIES.get(number or 0, "")
    again = "Running again continues." if issubclass(kind, TransientError) else ""
    message = " ".join(filter(None, (f"{doing} failed: {reason}.", f"{remedy}." if remedy else "", again)))
    found = kind(message, doing=doing, reason=reason, errno=number)
    assert isinstance(found, DatabaseError | UnknownRelationError)
    return found


@contextmanager
def translating(doing: str, secrets: Iterable[str] = ()) -> Iterator[None]:
    """Raise the driver's errors inside as the package's own; only the driver's calls may run inside."""
    try:
        yield
    except (pymysql.Error, OSError) as error:
        raise translate(error, doing, secrets) from None
