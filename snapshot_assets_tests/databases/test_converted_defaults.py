"""Defaults that are plain constants mean the same in each kind of database, so a restore into another one has them."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from itertools import permutations
from pathlib import Path

import duckdb
import pytest

from snapshot_assets.databases.convert.literals import plain_default
from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress, Scan
from snapshot_assets.format.relations import Carrier, Column, TableName
from snapshot_assets.testing.restores import copy, extracted, read_scan, source
from snapshot_assets_tests.databases.duckdb.files import make_file, path_of
from snapshot_assets_tests.databases.postgresql.helpers import execute
from snapshot_assets_tests.servers.mariadb import MariadbServer

T = TableName("shop", "t")
COLUMNS = """(
    id int PRIMARY KEY, one int DEFAULT 1, large bigint DEFAULT 5000000000, negative smallint DEFAULT -5,
    price decimal(10,2) DEFAULT 1.5, ratio {double} DEFAULT 1.5, yes boolean DEFAULT true, no boolean DEFAULT false,
    quoted varchar(10) DEFAULT 'it''s', digits varchar(10) DEFAULT '007', nothing varchar(10) DEFAULT NULL,
    day date DEFAULT '2020-01-02', moment {moment} DEFAULT '2020-01-02 03:04:05',
    written {moment} DEFAULT CURRENT_TIMESTAMP,
    instant {instant} DEFAULT CURRENT_TIMESTAMP, chance {double} DEFAULT ({random}), path varchar(10) DEFAULT {path}
)"""
NAMES = ("double", "moment", "instant", "random", "path")
WORDS = {
    "mysql": ("double", "datetime(6)", "timestamp(6) NULL", "rand()", r"'\\'"),
    "postgresql": ("float8", "timestamp", "timestamptz", "random()", r"'\'"),
    "duckdb": ("double", "timestamp", "timestamptz", "random()", r"'\'"),
}


@pytest.mark.parametrize(("one", "other"), list(permutations(WORDS, 2)))
def test_constants_are_carried_over_in_all_directions(
    tmp_path: Path,
    postgresql_database: str,
    mariadb_server: MariadbServer,
    mariadb_database: str,
    one: str,
    other: str,
) -> None:
    file = make_file(tmp_path / "file.duckdb")

    def in_file(sql: str) -> None:
        with closing(duckdb.connect(path_of(file))) as connection:
            connection.execute(sql)

    places: dict[str, tuple[DatabaseAddress, Callable[[str], object]]] = {
        "mysql": (DatabaseAddress("shop", mariadb_database), mariadb_server.sql),
        "postgresql": (DatabaseAddress("shop", postgresql_database), lambda sql: execute(postgresql_database, sql)),
        "duckdb": (file, in_file),
    }
    (origin, run), (into, run_there) = places[one], places[other]
    if one != "mysql":
        run("CREATE SCHEMA shop")
    run(f"CREATE TABLE shop.t {COLUMNS.format(**dict(zip(NAMES, WORDS[one], strict=True)))}")
    run("INSERT INTO shop.t (id) VALUES (1)")
    lost = copy(extracted(origin, T), origin, into).lost
    left = {match[1] for each in lost if (match := re.match(r"Default .* of column shop\.t\.(\w+) is left out", each))}
    assert left == {"chance", "path"}
    run_there("INSERT INTO shop.t (id) VALUES (2)")
    with source(into) as database:
        table = extracted(into, T).table(T)
        first, second = read_scan(database, Scan(table, AllRows(), order_by=("id",))).to_pylist()
    drawn = ("id", "written", "instant", "chance", "path")
    assert {name: value for name, value in first.items() if name not in drawn} == {
        name: value for name, value in second.items() if name not in drawn
    }
    for name in ("written", "instant"):
        assert abs((second[name] - first[name]).total_seconds()) < 600


@pytest.mark.parametrize(
    ("type_text", "arrow_type", "default"),
    [
        ("integer", "int32", "(1.5)::integer"),
        ("numeric", "decimal128(10, 2)", "(1.5)::integer"),
        ("timestamp", "timestamp[us]", "CAST('2020-01-02 03:04:05' AS DATE)"),
        ("timestamp", "timestamp[us]", "'0000-00-00 00:00:00'"),
        ("timestamp", "timestamp[us]", "(now())::date"),
        ("timestamp", "timestamp[us]", "CURRENT_TIMESTAMP(0)"),
        ("timestamptz", "timestamp[us, tz=UTC]", "'2020-01-02 00:00:00+00'::timestamp with time zone"),
        ("character(3)", "string", "'a'::bpchar"),
        ("text", "string", "'a' || 'b'"),
        ("text", "string", "('a'::text || 'b'::text)"),
        ("text", "string", "CURRENT_USER"),
        ("double precision", "double", "'NaN'::double precision"),
        ("bit(1)", "uint64", "b'1'"),
    ],
)
def test_what_may_mean_something_else_elsewhere_is_no_constant(type_text: str, arrow_type: str, default: str) -> None:
    assert plain_default(Column(name="c", type=type_text, arrow_type=arrow_type, default=default)) is None


def test_the_text_form_of_another_type_is_no_constant() -> None:
    column = Column(name="c", type="jsonb", arrow_type="string", carrier=Carrier.TEXT, default="'{}'::jsonb")
    assert plain_default(column) is None
