"""Rows are added exactly, as files and by statements; what a file would change or leave out is an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from snapshot_assets.databases.mysql.target import MysqlTarget
from snapshot_assets.databases.mysql.writer import MysqlWriter
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.errors import DatabaseError
from snapshot_assets.format.relations import Carrier, Table
from snapshot_assets_tests.databases.mysql.helpers import table_of, values_of
from snapshot_assets_tests.databases.mysql.test_types import COLUMNS
from snapshot_assets_tests.servers.mariadb import MariadbServer


@pytest.fixture(params=[True, False], ids=["files", "statements"])
def target(
    mariadb_server: MariadbServer, mariadb_database: str, request: pytest.FixtureRequest
) -> Iterator[MysqlTarget]:
    """A target whose server takes files, and one whose server does not."""
    mariadb_server.sql(f"SET GLOBAL local_infile = {int(request.param)}")
    opened = MysqlTarget(DatabaseAddress("shop", mariadb_database))
    yield opened
    opened.close()
    mariadb_server.sql("SET GLOBAL local_infile = DEFAULT")


def insert(target: MysqlTarget, table: Table, columns: dict[str, list[Any]]) -> int:
    """Add rows in a transaction."""
    batch = pa.record_batch(
        {name: pa.array(values, table.column(name).arrow_field().type) for name, values in columns.items()}
    )
    with target._transaction():
        return target.insert(table, [batch.slice(0, 1), batch.slice(1)])


def test_any_values_are_added_exactly(target: MysqlTarget, mariadb_database: str) -> None:
    kinds = {f"c{number}": kind for number, kind in enumerate(COLUMNS)}
    target.execute(f"CREATE TABLE shop.t (id int, {', '.join(map(' '.join, kinds.items()))})", "preparing")
    table = table_of(mariadb_database)
    row = st.fixed_dictionaries({name: st.none() | COLUMNS[kind] for name, kind in kinds.items()})

    @settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(row, min_size=1, max_size=20))
    def check(rows: list[dict[str, Any]]) -> None:
        target.execute("DELETE FROM shop.t", "preparing")
        columns = {name: [row[name] for row in rows] for name in kinds}
        assert insert(target, table, {"id": list(range(len(rows))), **columns}) == len(rows)
        found = values_of(mariadb_database, table, order_by=("id",))
        for name, values in columns.items():
            expected = pa.array(values, table.column(name).arrow_field().type).to_pylist()
            assert list(map(repr, found[name])) == list(map(repr, expected))

    check()


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("bit(64)", "513", "513"),
        ("year", "0000", "0000"),
        ("date", "2024-00-00", "2024-00-00"),
        ("float", "0.10000000149011612", "0.10000000149011612"),
        ("bigint unsigned", "18446744073709551615", "18446744073709551615"),
    ],
)
def test_the_text_of_a_value_is_added_as_the_value(
    kind: str, value: str, stored: str, target: MysqlTarget, mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql(f"CREATE TABLE t (c {kind})", database="shop")
    table = table_of(mariadb_database, carriers={"c": Carrier.TEXT})
    insert(target, table, {"c": [value, None]})
    assert values_of(mariadb_database, table)["c"] == [stored, None]


def test_rows_are_inserted_where_a_file_is_refused_once_the_load_has_begun(
    target: MysqlTarget, mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql("CREATE TABLE t (c int)", "SET GLOBAL local_infile = 0", database="shop")
    table = table_of(mariadb_database)
    assert insert(target, table, {"c": [1, None, 3]}) == 3
    assert insert(target, table, {"c": [4, 5]}) == 2
    assert values_of(mariadb_database, table)["c"] == [1, None, 3, 4, 5]


@pytest.mark.parametrize(
    ("columns", "values", "errno"),
    [
        ("c int PRIMARY KEY", [1, 2, 1], 1062),
        ("c tinyint", [1, 2, 300], 1264),
        ("c int CHECK (c > 0)", [1, 2, 0], 4025),
        ("c int NOT NULL", [1, 2, None], 1048),
        ("c int REFERENCES parents (id)", [1, 1, 2], 1452),
        ("c int) PARTITION BY RANGE (c) (PARTITION p VALUES LESS THAN (9)", [1, 2, 10], 1526),
    ],
)
def test_what_a_file_would_change_or_leave_out_is_an_error(
    columns: str, values: list[int | None], errno: int, target: MysqlTarget, mariadb_server: MariadbServer,
    mariadb_database: str,
) -> None:  # fmt: skip
    mariadb_server.sql(
        "CREATE TABLE parents (id int PRIMARY KEY)", "INSERT INTO parents VALUES (1)", f"CREATE TABLE t ({columns})",
        database="shop",
    )  # fmt: skip
    table = table_of(mariadb_database)
    if table.column("c").type == "tinyint(4)":  # narrower than the snapshot's
        table = table.model_copy(
            update={"columns": (table.column("c").model_copy(update={"type": "int(11)", "arrow_type": "int32"}),)}
        )
    with pytest.raises(DatabaseError, match=r"loading shop\.t failed") as raised:
        insert(target, table, {"c": values})
    assert raised.value.attributes["errno"] == errno
    assert mariadb_server.sql("SELECT COUNT(*) FROM shop.t") == "0"


def test_beside_an_error_value_of_an_enum_every_other_value_must_fit(
    target: MysqlTarget, mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql("CREATE TABLE t (e enum('a','b'), c tinyint)", database="shop")
    table = table_of(mariadb_database)
    wider = table.column("c").model_copy(update={"type": "int(11)", "arrow_type": "int32"})
    table = table.model_copy(update={"columns": (table.column("e"), wider)})
    assert insert(target, table, {"e": ["", "a"], "c": [1, 2]}) == 2
    with pytest.raises(DatabaseError, match="warned 2 times of rows in which 1 value of"):
        insert(target, table, {"e": ["b", ""], "c": [3, 300]})
    with pytest.raises(DatabaseError, match="Out of range"):  # strict again
        insert(target, table, {"e": ["a", "b"], "c": [4, 300]})
    assert mariadb_server.sql("SELECT e + 0, c FROM shop.t ORDER BY c") == "0\t1\n1\t2"


def test_null_is_not_taken_for_the_time_of_the_load(
    target: MysqlTarget, mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql("CREATE TABLE t (c timestamp NOT NULL DEFAULT current_timestamp())", database="shop")
    with pytest.raises(DatabaseError, match=r"loading shop\.t failed: column c is NOT NULL in the target"):
        insert(target, table_of(mariadb_database), {"c": [10**15, None]})
    assert mariadb_server.sql("SELECT COUNT(*) FROM shop.t") == "0"


def test_a_file_is_used_where_the_server_takes_files(
    target: MysqlTarget, mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql("CREATE TABLE t (c int, g int AS (c + 1), h int INVISIBLE)", database="shop")
    [before] = target.rows("SHOW SESSION STATUS LIKE 'Com_load'", "counting")
    insert(target, table_of(mariadb_database), {"c": [1, 2], "h": [None, 3]})
    [after] = target.rows("SHOW SESSION STATUS LIKE 'Com_load'", "counting")
    assert (int(after["Value"]) > int(before["Value"])) is target._takes_files
    assert mariadb_server.sql("SELECT c, g, h FROM shop.t ORDER BY c") == "1\t2\tNULL\n2\t3\t3"


def test_the_driver_sends_no_file_that_a_server_asks_for(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql("CREATE TABLE t (c text)", database="shop")
    with (
        closing(MysqlWriter(DatabaseAddress("shop", mariadb_database), {})) as writer,
        pytest.raises(RuntimeError, match="local_infile option is false"),
    ):
        writer.execute("LOAD DATA LOCAL INFILE '/etc/hostname' INTO TABLE shop.t", "loading")
    assert mariadb_server.sql("SELECT COUNT(*) FROM shop.t") == "0"
