"""Queries are copied where nothing can be created: by users without temporary views, and from a standby."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest

from snapshot_assets.databases.protocol.query import Query
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.errors import DatabaseError
from snapshot_assets.format.relations import Table
from snapshot_assets_tests.databases.postgresql.helpers import execute, opened, read, texts
from snapshot_assets_tests.databases.postgresql.values import every_type_script
from snapshot_assets_tests.engine.export.copies import copied, files
from snapshot_assets_tests.servers.postgresql import PostgresqlServer, start_postgresql

WINDOWED = "SELECT * FROM (SELECT now() AS at, 1.5::numeric(3,1) AS n) q WHERE at >= :start AND at < :end"


def described(uri: str, query: str) -> Table:
    with opened(uri) as database:
        [table] = database.extract(Selection(query=Query("q", query))).tables
        return table


@pytest.fixture
def reader(postgresql_server: PostgresqlServer, postgresql_database: str) -> Iterator[str]:
    """The URI of a user who only reads."""
    name = urlsplit(postgresql_database).path.removeprefix("/")
    execute(
        postgresql_database,
        f"CREATE ROLE {name} LOGIN PASSWORD 'reader'",
        f"REVOKE TEMP ON DATABASE {name} FROM PUBLIC",
        "CREATE TABLE t (n int, price numeric(10,2), text varchar(9), pad char(3), at timestamp(3), secret text)",
        "INSERT INTO t VALUES (1, 1.50, 'a', 'b', '2025-01-01', 'c')",
        f"GRANT SELECT (n, price, text, pad, at) ON t TO {name}",
    )
    yield postgresql_server.uri(name, name, "reader")
    execute(postgresql_database, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def test_a_user_without_temporary_views_copies_queries(reader: str, tmp_path: Path) -> None:
    query = "SELECT n, price, text, pad, at FROM t"
    assert copied(reader, query, tmp_path / "to").rows == 1
    [file] = files(tmp_path / "to")
    [row] = pq.read_table(file).to_pylist()
    assert [str(value) for value in row.values()] == ["1", "1.50", "a", "b  ", "2025-01-01 00:00:00"]
    kinds = [column.type for column in described(reader, query).columns]
    assert kinds == ["integer", "numeric", "character varying", "bpchar", "timestamp without time zone"]
    assert [column.type for column in described(reader, WINDOWED).columns] == ["timestamp with time zone", "numeric"]
    for wrong, problem in {"SELECT secret FROM t": "denied", "SELECT 1 AS n, 2 AS n": "ambiguous"}.items():
        with pytest.raises(DatabaseError, match=problem):
            described(reader, wrong)


def test_a_user_whose_transactions_are_read_only_keeps_modifiers(postgresql_database: str) -> None:
    name = urlsplit(postgresql_database).path.removeprefix("/")
    execute(postgresql_database, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    assert [column.type for column in described(postgresql_database, "SELECT 1.5::numeric(3,1) AS n").columns] == [
        "numeric(3,1)"
    ]


@pytest.mark.slow
def test_a_standby_is_copied(tmp_path: Path) -> None:
    with start_postgresql() as server:
        uri = server.create_database()
        server.psql_script(uri, every_type_script())
        expected, on_primary = texts(uri, "t"), described(uri, "SELECT * FROM t")
        server.control("stop")
        (server.data / "standby.signal").touch()
        server.control("start", "-l", str(server.data.parent / "log"))
        on_standby = described(uri, "SELECT * FROM t")
        kinds = zip(on_primary.columns, on_standby.columns, strict=True)
        differing = {one.type for one, other in kinds if one != other}
        assert differing == {kind for kind in (column.type for column in on_primary.columns) if "(" in kind}
        with opened(uri) as database:
            assert read(database, on_standby).num_rows == len(expected)
        assert copied(uri, "SELECT * FROM t", tmp_path / "to").rows == len(expected)
