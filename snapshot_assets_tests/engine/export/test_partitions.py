"""Copies that are divided among Hive folders."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.delete import delete_snapshot
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.verify.faults import FaultKind
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.databases.sql import literal
from snapshot_assets.engine.export.copy import copy
from snapshot_assets.engine.files.write import partitions
from snapshot_assets.errors import (
    DatabaseError,
    ExportFailedError,
    LocationNotEmptyError,
    PlanError,
    SnapshotError,
    UnsupportedTypeError,
)
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.catalog.execute import collect_garbage, delete_rows
from snapshot_assets_tests.databases.postgresql.helpers import execute
from snapshot_assets_tests.engine.compact.compactions import compact
from snapshot_assets_tests.engine.export.copies import copied, plan, run_of
from snapshot_assets_tests.engine.restore.imports import Into
from snapshot_assets_tests.servers.s3 import S3Server

NAMES = [None, "", "a/b", "%", "ä", "=", "DE", "de"]
"""Texts that folders must keep apart; NULL and the empty text share one."""
FOLDERS = ["DE", "__HIVE_DEFAULT_PARTITION__", "a%2Fb", "%25", "ä", "%3D", "de"]
ALL = "SELECT n, name, day FROM items"
ODD = ["+ &", "~a;b,c", "%2F", "é/ü", "日本", "..", "a\\b", "<>|", "[]{}^`", "#?:*", "\u200b", "\x85", "\u2028", "😀"]
"""Texts that object stores, URLs and lists of files may misread."""


on_both = pytest.mark.parametrize("items", ["duckdb", "postgresql"], indirect=True)


@pytest.fixture
def items(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with 80 items: each name on ten days, in no order."""
    names = ", ".join("NULL" if name is None else f"'{name}'" for name in NAMES)
    statement = (
        "CREATE TABLE items AS SELECT i::int AS n, (ARRAY[{}])[1 + i % 8] AS name, DATE '2025-01-01' + i / 8 AS day,"
        " i % 2 = 0 AS even, i::float8 AS ratio, TIMESTAMP '2025-01-01' AS moment"
        " FROM generate_series(0, 79) AS g(i)"
    )
    if getattr(request, "param", "duckdb") == "postgresql":
        uri: str = request.getfixturevalue("postgresql_database")
        execute(uri, statement.format(names))
        return uri
    with duckdb.connect(str(tmp_path / "items.duckdb")) as connection:
        connection.execute(statement.format(names).replace("i / 8", "CAST(i // 8 AS int)"))
    return f"duckdb://{tmp_path}/items.duckdb"


