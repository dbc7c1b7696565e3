from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from snapshot_assets.databases.definition import ObjectKey, Statement
from snapshot_assets.databases.duckdb.ddl import TARGET
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.protocol.steps import steps_of
from snapshot_assets.errors import DatabaseError, DatabaseLockedError
from snapshot_assets.format.relations import DatabaseSchema, Table
from snapshot_assets.testing.restores import copy, definition_of, entry, extracted, make, record_of, target
from snapshot_assets_tests.databases.duckdb.files import MAIN_T, make_file, path_of
from snapshot_assets_tests.databases.duckdb.shop import SHOP, differences, fresh


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> DatabaseAddress:
    return make_file(tmp_path_factory.mktemp("target") / "shop.duckdb", *SHOP)


@pytest.fixture(scope="module")
def shop_schema(shop: DatabaseAddress) -> DatabaseSchema:
    return extracted(shop)


def test_a_database_comes_back_with_equal_documents_and_equal_rows(
    shop: DatabaseAddress, shop_schema: DatabaseSchema, tmp_path: Path
) -> None:
    again = fresh(tmp_path, "shop")
    definition = copy(shop_schema, shop, again)
    assert [sentence for sentence in definition.lost if "broken" not in sentence] == []
    assert comparable(extracted(again)) == comparable(shop_schema)
    assert differences(shop, again, shop_schema) == {}


def comparable(schema: DatabaseSchema) -> DatabaseSchema:
    """Return documents without the view that does not work, and with user types sorted.

    Types are written out in full, so that a restored one no longer depends on another, and their order may differ.
    """
    schemas = []
    for each in schema.schemas:
        types = sorted(each.options.get("types", ()), key=lambda entry: str(entry["name"]))
        schemas.append(each.model_copy(update={"options": {**each.options, **({"types": types} if types else {})}}))
    views = tuple(view for view in schema.views if view.name != "broken")
    return schema.model_copy(update={"schemas": tuple(schemas), "views": views})


ROWS = pa.table({"ts": [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2, 3)] + [None], "x": [1, 2, 3, 4]}).cast(
    pa.schema([("ts", pa.timestamp("us")), ("x", pa.int32())])
)


@pytest.fixture
def started(tmp_path: Path) -> tuple[DatabaseAddress, Table]:
    """A target with an empty table `main.t (ts, x)`, into which an import was started."""
    origin = make_file(tmp_path / "origin.duckdb", "CREATE TABLE t (ts TIMESTAMP, x INTEGER)")
    schema = extracted(origin)
    into = fresh(tmp_path)
    definition = definition_of(schema, into)
    with target(into) as opened:
        record = opened.begin(record_of(definition), "")
        make(opened, record, definition.before)
    return into, definition.tables[0]


def rows_in(address: DatabaseAddress, query: str = "SELECT x FROM t ORDER BY x") -> list[object]:
    with duckdb.connect(path_of(address), read_only=True) as connection:
        return [row[0] for row in connection.sql(query).fetchall()]


def test_only_looking_makes_no_file(tmp_path: Path) -> None:
    with target(fresh(tmp_path)) as opened:
        assert (opened.imports(), opened.loaded("x"), opened.existing([MAIN_T])) == ([], [], {})
        opened.forget()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_or_may_not_be_written_to_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="there is no folder"), target(fresh(tmp_path / "none")):
        pass


def test_a_file_that_this_process_has_open_is_refused(started: tuple[DatabaseAddress, Table]) -> None:
    into, table = started
    with target(into) as reading, target(into) as other:
        file = entry(MAIN_T, reading.imports()[0])
        with pytest.raises(DatabaseLockedError, match="this very process"):
            other.load(file, table, ROWS.to_batches())
    with target(into) as writing:
        writing.load(file, table, ROWS.to_batches())
        with pytest.raises(DatabaseLockedError, match="this very process"), target(into):
            pass


