"""Describes the lock that a session waits for, and who holds it, as far as the server shows that to this user."""

from __future__ import annotations

from datetime import datetime

from snapshot_assets.databases.postgresql.connect import connect

_WAIT = """
    SELECT l.mode || ' on ' || coalesce((
        SELECT pg_catalog.format('%I.%I', n.nspname, c.relname)
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = l.relation
    ), l.locktype) AS lock, pg_catalog.string_agg(h.pid || ' (' || pg_catalog.concat_ws(
        ', ', coalesce('user ' || a.usename, 'see pg_prepared_xacts'), a.state,
        pg_catalog.array_to_string((pg_catalog.string_to_array(a.query, ' '))[:3], ' ')
    ) || ')', ', ') AS holders
    FROM pg_catalog.pg_locks l, pg_catalog.unnest(pg_catalog.pg_blocking_pids(l.pid)) h (pid)
    LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = h.pid
    WHERE l.pid = {own} AND pg_catalog.pg_postmaster_start_time() = '{started}' AND NOT l.granted GROUP BY 1
"""
"""Process 0 stands for a prepared transaction."""


def describe_wait(uri: str, own: int, started: datetime) -> str:
    """Return what session `own` waits for, and who holds it, by a connection of its own; "" if it waits for no lock.

    A URI may lead to several servers. Only the one that `started` when the session's did knows the session.
    """
    # A catalog may be locked too.
    with connect(uri, {"statement_timeout": "10s"}) as other, other.cursor() as cursor:
        cursor.execute(_WAIT.format(own=own, started=started))
        rows = cursor.fetch_arrow_table().to_pylist()
    return f"Waiting for {rows[0]['lock']}, held by session {rows[0]['holders']}" if rows else ""
