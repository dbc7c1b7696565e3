"""A target of another kind is compared by value: every type, in either direction, and every changed value is found."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import pytest

from snapshot_assets.databases.sql import literal
from snapshot_assets.engine.restore.drill import ComparedRows, compare
from snapshot_assets_tests.databases.duckdb.test_types import CASES
from snapshot_assets_tests.databases.postgresql.helpers import client
from snapshot_assets_tests.databases.postgresql.values import DEFINITIONS, TYPES
from snapshot_assets_tests.databases.test_convert import FLAT
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into, execute, finished
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

pytestmark = pytest.mark.slow


def types_of_duckdb() -> dict[str, list[str]]:
    """Return types with values that PostgreSQL can hold: by themselves, in lists, which become arrays, and in JSON."""
    found = dict(FLAT)
    for kind, values in FLAT.items():
        casts = [f"CAST({value} AS {kind})" for value in values]
        lists = [f"[{', '.join([*casts, 'NULL'])}]", f"[{casts[-1]}]", "[]", "[NULL]"]
        found[f"{kind}[]"] = lists
        if kind != '"NULL"':  # a list of NULLs in a struct is no valid array after Arrow's cast, and no export has it
            found[f"STRUCT(v {kind}, l {kind}[])"] = [f"row({value}, {lists[0]})" for value in (*values, "NULL")]
    nested = {kind: values for kind, (_, _, values) in CASES.items() if kind not in FLAT}
    return found | {kind: [each for each in values if "chr(0)" not in each] for kind, values in nested.items()}


OF_DUCKDB = types_of_duckdb()
OF_POSTGRESQL = {kind: [literal(value) for value in values] for kind, values in TYPES.items()}

NEAR_IN_POSTGRESQL = [
    ("DOUBLE", "0.0", "'-0'::float8"),
    ("DOUBLE[]", "[0.0]", "'{-0}'::float8[]"),
    ("STRUCT(v DOUBLE)", "row(0.0)", """'{"v":-0.0}'"""),
    ("FLOAT[]", "['nan'::FLOAT]", "'{Infinity}'"),
    ("VARCHAR", "''", "NULL"),
    ("VARCHAR[]", "['NULL']", "'{NULL}'"),
    ("VARCHAR[]", "['a,b']", "'{a,b}'"),
    ("VARCHAR[][]", "[['a', 'b']]", """'["ab"]'"""),
    ("INTEGER[]", "[]", "NULL"),
    ("INTEGER[]", "[]", "'{NULL}'"),
    ("INTEGER[]", "[1, 2, 3, 4]", "'{{1,2},{3,4}}'"),
    ("INTEGER[]", "[1, 2]", "'[0:1]={1,2}'"),
    ("INTEGER[][]", "NULL", "'null'"),
    ("INTEGER[][]", "[NULL]", "'[[]]'"),
    ("INTEGER[][]", "[[1]]", "'[[99999999999999999999]]'"),
    ("STRUCT(v INTEGER)", "row(1)", """'{"v":1,"w":2}'"""),
    ("STRUCT(v INTEGER)", "row(NULL)", "'{}'"),
    ("MAP(VARCHAR, INTEGER)", "MAP {'a': 1}", """'[["a",1],["a",1]]'"""),
    ("UTINYINT", "255", "256"),
    ("UBIGINT", "18446744073709551615", "18446744073709551616"),
    ("DECIMAL(10,2)[]", "[1.5]", "'{NaN}'"),
    ("TIMESTAMP_NS", "'2024-01-01 00:00:00.000000001'", "'2024-01-01 00:00:00.000000002'"),
    ("TIMESTAMP_MS", "'2024-01-01 00:00:00.001'", "'2024-01-01 00:00:00.001001'"),
    ("TIMESTAMPTZ[]", "['0044-03-15 (BC) 12:00:00+00']", "'{0044-03-15 12:00:00+00}'"),
    ("DATE[]", "['2024-01-01']", "'{infinity}'"),
    ("TIME_NS", "'00:00:00'", "'24:00:00'"),
    ("INTERVAL", "'1 day'", "'24:00:00'"),
    ('"NULL"[]', "[NULL]", "'{x}'"),
    ('STRUCT(v "NULL")', "row(NULL)", """'{"v":"x"}'"""),
]
"""Type, value, and a value that is nearly the same in PostgreSQL, or that the type does not have."""

NEAR_IN_DUCKDB = [
    ("float8", "0", "'-0'::DOUBLE"),
    ("text", "", "NULL"),
    ("text", "🙂", "'🙂 '"),
    ("numeric", "1.0", "'1.00'"),
    ("numeric(10,2)", "1.0", "1.01"),
    ("interval", "1 day", "'24:00:00'"),
    ("jsonb", '{"a": 1.10}', """'{"a": 1.1}'"""),
    ("bytea", "\\x", "'\\x00'::BLOB"),
    ("timestamptz", "2024-01-01 00:00:00.000001+00", "'2024-01-01 00:00:00+00'"),
    ("uuid", "00000000-0000-0000-0000-000000000000", "'00000000-0000-0000-0000-000000000001'"),
    ("int4[]", "{}", "'{NULL}'"),
]


@dataclass
class Compared:
    """The comparison of each table, as restored, and after one value of it was changed."""

    as_restored: dict[str, ComparedRows]
    changed: dict[str, ComparedRows]


def _rows(into: Into, query: str) -> list[tuple[object, ...]]:
    if into.uri.startswith("duckdb"):
        with duckdb.connect(into.uri.removeprefix("duckdb://")) as connection:
            return connection.sql(query).fetchall()
    with client(into.uri) as run:
        return run(query)


def _another_value(into: Into, table: str) -> tuple[int, str]:
    """Return the number of a row, and SQL of a value that differs from its own: another row's, if there is one."""
    texts = {
        text: n for n, text in _rows(into, f"SELECT n, CAST(v AS text) FROM {table} ORDER BY n") if text is not None
    }
    if not texts:
        return 0, "'x'"
    one, *others = texts.values()
    if others:
        return one, f"(SELECT v FROM copied WHERE n = {others[0]})"
    of_text = str(_rows(into, f"SELECT pg_typeof(v) FROM {table}")[0][0]) in ("text", "character varying")
    return one, "v || 'x'" if of_text else "NULL"


