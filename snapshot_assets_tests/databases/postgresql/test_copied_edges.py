"""PostgreSQL itself reads copies back to equal rows, with odd names and values at the edges of their types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from snapshot_assets.errors import DatabaseError
from snapshot_assets_tests.databases.postgresql.helpers import client, execute, load, opened, table_of
from snapshot_assets_tests.engine.export.test_copy import copied, files
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

ODD = """
CREATE TABLE odd (
    "select" int, "a,b" text, "q""uo'te" bytea, "new
line" numeric, " \\ü" numeric(38,0), "%" numeric(38,38), "order" int[], "{j}" jsonb, "J" json
);
INSERT INTO odd VALUES
    (1, E'a\\r\\nb', '\\x00ff00', 'NaN', 99999999999999999999999999999999999999, 0.1, '{{1,NULL},{NULL,4}}',
        '{"a": 1e400}', '{"a": 1,  "a": 2}'),
    (2, E'\\r', '\\x', 'Infinity', -99999999999999999999999999999999999999, NULL, '{}', 'null', 'null'),
    (3, E'\\n', NULL, '-Infinity', 0, -0.99999999999999999999999999999999999999, '{NULL}', '"\\u00e9"', '[ ]'),
    (4, '', '\\x0a0d22', 12345678901234567890.1234567890, NULL, 0, NULL, NULL, NULL),
    (5, '\\.', '\\x5c2e', 1e-100, 1, 0, '{1}', '[1.10]', '1.10'),
    (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
"""
LINES = r"WITH (FORMAT csv, QUOTE E'\x01', DELIMITER E'\x02')"


def difference(uri: str, one: str, other: str) -> list[tuple[object, ...]]:
    """Return the rows of one table that another lacks."""
    with client(uri) as run:
        return run(f"SELECT t::text FROM {one} t EXCEPT ALL SELECT t::text FROM {other} t")


@pytest.fixture
def odd(postgresql_server: PostgresqlServer, postgresql_database: str) -> str:
    postgresql_server.psql_script(postgresql_database, f"{ODD}CREATE TABLE back (LIKE odd);")
    return postgresql_database


@pytest.mark.parametrize("query", ["public.odd", "SELECT * FROM odd"])
def test_csv(postgresql_server: PostgresqlServer, odd: str, tmp_path: Path, query: str) -> None:
    assert copied(odd, query, tmp_path / "to", format="csv", format_options={"header": True}).rows == 6
    [file] = files(tmp_path / "to")
    postgresql_server.psql(odd, f"\\copy back FROM '{file}' WITH (FORMAT csv, HEADER match)")
    assert difference(odd, "odd", "back") == difference(odd, "back", "odd") == []


def test_json(postgresql_server: PostgresqlServer, odd: str, tmp_path: Path) -> None:
    assert copied(odd, "SELECT * FROM odd", tmp_path / "to", format="json").rows == 6
    [file] = files(tmp_path / "to")
    execute(odd, "CREATE TABLE lines (line json)")
    postgresql_server.psql(odd, f"\\copy lines FROM '{file}' {LINES}")
    # json and jsonb are strings there: their text is the value.
    execute(odd, "INSERT INTO back SELECT (json_populate_record(NULL::odd, line)).* FROM lines")
    texts = """"{j}" = (to_jsonb("{j}") #>> '{}')::jsonb, "J" = ("J" #>> '{}')::json"""
    execute(odd, f"UPDATE back SET {texts}")
    assert difference(odd, "odd", "back") == difference(odd, "back", "odd") == []


def test_parquet(odd: str, tmp_path: Path) -> None:
    assert copied(odd, "SELECT * FROM odd", tmp_path / "to").rows == 6
    [file] = files(tmp_path / "to")
    with opened(odd) as database:
        table = table_of(database, "odd")
    load(odd, table, pq.read_table(file), "back")
    assert difference(odd, "odd", "back") == difference(odd, "back", "odd") == []


@pytest.mark.slow
@pytest.mark.parametrize("written", ["csv", "json", "parquet"])
def test_as_many_columns_as_a_server_has(
    postgresql_server: PostgresqlServer, postgresql_database: str, tmp_path: Path, written: str
) -> None:
    columns = ", ".join(f'{number} AS "column {number}"' for number in range(1600))
    done = copied(postgresql_database, f"SELECT {columns}", tmp_path / "to", format=written)
    assert (done.rows, len(files(tmp_path / "to"))) == (1, 1)
    if written == "csv":
        execute(postgresql_database, f"CREATE TABLE wide AS SELECT {columns} WHERE false")
        postgresql_server.psql(postgresql_database, f"\\copy wide FROM '{files(tmp_path / 'to')[0]}' WITH (FORMAT csv)")
        with client(postgresql_database) as run:
            assert run('SELECT "column 0", "column 1599" FROM wide') == [(0, 1599)]


def test_a_column_of_a_pseudo_type_is_refused_with_what_helps(postgresql_database: str, tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match=r'column "r" has pseudo-type record.*Cast it to text'):
        copied(postgresql_database, "SELECT ROW(1, 2) AS r", tmp_path / "to")
    assert not (tmp_path / "to").exists()
    assert copied(postgresql_database, "SELECT ROW(1, 2)::text AS r", tmp_path / "to").rows == 1


COPY = """
import resource, sys
from pathlib import Path
from snapshot_assets_tests.engine.export.test_copy import copied
copied(sys.argv[1], "SELECT 1 AS n", Path(sys.argv[3]) / "small", format=sys.argv[2])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
query = "SELECT repeat('0123456789', 30 << 20) AS s"
assert copied(sys.argv[1], query, Path(sys.argv[3]) / "large", format=sys.argv[2]).rows == 1
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("written", "times"), [("csv", 6), ("json", 6), ("parquet", 12)])
def test_memory_for_a_text_of_300_mb_is_bounded(
    postgresql_database: str, tmp_path: Path, written: str, times: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COPY, postgresql_database, written, str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert int(done.stdout) < times * 300
    if written != "parquet":
        [file] = files(tmp_path / "large")
        assert file.stat().st_size >= 30 << 20
