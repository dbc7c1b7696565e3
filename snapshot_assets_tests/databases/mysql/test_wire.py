"""Rows of any size are read whole, and a connection goes on after whatever happened to a query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from snapshot_assets.databases.mysql.session import MysqlSession
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.errors import DatabaseError, DatabaseUnavailableError, SnapshotError
from snapshot_assets_tests.databases.mysql.helpers import large_packets
from snapshot_assets_tests.servers.mariadb import MariadbServer

PACKET = (1 << 24) - 1


@pytest.fixture
def session(mariadb_server: MariadbServer) -> Iterator[MysqlSession]:
    with (
        large_packets(mariadb_server),
        closing(MysqlSession(DatabaseAddress("shop", mariadb_server.uri("mysql")))) as opened,
    ):
        yield opened


def lengths(session: MysqlSession, sql: str) -> list[list[int | None]]:
    with session.stream(sql, "reading") as chunks:
        return [
            [None if value is None else len(value) for value in row]
            for columns in chunks
            for row in zip(*(column.to_pylist() for column in columns), strict=True)
        ]


@pytest.mark.parametrize("length", [0, 250, 251, 252, 65535, 65536])
def test_values_around_each_form_of_a_length(session: MysqlSession, length: int) -> None:
    sql = f"SELECT REPEAT('x', {length}), NULL, CAST(seq AS CHAR) FROM seq_8_to_12"
    assert lengths(session, sql) == [[length, None, len(str(number))] for number in range(8, 13)]


@pytest.mark.parametrize("payload", [PACKET - 1, PACKET, PACKET + 1, 2 * PACKET, 2 * PACKET + 1])
def test_a_row_of_several_packets_between_small_ones(session: MysqlSession, payload: int) -> None:
    length = payload - 2 - 4 - 2  # two bytes before the values, four with its length, and two for the other value
    sql = f"SELECT IF(seq = 3, REPEAT('x', {length}), seq), CAST(seq AS CHAR) FROM seq_1_to_5"
    assert lengths(session, sql) == [[length if n == 3 else 1, 1] for n in range(1, 6)]


def test_a_query_may_have_no_rows_or_parameters_as_text(session: MysqlSession) -> None:
    assert lengths(session, "SELECT '1' FROM seq_1_to_3 WHERE seq > 5") == []
    assert lengths(session, "SELECT '?', '%s' -- ?") == [[1, 2]]


def test_an_error_amid_the_rows_is_raised_and_the_session_goes_on(session: MysqlSession) -> None:
    query = "SELECT IF(seq < 900000, 'x', (SELECT 1 UNION SELECT 2)) FROM seq_1_to_1000000"
    with pytest.raises(DatabaseError, match=r"reading failed: Subquery returns more than 1 row \(error 1242\)"):
        lengths(session, query)
    assert lengths(session, "SELECT 'x'") == [[1]]


def test_no_statement_stays_prepared_and_leaving_early_ends_the_query(session: MysqlSession) -> None:
    for query in ("SELECT '1' FROM seq_1_to_3", "SELECT (SELECT 1 UNION SELECT 2)", "SELECT 1 FROM missing"):
        with suppress(SnapshotError):
            lengths(session, query)
    with session.stream("SELECT REPEAT('x', 1000) FROM seq_1_to_100000000", "reading") as chunks:
        next(chunks)
    [row] = session.rows("SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'", "reading")
    assert row["Value"] == "0"


def test_a_session_that_ends_amid_the_rows_is_transient(session: MysqlSession, mariadb_server: MariadbServer) -> None:
    [row] = session.rows("SELECT CONNECTION_ID() AS id", "reading")
    with session.stream("SELECT REPEAT('x', 1000) FROM seq_1_to_100000000", "reading") as chunks:
        next(chunks)
        mariadb_server.sql(f"KILL {row['id']}")
        with pytest.raises(DatabaseUnavailableError, match=r"reading failed: .* Running again continues"):
            list(chunks)
