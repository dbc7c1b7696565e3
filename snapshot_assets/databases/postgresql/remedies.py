"""What a user does about an error of PostgreSQL, by its SQLSTATE."""

from __future__ import annotations

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
_EXCLUDABLE = ("08", "HV", "42501", "XX001")
_CONFLICT = "40001"
_UNSUPPORTED = "0A000"


def remedy_of(state: str | None, *, answers: bool, standby: bool, selects: bool) -> str:
    """Return what to do about an error as a sentence, "" if only the server's reason tells.

    Args:
        state: The SQLSTATE; None if the driver lost it.
        answers: Whether the connection still answers.
        standby: Whether the server replays the write-ahead log of another.
        selects: Whether the operation reads tables that the plan may leave out.
    """
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
