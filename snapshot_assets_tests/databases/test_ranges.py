"""Ranges of a column have all rows of a query together, and none twice, for every type that has ranges."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime
from uuid import UUID

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from snapshot_assets.databases.duckdb.types import RANGED as DUCKDB
from snapshot_assets.databases.postgresql.types import RANGED as POSTGRESQL
from snapshot_assets.databases.protocol import query
from snapshot_assets.databases.protocol.query import Quantiles, Query
from snapshot_assets.databases.protocol.source import AllRows, Database, DatabaseAddress, Scan, Selection
from snapshot_assets.errors import PlanError
from snapshot_assets.format.relations import Carrier, Table, TableName
from snapshot_assets.testing.restores import read_scan, source

BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}
ENDS = {
    "postgresql": ["infinity", "-infinity", "4713-01-01 BC", "0001-01-01", "1999-12-31"],
    "duckdb": ["infinity", "-infinity", "4713-01-01 (BC)", "0001-01-01", "1999-12-31"],
}
MOMENTS = {"postgresql": ["294276-12-31 23:59:59.999999"], "duckdb": ["294246-12-31 23:59:59.999999"]}


@pytest.fixture(scope="module", params=["duckdb", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> DatabaseAddress:
    if request.param == "postgresql":
        return DatabaseAddress("source", request.getfixturevalue("postgresql_module_database"))
    path = tmp_path_factory.mktemp("ranges") / "empty.duckdb"
    duckdb.connect(str(path)).close()
    return DatabaseAddress("source", f"duckdb://{path}")


def values_of(kind: str, database: str) -> st.SearchStrategy[str]:
    if kind.upper() == "UUID":
        return st.integers(0, 2**128 - 1).map(lambda number: str(UUID(int=number)))
    bits = BITS.get(kind.upper().removeprefix("U"), 0)
    if bits:
        least, greatest = (0, 2**bits - 1) if kind.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return st.integers(least, greatest).map(str)
    if kind == "TIMESTAMP_NS":
        return st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)).map(str)
    edges = st.sampled_from(ENDS[database] + ([] if kind.lower() == "date" else MOMENTS[database]))
    return edges | (st.dates() if kind.lower() == "date" else st.datetimes()).map(str)


def table_of(database: Database, query: str, split_by: str | None = "c") -> Table:
    schema = "public" if database.kind == "postgresql" else "main"
    carriers = {(TableName(schema, "copied"), "c"): Carrier.TEXT}
    [table] = database.extract(Selection(carriers=carriers, query=Query("copied", query), split_by=split_by)).tables
    return table


def parts_of(database: Database, table: Table, parts: int) -> list[list[str | None]]:
    whole = Scan(table, AllRows())
    cut = database.quantiles(whole, "c", parts).ranges(parts)
    assert 1 <= len(cut) <= parts
    return [read_scan(database, replace(whole, part=each))["c"].to_pylist() for each in cut]


def assert_divided(address: DatabaseAddress, kind: str, values: list[str | None], parts: int) -> None:
    rows = ", ".join(f"({'NULL' if value is None else repr(value)})" for value in [*values, None])
    query = f"SELECT CAST(c AS {kind}) AS c FROM (VALUES {rows}) AS v (c) OFFSET {int(not values)}"
    with source(address) as database:
        table = table_of(database, query)
        divided = parts_of(database, table, parts)
        whole = read_scan(database, Scan(table, AllRows()))["c"].to_pylist()
    assert Counter(value for part in divided for value in part) == Counter(whole)
    assert sum(None in part for part in divided) == (None in whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "kind"),
    [*(("postgresql", kind) for kind in POSTGRESQL), *(("duckdb", kind) for kind in DUCKDB)],
    indirect=["address"],
)
@given(data=st.data(), parts=st.integers(2, 5))
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ranges_have_every_row_once(address: DatabaseAddress, kind: str, data: st.DataObject, parts: int) -> None:
    value = values_of(kind, address.uri.partition(":")[0])
    assert_divided(address, kind, data.draw(st.lists(value | st.none(), max_size=12)), parts)


def test_edges_have_every_row_once(address: DatabaseAddress) -> None:
    assert_divided(address, "bigint", [str(-(2**63)), "-1", "0", str(2**63 - 1)], 4)
    assert_divided(address, "uuid", [str(UUID(int=0)), str(UUID(int=2**127)), str(UUID(int=2**128 - 1))], 3)
    assert_divided(address, "date", ["-infinity", "0001-01-01", "1999-12-31", "infinity"], 4)
    assert_divided(address, "timestamp with time zone", ["-infinity", "1999-12-31 23:59:59.999999", "infinity"], 3)
    assert_divided(address, "integer", ["7"] * 9, 4)
    assert_divided(address, "integer", [None] * 3, 4)
    assert_divided(address, "integer", [], 4)


def test_a_value_far_from_the_others_does_not_put_all_rows_in_one_range(address: DatabaseAddress) -> None:
    rows = "SELECT CAST(i AS bigint) AS c FROM generate_series(1, 10000) AS g (i)"
    with source(address) as database:
        table = table_of(database, f"{rows} UNION ALL SELECT {2**63 - 1}")
        counts = [len(part) for part in parts_of(database, table, 4)]
    assert sum(counts) == 10001
    assert max(counts) < 2600


def test_a_large_query_is_sampled(address: DatabaseAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("postgresql.scan", "duckdb.source"):
        monkeypatch.setattr(f"snapshot_assets.databases.{module}.SAMPLE_ROWS", 2000)
    with source(address) as database:
        table = table_of(database, "SELECT CAST(i AS integer) AS c FROM generate_series(1, 20000) AS g (i)")
        assert database.quantiles(Scan(table, AllRows()), "c", 4).rows == 2000
        counts = [len(part) for part in parts_of(database, table, 4)]
    assert sum(counts) == 20000
    assert max(counts) < 7000


def test_a_column_without_ranges_is_refused(address: DatabaseAddress) -> None:
    with source(address) as database:
        with pytest.raises(PlanError, match=r"has no column 'd', .*split_by\. There are: 'b', 'c'"):
            table_of(database, "SELECT 1 AS c, 2 AS b", "d")
        for value, kind in (("'a'::text", r"text|VARCHAR"), ("1.5::numeric(4,2)", r"numeric|DECIMAL")):
            with pytest.raises(PlanError, match=rf"'b', which is of type ({kind}).*(bigint|BIGINT).*cast it"):
                table_of(database, f"SELECT 1 AS c, {value} AS b", "b")


def test_frequent_values_make_fewer_ranges() -> None:
    quantiles = Quantiles("c", "integer", 8, ("1", "1", "5", "5"))
    assert [(each.low, each.high) for each in quantiles.ranges(4)] == [(None, "5"), ("5", None)]
    assert [each.predicate for each in quantiles.ranges(1)] == ["true"]
    assert [each.predicate for each in Quantiles("c", "integer", 0, ()).ranges(4)] == ["true"]
    assert query.fractions(4) == [0.0, 0.25, 0.5, 0.75]
