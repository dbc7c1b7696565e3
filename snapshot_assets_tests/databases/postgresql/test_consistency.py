from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import sleep

import pytest
from pyspark.sql import SparkSession

from snapshot_assets.databases.postgresql import session
from snapshot_assets.databases.protocol.query import Query
from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress, Scan, Selection
from snapshot_assets.engine.export.source import open_source
from snapshot_assets.errors import ConsistencyLostError, DatabaseUnavailableError
from snapshot_assets.format.relations import Table, TableName
from snapshot_assets_tests.databases.postgresql.helpers import (
    Run,
    client,
    execute,
    opened,
    queries_that_run,
    read,
    read_scan,
    table_of,
)
from snapshot_assets_tests.servers.postgresql import PostgresqlServer


def fill(uri: str, rows: int = 20_000) -> Table:
    execute(uri, f"CREATE TABLE t AS SELECT i AS id, repeat('x', 100) AS filler FROM generate_series(1, {rows}) i")
    with opened(uri) as database:
        return table_of(database)


def kill(run: Run, query: str) -> None:
    """Kill the sessions, other than this one, whose latest query holds a text."""
    run(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        f" WHERE query LIKE '%{query}%' AND pid <> pg_backend_pid() AND datname = current_database()"
    )


def test_all_connections_of_a_held_state_read_it_and_nothing_later(postgresql_database: str) -> None:
    table = fill(postgresql_database, 10)
    with opened(postgresql_database) as holder, holder.hold(lambda: 1) as held:
        execute(postgresql_database, "INSERT INTO t VALUES (11, ''), (12, '')", "DELETE FROM t WHERE id = 1")
        with opened(postgresql_database, held.token) as one, opened(postgresql_database, held.token) as other:
            assert sorted(read(one, table)["id"].to_pylist()) == list(range(1, 11))
            assert read(other, table).num_rows == 10
            assert one.fence()["snapshot"] == other.fence()["snapshot"]
        with opened(postgresql_database) as present:
            assert read(present, table).num_rows == 11
        held.check()


def test_without_a_token_one_connection_reads_one_state_also_after_an_error(postgresql_database: str) -> None:
    table = fill(postgresql_database, 10)
    wrong = table.model_copy(update={"name": "nowhere"})
    with opened(postgresql_database) as database:
        before = database.fence()
        execute(postgresql_database, "DELETE FROM t")
        assert read(database, table).num_rows == 10
        with pytest.raises(Exception, match="nowhere"):
            read(database, wrong)
        assert read(database, table).num_rows == 10
        assert database.fence()["snapshot"] == before["snapshot"]
    with opened(postgresql_database) as database:
        assert database.fence()["snapshot"] != before["snapshot"]


def test_the_holder_reads_its_state_also_after_an_error_and_others_can_still_join(postgresql_database: str) -> None:
    table = fill(postgresql_database, 10)
    wrong = table.model_copy(update={"name": "nowhere"})
    with opened(postgresql_database) as holder, holder.hold(lambda: 1) as held:
        execute(postgresql_database, "DELETE FROM t")
        with pytest.raises(Exception, match="nowhere"):
            read(holder, wrong)
        held.check()
        with opened(postgresql_database, held.token) as other:
            assert read(holder, table).num_rows == read(other, table).num_rows == 10
            assert holder.fence()["snapshot"] == other.fence()["snapshot"]


def test_foreign_rows_belong_to_no_held_state(postgresql_server: PostgresqlServer, postgresql_database: str) -> None:
    script = """
    CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER far FOREIGN DATA WRAPPER nothing; CREATE TABLE t (id int);
    CREATE TABLE p (id int) PARTITION BY LIST (id); CREATE FOREIGN TABLE p1 PARTITION OF p FOR VALUES IN (1) SERVER far;
    CREATE FOREIGN TABLE f (id int) SERVER far; CREATE VIEW v AS SELECT id FROM t;
    CREATE VIEW of_f AS SELECT id FROM v NATURAL JOIN f; CREATE VIEW of_p AS SELECT id FROM p;
    CREATE MATERIALIZED VIEW m AS SELECT id FROM f WITH NO DATA; CREATE VIEW of_m AS SELECT id FROM m;
    """
    postgresql_server.psql_script(postgresql_database, script)
    foreign = {TableName("public", name) for name in ("f", "of_f", "of_p")}
    local = {TableName("public", name) for name in ("t", "p", "v", "m", "of_m")}  # no foreign partition is read
    with opened(postgresql_database) as database:
        found = database.stateless(database.extract(Selection(tables=tuple(foreign | local))))
        assert found.startswith("Rows of public.f, public.of_f, public.of_p are foreign")
        assert database.stateless(database.extract(Selection(tables=tuple(local)))) == ""


