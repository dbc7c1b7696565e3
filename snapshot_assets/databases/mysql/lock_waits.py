"""Describes the lock that a session waits for, and who holds it, as far as the server shows that to this user."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pymysql

from snapshot_assets.databases.protocol.lock_waits import REPORTED_AFTER

_STATE = "SELECT state FROM information_schema.processlist WHERE id = {own} AND state LIKE 'Waiting for %'"
_ROW_HOLDERS = tuple(
    f"SELECT b.trx_mysql_thread_id AS id FROM {waits} w JOIN information_schema.innodb_trx r"
    f" ON r.trx_id = w.requesting_{trx} AND r.trx_mysql_thread_id = {{own}}"
    f" JOIN information_schema.innodb_trx b ON b.trx_id = w.blocking_{trx}"
    for waits, trx in (
        ("information_schema.innodb_lock_waits", "trx_id"),  # MariaDB
        ("performance_schema.data_lock_waits", "engine_transaction_id"),  # MySQL
    )
)
"""Who holds the lock on a row that a session waits for."""
_HOLDERS = (
    "SELECT thread_id AS id FROM information_schema.metadata_lock_info"  # a plug-in of MariaDB
    " WHERE lock_mode IN ('MDL_EXCLUSIVE', 'MDL_SHARED_NO_READ_WRITE')",
    "SELECT t.processlist_id AS id FROM performance_schema.metadata_locks l JOIN performance_schema.threads t"
    " ON t.thread_id = l.owner_thread_id WHERE l.lock_status = 'GRANTED'"
    " AND l.lock_type IN ('EXCLUSIVE', 'SHARED_NO_READ_WRITE')",
    f"SELECT id FROM information_schema.processlist WHERE command = 'Query' AND time >= {REPORTED_AFTER:.0f}",
)
"""Who may hold a lock on a table that readers wait for, the most exact first; some servers or users have none."""
_SESSIONS = (
    "SELECT DISTINCT h.id AS id, p.user AS user, SUBSTRING_INDEX(p.info, ' ', 3) AS doing FROM ({holders}) h"
    " LEFT JOIN information_schema.processlist p ON p.id = h.id WHERE h.id NOT IN ({own}, CONNECTION_ID())"
)


def describe_wait(cursor: Any, own: int) -> str:
    """Return what session `own` waits for, and who holds it; "" if it waits for no lock."""
    if who := _sessions(cursor, own, _ROW_HOLDERS):
        return f"Waiting for a lock on a row, held by session {who}"
    cursor.execute(_STATE.format(own=own))
    waits = cursor.fetchall()
    if not waits:
        return ""
    if who := _sessions(cursor, own, _HOLDERS):
        return f"{waits[0]['state']}, perhaps held by session {who}"
    return f"{waits[0]['state']}; SHOW FULL PROCESSLIST, by a user with PROCESS, shows who may hold it"


def _sessions(cursor: Any, own: int, queries: Sequence[str]) -> str:
    """Return the sessions of the first query that has any, and what they do; "" for none."""
    for holders in queries:
        with suppress(pymysql.Error):
            cursor.execute(_SESSIONS.format(holders=holders.format(own=own), own=own))
            if found := cursor.fetchall():
                return ", ".join(f"{row['id']} (user {row['user']}, {row['doing'] or 'idle'})" for row in found)
    return ""
