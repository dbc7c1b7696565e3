"""`snapshots export changed`, and `export create --changed`, which exports again what it shows."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from snapshot_assets_tests.cli.helpers import RANGE, Result, Snapshots, contents


def call(snapshots: Snapshots, command: str, source: str, location: Path, *options: str) -> Result:
    return snapshots("export", command, "--source", source, "--to", location.as_uri(), *RANGE, *options)


def change(source: str, statement: str) -> None:
    with duckdb.connect(source.removeprefix("duckdb://")) as connection:
        connection.execute(f"SET TimeZone = 'UTC'; {statement}")


def test_what_changed_is_shown_with_its_reason(snapshots: Snapshots, source: str, exported: Path) -> None:
    change(source, "UPDATE readings SET value = -1 WHERE value = 30; DELETE FROM sensors WHERE id = 2")
    before = contents(exported)
    found = call(snapshots, "changed", source, exported, "--check", "--json")
    assert found.status == 3
    reasons = [(each["window"], each["table"], each["reason"], each["rows"]) for each in found.json["changed"]]
    assert reasons == [
        (None, "main.sensors", "other values", 1),
        ("2025-01-02T00:00", "main.readings", "other values", 24),
    ]
    text = call(snapshots, "changed", source, exported)
    assert text.status == 0
    assert "untimed           main.sensors" in text.out
    assert "4 chunks looked at for changes, 5 tables in them compared by value: 2 have changed" in text.out
    assert contents(exported) == before


def test_a_source_that_is_as_it_was_has_no_changes(snapshots: Snapshots, source: str, exported: Path) -> None:
    found = call(snapshots, "changed", source, exported, "--check")
    assert (found.status, "nothing changed" in found.out) == (0, True)


def test_only_what_changed_is_exported_again(snapshots: Snapshots, source: str, exported: Path) -> None:
    change(source, "UPDATE readings SET value = -1 WHERE value = 30")
    before = set(contents(exported))
    found = call(snapshots, "create", source, exported, "--changed", "--json")
    assert found.status == 0, found.err
    assert found.json["outcomes"] == {"present": 3, "replaced": 1}
    assert len({path for path in set(contents(exported)) - before if path.endswith(".parquet")}) == 1
    again = call(snapshots, "create", source, exported, "--changed")
    assert "as it was before, found so by run" in again.out
    assert "4 chunks looked at for changes: nothing changed" in again.out


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("create", ("--force", "--changed"), "--force starts a new snapshot and --changed changes the existing one"),
        ("create", ("--schema-only", "--changed"), "--schema-only"),
        ("changed", ("--schema-only",), "--schema-only"),
        ("changed", ("--replace", "x"), "--replace"),
        ("changed", ("--null-time", "fail"), "null_time"),
    ],
)
def test_a_wrong_call_is_refused(
    snapshots: Snapshots, source: str, exported: Path, command: str, options: tuple[str, ...], message: str
) -> None:
    before = contents(exported)
    found = call(snapshots, command, source, exported, *options)
    assert found.status in (1, 2)
    assert message in found.err
    assert contents(exported) == before


def test_without_a_snapshot_nothing_is_looked_at(snapshots: Snapshots, source: str, location: Path) -> None:
    found = call(snapshots, "changed", source, location)
    assert found.status == 5
    assert "snapshot" in found.err
    assert not location.exists()
