"""`snapshots catalog gc | prune`: what they print, ask and delete."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import list_log
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.format.units import human_bytes
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.cli.helpers import Snapshots, catalog, contents, store_of

NOW = ("--grace", "0s", "--unsafe")


@pytest.fixture
def littered(location: Path) -> Writer:
    """A sealed location with one replaced file, one orphan, and a foreign file."""
    writer = Writer(store_of(location))
    writer.begin()
    writer.fill()
    writer.complete(1, writer.file(1, b"late rows"), replaces=tuple(writer.catalog.state.files.chunk(1)))
    seal(writer.catalog)
    writer.file(2, b"an orphan")
    (location / "data" / "notes.txt").write_text("mine")
    return writer


@pytest.fixture
def checkpointed(location: Path) -> Writer:
    """A location of revisions 1 to 9, with seals and checkpoints at 5, 7 and 9."""
    writer = Writer(store_of(location))
    writer.begin()
    writer.fill()
    for turn in range(3):
        if turn:
            writer.complete(1, writer.file(1), replaces=tuple(writer.catalog.state.files.chunk(1)))
        seal(writer.catalog)
        write_checkpoint(writer.store, writer.catalog.state)
    return writer


def test_a_dry_run_of_gc_lists_and_deletes_nothing(snapshots: Snapshots, location: Path, littered: Writer) -> None:
    before = contents(location)
    found = catalog(snapshots, "gc", location, *NOW, "--dry-run", "--json").json
    assert contents(location) == before
    assert (found["dry_run"], found["deleted"], found["grace"]) == (True, False, "0s")
    old, orphan = found["reasons"]["replaced"], found["reasons"]["orphan"]
    assert (old["objects"], orphan) == (2, {"objects": 1, "bytes": 9})  # the replaced file, and its receipt
    assert (found["objects"], found["bytes"]) == (3, old["bytes"] + 9)
    assert {each["path"] for each in found["garbage"]} <= {
        path.relative_to(location).as_posix() for path in location.rglob("*")
    }
    assert found["foreign"] == ["data/notes.txt"]

    text = catalog(snapshots, "gc", location, *NOW, "--dry-run")
    assert text.status == 0
    assert all(each["path"] in text.out for each in found["garbage"])
    assert "orphan: 1 object, 9 B" in text.out
    assert "would be deleted" in text.out
    assert "left alone: data/notes.txt" in text.err


def test_gc_deletes_exactly_what_its_dry_run_listed(snapshots: Snapshots, location: Path, littered: Writer) -> None:
    preview = catalog(snapshots, "gc", location, *NOW, "--dry-run", "--json").json["garbage"]
    before = contents(location)
    done = catalog(snapshots, "gc", location, *NOW, "--yes", "--json", "--progress", "json")
    [progress] = [json.loads(line) for line in done.err.splitlines() if line.startswith("{")][-1:]
    assert (progress["objects_done"], progress["objects"]) == (len(preview), len(preview))
    assert (done.status, done.json["deleted"], done.json["garbage"]) == (0, True, preview)
    gone = {Path(path).relative_to(location).as_posix() for path in before.keys() - contents(location).keys()}
    assert gone == {each["path"] for each in preview}
    assert snapshots("export", "verify", "--snapshot", location.as_uri()).status == 0
    again = catalog(snapshots, "gc", location, *NOW)  # nothing to delete, nothing to ask
    assert (again.status, again.out) == (0, "0 objects, 0 B, deleted\n")


def test_without_grace_given_the_plans_holds_and_young_garbage_waits(
    snapshots: Snapshots, location: Path, littered: Writer
) -> None:
    before = contents(location)
    shown = catalog(snapshots, "gc", location)
    assert shown.status == 0
    assert "0 objects, 0 B, deleted" in shown.out
    assert "garbage for less than 1d: kept so long" in shown.out
    waiting = catalog(snapshots, "gc", location, "--dry-run", "--json").json["waiting"]
    assert all(re.search(r"T[0-9:]{8}(\.[0-9]{1,3})?Z$", each["since"]) for each in waiting)  # as the log's times
    assert f"{len(waiting)} objects, " in shown.out
    assert len(waiting) == 3
    assert contents(location) == before


@pytest.mark.parametrize("command", ["gc", "prune"])
@pytest.mark.parametrize(
    ("arguments", "message"), [(["--grace", "1h"], "shorter than the plan's 1d"), (["--grace", "soon"], "'soon'")]
)
def test_a_grace_that_will_not_do_is_a_wrong_call(
    snapshots: Snapshots, location: Path, littered: Writer, command: str, arguments: list[str], message: str
) -> None:
    shown = catalog(snapshots, command, location, *arguments)
    assert (shown.status, shown.out) == (2, "")
    assert message in shown.err


@pytest.mark.parametrize("command", ["gc", "prune"])
def test_nothing_is_deleted_unless_the_answer_is_exactly_yes(
    snapshots: Snapshots, location: Path, checkpointed: Writer, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    checkpointed.file(2)
    before = contents(location)
    monkeypatch.setattr("builtins.input", lambda *_: "YES")
    shown = catalog(snapshots, command, location, *NOW)
    assert (shown.status, shown.out) == (1, "")
    assert "Nothing was deleted" in shown.err
    as_json = catalog(snapshots, command, location, *NOW, "--json")
    assert (as_json.status, as_json.json["deleted"]) == (1, False)
    assert contents(location) == before
    monkeypatch.setattr("builtins.input", lambda *_: "yes")
    assert catalog(snapshots, command, location, *NOW).status == 0
    assert len(contents(location)) < len(before)


@pytest.mark.parametrize("command", ["gc", "prune"])
def test_what_becomes_due_while_the_answer_is_awaited_is_not_deleted(
    snapshots: Snapshots, location: Path, checkpointed: Writer, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    orphan, young = checkpointed.file(2), []

    def answer() -> str:
        young.append(checkpointed.file(2))
        checkpointed.complete(1, checkpointed.file(1), replaces=tuple(checkpointed.catalog.state.files.chunk(1)))
        write_checkpoint(checkpointed.store, checkpointed.catalog.state)
        return "yes"

    preview = catalog(snapshots, command, location, *NOW, "--dry-run", "--json").json
    before = contents(location).keys()
    monkeypatch.setattr("builtins.input", answer)
    done = catalog(snapshots, command, location, *NOW, "--json").json
    gone = {Path(path).relative_to(location).as_posix() for path in before - contents(location).keys()}
    assert gone == {each["path"] for each in preview["unneeded" if command == "prune" else "garbage"]}
    assert (done["objects"], done["bytes"]) == (preview["objects"], preview["bytes"])
    assert (location / orphan.path).exists() is (command == "prune")
    assert (location / young[0].path).exists()


def test_a_dry_run_of_prune_lists_and_deletes_nothing(
    snapshots: Snapshots, location: Path, checkpointed: Writer
) -> None:
    before = contents(location)
    found = catalog(snapshots, "prune", location, *NOW, "--dry-run", "--json").json
    assert contents(location) == before
    assert (found["dry_run"], found["deleted"], found["kept"], found["objects"]) == (True, False, 7, 6)
    sizes = {path: len(data) for path, data in before.items()}
    assert [sizes[str(location / each["path"])] for each in found["unneeded"]] == [
        each["bytes"] for each in found["unneeded"]
    ]
    assert {reason: sums["objects"] for reason, sums in found["reasons"].items()} == {"checkpoint": 1, "transaction": 5}
    head, *text = catalog(snapshots, "prune", location, *NOW, "--dry-run").out.splitlines()
    assert head.split() == ["Reason", "Size", "Object"]
    assert [line.split() for line in text[:6]] == [
        [each["reason"], *human_bytes(each["bytes"]).split(), each["path"]] for each in found["unneeded"]
    ]
    assert [line.split(",")[0] for line in text[6:8]] == ["checkpoint: 1 object", "transaction: 5 objects"]
    assert "the log is whole from 7 on" in text[-1]


def test_prune_deletes_exactly_what_its_dry_run_listed(
    snapshots: Snapshots, location: Path, checkpointed: Writer
) -> None:
    preview = catalog(snapshots, "prune", location, *NOW, "--dry-run", "--json").json
    done = catalog(snapshots, "prune", location, *NOW, "--yes", "--json")
    assert (done.status, done.json) == (0, preview | {"dry_run": False, "deleted": True})
    assert list_log(checkpointed.store).transactions == [1, 7, 8, 9]
    for version in ("rev:5", "rev:7", "rev:9"):
        assert snapshots("export", "verify", "--snapshot", location.as_uri(), "--at", version).status == 0


@pytest.mark.parametrize(
    ("fixture", "reason"),
    [
        ("checkpointed", "nothing that lies before revision 7 is older than the grace period"),
        ("littered", "two checkpoints stay, and there are fewer; `snapshots catalog checkpoint --snap"),
    ],
)
def test_prune_reports_why_there_is_nothing_to_prune(
    snapshots: Snapshots, location: Path, request: pytest.FixtureRequest, fixture: str, reason: str
) -> None:
    request.getfixturevalue(fixture)
    before = contents(location)
    shown = catalog(snapshots, "prune", location)
    assert (shown.status, reason in shown.out) == (0, True)
    assert contents(location) == before
