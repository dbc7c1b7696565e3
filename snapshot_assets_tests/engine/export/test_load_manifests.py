"""Load manifests of copies: they list the files of the newest seal, and never files with deleted rows."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.manifest import SNOWFLAKE_FILES, snowflake_script
from snapshot_assets.catalog.operations.delete import delete_snapshot
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.verify.faults import FaultKind
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.engine.export.copy import copy
from snapshot_assets.errors import LocationNotEmptyError, PlanError
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.header import FileFormat
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.local import LocalStore
from snapshot_assets_tests.catalog.execute import collect_garbage, delete_rows, rollback
from snapshot_assets_tests.engine.compact.compactions import compact
from snapshot_assets_tests.engine.export.copies import copied, plan, run_of
from snapshot_assets_tests.servers.s3 import S3Server

QUERY = "SELECT i AS n, 'a&' || i % 3 AS part FROM range(30) AS r(i)"
REDSHIFT, SNOWFLAKE = "redshift.manifest", "snowflake.sql"


@pytest.fixture
def source(tmp_path: Path) -> str:
    duckdb.connect(str(tmp_path / "source.duckdb")).close()
    return f"duckdb://{tmp_path}/source.duckdb"


def loaded(store: ObjectStore) -> list[int] | None:
    """Return what Redshift would load: the rows of every URL; None if there is no manifest."""
    if REDSHIFT not in {info.path for info in store.list()}:
        return None
    rows: list[int] = []
    for entry in json.loads(store.get(REDSHIFT))["entries"]:
        assert entry["mandatory"] is True
        data = store.get(entry["url"].removeprefix(f"{store.uri}/"))
        assert entry["meta"] == {"content_length": len(data)}
        rows += pq.read_table(pa.BufferReader(data))["n"].to_pylist()
    return sorted(rows)


def test_redshifts_manifest_is_true_whatever_becomes_of_the_copy(
    source: str, s3_server: S3Server, s3_location: str
) -> None:
    fields = {"partition_by": ["part"], "manifest": ["redshift"], "storage": s3_server.options}
    run = run_of(plan(source, QUERY, s3_location, **fields))
    copy(run)
    assert loaded(run.store) == list(range(30))
    first = json.loads(run.store.get(REDSHIFT))["entries"][0]
    assert first["url"].startswith(f"{s3_location}/data/0/part=a&0/main.copied-")
    sealed = read_state(run.store).revision
    delete_rows(Catalog.open_for_writing(run.store), TableName("main", "copied"), "n < 10")
    assert loaded(run.store) is None
    assert verify(run.store).faults == []
    compact(run.store)
    assert loaded(run.store) == list(range(10, 30))
    assert verify(run.store).faults == []
    rollback(Catalog.open_for_writing(run.store), sealed, undelete=True)
    assert loaded(run.store) == list(range(30))
    assert verify(run.store, depth="full").faults == []
    run.store.put(REDSHIFT, b"{}")
    [fault] = verify(run.store).faults
    assert (fault.kind, fault.object) == (FaultKind.STALE, REDSHIFT)
    assert fault.message.startswith("redshift.manifest does not list the files of revision")
    run.store.delete(REDSHIFT)
    [fault] = verify(run.store).faults
    assert (fault.kind, fault.object) == (FaultKind.STALE, REDSHIFT)
    assert fault.message.startswith("redshift.manifest is missing. ")
    delete_snapshot(run.store)
    assert list(run.store.list()) == []


def test_redshifts_manifest_as_it_is_written(source: str, s3_server: S3Server, s3_location: str) -> None:
    query = "SELECT 1 AS n"
    run = run_of(plan(source, query, s3_location, storage=s3_server.options, manifest=["redshift"], format="csv"))
    [outcome] = copy(run).outcomes
    [file] = outcome.files
    assert run.store.get(REDSHIFT).decode() == (
        '{\n  "entries": [\n    {\n'
        f'      "url": "{s3_location}/{file.path}",\n'
        '      "mandatory": true,\n'
        '      "meta": {\n        "content_length": 2\n      }\n'
        "    }\n  ]\n}\n"
    )


def test_snowflakes_script_lists_every_file(source: str, tmp_path: Path) -> None:
    done = copied(source, QUERY, tmp_path / "to", partition_by=["part"], manifest=["snowflake"])
    paths = [file.path.replace("&", "&&") for outcome in done.outcomes for file in outcome.files]
    listed = ",\n".join(f"  '{path}'" for path in sorted(paths))
    assert (tmp_path / "to" / SNOWFLAKE).read_text() == (
        f"COPY INTO &{{table}} FROM &{{stage}}\nFILES = (\n{listed}\n)\nMATCH_BY_COLUMN_NAME = CASE_INSENSITIVE;\n"
    )
    assert json.loads((tmp_path / "to/manifest.json").read_text())["manifest"] == ["snowflake"]


def test_a_list_is_there_before_the_manifest_says_that_the_copy_is_complete(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    put = LocalStore.put

    def recorded(store: LocalStore, path: str, data: bytes) -> None:
        written.append(path)
        put(store, path, data)

    monkeypatch.setattr(LocalStore, "put", recorded)
    copied(source, QUERY, tmp_path / "to", manifest=["snowflake"])
    assert written[-3:] == ["SHA256SUMS", SNOWFLAKE, "manifest.json"]
    assert written.count(SNOWFLAKE) == 1  # not before the seal


def test_a_statement_of_snowflake_has_at_most_a_thousand_files() -> None:
    files = [
        DataFile(f"data/0/main.t-00000000-{n:04}.csv", "main", "t", 0, "00000000", 1, 1, "", 1, 0) for n in range(2001)
    ]
    statements = snowflake_script(files, FileFormat("csv")).decode().split("\n\n")
    assert [statement.count(".csv'") for statement in statements] == [SNOWFLAKE_FILES, SNOWFLAKE_FILES, 1]
    assert all(statement.rstrip().endswith("\n);") for statement in statements)


def test_a_list_is_back_once_all_files_are_rewritten(source: str, tmp_path: Path) -> None:
    to, table = tmp_path / "to", TableName("main", "copied")
    copied(source, QUERY, to, partition_by=["part"], manifest=["snowflake"])
    catalog = Catalog.open_for_writing(run_of(plan(source, QUERY, to)).store)
    delete_rows(catalog, table, "n = 0")
    compact(catalog.store)  # only the file that had the row; by its statistics the others never had it
    assert not (to / SNOWFLAKE).exists()
    compact(catalog.store, tables=(table,))
    collect_garbage(Catalog.open_for_writing(catalog.store), grace=timedelta(0), unsafe=True)
    lines = (to / SNOWFLAKE).read_text().replace("&&", "&").splitlines()
    listed = {line.strip(" ',") for line in lines if "data/" in line}
    assert listed == {known.file.path for known in read_state(catalog.store).live_files()}


def test_a_rebuilt_log_keeps_the_lists(source: str, tmp_path: Path) -> None:
    to = tmp_path / "to"
    copied(source, QUERY, to, manifest=["snowflake"])
    store = run_of(plan(source, QUERY, to)).store
    before = (to / SNOWFLAKE).read_bytes()
    for path in (*to.glob("transactions/*"), to / SNOWFLAKE):
        path.unlink()
    rebuild(store)
    assert (to / SNOWFLAKE).read_bytes() == before


def test_a_copy_without_lists_removes_those_of_the_copy_it_replaces(source: str, tmp_path: Path) -> None:
    copied(source, QUERY, tmp_path / "to", manifest=["snowflake"])
    with pytest.raises(LocationNotEmptyError, match=r"another copy \(manifest differs\)"):
        copied(source, QUERY, tmp_path / "to")
    copied(source, QUERY, tmp_path / "to", overwrite=True)
    assert not (tmp_path / "to" / SNOWFLAKE).exists()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"manifest": ["redshift"]}, "redshift loads from s3:// only"),
        ({"manifest": ["bigquery"]}, "manifest"),
        ({"manifest": ["snowflake", "snowflake"]}, "named twice"),
        ({"manifest": ["snowflake"], "kind": "once", "query": None}, "is a field of copies"),
    ],
)
def test_lists_that_nobody_loads_are_refused(tmp_path: Path, fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        plan("duckdb:///x.duckdb", fields.pop("query", QUERY), tmp_path, **fields)
