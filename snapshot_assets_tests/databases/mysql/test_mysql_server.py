"""MySQL's own server passes the suites, and its types, keys, views and code come back as it prints them.

Debian has it only in its unstable suite, so these tests run where the variable MYSQLD names its program.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress, Scan, Selection
from snapshot_assets.errors import ConsistencyLostError
from snapshot_assets.format.relations import TableName
from snapshot_assets.testing.restores import copy, read_scan, source
from snapshot_assets.testing.source_suite import SourceSuite
from snapshot_assets.testing.target_suite import TargetSuite
from snapshot_assets_tests.databases.mysql.helpers import SHOP
from snapshot_assets_tests.databases.mysql.test_conformance import ExampleServer
from snapshot_assets_tests.databases.mysql.test_restore import printed
from snapshot_assets_tests.servers.mariadb import MariadbServer

Servers = tuple[MariadbServer, MariadbServer]


class ExampleMysql(ExampleServer):
    """A database of a MySQL server."""

    types: ClassVar = {
        kind: values for kind, values in ExampleServer.types.items() if kind not in ("inet6", "uuid")
    } | {
        "json": [('\'{"b": 1.50, "a": [null]}\'', '{"a": [null], "b": 1.5}')],
        "time(6)": [("'-838:59:59'", "-838:59:59.000000"), ("'00:00:00.000001'", "00:00:00.000001")],
        "point": [("ST_GeomFromText('POINT(1 2)', 0)", struct.pack("<IBIdd", 0, 1, 1, 1.0, 2.0))],
        "vector(2)": [("TO_VECTOR('[1,-2.5]')", b"\x00\x00\x80?\x00\x00 \xc0")],
    }

    def numbers(self, count: int) -> str:
        more = f"SELECT CAST(1 AS SIGNED) AS i UNION ALL SELECT i + 1 FROM s WHERE i < {count}"
        return f"(WITH RECURSIVE s AS ({more}) SELECT i FROM s) n"


@pytest.fixture
def servers(mysql_servers: Servers) -> Iterator[Servers]:
    yield mysql_servers
    for each in mysql_servers:
        each.drop_databases()


@pytest.fixture
def example(servers: Servers) -> ExampleMysql:
    return ExampleMysql(*servers)


class TestSource(SourceSuite):
    """MySQL as a source."""


class TestTarget(TargetSuite):
    """MySQL as a target."""


SCHEMA = (Path(__file__).parent / "whole" / "mysql.sql").read_text()


def test_a_schema_comes_back_as_the_server_prints_it(servers: Servers) -> None:
    first, second = servers
    origin = DatabaseAddress("shop", first.create_database("shop"))
    first.sql("SET NAMES utf8mb4", *SCHEMA.split(";\n"), database="shop")
    untimed = dict.fromkeys(TableName("shop", name) for name in ("kinds", "events", "parent", "child"))
    with source(origin) as database:
        schema = database.extract(Selection(time_columns=untimed))
    into = DatabaseAddress("into", second.uri())
    definition = copy(schema, origin, into, code=True)
    assert [each.partition(":")[0] for each in definition.lost] == [
        "Event shop.tidy is created disabled, so that a copy does not run it. To start it",
        "Definer root@localhost is lost",
    ]
    assert printed(second) == printed(first)
    for table in schema.tables:
        with source(origin) as one, source(into) as other:
            assert read_scan(other, Scan(table, AllRows())).equals(read_scan(one, Scan(table, AllRows())))
    for view in ("late", "totals"):
        rows = f"SELECT * FROM {view} ORDER BY 1"
        assert second.sql(rows, database="shop") == first.sql(rows, database="shop")
    for kind, name in (("FUNCTION", "doubled"), ("PROCEDURE", "nothing"), ("TRIGGER", "before_child")):
        shown = [each.sql(f"SHOW CREATE {kind} {name}", database="shop") for each in servers]
        assert shown[0].replace("localhost", "127.0.0.1").split("\t")[:-1] == shown[1].split("\t")[:-1]


def test_a_mask_of_a_vector_has_all_its_bytes(servers: Servers) -> None:
    uri = servers[0].create_database("shop")
    servers[0].sql("CREATE TABLE t (v vector(3))", "INSERT INTO t VALUES (TO_VECTOR('[1,2,3]'))", database="shop")
    with source(DatabaseAddress("shop", uri)) as database:
        selection = Selection(masks={(SHOP, "v"): "v"}, time_columns={SHOP: None})
        table = database.extract(selection).table(SHOP)
        [value] = read_scan(database, Scan(table, AllRows()))["v"].to_pylist()
    assert struct.unpack("<3f", value) == (1, 2, 3)


def test_connections_hold_one_state_under_a_lock_of_the_server(servers: Servers) -> None:
    origin = DatabaseAddress("shop", servers[0].create_database("shop"))
    servers[0].sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", database="shop")
    with closing(open_database(origin)) as holder, holder.hold(lambda: 2) as held:
        assert held.unshared == ""
        servers[0].sql("INSERT INTO t VALUES (2)", "COMMIT", database="shop")
        for _ in range(3):
            with closing(open_database(replace(origin, consistency=held.token))) as database:
                table = database.extract(Selection(time_columns={TableName("shop", "t"): None})).tables[0]
                assert database.count_rows([(table, [])], thorough=True) == [[]]
                assert {"binlog_file", "binlog_position", "mysql"} <= database.fence().keys()
                [row] = database.session.rows("SELECT COUNT(*) AS found FROM shop.t", "counting")
                assert row["found"] == 1
        held.check()


def test_a_table_that_another_one_replaces_after_the_state_is_refused(servers: Servers) -> None:
    origin = DatabaseAddress("shop", servers[0].create_database("shop"))
    tables = (f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in ("t", "ghost"))
    servers[0].sql("DO SLEEP(1.1)", *tables, "DO SLEEP(1.1)", "ALTER TABLE ghost FORCE", database="shop")
    with (
        closing(open_database(origin)) as holder,
        holder.hold(lambda: 1) as held,
        source(replace(origin, consistency=held.token)) as database,
    ):
        table = database.extract(Selection(time_columns={SHOP: None})).table(SHOP)
        read_scan(database, Scan(table, AllRows()))
        servers[0].sql("RENAME TABLE t TO old, ghost TO t", database="shop")
        with pytest.raises(ConsistencyLostError, match="it was made or altered at"):
            read_scan(database, Scan(table, AllRows()))
