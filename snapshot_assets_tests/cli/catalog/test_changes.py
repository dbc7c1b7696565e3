"""`snapshots catalog tombstone | upgrade | compact`: what they print, ask and commit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.maintain_log import UpgradePlan
from snapshot_assets_tests.cli.helpers import Result, Snapshots, catalog, contents, store_of

WHERE = "moment >= '2025-01-02T00:00:00Z' and value < 36"
"""All rows of day 2, before noon: those of no other day, by its file's statistics."""


def tombstone(snapshots: Snapshots, location: Path, where: str, *arguments: str) -> Result:
    return catalog(snapshots, "tombstone", location, "--table", "main.readings", "--where", where, *arguments)


def test_a_dry_run_of_tombstone_names_the_files_and_changes_nothing(snapshots: Snapshots, exported: Path) -> None:
    before = contents(exported)
    found = tombstone(snapshots, exported, WHERE, "--dry-run", "--json").json
    assert contents(exported) == before
    assert (found["dry_run"], found["deleted"], found["revision"]) == (True, False, None)
    assert found["table"] == "main.readings"
    assert (found["files"], found["rows_at_least"], found["rows_at_most"]) == (1, 0, 24)
    assert [(match["path"].split("/")[1], match["rows"], match["whole"]) for match in found["matches"]] == [
        ("2", 24, False)
    ]
    text = tombstone(snapshots, exported, WHERE, "--dry-run").out
    assert found["matches"][0]["path"] in text
    assert "0 to 24 of 1 file, would be deleted" in text
    assert """("moment" >= '2025-01-02T00:00:00.000000Z') and ("value" < 36.0)""" in text


def test_a_tombstone_is_committed_shown_and_its_text_can_be_given_again(snapshots: Snapshots, exported: Path) -> None:
    done = tombstone(snapshots, exported, WHERE, "--yes", "--json")
    assert (done.status, done.json["deleted"]) == (0, True)
    revision = done.json["revision"]
    assert read_state(store_of(exported)).tombstones.keys() == {revision}
    [shown] = catalog(snapshots, "show", exported, "--json").json["tombstones"]
    assert (shown["revision"], shown["table"], shown["pending"]) == (revision, "main.readings", True)
    again = tombstone(snapshots, exported, shown["where"], "--dry-run", "--json").json
    assert again["where"] == done.json["where"]
    [logged, *_] = catalog(snapshots, "log", exported, "--json").json["revisions"]
    assert logged["actions"][0] == {
        "kind": "tombstone",
        "schema": "main",
        "table": "readings",
        "where": done.json["where"],
    }
    assert f"rows of main.readings deleted where {shown['where']}" in logged["what"]


def test_no_row_is_deleted_unless_the_answer_is_exactly_yes(
    snapshots: Snapshots, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    before = contents(exported)
    refused = tombstone(snapshots, exported, WHERE)
    assert (refused.status, refused.out) == (1, "")
    assert "0 to 24 of 1 file, will be deleted" in refused.err
    assert tombstone(snapshots, exported, WHERE, "--json").json["deleted"] is False
    assert contents(exported) == before


def test_rows_that_no_file_can_hold_are_nothing_to_delete(snapshots: Snapshots, exported: Path) -> None:
    before = contents(exported)
    done = tombstone(snapshots, exported, "value < -1")
    assert (done.status, "nothing to delete" in done.out) == (0, True)
    assert read_state(store_of(exported)).tombstones == {}
    assert {path for path in contents(exported) if "probe" not in path} == set(before)


@pytest.mark.parametrize(
    ("table", "where", "message"),
    [
        ("main.reading", "value < 3", "readings"),
        ("readings", "value < 3", "'readings'"),
        ("main.readings", "valu < 3", "valu"),
        ("main.readings", "value <", "position 8"),
        ("main.readings", "value = 'x'", "value"),
        ("main.readings", "value < 3; drop table readings", ";"),
    ],
)
def test_a_tombstone_that_fits_no_table_is_a_wrong_call(
    snapshots: Snapshots, exported: Path, table: str, where: str, message: str
) -> None:
    before = contents(exported)
    shown = catalog(snapshots, "tombstone", exported, "--table", table, "--where", where, "--yes")
    assert (shown.status, shown.out) == (2, "")
    assert message in shown.err
    assert {path for path in contents(exported) if "probe" not in path} == set(before)


def test_an_upgrade_to_the_version_that_is_there_does_nothing(snapshots: Snapshots, exported: Path) -> None:
    before = contents(exported)
    done = catalog(snapshots, "upgrade", exported, "--to", "1", "--json")
    assert (done.status, done.json) == (
        0,
        {"uri": exported.as_uri(), "dry_run": False, "previous": 1, "version": 1, "revision": None},
    )
    assert "format version 1; nothing to do" in catalog(snapshots, "upgrade", exported, "--dry-run").out
    assert set(contents(exported)) == set(before)


def test_an_upgrade_beyond_this_code_is_a_wrong_call(snapshots: Snapshots, exported: Path) -> None:
    refused = catalog(snapshots, "upgrade", exported, "--to", "7")
    assert (refused.status, refused.out) == (2, "")
    assert "format version 7 was asked for" in refused.err


@pytest.mark.parametrize("dry_run", [True, False])
def test_an_upgrade_is_reported(
    snapshots: Snapshots, exported: Path, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    """There is one format version so far: what the command makes of the next one's answer."""
    monkeypatch.setattr("snapshot_assets.cli.catalog.maintain.plan_upgrade", lambda _, to: UpgradePlan(1, to or 2))
    monkeypatch.setattr(
        "snapshot_assets.cli.catalog.maintain.execute_upgrade", lambda _, plan: replace(plan, revision=9)
    )
    shown = catalog(snapshots, "upgrade", exported, *(["--dry-run"] if dry_run else []))
    assert shown.status == 0
    assert ("would be upgraded" if dry_run else "as of revision 9") in shown.out


@pytest.mark.parametrize("size", ["1MiB", "much"])
def test_a_compaction_to_an_invalid_size_is_refused(snapshots: Snapshots, exported: Path, size: str) -> None:
    before = contents(exported)
    refused = catalog(snapshots, "compact", exported, "--chunk", "1", "--target-size", size)
    assert refused.status == 2
    assert size in refused.err
    assert contents(exported) == before