def compared(
    place: Place, into: Into, schema: str, types: dict[str, list[str]], near: list[tuple[str, str, str]]
) -> Compared:
    """Restore a table of each type, compare, change a value in each, and compare again."""
    values = [*types.items(), *((kind, [value]) for kind, value, _ in near)]
    statements, names = [], [f"{schema}.t{number}" for number in range(len(values))]
    for name, (kind, some) in zip(names, values, strict=True):
        rows = ", ".join(f"({number}, {value})" for number, value in enumerate([*some, "NULL"]))
        statements += [f"CREATE TABLE {name} (n INTEGER, v {kind})", f"INSERT INTO {name} VALUES {rows}"]
    execute(place.source, *statements)
    place.export(time_columns=dict.fromkeys(names), tables=names)
    run = finished(place, into)
    before = {str(each.table): each for each in compare(run)}
    changes = []
    for number, name in enumerate(names):
        row, value = _another_value(into, name) if number < len(types) else (0, near[number - len(types)][2])
        changes += [
            f"CREATE TABLE copied AS SELECT * FROM {name}",  # DuckDB leaves out an update to an equal value
            f"DELETE FROM {name} WHERE n = {row}",
            f"INSERT INTO {name} SELECT n, {value} FROM copied WHERE n = {row}",
            "DROP TABLE copied",
        ]
    execute(into, *changes)
    return Compared(before, {str(each.table): each for each in compare(run)})


@pytest.fixture(scope="module")
def in_duckdb(
    postgresql_server: PostgresqlServer, postgresql_module_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Compared:
    """Every type of PostgreSQL in a DuckDB file."""
    folder, source = tmp_path_factory.mktemp("in_duckdb"), postgresql_module_database
    postgresql_server.psql_script(source, DEFINITIONS + 'CREATE TABLE "odd \'name" ();')
    place, into = Place(source, folder / "location"), Into(f"duckdb://{folder}/t.duckdb")
    near = [(kind, literal(value), changed) for kind, value, changed in NEAR_IN_DUCKDB]
    return compared(place, into, "public", OF_POSTGRESQL, near)


@pytest.fixture(scope="module")
def in_postgresql(postgresql_module_database: str, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """Every type of DuckDB in PostgreSQL."""
    folder = tmp_path_factory.mktemp("in_postgresql")
    place, into = Place(f"duckdb://{folder}/s.duckdb", folder / "location"), Into(postgresql_module_database)
    return compared(place, into, "main", OF_DUCKDB, NEAR_IN_POSTGRESQL)


def _check(found: Compared, table: str) -> None:
    before, after = found.as_restored[table], found.changed[table]
    assert (before.error, before.uncompared, before.equal) == (None, (), True)
    assert before.found == before.expected > 1
    assert (after.error, after.equal, after.found) == (None, False, before.expected)


@pytest.mark.parametrize("number", range(len(OF_POSTGRESQL)), ids=list(OF_POSTGRESQL))
def test_every_value_of_postgresql_is_equal_in_duckdb_until_one_changes(in_duckdb: Compared, number: int) -> None:
    _check(in_duckdb, f"public.t{number}")


@pytest.mark.parametrize("number", range(len(OF_DUCKDB)), ids=list(OF_DUCKDB))
def test_every_value_of_duckdb_is_equal_in_postgresql_until_one_changes(in_postgresql: Compared, number: int) -> None:
    _check(in_postgresql, f"main.t{number}")


@pytest.mark.parametrize("number", range(len(NEAR_IN_DUCKDB)), ids=[f"{kind}-{new}" for kind, _, new in NEAR_IN_DUCKDB])
def test_nearly_equal_values_differ_in_duckdb(in_duckdb: Compared, number: int) -> None:
    _check(in_duckdb, f"public.t{len(OF_POSTGRESQL) + number}")


@pytest.mark.parametrize(
    "number", range(len(NEAR_IN_POSTGRESQL)), ids=[f"{kind}-{new}" for kind, _, new in NEAR_IN_POSTGRESQL]
)
def test_nearly_equal_values_differ_in_postgresql(in_postgresql: Compared, number: int) -> None:
    _check(in_postgresql, f"main.t{len(OF_DUCKDB) + number}")
