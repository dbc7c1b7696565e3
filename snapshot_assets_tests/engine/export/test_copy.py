"""Copies of queries: one read-only statement, to an empty location, sealed like any snapshot."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.databases.protocol.query import Query, parse_query
from snapshot_assets.engine.export.copy import copy
from snapshot_assets.errors import DatabaseError, ExportFailedError, LocationNotEmptyError, PlanError, SnapshotError
from snapshot_assets.format.layout import is_probe
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.catalog.tags import Changed, Killed
from snapshot_assets_tests.databases.postgresql.helpers import execute
from snapshot_assets_tests.engine.export.copies import copied, files, on_both, plan, run_of

NUMBERS = "SELECT n, 'x' || n AS name FROM numbers WHERE n < 3"


@on_both
def test_a_query_becomes_a_sealed_snapshot(numbers: str, tmp_path: Path) -> None:
    done = copied(numbers, f"{NUMBERS}; -- the first ones", tmp_path / "to")
    assert done.rows == 3
    assert done.sealed is not None
    [file] = files(tmp_path / "to")
    assert sorted(map(tuple, map(dict.values, pq.read_table(file).to_pylist()))) == [(0, "x0"), (1, "x1"), (2, "x2")]
    assert json.loads((tmp_path / "to/manifest.json").read_text())["sealed"] is True
    assert verify(run_of(plan(numbers, NUMBERS, tmp_path / "to")).store).faults == []


def test_a_query_becomes_csv_and_json(numbers: str, tmp_path: Path) -> None:
    copied(numbers, NUMBERS, tmp_path / "csv", format="csv", format_options={"header": True})
    [file] = files(tmp_path / "csv")
    assert sorted(csv.reader(file.read_text().splitlines())) == [["0", "x0"], ["1", "x1"], ["2", "x2"], ["n", "name"]]
    copied(numbers, NUMBERS, tmp_path / "json", format="json")
    [file] = files(tmp_path / "json")
    assert {json.loads(line)["name"] for line in file.read_text().splitlines()} == {"x0", "x1", "x2"}


@on_both
def test_a_table_is_copied_whole(numbers: str, tmp_path: Path) -> None:
    schema = "main" if numbers.startswith("duckdb") else "public"
    assert copied(numbers, f"{schema}.numbers", tmp_path / "to").rows == 100


@on_both
@pytest.mark.parametrize("fields", [{"format": "csv", "format_options": {"header": True}}, {"format": "parquet"}])
def test_an_empty_result_is_one_file(numbers: str, tmp_path: Path, fields: dict[str, Any]) -> None:
    done = copied(numbers, "SELECT n FROM numbers WHERE n < 0", tmp_path / "to", **fields)
    [file] = files(tmp_path / "to")
    assert (done.rows, done.sealed is not None) == (0, True)
    found = pq.read_table(file).column_names if file.suffix == ".parquet" else [file.read_text().strip()]
    assert found == ["n"]


@on_both
def test_a_windowed_query_grows_by_windows(numbers: str, tmp_path: Path) -> None:
    fields = {"start_time": datetime(2025, 1, 1, tzinfo=UTC), "end_time": datetime(2025, 1, 5, tzinfo=UTC)}
    query = "SELECT n, ':end' AS text FROM numbers WHERE moment >= :start AND moment < :end"
    run = run_of(plan(numbers, query, tmp_path / "to", chunk_time_window=timedelta(days=2), **fields))
    first = copy(run, [1])
    assert (first.rows, first.sealed) == (48, None)
    second = copy(run, [2])
    assert (second.rows, second.sealed is not None) == (48, True)
    rows = [row for file in files(tmp_path / "to") for row in pq.read_table(file).to_pylist()]
    assert sorted(row["n"] for row in rows) == list(range(96))
    assert {row["text"] for row in rows} == {":end"}


def test_a_location_with_a_copy_is_refused_unless_it_is_overwritten(numbers: str, tmp_path: Path) -> None:
    copied(numbers, NUMBERS, tmp_path / "to")
    with pytest.raises(LocationNotEmptyError, match=r"has \d+ objects of a finished copy"):
        copied(numbers, NUMBERS, tmp_path / "to")
    before = files(tmp_path / "to")
    assert copied(numbers, "SELECT 1 AS one", tmp_path / "to", overwrite=True).rows == 1
    assert not set(files(tmp_path / "to")) & set(before)


@pytest.mark.parametrize("windowed", [False, True])
def test_a_replacement_that_is_killed_at_any_deletion_is_finished_by_the_next_run(
    numbers: str, tmp_path: Path, windowed: bool
) -> None:
    query = f"{NUMBERS} AND moment >= :start AND moment < :end" if windowed else NUMBERS
    days = {"start_time": datetime(2025, 1, 1, tzinfo=UTC), "end_time": datetime(2025, 1, 3, tzinfo=UTC)}
    fields = {**days, "chunk_time_window": timedelta(days=2)} if windowed else {}
    made = plan(numbers, query, tmp_path / "to", **fields)
    windows = [1] if windowed else []
    copy(run_of(made), windows)
    objects = len([path for path in (tmp_path / "to").rglob("*") if path.is_file()])
    for deletions in range(objects):
        run = run_of(made)
        with pytest.raises(Killed):
            copy(replace(run, store=_dying_at_a_deletion(run.store, deletions)), windows, overwrite=True)
        with pytest.raises(LocationNotEmptyError, match="a deleted snapshot"):
            copy(run, windows)
        assert copy(run, windows, overwrite=True).rows == 3
        assert verify(run.store).faults == []


def _dying_at_a_deletion(store: ObjectStore, deletions: int) -> ObjectStore:
    """Return the store of a process that dies after some deletions of objects, and before the next one."""
    left = iter(range(deletions))

    def delete(path: str) -> None:
        if not is_probe(path) and next(left, None) is None:
            raise Killed
        store.delete(path)

    return Changed(store, delete=delete)


def test_a_copy_stays_if_the_query_that_would_replace_it_is_wrong(numbers: str, tmp_path: Path) -> None:
    copied(numbers, NUMBERS, tmp_path / "to")
    before = files(tmp_path / "to")
    with pytest.raises(SnapshotError, match="nothing"):
        copied(numbers, "SELECT nothing FROM numbers", tmp_path / "to", overwrite=True)
    assert files(tmp_path / "to") == before


def test_a_copy_stays_if_no_window_has_closed_that_would_replace_it(numbers: str, tmp_path: Path) -> None:
    copied(numbers, NUMBERS, tmp_path / "to")
    before = files(tmp_path / "to")
    query = "SELECT n FROM numbers WHERE moment >= :start AND moment < :end"
    fields = {"start_time": datetime(2125, 1, 1, tzinfo=UTC), "chunk_time_window": timedelta(days=1)}
    with pytest.raises(PlanError, match=r"No window of plan 'copied' has closed yet.* it was not deleted"):
        copied(numbers, query, tmp_path / "to", overwrite=True, **fields)
    assert files(tmp_path / "to") == before
    assert copied(numbers, query, tmp_path / "new", overwrite=True, **fields).rows == 0
    assert not (tmp_path / "new").exists()


def test_an_exported_snapshot_is_never_overwritten(numbers: str, tmp_path: Path) -> None:
    fields = {"start_time": "2025-01-01T00:00:00Z", "end_time": "2025-01-06T00:00:00Z"}
    exported = run_of(Plan(name="exported", source=numbers, to=f"file://{tmp_path}/to", **fields))
    with exported.open() as export:
        list(export.export(export.catalog.state.expected_chunks()))
        export.seal()
    before = files(tmp_path / "to")
    for overwrite in (True, False):
        with pytest.raises(LocationNotEmptyError, match="--overwrite deletes only copies"):
            copied(numbers, NUMBERS, tmp_path / "to", overwrite=overwrite)
    assert files(tmp_path / "to") == before


def test_objects_of_others_are_never_touched(numbers: str, tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "to/report.csv").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(LocationNotEmptyError, match=r"has 1 object, such as report.csv, which no copy wrote"):
            copied(numbers, NUMBERS, tmp_path / "to", overwrite=overwrite)
    assert [path.name for path in (tmp_path / "to").iterdir()] == ["report.csv"]


@on_both
def test_a_query_that_the_server_refuses_leaves_nothing(numbers: str, tmp_path: Path) -> None:
    for query in ("SELECT nothing FROM numbers", "SELECT n FROM numbers WHERE", "SELECT n, n FROM numbers, absent"):
        with pytest.raises(SnapshotError, match=r"nothing|syntax|absent"):
            copied(numbers, query, tmp_path / "to")
    assert not (tmp_path / "to").exists()
    assert copied(numbers, NUMBERS, tmp_path / "to").rows == 3


@on_both
def test_a_query_that_fails_before_its_first_row_reports_the_servers_error(numbers: str, tmp_path: Path) -> None:
    message = (
        r"Nothing was copied: .*(invalid input syntax|Could not convert).*\. Correct what the error names, and run"
    )
    with pytest.raises(ExportFailedError, match=message):
        copied(numbers, "SELECT n, CAST('a' || n AS int) AS v FROM numbers", tmp_path / "to")
    assert copied(numbers, NUMBERS, tmp_path / "to").rows == 3  # the corrected query takes its place


def test_a_copy_with_rows_is_not_replaced_by_another_query(numbers: str, tmp_path: Path) -> None:
    fields = {"start_time": datetime(2025, 1, 1, tzinfo=UTC), "end_time": datetime(2025, 1, 3, tzinfo=UTC)}
    value = "CAST(CASE WHEN n < 24 THEN '1' ELSE 'a' END AS int)"
    query = f"SELECT {value} AS v FROM numbers WHERE moment >= :start AND moment < :end"
    with pytest.raises(ExportFailedError, match=r"1 of 2 chunks failed: .* The other chunks are committed\. Correct"):
        copy(run_of(plan(numbers, query, tmp_path / "to", chunk_time_window=timedelta(days=1), **fields)), [1, 2])
    with pytest.raises(LocationNotEmptyError, match=r"another copy \("):
        copied(numbers, NUMBERS, tmp_path / "to")


@pytest.mark.parametrize("numbers", ["postgresql"], indirect=True)  # DuckDB has no rows without columns
def test_a_query_without_columns_leaves_nothing(numbers: str, tmp_path: Path) -> None:
    execute(numbers, "CREATE TABLE bare ()")
    for query in ("SELECT", "SELECT FROM numbers", "TABLE bare"):
        with pytest.raises(SnapshotError, match="has no columns"):
            copied(numbers, query, tmp_path / "to")
    assert not (tmp_path / "to").exists()


@on_both
def test_columns_without_names_of_their_own_are_told_how_to_get_them(numbers: str, tmp_path: Path) -> None:
    if numbers.startswith("duckdb"):
        assert copied(numbers, "SELECT 1, 1", tmp_path / "to").rows == 1  # it names them itself
        return
    for query in ("SELECT 1, 2", "SELECT sum(n), sum(n) FROM numbers"):
        with pytest.raises(DatabaseError, match=r"more than once.* with AS\. SQL: CREATE TEMP VIEW"):
            copied(numbers, query, tmp_path / "to")


@on_both
def test_a_value_that_no_carrier_holds_is_told_how_to_copy_it(numbers: str, tmp_path: Path) -> None:
    with pytest.raises(ExportFailedError, match=r'Column at .*Cast "at" to text in the query'):
        copied(numbers, "SELECT CAST('infinity' AS timestamp) AS at FROM numbers", tmp_path / "to")
    assert copied(numbers, "SELECT CAST(CAST('infinity' AS timestamp) AS text) AS at", tmp_path / "to").rows == 1


def test_an_unfinished_copy_is_continued(numbers: str, tmp_path: Path) -> None:
    run = run_of(plan(numbers, NUMBERS, tmp_path / "to"))
    with run.open():
        pass
    assert copy(run).rows == 3


def test_a_copy_that_was_cut_off_before_its_first_commit_is_begun_again(numbers: str, tmp_path: Path) -> None:
    run = run_of(plan(numbers, NUMBERS, tmp_path / "to"))
    with run.open():
        pass
    for path in (tmp_path / "to/transactions").iterdir():
        path.unlink()
    (tmp_path / "to/manifest.json").unlink()
    (tmp_path / "to/SHA256SUMS").unlink()
    assert {path.parts[len(tmp_path.parts) + 1] for path in (tmp_path / "to").rglob("*")} == {"schema", "transactions"}
    assert copy(run).rows == 3


@pytest.mark.parametrize("written", [False, True])
def test_a_seal_that_the_manifest_does_not_show_yet_is_shown_by_the_next_run(
    numbers: str, tmp_path: Path, written: bool
) -> None:
    run, manifest = run_of(plan(numbers, NUMBERS, tmp_path / "to")), tmp_path / "to/manifest.json"
    with run.open():
        begun = manifest.read_bytes()
    copy(run)
    shown = manifest.read_bytes()
    manifest.unlink()
    if written:
        manifest.write_bytes(begun)
    assert copy(run).rows == 3
    assert manifest.read_bytes() == shown
    with pytest.raises(LocationNotEmptyError, match="a finished copy"):
        copy(run)


def test_a_query_cannot_write(postgresql_database: str, tmp_path: Path) -> None:
    execute(
        postgresql_database,
        "CREATE TABLE t (n int)",
        "CREATE FUNCTION public.f() RETURNS int LANGUAGE sql AS 'INSERT INTO public.t VALUES (1) RETURNING n'",
    )
    with pytest.raises(ExportFailedError, match="read-only"):
        copied(postgresql_database, "SELECT f() AS n", tmp_path / "to")
    with pytest.raises(DatabaseError, match="WITH"):
        copied(postgresql_database, "WITH w AS (DELETE FROM t RETURNING n) SELECT n FROM w", tmp_path / "other")


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("DELETE FROM t", "starts with 'DELETE'"),
        ("", "starts with ''"),
        ("trips", "expected schema.table"),
        ("SELECT 1; SELECT 2", "several statements"),
        ("SELECT 1 ORDER BY 1", "ORDER BY at its top"),
        ("WITH a AS (SELECT 1) SELECT * FROM a order /* x */ by 1 LIMIT 3", "ORDER BY at its top"),
        ("SELECT :start", "only one of :start and :end"),
        ("SELECT :begin", "names :begin"),
    ],
)
def test_what_is_no_query_is_refused(query: str, problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        parse_query(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM (SELECT 1 ORDER BY 1) t",
        "select array_agg(x order by y), 'ORDER BY', \"order\" by_, $$; ORDER BY$$ from t",
        "SELECT row_number() OVER (ORDER BY n)::int FROM t",
        "(SELECT 1) UNION ALL (SELECT 2 ORDER BY 1)",
        "SELECT a[1:2], e'\\';' FROM t;;",
        "TABLE t",
    ],
)
def test_what_is_a_query_is_taken(query: str) -> None:
    assert parse_query(query) == query.rstrip(";")


def test_bounds_are_replaced_outside_texts_only() -> None:
    query = Query("q", "SELECT ':start', x::start -- :end\n FROM t WHERE a >= :start AND a<:end")
    assert query.windowed
    assert query.with_bounds("S", "E") == "SELECT ':start', x::start -- :end\n FROM t WHERE a >= S AND a<E"
    assert not Query("q", "SELECT ':start', ':end'").windowed


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"query": None}, "query: is missing"),
        ({"kind": "once"}, "only a plan of kind: query has one"),
        ({"tables": ["a.b"]}, "no effect with kind: query"),
        ({"start_time": "2025-01-01T00:00:00Z"}, "does not name :start and :end"),
        ({"chunk_time_window": "2d"}, "does not name :start and :end"),
        ({"query": "SELECT :start, :end"}, "start_time: is missing"),
        ({"to": "file:///a/b/{when}"}, "{when} is unknown"),
        ({"to": "file:///a/b/{date:%Y}"}, "{date:%Y} is unknown"),
        ({"to": "file:///a/b/{now"}, "expected '}'"),
        ({"max_file_size": "1MB"}, "not between 16MiB and 4GiB"),
        ({"format": "csv", "max_file_size": "63kB"}, "not between 64KiB and 4GiB"),
        ({"format_options": {"header": True}}, "only csv has header"),
        ({"format": "csv", "format_options": {"heading": True}}, "heading"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(fields: dict[str, Any], problem: str) -> None:
    given = {"name": "q", "kind": "query", "source": "s", "to": "file:///a/b", "query": "SELECT 1 AS n"}
    with pytest.raises(PlanError, match=problem):
        Plan(**given | fields)


def test_a_template_is_of_queries_only() -> None:
    with pytest.raises(PlanError, match="only a plan of kind: query may have a location with names in braces"):
        Plan(name="q", source="s", to="file:///a/{date}")