def test_looking_changes_nothing_of_a_file_not_even_of_its_log(started: tuple[DatabaseAddress, Table]) -> None:
    into, _ = started
    path = Path(path_of(into))
    insert = "c = duckdb.connect(sys.argv[1]); c.execute('INSERT INTO t (x) VALUES (7)')"
    code = f"import duckdb, os, sys; {insert}; os._exit(0)  # as if killed"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    files = [path, path.with_name(path.name + ".wal")]
    before = [file.read_bytes() for file in files]
    with target(into) as opened:
        assert opened.existing([MAIN_T])[MAIN_T].has_rows
        assert len(opened.imports()) == 1
    assert [file.read_bytes() for file in files] == before
    with target(into) as opened:
        opened.forget()
        assert opened.imports() == []
    assert rows_in(into) == [7]


def test_a_column_of_another_type_in_the_target_is_refused(started: tuple[DatabaseAddress, Table]) -> None:
    into, table = started
    with duckdb.connect(path_of(into)) as connection:
        connection.execute("ALTER TABLE t ALTER x TYPE TINYINT")
    with target(into) as opened, pytest.raises(DatabaseError, match=r"main\.t\.x is TINYINT in the target"):
        opened.load(entry(MAIN_T, opened.imports()[0]), table, ROWS.to_batches())
    assert rows_in(into) == []


def test_a_row_without_its_parent_fails_the_foreign_key_alone(tmp_path: Path) -> None:
    origin = make_file(
        tmp_path / "origin.duckdb",
        "CREATE TABLE p (id INTEGER PRIMARY KEY)",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, up INTEGER REFERENCES p (id))",
    )
    into, schema = fresh(tmp_path), extracted(origin)
    definition = definition_of(schema, into)
    orphans = pa.table({"id": [1, 2], "up": [None, 4]}).cast(pa.schema([("id", pa.int32()), ("up", pa.int32())]))
    with target(into) as opened:
        record = opened.begin(record_of(definition), "")
        make(opened, record, definition.before)
        opened.load(entry(MAIN_T, record), schema.table(MAIN_T), orphans.to_batches())
        results = opened.make(record, steps_of(definition.after))
        [failed] = [each for each in results.values() if each.failed]
        assert (failed.name, failed.violated) == ("foreign keys of main.t", True)
        assert "id: 4" in failed.message
        [step] = [each for each in steps_of(definition.after) if each.name == failed.name]
        assert TARGET not in "".join(opened.by_hand(step))
    assert rows_in(into, "SELECT id FROM t ORDER BY id") == [1, 2]
    kinds = "SELECT constraint_type FROM duckdb_constraints() WHERE table_name = 't' AND constraint_type LIKE '% KEY'"
    assert rows_in(into, kinds) == ["PRIMARY KEY"]  # only the foreign key is missing


def test_statements_that_are_several_or_reach_outside_run_nothing(
    started: tuple[DatabaseAddress, Table],
) -> None:
    into, _ = started
    outside = os.path.dirname(path_of(into))
    with target(into) as opened:
        record = opened.imports()[0]
        for sql in (
            "CREATE TABLE a (x INTEGER); DROP TABLE t",
            f"COPY t TO '{outside}/t.csv'",
            f"CREATE TABLE a AS FROM read_csv('{outside}/origin.duckdb')",
            f"CREATE VIEW a AS FROM glob('{outside}/*')",
            "SELECT x FROM (SELECT 1 AS x); ATTACH ':memory:' AS m",
        ):
            assert opened.make(record, steps_of([Statement(ObjectKey("it"), sql)]))["it"].failed
    assert rows_in(into, "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main'") == ["t"]
    assert sorted(os.listdir(outside)) == ["copy.duckdb", "origin.duckdb"]


@pytest.mark.parametrize("sql", ["SET lock_configuration = false", "SET enable_external_access = true", "LOAD httpfs"])
def test_settings_are_locked(started: tuple[DatabaseAddress, Table], sql: str) -> None:
    into, _ = started
    with target(into) as opened, pytest.raises(DatabaseError):
        opened._rows(sql, "trying")  # type: ignore[attr-defined]
