"""Describes the lock that a session waits for, and who holds it, as far as the server shows that to this user."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pymysql

_STATE = "SELECT state FROM information_schema.processlist WHERE id = {own} AND state LIKE 'Waiting for %'"
_HOLDERS = (
    *(
        f"SELECT b.trx_mysql_thread_id AS id FROM {waits} w JOIN information_schema.innodb_trx r"
        f" ON r.trx_id = w.requesting_{trx} AND r.trx_mysql_thread_id = {{own}}"
        f" JOIN information_schema.innodb_trx b ON b.trx_id = w.blocking_{trx}"
        for waits, trx in (
            ("information_schema.innodb_lock_waits", "trx_id"),  # MariaDB
            ("performance_schema.data_lock_waits", "engine_transaction_id"),  # MySQL
        )
    ),
    "SELECT t.processlist_id AS id FROM performance_schema.threads w"
    " JOIN performance_schema.metadata_locks p ON p.owner_thread_id = w.thread_id AND p.lock_status = 'PENDING'"
    " JOIN performance_schema.metadata_locks l USING (object_type, object_schema, object_name)"
    " JOIN performance_schema.threads t ON t.thread_id = l.owner_thread_id"
    " WHERE w.processlist_id = {own} AND l.lock_status = 'GRANTED'",
)
"""Who holds the lock on a row, or on a table, that a session waits for; some servers or users lack these tables."""

_SESSIONS = (
    "SELECT DISTINCT h.id AS id, p.user AS user, SUBSTRING_INDEX(p.info, ' ', 3) AS doing FROM ({holders}) h"
    " LEFT JOIN information_schema.processlist p ON p.id = h.id WHERE h.id NOT IN ({own}, CONNECTION_ID())"
)


def describe_wait(cursor: Any, own: int) -> str:
    """Return what session `own` waits for, and who holds it; "" if it waits for no lock."""
    cursor.execute(_STATE.format(own=own))
    states = cursor.fetchall()
    waiting = states[0]["state"] if states else "Waiting for a lock on a row"
    for holders in _HOLDERS:
        with suppress(pymysql.Error):
            cursor.execute(_SESSIONS.format(holders=holders.format(own=own), own=own))
            if found := cursor.fetchall():
                who = ", ".join(f"{row['id']} (user {row['user']}, {row['doing'] or 'idle'})" for row in found)
                return f"{waiting}, held by session {who}"
    return f"{waiting}; SHOW FULL PROCESSLIST, by a user with PROCESS, shows who may hold it" if states else ""
