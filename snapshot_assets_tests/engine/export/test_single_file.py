"""Copies whose rows are one file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.engine.export import planning
from snapshot_assets.engine.export.copy import copy
from snapshot_assets.errors import ExportFailedError, LocationNotEmptyError, PlanError
from snapshot_assets.format.relations import TableName
from snapshot_assets.plan import plan as plan_module
from snapshot_assets_tests.catalog.execute import delete_rows
from snapshot_assets_tests.databases.postgresql.helpers import execute
from snapshot_assets_tests.engine.compact.compactions import compact
from snapshot_assets_tests.engine.export.copies import copied, files, plan, run_of


@pytest.fixture
def table(postgresql_database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with a table that several tasks read unless one file is asked for."""
    rows = "SELECT i AS n, repeat('x', 100) AS text FROM generate_series(1, 20000) i"
    execute(postgresql_database, f"CREATE TABLE t AS {rows}")
    execute(postgresql_database, "ANALYZE t")
    monkeypatch.setattr(planning, "SMALL_CHUNK", 1)
    monkeypatch.setattr(planning, "SLICE_BYTES", 1 << 20)
    return postgresql_database


def test_a_table_is_one_file_that_one_task_reads(table: str, tmp_path: Path) -> None:
    run = replace(run_of(plan(table, "public.t", tmp_path / "several")), most_parts=2)
    assert (copy(run).rows, len(files(tmp_path / "several"))) == (20000, 2)
    run = replace(run_of(plan(table, "public.t", tmp_path / "one", single_file=True)), most_parts=2)
    assert copy(run).rows == 20000
    [file] = files(tmp_path / "one")
    assert pq.read_table(file).num_rows == 20000


@pytest.mark.parametrize("fields", [{"format": "csv"}, {"format": "json", "format_options": {"compression": "gzip"}}])
def test_rows_that_need_a_second_file_fail_the_copy(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    monkeypatch.setattr(plan_module, "MAX_FILE_SIZE", 64 << 10)
    query = "SELECT n, text, random() FROM t"
    with pytest.raises(ExportFailedError, match="need a second file, and single_file allows one"):
        copied(table, query, tmp_path / "to", single_file=True, **fields)
    state = read_state(run_of(plan(table, query, tmp_path / "to")).store)
    assert (list(state.live_files()), state.newest_seal) == ([], None)
    assert copied(table, query, tmp_path / "to", **fields).rows == 20000
    with pytest.raises(LocationNotEmptyError, match=r"another copy \(single_file differs\)"):
        copied(table, query, tmp_path / "to", single_file=True, **fields)


def test_a_parquet_file_that_is_full_fails_the_copy_too(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_module, "MAX_FILE_SIZE", 64 << 10)
    with pytest.raises(ExportFailedError, match="need a second file"):
        copied(table, "SELECT md5(n::text) AS text FROM t", tmp_path / "to", single_file=True)


def test_a_compaction_leaves_one_file(table: str, tmp_path: Path) -> None:
    to = tmp_path / "to"
    copied(table, "SELECT n FROM t", to, single_file=True)
    store = run_of(plan(table, "SELECT n FROM t", to)).store
    delete_rows(Catalog.open_for_writing(store), TableName("public", "copied"), "n <= 10")
    [outcome] = compact(store, target_size=1024).values()
    assert [file.rows for file in outcome.files] == [19990]


@pytest.mark.parametrize(
    ("query", "fields", "problem"),
    [
        ("a.t", {"partition_by": ["n"]}, "single_file: contradicts partition_by"),
        ("a.t", {"split_by": "n"}, "single_file: contradicts split_by"),
        ("a.t", {"max_file_size": "1GB"}, "max_file_size: has no effect with single_file"),
        ("SELECT :start, :end", {"start_time": "2025-01-01T00:00:00Z"}, "contradicts :start and :end"),
        (None, {"kind": "once"}, "single_file: is a field of copies"),
    ],
)
def test_fields_that_contradict_one_file_are_refused(
    tmp_path: Path, query: str | None, fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(PlanError, match=problem):
        plan("duckdb:///x.duckdb", query, tmp_path, single_file=True, **fields)
