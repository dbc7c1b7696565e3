"""Any tables of any types come back from MariaDB to MariaDB as they were, by what the server prints and sums."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from snapshot_assets.databases.protocol.source import DatabaseAddress, Selection
from snapshot_assets.format.relations import TableName
from snapshot_assets.testing.restores import copy, source
from snapshot_assets_tests.databases.mysql.test_restore import printed
from snapshot_assets_tests.databases.mysql.test_types import COLUMNS, literal_of
from snapshot_assets_tests.servers.mariadb import MariadbServer

pytestmark = pytest.mark.slow

_SQL = {kind: values.map(literal_of) for kind, values in COLUMNS.items()} | {
    "decimal(65,30)": st.integers(-(10**65) + 1, 10**65 - 1).map(lambda n: f"{n}e-30"),
    "time(6)": st.sampled_from(["'-838:59:59.999999'", "'838:59:59'", "'00:00:00.000001'"]),
    "set('a','b','ü') CHARACTER SET latin1": st.sampled_from(["''", "'a'", "'a,b'", "'a,b,ü'"]),
    "json": st.sampled_from(["'{}'", "'[1, 2.50]'", '\'{"a": "\\\\u00e9"}\'', "'null'"]),
    "inet6": st.sampled_from(["'::'", "'2001:db8::1'", "'::ffff:1.2.3.4'"]),
    "inet4": st.sampled_from(["'0.0.0.0'", "'255.255.255.255'"]),
    "uuid": st.uuids().map(lambda value: f"'{value}'"),
    "geometry": st.sampled_from(["ST_GeomFromText('POINT(1 -2)', 4326)", "ST_GeomFromText('LINESTRING(0 0,1 1)')"]),
    "binary(5)": st.sampled_from(["x'00'", "x'0000000000'", "'ab'"]),
    "char(5) CHARACTER SET ucs2 COLLATE ucs2_bin": st.sampled_from(["''", "'a b'", "'ü€'"]),
    "varchar(20) CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci": st.sampled_from(["''", "' a '", "'ü€'"]),
    "tinyint(1)": st.sampled_from(["0", "1", "-128"]),
    "mediumblob COMPRESSED": st.binary(max_size=300).map(lambda value: f"x'{value.hex()}'"),
}  # fmt: skip
_KEYED = ("int", "bigint unsigned zerofill", "datetime(6)", "decimal(38,0)", "varbinary(300)", "tinyint")
_OPTIONS = ("", "ROW_FORMAT=DYNAMIC", "CHARSET=latin1", "COLLATE=utf8mb4_bin COMMENT='it''s'")


class MadeTable(NamedTuple):
    """A table, by the statements that make it."""

    create: str
    rows: list[str]


def column(number: int) -> str:
    """Return the quoted name of a column."""
    return f'`c{number} "\\```'


@st.composite
def tables(draw: st.DrawFn, name: str) -> MadeTable:
    """Return a table of any columns, of which some have keys, with any rows."""
    kinds = draw(st.lists(st.sampled_from(sorted(_SQL)), min_size=1, max_size=6))
    lines, values = ["id int NOT NULL"], []
    for number, kind in enumerate(kinds):
        nullable = draw(st.booleans())
        null = "" if kind.endswith("NULL") else " NULL" if nullable else " NOT NULL"
        invisible = " INVISIBLE" if nullable and draw(st.integers(0, 5)) == 0 else ""
        lines.append(f"{column(number)} {kind}{null}{invisible}")
        values.append(st.just("NULL") | _SQL[kind] if nullable or kind.endswith("NULL") else _SQL[kind])
    key = draw(st.sampled_from(["PRIMARY KEY (id)", "UNIQUE KEY (id)", "KEY (id)", ""]))
    lines += [key] if key else []
    for number, kind in enumerate(kinds):
        if kind in _KEYED and draw(st.booleans()):
            lines.append(f"KEY `k{number}` ({column(number)}{'(9)' if kind.startswith('var') else ''})")
    rows = draw(st.lists(st.tuples(*values), max_size=20))
    columns = ", ".join(["id", *map(column, range(len(kinds)))])
    inserts = [f"INSERT INTO {name} ({columns}) VALUES ({', '.join([str(n), *row])})" for n, row in enumerate(rows)]
    return MadeTable(f"CREATE TABLE {name} ({', '.join(lines)}) {draw(st.sampled_from(_OPTIONS))}", inserts)


def test_any_tables_come_back_as_the_server_prints_and_sums_them(
    mariadb_server: MariadbServer, second_mariadb_server: MariadbServer
) -> None:
    @settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(st.tuples(tables("first"), tables("`sec ond`")))
    def check(made: tuple[MadeTable, MadeTable]) -> None:
        mariadb_server.drop_databases()
        second_mariadb_server.drop_databases()
        origin = DatabaseAddress("shop", mariadb_server.create_database("shop"))
        statements = [each for table in made for each in (table.create, *table.rows)]
        mariadb_server.sql("SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO,NO_BACKSLASH_ESCAPES'", *statements, database="shop")
        names = [TableName("shop", "first"), TableName("shop", "sec ond")]
        with source(origin) as database:
            schema = database.extract(Selection(time_columns=dict.fromkeys(names)))
        assert copy(schema, origin, DatabaseAddress("into", second_mariadb_server.uri())).lost == ()
        assert printed(second_mariadb_server) == printed(mariadb_server)
        query = "CHECKSUM TABLE first, `sec ond` EXTENDED"
        assert second_mariadb_server.sql(query, database="shop") == mariadb_server.sql(query, database="shop")

    try:
        check()
    finally:
        mariadb_server.drop_databases()
        second_mariadb_server.drop_databases()
