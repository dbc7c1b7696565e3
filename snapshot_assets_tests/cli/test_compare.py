"""`snapshots compare`: exit statuses, what it shows, and its options."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.read_configuration import Needed, load_configuration
from snapshot_assets_tests.cli.helpers import RANGE, Snapshots, contents, export, make_plan, store_of
from snapshot_assets_tests.engine.compact.compactions import scatter

Call = Callable[..., tuple[str, ...]]


@pytest.fixture
def exported(source: str, location: Path) -> Path:
    """A snapshot of the very file: a copy of it could have been written since."""
    export(make_plan(source, location.as_uri()), store_of(location))
    return location


@pytest.fixture
def call(source: str, exported: Path) -> Call:
    """The arguments of a comparison of `source` with its snapshot."""
    return lambda *options: ("compare", "--source", source, "--to", exported.as_uri(), *RANGE, *options)


def forge(location: Path) -> None:
    """Give window 2 another first value, with right hashes up to the log."""

    def change(rows, _number):
        values = [99.0, *rows.column("value").to_pylist()[1:]]
        return rows.set_column(1, rows.schema.field(1), [values])

    scatter(store_of(location), parts=1, chunks=[2], change=change)


def test_an_equal_snapshot_is_one_line_and_only_a_record_is_written(
    snapshots: Snapshots, exported: Path, call: Call
) -> None:
    before = contents(exported)
    done = snapshots(*call())
    assert (done.status, done.out) == (0, "5 tables in 4 chunks compared by value: 5 equal\n")
    after = contents(exported)
    [record] = after.keys() - before.keys()
    assert "/comparison/" in record
    assert {path: after[path] for path in before} == before
    done = snapshots(*call("--json"))
    assert (done.json["compared"], done.json["compared_before"]) == (5, 0)


def test_damage_has_status_3_and_names_rows_with_both_values(snapshots: Snapshots, exported: Path, call: Call) -> None:
    forge(exported)
    done = snapshots(*call())
    assert done.status == 3
    title, row, named, *rows, last = done.out.splitlines()
    assert title.split() == ["window", "table", "compared", "reason", "exported", "rows", "rows", "now"]
    assert row.split()[:2] == ["2025-01-02T00:00", "main.readings"]
    assert "different though the source did not change" in row
    assert named == "2025-01-02T00:00 main.readings:"
    assert rows == [
        '  only in the snapshot: moment "2025-01-02T23:00:00.000000Z", value 99',
        '  only in the source: moment "2025-01-02T23:00:00.000000Z", value 47',
    ]
    assert last.endswith(": 4 equal, 1 different though the source did not change")


def test_damage_in_json(snapshots: Snapshots, exported: Path, call: Call) -> None:
    forge(exported)
    done = snapshots(*call("--json"))
    [part] = done.json.pop("unequal")
    assert (done.status, done.json["counts"]) == (3, {"equal": 4, "different though the source did not change": 1})
    assert [done.json[name] for name in ("compared", "deleted_rows", "chunks_not_exported", "sample_days")] == [
        5,
        0,
        0,
        0,
    ]
    assert (part["chunk"], part["window"], part["table"]) == (2, "2025-01-02T00:00", "main.readings")
    assert (part["exported_rows"], part["rows"], part["deleted_rows"]) == (24, 24, 0)
    assert [row["source"] and row["source"]["value"] for row in part["differences"]] == [None, "47"]
    assert part["more_differences"] is False


def test_what_is_unknown_is_no_failure(snapshots: Snapshots, source: str, call: Call) -> None:
    with duckdb.connect(source.removeprefix("duckdb://")) as connection:
        connection.execute("UPDATE sensors SET name = 'attic' WHERE id = 1")
    done = snapshots(*call())
    assert done.status == 0
    assert "the file was written since, and its rows have no versions" in done.out
    assert done.out.splitlines()[-1].endswith(": 4 equal, 1 unknown")


def test_a_plan_of_the_configuration_is_compared(snapshots: Snapshots, source: str, location: Path) -> None:
    plan = {"source": "here", "to": location.as_uri(), "start_time": "2025-01-01", "end_time": "2025-01-04"}
    Path("snapshots.yaml").write_text(json.dumps({"sources": {"here": source}, "plans": {"shop": plan}}))
    configuration = load_configuration("snapshots.yaml", needed=Needed("shop"))
    own = configuration.plan("shop")
    with ExportRun(own, configuration.source("here"), store_of(location), InlineRunner(), "test").open() as opened:
        list(opened.export([0, 1]))
    done = snapshots("compare", "--plan", "shop", "--tables", "main.readings", "--json")
    assert (done.status, done.json["counts"], done.json["chunks_not_exported"]) == (0, {"equal": 2}, 2)
    refused = snapshots("compare", "--plan", "shop", "--source", source)
    assert (refused.status, "--source cannot be given beside --plan" in refused.err) == (2, True)


def test_tables_windows_and_samples_are_chosen(snapshots: Snapshots, call: Call) -> None:
    def compared(*options: str) -> int:
        count: int = snapshots(*call("--json", *options)).json["compared"]
        return count

    assert compared("--tables", "main.sensors") == 1
    assert compared("--time-range", "2025-01-02/2025-01-04") == 2
    assert compared("--tables", "main.readings", "--time-range", "2025-01-02T23:00:00Z/2025-01-03") == 1
    assert 1 <= compared("--sample", "20%") < 5
    shown = snapshots(*call("--sample", "50%"))
    assert shown.out.endswith("; daily runs compare all within 3 days\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sample", "0%"), "is not a share"),
        (("--time-range", "2025-01-02"), "--time-range '2025-01-02' is not START/END"),
        (("--tables", "readings"), "readings"),
        (("--tables", "main.readingz"), "Neither the source nor the snapshot has rows of main.readingz"),
        (("--check",), "unrecognized arguments: --check"),
    ],
)
def test_wrong_options_are_refused(snapshots: Snapshots, call: Call, options: tuple[str, ...], message: str) -> None:
    done = snapshots(*call(*options))
    assert (done.status, done.out) == (2, "")
    assert message in done.err


def test_a_version_that_does_not_exist_is_refused(snapshots: Snapshots, call: Call) -> None:
    done = snapshots(*call("--at", "tag:gone"))
    assert (done.status, done.out) == (5, "")
    assert "gone" in done.err


def test_a_snapshot_without_data_is_refused(snapshots: Snapshots, source: str, location: Path) -> None:
    export(Plan(name="location", source=source, to=location.as_uri(), schema_only=True), store_of(location))
    done = snapshots("compare", "--source", source, "--to", location.as_uri(), "--schema-only")
    assert (done.status, "A schema-only snapshot has no rows to compare." in done.err) == (2, True)


def test_without_a_snapshot_there_is_nothing_to_compare(snapshots: Snapshots, source: str, location: Path) -> None:
    done = snapshots("compare", "--source", source, "--to", location.as_uri(), *RANGE)
    assert (done.status, done.out) == (5, "")


def test_chunks_that_are_not_exported_are_counted(snapshots: Snapshots, source: str, location: Path) -> None:
    export(make_plan(source, location.as_uri()), store_of(location), chunks=[0, 1])
    done = snapshots("compare", "--source", source, "--to", location.as_uri(), *RANGE)
    assert (done.status, done.out.splitlines()[-1].split("; ")[1]) == (0, "not exported yet: 2 chunks")