def expected() -> Counter[tuple[Any, ...]]:
    start = datetime(2025, 1, 1, tzinfo=UTC).date()
    return Counter((i, NAMES[i % 8], start + timedelta(days=i // 8)) for i in range(80))


def found(folder: Path, *, hive: bool, reader: str = "read_parquet", pattern: str = "*.parquet") -> Counter[Any]:
    options = "hive_partitioning=true, hive_types_autocast=false" if hive else "hive_partitioning=false"
    files = f"{reader}('{folder}/data/0/**/{pattern}', {options})"
    return Counter(duckdb.sql(f"SELECT n, name, day FROM {files}").fetchall())


def folders(folder: Path) -> dict[str, int]:
    """Return the files in each folder of a partition."""
    paths = (path.relative_to(folder / "data/0").parent for path in folder.glob("data/0/**/*.parquet"))
    return dict(Counter(map(str, paths)))


@on_both
def test_files_lie_in_hive_folders_and_read_back_equal(items: str, tmp_path: Path) -> None:
    to = tmp_path / "to"
    done = copied(items, ALL, to, partition_by=["name"])
    assert (done.rows, done.sealed is not None) == (80, True)
    assert folders(to) == {f"name={name}": 2 if "HIVE" in name else 1 for name in FOLDERS}
    assert found(to, hive=False) == expected()
    as_null = Counter({(n, name or None, day): count for (n, name, day), count in expected().items()})
    assert found(to, hive=True) == as_null
    query = f"FROM read_parquet('{to}/data/0/**/*.parquet', hive_partitioning=true) SELECT count(*) WHERE name = 'a/b'"
    assert duckdb.sql(query).fetchall() == [(10,)]
    manifest = json.loads((to / "manifest.json").read_text())
    assert (manifest["partition_by"], manifest["sealed"]) == (["name"], True)


def test_a_partitioned_copy_is_verified_kept_rebuilt_imported_and_deleted(items: str, tmp_path: Path) -> None:
    to = tmp_path / "to"
    copied(items, ALL, to, partition_by=["name"])
    store = run_of(plan(items, ALL, to)).store
    before = sorted(path for path in to.rglob("*") if path.is_file())
    collect_garbage(Catalog.open_for_writing(store), grace=timedelta(0), unsafe=True)
    assert sorted(path for path in to.rglob("*") if path.is_file()) == before
    assert verify(store).faults == []
    into = Into(f"duckdb://{tmp_path}/target.duckdb")
    assert into.restore(store).finished
    [table] = into.tables().values()
    assert Counter(map(tuple, map(dict.values, table.to_pylist()))) == expected()
    for path in to.glob("transactions/*"):
        path.unlink()
    rebuild(store)
    assert [fault.kind for fault in verify(store).faults] == [FaultKind.LOST]
    header = read_state(store).header
    assert header is not None
    assert header.partition_by == ("name",)
    temporary = to / "data/0/name=DE/.tmp-0123456789abcdef"
    temporary.write_text("torn")
    delete_snapshot(store)
    assert [path for path in (to / "data").rglob("*") if path.is_file()] == []


@on_both
def test_text_files_are_partitioned_by_several_columns(items: str, tmp_path: Path) -> None:
    query = "SELECT n, name, day, even FROM items"
    copied(items, query, tmp_path / "to", partition_by=["even", "day"], format="json")
    chunk = tmp_path / "to/data/0"
    names = {str(path.parent.relative_to(chunk)) for path in chunk.glob("*/*/*.jsonl")}
    assert names == {f"even={even}/day=2025-01-{day:02}" for even in ("true", "false") for day in range(1, 11)}
    rows = found(tmp_path / "to", hive=False, reader="read_json", pattern="*=*/*.jsonl")
    assert sum(rows.values()) == 80


@on_both
def test_windows_have_folders_of_their_own(items: str, tmp_path: Path) -> None:
    query = "SELECT n, name FROM items WHERE day >= CAST(:start AS date) AND day < CAST(:end AS date)"
    fields = {"start_time": datetime(2025, 1, 1, tzinfo=UTC), "end_time": datetime(2025, 1, 11, tzinfo=UTC)}
    run = run_of(plan(items, query, tmp_path / "to", chunk_time_window="5d", partition_by=["name"], **fields))
    assert copy(run, [1, 2]).rows == 80
    assert {path.parts[-3] for path in (tmp_path / "to").rglob("name=DE/*.parquet")} == {"1", "2"}


def test_a_compaction_keeps_partitions_apart(items: str, tmp_path: Path) -> None:
    to = tmp_path / "to"
    copied(items, ALL, to, partition_by=["name"])
    store = run_of(plan(items, ALL, to)).store
    schema = "public" if items.startswith("postgresql") else "main"
    [outcome] = compact(store).values()
    assert outcome.planned.files == 2  # the two of NULL and the empty text; the others are alone in their folders
    assert len(outcome.files) == 1
    delete_rows(Catalog.open_for_writing(store), TableName(schema, "copied"), "n < 16")
    compact(store)
    collect_garbage(Catalog.open_for_writing(store), grace=timedelta(0), unsafe=True)
    assert verify(store).faults == []
    live = {str(Path(known.file.path).parent) for known in read_state(store).live_files()}
    assert live == {f"data/0/name={name}" for name in FOLDERS}
    rows = [
        row
        for known in read_state(store).live_files()
        for row in duckdb.sql(f"SELECT n FROM read_parquet('{to}/{known.file.path}')").fetchall()
    ]
    assert sorted(rows) == [(n,) for n in range(16, 80)]
    with pytest.raises(PlanError, match="Compact without --dedupe"):
        compact(store, dedupe="primary_key")


@on_both
def test_what_cannot_name_folders_is_refused_before_anything_is_written(items: str, tmp_path: Path) -> None:
    query = "SELECT n, ratio, moment FROM items"
    with pytest.raises(PlanError, match=r"'country', which is no column .* Its columns are: n, ratio, moment"):
        copied(items, query, tmp_path / "to", partition_by=["country"])
    with pytest.raises(UnsupportedTypeError, match=r"'ratio' of type .*CAST\(ratio AS text\)"):
        copied(items, query, tmp_path / "to", partition_by=["ratio"])
    with pytest.raises(UnsupportedTypeError, match=r"CAST\(moment AS date\)"):
        copied(items, query, tmp_path / "to", partition_by=["n", "moment"])
    assert not (tmp_path / "to").exists()


def test_a_folder_with_a_long_name_fails_the_copy(items: str, tmp_path: Path) -> None:
    with pytest.raises(ExportFailedError, match="has a name of 305 bytes; a folder's name has at most 255"):
        copied(items, "SELECT repeat('x', 300) AS long FROM items", tmp_path / "to", partition_by=["long"])
    assert read_state(run_of(plan(items, ALL, tmp_path / "to")).store).newest_seal is None


def test_other_partitions_are_another_copy(items: str, tmp_path: Path) -> None:
    copied(items, ALL, tmp_path / "to", partition_by=["name"])
    with pytest.raises(LocationNotEmptyError, match=r"another copy \(partition_by differs\)"):
        copied(items, ALL, tmp_path / "to", partition_by=["day"])


def test_an_empty_result_is_one_file_outside_the_folders(items: str, tmp_path: Path) -> None:
    copied(items, f"{ALL} WHERE n < 0", tmp_path / "to", partition_by=["name"])
    assert folders(tmp_path / "to") == {".": 1}


def test_enums_and_uuids_name_folders(postgresql_database: str, tmp_path: Path) -> None:
    execute(postgresql_database, "CREATE TYPE mood AS ENUM ('sad', 'ok')")
    query = (
        "SELECT m::mood AS mood, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid AS id, m AS textin"
        " FROM unnest(ARRAY['ok', 'sad', 'ok']) AS m"
    )
    copied(postgresql_database, query, tmp_path / "to", partition_by=["mood", "id", "textin"])
    id_ = "id=a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    assert folders(tmp_path / "to") == {f"mood={m}/{id_}/textin={m}": 1 for m in ("ok", "sad")}


def test_texts_are_sorted_by_their_bytes_whatever_the_columns_collation(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "source.duckdb")) as connection:
        connection.execute("CREATE TABLE t (name VARCHAR COLLATE NOCASE)")
        connection.execute("INSERT INTO t SELECT CASE WHEN i % 2 = 0 THEN 'a' ELSE 'A' END FROM range(100) AS r(i)")
    copied(f"duckdb://{tmp_path}/source.duckdb", "main.t", tmp_path / "to", partition_by=["name"])
    assert folders(tmp_path / "to") == {"name=A": 1, "name=a": 1}


def test_rows_are_cut_where_a_value_changes_across_batches() -> None:
    batches = [
        pa.record_batch({"a": pa.array(["x", "x", None]), "b": pa.array([1, 2, 2])}),
        pa.record_batch({"a": pa.array([None, ""], pa.string()), "b": pa.array([2, 2])}),
    ]
    cut = [(folder, sum(rows.num_rows for rows in some)) for folder, some in partitions(batches, ["a", "b"])]
    null = "a=__HIVE_DEFAULT_PARTITION__/b=2/"
    assert cut == [("a=x/b=1/", 1), ("a=x/b=2/", 1), (null, 3)]
    with pytest.raises(DatabaseError, match="outside the years 1 to 9999"):
        list(partitions([pa.record_batch({"d": pa.array([10**7], pa.date32())})], ["d"]))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"kind": "query", "partition_by": ["a", "a"]}, "named twice"),
        ({"kind": "once", "query": None, "partition_by": ["a"]}, "is a field of copies"),
    ],
)
def test_partitions_are_a_field_of_copies(tmp_path: Path, fields: dict[str, Any], problem: str) -> None:
    given = {"query": "SELECT 1 AS a", **fields}
    with pytest.raises(SnapshotError, match=re.escape(problem)):
        plan("duckdb:///x.duckdb", given.pop("query"), tmp_path, **given)


def test_folders_of_every_text_work_on_s3(
    postgresql_database: str, s3_server: S3Server, s3_location: str, tmp_path: Path
) -> None:
    execute(postgresql_database, f"CREATE TABLE texts AS SELECT unnest(ARRAY[{', '.join(map(literal, ODD))}]) AS name")
    query = "SELECT name FROM texts"
    run = run_of(plan(postgresql_database, query, s3_location, partition_by=["name"], storage=s3_server.options))
    assert copy(run).rows == len(ODD)
    assert verify(run.store, depth="full").faults == []
    into = Into(f"duckdb://{tmp_path}/target.duckdb")
    assert into.restore(run.store).finished
    assert sorted(into.tables()["copied"]["name"].to_pylist()) == sorted(ODD)
    delete_snapshot(run.store)
    assert list(run.store.list()) == []