def test_the_driver_of_an_export_has_one_connection(postgresql_database: str) -> None:
    table = fill(postgresql_database, 10)
    address = DatabaseAddress("shop", postgresql_database)
    with open_source(address, SparkSession.active, lambda: 1, lambda: 1) as source, client(postgresql_database) as run:
        assert source.database.unfit(table, [AllRows()]) == []
        others = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        assert len(run(others)) == 1
        source.check()


def test_a_killed_holder_is_detected_and_its_state_is_never_replaced(postgresql_database: str) -> None:
    fill(postgresql_database, 10)
    with opened(postgresql_database) as holder, holder.hold(lambda: 1) as held:
        held.check()
        with client(postgresql_database) as run:
            kill(run, "SELECT 1 AS alive")
        with pytest.raises(ConsistencyLostError, match="session that held"):
            held.check()
        with pytest.raises(ConsistencyLostError, match="is gone"), opened(postgresql_database, held.token):
            pass


def test_a_statement_that_waits_for_one_session_of_a_state_does_not_block_the_others_for_ever(
    postgresql_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = fill(postgresql_database, 10)
    monkeypatch.setattr(session, "JOINED_LOCK_WAIT", "1s")
    with ThreadPoolExecutor(1) as pool, opened(postgresql_database) as holder, holder.hold(lambda: 1) as held:
        with opened(postgresql_database, held.token) as one, opened(postgresql_database, held.token) as other:
            assert read(one, table).num_rows == 10
            rewritten = pool.submit(execute, postgresql_database, "ALTER TABLE t ADD COLUMN late int DEFAULT random()")
            while not (rewritten.done() or queries_that_run(postgresql_database)):
                sleep(0.05)
            with pytest.raises(DatabaseUnavailableError, match="Another session holds a conflicting lock"):
                read(other, table)
        rewritten.result(30)


def test_a_token_of_no_snapshot_is_refused(postgresql_database: str) -> None:
    for token in ("00000001-00000001-1", "nonsense"):
        with pytest.raises(ConsistencyLostError, match=token), opened(postgresql_database, token):
            pass


@pytest.mark.parametrize("command", ["TRUNCATE t", "ALTER TABLE t ALTER COLUMN id TYPE bigint", "VACUUM FULL t"])
def test_a_table_rewritten_after_the_state_is_refused_instead_of_read_empty(
    postgresql_database: str, command: str
) -> None:
    tables = [fill(postgresql_database, 10)]
    with opened(postgresql_database) as database:
        tables += database.extract(Selection(query=Query("copied", "SELECT count(*) AS rows FROM t"))).tables
    if not command.startswith("ALTER"):  # it is refused for the column of a view
        execute(postgresql_database, "CREATE VIEW v AS SELECT id FROM t")
        with opened(postgresql_database) as database:
            tables.append(table_of(database, "v"))
            tables += database.extract(Selection(query=Query("copied", "SELECT count(*) AS rows FROM v"))).tables
    with opened(postgresql_database) as holder, holder.hold(lambda: 1) as held:
        execute(postgresql_database, command)
        with opened(postgresql_database, held.token) as database:
            for table in tables:
                with pytest.raises(ConsistencyLostError, match=r"^t was truncated or rewritten|^public\.t was"):
                    read(database, table)


@pytest.mark.parametrize("query", [None, "SELECT id FROM t WHERE id > 3"])
def test_a_table_that_was_read_cannot_be_rewritten_until_the_connection_closes(
    postgresql_database: str, query: str | None
) -> None:
    table = fill(postgresql_database, 10)
    with opened(postgresql_database) as database, client(postgresql_database) as run:
        if query is not None:
            [table] = database.extract(Selection(query=Query("copied", query))).tables
        read(database, table)
        run("SET lock_timeout = '50ms'")
        with pytest.raises(Exception, match="lock timeout"):
            run("TRUNCATE t")
    execute(postgresql_database, "TRUNCATE t")


@pytest.mark.parametrize("most", [3, 10_000])
def test_parts_make_up_the_table_while_it_grows(postgresql_database: str, most: int) -> None:
    table = fill(postgresql_database)
    with opened(postgresql_database) as holder, holder.hold(lambda: 1) as held:
        with opened(postgresql_database, held.token) as database:
            parts = database.split(Scan(table, AllRows()), most)
        assert 1 < len(parts) <= most
        ids: list[int] = []
        with client(postgresql_database) as run, opened(postgresql_database, held.token) as database:
            for number, part in enumerate(parts):
                if number % 100 == 1:
                    run("UPDATE t SET filler = 'y' WHERE id % 100 = 7")
                    run("INSERT INTO t SELECT 0, repeat('z', 500) FROM generate_series(1, 1000)")
                ids += read_scan(database, part)["id"].to_pylist()
        assert sorted(ids) == list(range(1, 20_001))


def test_parts_are_of_similar_size_and_the_last_includes_rows_added_after_the_division(
    postgresql_database: str,
) -> None:
    table = fill(postgresql_database)
    with opened(postgresql_database) as database:
        parts = database.split(Scan(table, AllRows()), 4)
        sizes = [read_scan(database, part).num_rows for part in parts]
    assert len(parts) == 4
    assert max(sizes) < 2 * min(sizes)
    execute(postgresql_database, "INSERT INTO t SELECT 20000 + i, repeat('z', 500) FROM generate_series(1, 5000) i")
    with opened(postgresql_database) as database:
        ids = [id_ for part in parts for id_ in read_scan(database, part)["id"].to_pylist()]
    assert sorted(ids) == list(range(1, 25_001))


def test_parts_of_a_partitioned_table_make_it_up(postgresql_database: str) -> None:
    execute(
        postgresql_database,
        "CREATE TABLE t (id int) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (3000)",
        "CREATE TABLE high PARTITION OF t FOR VALUES FROM (3000) TO (10000) PARTITION BY HASH (id)",
        *(f"CREATE TABLE h{n} PARTITION OF high FOR VALUES WITH (MODULUS 2, REMAINDER {n})" for n in range(2)),
        "INSERT INTO t SELECT i FROM generate_series(0, 9999) i",
    )
    with opened(postgresql_database) as database:
        parts = database.split(Scan(table_of(database), AllRows()), 3)
        ids = [id_ for part in parts for id_ in read_scan(database, part)["id"].to_pylist()]
    assert len(parts) == 3
    assert sorted(ids) == list(range(10_000))


def test_a_view_and_an_empty_table_are_not_divided(postgresql_database: str) -> None:
    fill(postgresql_database)
    execute(postgresql_database, "CREATE VIEW v AS SELECT id FROM t", "CREATE TABLE nothing (id int)")
    with opened(postgresql_database) as database:
        for name in ("v", "nothing"):
            scan = Scan(table_of(database, name), AllRows())
            assert database.split(scan, 4) == [scan]


def test_rows_without_columns_are_read(postgresql_database: str) -> None:
    execute(postgresql_database, "CREATE TABLE t ()", "INSERT INTO t SELECT FROM generate_series(1, 3)")
    with opened(postgresql_database) as database, database.scan(Scan(table_of(database), AllRows())) as batches:
        assert [(batch.num_rows, batch.schema.names) for batch in batches] == [(3, [])]


def test_batches_are_bounded(postgresql_database: str) -> None:
    with client(postgresql_database) as run:
        run("CREATE TABLE t AS SELECT i AS id, repeat('x', 4000) AS filler FROM generate_series(1, 10000) i")
    with opened(postgresql_database) as database, database.scan(Scan(table_of(database), AllRows())) as batches:
        sizes = [batch.nbytes for batch in batches]
    assert sum(sizes) > 40_000_000
    assert max(sizes) < 20_000_000


def test_a_scan_left_early_does_not_read_the_rest(postgresql_database: str) -> None:
    with client(postgresql_database) as run:
        run("CREATE TABLE t AS SELECT 1 AS id")
        late = "pg_sleep(CASE WHEN i > 5000000 THEN 60 END)::text"
        run(f"CREATE VIEW v AS SELECT i AS id, {late} AS s FROM generate_series(1, 6000000) i")
    with opened(postgresql_database) as database:
        table = table_of(database, "v")
        with database.scan(Scan(table, AllRows())) as batches:
            next(batches)
        assert read(database, table_of(database)).num_rows == 1


def test_a_connection_killed_while_it_scans_is_a_transient_error(postgresql_database: str) -> None:
    table = fill(postgresql_database, 200_000)
    with (
        opened(postgresql_database) as database,
        client(postgresql_database) as run,
        database.scan(Scan(table, AllRows())) as batches,
    ):
        next(batches)
        kill(run, "filler")
        # The server's message may arrive before or after the end of the connection.
        messages = "terminating connection|server closed the connection"
        with pytest.raises(
            DatabaseUnavailableError, match=rf"PostgreSQL 'shop': reading public\.t failed: .*({messages})"
        ):
            list(batches)
