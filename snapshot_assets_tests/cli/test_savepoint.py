"""`snapshots savepoint`: everything is compacted, then pinned under a number."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.state.file_pruning import pending_tombstones
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.cli.catalog import compact
from snapshot_assets.engine.compact.options import CompactionOptions
from snapshot_assets.engine.compact.plan import CompactionPlan
from snapshot_assets.engine.compact.run import Compacted, CompactRun
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import delete_rows, expire
from snapshot_assets_tests.catalog.tags import reseal, save
from snapshot_assets_tests.cli.helpers import Result, Snapshots, export, make_plan, store_of

READINGS = TableName("main", "readings")


def savepoint(snapshots: Snapshots, location: Path, *arguments: str) -> Result:
    return snapshots("savepoint", *arguments, "--snapshot", location.as_uri())


def savepoints(location: Path) -> dict[int, int]:
    known = read_state(store_of(location)).pins.savepoints
    return {number: each.pin.revision for number, each in known.items()}


@pytest.fixture
def compacted(monkeypatch: pytest.MonkeyPatch, exported: Path) -> list[CompactionOptions]:
    """The compactions, which run in this process, without Spark."""
    asked: list[CompactionOptions] = []

    def run(_: object, catalog: Catalog, given: CompactionPlan) -> tuple[list[Compacted], str]:
        asked.append(given.options)
        return list(CompactRun(catalog, InlineRunner(), "r").execute(given)), f"run-{len(asked)}"

    monkeypatch.setattr(compact, "_compact", run)
    return asked


def test_what_needs_no_compaction_is_pinned_at_once(
    snapshots: Snapshots, exported: Path, compacted: list[CompactionOptions]
) -> None:
    head = read_state(store_of(exported)).revision
    preview = savepoint(snapshots, exported, "create", "--dry-run", "--json").json
    assert preview == {
        "uri": exported.as_uri(),
        "dry_run": True,
        "savepoint_id": 1,
        "saved_snapshot_id": head,
        "groups": [],
    }
    text = savepoint(snapshots, exported, "create", "--dry-run").out
    assert text == f"{exported.as_uri()}: savepoint 1 would keep revision {head}; nothing to compact\n"
    assert (savepoints(exported), read_state(store_of(exported)).revision) == ({}, head)
    done = savepoint(snapshots, exported, "create")
    assert (done.status, compacted) == (0, [])
    assert done.out == f"{exported.as_uri()}: savepoint 1 keeps revision {head}; nothing to compact\n"
    again = savepoint(snapshots, exported, "create", "--json").json
    assert (again["savepoint_id"], again["saved_snapshot_id"], again["run_ids"], again["chunks_compacted"]) == (
        2,
        head,
        [],
        0,
    )
    assert savepoints(exported) == {1: head, 2: head}


def test_deleted_rows_are_left_out_and_no_tombstone_is_pending(
    snapshots: Snapshots, exported: Path, compacted: list[CompactionOptions]
) -> None:
    """The files of days 1 and 3 have none of these rows by their statistics: a compaction by itself leaves them."""
    delete_rows(
        Catalog.open_for_writing(store_of(exported)), READINGS, "moment >= '2025-01-02T12:00:00Z' and value < 48"
    )
    assert pending_tombstones(before := read_state(store_of(exported)))
    preview = savepoint(snapshots, exported, "create", "--dry-run", "--json").json
    assert (preview["saved_snapshot_id"], [(each["chunk"], each["table"]) for each in preview["groups"]]) == (
        None,
        [(chunk, "main.readings") for chunk in (1, 2, 3)],
    )
    assert [each["reasons"] for each in preview["groups"]] == [["asked for"], ["tombstones"], ["asked for"]]
    text = savepoint(snapshots, exported, "create", "--dry-run").out
    assert text.endswith(f"{exported.as_uri()}: savepoint 1 would keep the result\n")
    assert (compacted, read_state(store_of(exported)).revision) == ([], before.revision)
    done = savepoint(snapshots, exported, "create", "--json").json
    assert (done["savepoint_id"], done["run_ids"], done["chunks_compacted"]) == (1, ["run-1", "run-2"], 3)
    assert compacted == [CompactionOptions(), CompactionOptions(chunks=(1, 3), tables=(READINGS,))]
    state = read_state(store_of(exported))
    assert (state.sealed, pending_tombstones(state)) == (True, {})
    assert done["saved_snapshot_id"] == state.seals[-1].revision
    assert sum(known.file.rows for known in state.live_files() if known.file.table == "readings") == 60
    assert not verify(store_of(exported)).damaged


def test_a_head_that_is_not_sealed_is_refused_before_anything_is_compacted_or_pinned(
    snapshots: Snapshots, source: str, location: Path
) -> None:
    export(make_plan(source, location.as_uri()), store_of(location), chunks=[1])
    head = read_state(store_of(location)).revision
    refused = savepoint(snapshots, location, "create")
    assert (refused.status, refused.out) == (3, "")
    assert f"Revision {head}, the head, is not sealed (nothing is)" in refused.err
    tagged = snapshots("tag", "create", "friday", "--snapshot", location.as_uri())
    assert (tagged.status, "has no seal yet, so there is nothing to pin" in tagged.err) == (5, True)
    assert read_state(store_of(location)).revision == head


def test_savepoints_are_listed_and_deleted(snapshots: Snapshots, location: Path) -> None:
    writer = Writer(store_of(location))
    writer.begin()
    writer.fill()
    none = savepoint(snapshots, location, "list")
    assert (none.status, none.out, none.err) == (0, "", f"No savepoints at {location.as_uri()}.\n")
    first = seal_and_save(writer)
    second = seal_and_save(writer)
    head, *lines = savepoint(snapshots, location, "list").out.splitlines()
    assert head.split() == ["Savepoint", "Revision", "Commit", "time", "Created"]
    assert [line.split()[:2] for line in lines] == [["1", str(first)], ["2", str(second)]]
    shown = snapshots("catalog", "show", "--snapshot", location.as_uri()).out
    assert f"  savepoint: 2, revision {second}, since " in shown
    [summary] = snapshots("export", "list", "--location", location.as_uri(), "--json").json
    assert [each["savepoint_id"] for each in summary["savepoints"]] == [1, 2]
    pinned = snapshots("export", "delete", "--snapshot", location.as_uri(), "--yes")
    assert (pinned.status, "Savepoints 1, 2 pin revisions" in pinned.err) == (2, True)
    preview = savepoint(snapshots, location, "delete", "1", "--dry-run")
    assert preview.out.startswith("savepoint 1 would be deleted\n")
    assert "pin object: 1 object" in preview.out
    assert savepoints(location) == {1: first, 2: second}
    assert savepoint(snapshots, location, "delete", "1").out == f"{location.as_uri()}: savepoint 1 is deleted\n"
    assert savepoint(snapshots, location, "delete", "2", "--json").json["deleted"] is True
    refused = savepoint(snapshots, location, "delete", "1")
    assert (refused.status, "no savepoint '1'; sealed are 2 revisions" in refused.err) == (5, True)
    assert (savepoints(location), list(writer.store.list("savepoint/"))) == ({}, [])
    what = snapshots("catalog", "log", "--limit", "3", "--json", "--snapshot", location.as_uri()).json["revisions"]
    text = ["savepoint 2 deleted", "savepoint 1 deleted", f"savepoint 2 pins {second}"]
    assert [each["what"] for each in what] == [[each] for each in text]


def seal_and_save(writer: Writer) -> int:
    revision = reseal(writer) if writer.catalog.state.seals else seal(writer.catalog).seal.revision
    save(writer.catalog)
    return revision


def test_the_last_pin_of_an_expired_revision_goes_only_after_a_yes(
    snapshots: Snapshots, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(store_of(location))
    writer.begin()
    writer.fill()
    first = seal_and_save(writer)
    seal_and_save(writer)
    expire(writer.catalog, keep_last=1)
    monkeypatch.setattr("builtins.input", lambda *_: "no")
    assert savepoint(snapshots, location, "delete", "2").status == 0  # the newest seal never expires
    refused = savepoint(snapshots, location, "delete", "1")
    assert (refused.status, savepoints(location)) == (1, {1: first})
    assert f"only savepoint 1 keeps revision {first} readable, which has expired" in refused.err
    done = savepoint(snapshots, location, "delete", "1", "--yes", "--json").json
    assert (done["deleted"], done["unreadable"], savepoints(location)) == (True, first, {})
    assert done["reasons"].keys() == {"savepoint deleted", "pin object"}


def test_an_invalid_id_is_a_wrong_call(snapshots: Snapshots, tmp_path: Path) -> None:
    refused = savepoint(snapshots, tmp_path, "delete", "x")
    assert (refused.status, refused.out) == (2, "")


@pytest.mark.slow
def test_the_job_compacts_before_a_savepoint(snapshots: Snapshots, exported: Path) -> None:
    """With Dagster and Spark, as users run it."""
    delete_rows(Catalog.open_for_writing(store_of(exported)), READINGS, "value < 12")
    done = savepoint(snapshots, exported, "create", "--json")
    assert done.status == 0, done.err
    assert len(done.json["run_ids"]) == 2
    state = read_state(store_of(exported))
    assert (savepoints(exported), pending_tombstones(state)) == ({1: done.json["saved_snapshot_id"]}, {})
    assert not verify(store_of(exported)).damaged
