"""`snapshots catalog log | show | checkpoint`: what they print."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.format.layout import checkpoint_path, transaction_path
from snapshot_assets_tests.catalog.conftest import DAY, Writer
from snapshot_assets_tests.catalog.execute import prune
from snapshot_assets_tests.cli.helpers import Snapshots, catalog, store_of


@pytest.fixture
def writer(location: Path) -> Writer:
    """A location: revision 1 begins, 2 to 4 are chunks, 5 is a seal."""
    writer = Writer(store_of(location))
    writer.begin()
    writer.fill()
    seal(writer.catalog)
    return writer


def replace_chunk_1(writer: Writer) -> None:
    old = tuple(writer.catalog.state.files.chunk(1))
    writer.complete(1, writer.file(1, b"late rows"), replaces=old)


@pytest.fixture
def pruned(writer: Writer) -> Writer:
    """Revisions 2 to 4 are pruned; seals at 5, 7 and 9, checkpoints at 5 and 7."""
    for _ in range(2):
        write_checkpoint(writer.store, writer.catalog.state)
        replace_chunk_1(writer)
        seal(writer.catalog)
    assert prune(writer.catalog, grace=0 * DAY, unsafe=True).kept == 5
    return writer


def test_log_is_a_line_a_revision_newest_first_with_who_when_and_what(
    snapshots: Snapshots, location: Path, writer: Writer
) -> None:
    shown = catalog(snapshots, "log", location)
    lines = shown.out.splitlines()
    assert (shown.status, shown.err) == (0, "")
    assert [int(line.split()[0]) for line in lines] == [5, 4, 3, 2, 1]
    assert all(line.split()[1].endswith("Z") and writer.catalog.writer_id in line for line in lines)
    what = [line.split(writer.catalog.writer_id)[1].strip() for line in lines]
    assert what[0].startswith("sealed as of 4, checksum ")
    assert what[1] == "chunk 3 completed, 2 rows; +1 file (2 rows, 10 B)"
    assert what[2] == "chunk 2 completed, empty"
    assert what[4].endswith("of 'demo' begins; schema 1")


def test_log_as_json_has_the_actions(snapshots: Snapshots, location: Path, writer: Writer) -> None:
    replace_chunk_1(writer)
    create_tag(writer.catalog, "friday", 5, 7 * DAY)
    found = catalog(snapshots, "log", location, "--json").json
    assert (found["uri"], found["head"], found["pruned"]) == (location.as_uri(), 7, 0)
    tagged, replaced, sealed, *_, first = found["revisions"]
    assert [revision["revision"] for revision in found["revisions"]] == [7, 6, 5, 4, 3, 2, 1]
    assert tagged["actions"][0] | {"object": {}, "created_at": ""} == {
        "kind": "tag_created",
        "name": "friday",
        "revision": 5,
        "object": {},
        "created_at": "",
        "ttl": "7d",
        "automatic": False,
    }
    assert tagged["what"] == ["tag 'friday' pins 5 for 7d"]
    assert (replaced["files_added"], replaced["files_removed"], replaced["bytes_added"]) == (1, 1, 9)
    assert sealed["actions"][0]["checksum"] == writer.catalog.state.seals[0].seal.checksum
    assert first["actions"][0]["header"]["start"] == "2025-01-01T00:00:00Z"
    assert {revision["writer_id"] for revision in found["revisions"]} == {writer.catalog.writer_id}


@pytest.mark.parametrize(
    ("arguments", "revisions"),
    [(["--limit", "2"], [5, 4]), (["--since", "4"], [5, 4]), (["--since", "2", "--limit", "1"], [5])],
)
def test_log_of_some_revisions(
    snapshots: Snapshots, location: Path, writer: Writer, arguments: list[str], revisions: list[int]
) -> None:
    found = catalog(snapshots, "log", location, *arguments, "--json").json
    assert [revision["revision"] for revision in found["revisions"]] == revisions
    shown = catalog(snapshots, "log", location, "--since", "9")
    assert (shown.status, shown.out, shown.err) == (0, "", "nothing since revision 9; the newest is 5\n")


@pytest.mark.parametrize("value", ["0", "-1", "²"])
def test_log_wants_whole_numbers(snapshots: Snapshots, location: Path, value: str) -> None:
    shown = catalog(snapshots, "log", location, f"--limit={value}")
    assert shown.status == 2
    assert value in shown.err


def test_log_shows_and_marks_what_a_checkpoint_records_of_pruned_revisions(
    snapshots: Snapshots, location: Path, pruned: Writer
) -> None:
    shown = catalog(snapshots, "log", location)
    marks = {line.split()[0]: line for line in shown.out.splitlines()}
    assert list(marks) == ["9", "8", "7", "6", "5", "4*", "3*", "2*", "1"]
    assert "chunk 3 completed, 2 rows" in marks["4*"]
    assert "+1 file" not in marks["4*"]
    assert "3 revisions of this log are pruned" in shown.err

    found = catalog(snapshots, "log", location, "--json").json
    by_number = {revision["revision"]: revision for revision in found["revisions"]}
    assert [number for number, revision in by_number.items() if revision["pruned"]] == [4, 3, 2]
    assert (found["pruned"], by_number[4]["checkpoint"], by_number[9]["checkpoint"]) == (3, 5, None)
    assert "files_added" not in by_number[4]
    some = catalog(snapshots, "log", location, "--since", "4", "--limit", "7", "--json").json["revisions"]
    assert [revision["revision"] for revision in some] == [9, 8, 7, 6, 5, 4]


def test_log_reads_the_pruned_part_from_the_next_checkpoint_if_the_oldest_is_damaged(
    snapshots: Snapshots, location: Path, pruned: Writer
) -> None:
    (location / checkpoint_path(5)).write_bytes(b"no checkpoint")
    found = catalog(snapshots, "log", location, "--json").json["revisions"]
    assert {revision["checkpoint"] for revision in found if revision["revision"] < 5} == {None, 7}


def test_log_of_a_damaged_log_names_what_cannot_be_read_and_shows_the_rest(
    snapshots: Snapshots, location: Path, writer: Writer
) -> None:
    torn, missing = transaction_path(4), transaction_path(3)
    (location / torn).write_bytes((location / torn).read_bytes()[:-1])
    (location / missing).unlink()
    shown = catalog(snapshots, "log", location)
    assert shown.status == 3
    lines = {int(line.split()[0]): line for line in shown.out.splitlines()}
    assert sorted(lines) == [1, 2, 3, 4, 5]
    assert "UNREADABLE" in lines[4]
    assert torn in lines[4]
    assert f"{missing} is missing" in lines[3]
    found = catalog(snapshots, "log", location, "--json")
    assert (found.status, [bool(each["error"]) for each in found.json["revisions"]]) == (
        3,
        [False, True, True, False, False],
    )


def test_show_of_the_newest_state(snapshots: Snapshots, location: Path, pruned: Writer) -> None:
    create_tag(pruned.catalog, "friday", 9)
    found = catalog(snapshots, "show", location, "--json").json
    state = pruned.catalog.state
    assert (found["revision"], found["sealed"], found["format_version"]) == (10, True, 1)
    assert (found["snapshot_id"], found["location_id"]) == (state.snapshot_id, state.location_id)
    assert (found["header"]["name"], found["header"]["chunk_time_window"], found["header"]["grace"]) == (
        "demo",
        "1d",
        "1d",
    )
    assert found["chunks"] == {"Completed": 3}
    assert found["tables"] == [{"schema": "main", "table": "m", "files": 2, "rows": 4, "bytes": 19}]
    assert [(tag["tag_name"], tag["tagged_snapshot_id"], tag["time_retained"]) for tag in found["tags"]] == [
        ("friday", 9, None)
    ]
    assert [each["revision"] for each in found["seals"]] == [5, 7, 9]
    assert [each["revision"] for each in found["log"]["checkpoints"]] == [5, 7]
    assert (found["log"]["transactions"], found["log"]["oldest"]) == (7, 5)
    sizes = [path.stat().st_size for path in location.glob("transactions/*.txn")]
    assert found["log"]["bytes"] == sum(sizes)
    assert "files" not in found

    text = catalog(snapshots, "show", location).out
    for part in ("revision 10", "sealed", "3 Completed", "tag: friday, revision 9", "checkpoint: revision 7", "main.m"):
        assert part in text


def test_show_of_an_older_state_with_its_files(snapshots: Snapshots, location: Path, pruned: Writer) -> None:
    old = catalog(snapshots, "show", location, "--at", "rev:5", "--files", "--json").json
    assert (old["revision"], [each["revision"] for each in old["seals"]]) == (5, [5])
    assert (old["tables"][0]["files"], old["tables"][0]["bytes"]) == (2, 14)
    live = [known.file for known in pruned.catalog.state.at(5).live_files()]
    assert [(file["path"], file["sha256"], file["rows"]) for file in old["files"]] == [
        (file.path, file.sha256, file.rows) for file in live
    ]
    text = catalog(snapshots, "show", location, "--at", "rev:5", "--files").out
    assert all(file.path in text and file.sha256 in text for file in live)
    wrong = catalog(snapshots, "show", location, "--at", "rev:6")
    assert (wrong.status, wrong.out) == (5, "")
    assert "Revision 6 is not sealed" in wrong.err


def test_show_counts_work_in_progress(snapshots: Snapshots, location: Path) -> None:
    writer = Writer(store_of(location))
    writer.begin()
    writer.complete(2)
    found = catalog(snapshots, "show", location, "--json").json
    assert (found["sealed"], found["chunks"], found["tables"]) == (False, {"Completed": 1, "Pending": 2}, [])


def test_checkpoint_writes_one_now_and_finds_it_there_again(
    snapshots: Snapshots, location: Path, writer: Writer
) -> None:
    first = catalog(snapshots, "checkpoint", location, "--json").json
    path = location / checkpoint_path(5)
    assert first == {
        "uri": location.as_uri(),
        "path": checkpoint_path(5),
        "revision": 5,
        "bytes": path.stat().st_size,
        "new": True,
        "mended": [],
    }
    before = path.read_bytes()
    again = catalog(snapshots, "checkpoint", location)
    assert (again.status, path.read_bytes()) == (0, before)
    assert "is there already: revision 5" in again.out
    assert snapshots("export", "verify", "--snapshot", location.as_uri(), "--depth", "quick").status == 0


def test_a_damaged_checkpoint_is_written_again(snapshots: Snapshots, location: Path, writer: Writer) -> None:
    """That of the head, and an older one, which is named."""
    assert catalog(snapshots, "checkpoint", location).status == 0
    path = location / checkpoint_path(5)
    path.write_bytes(path.read_bytes()[:-1])
    assert catalog(snapshots, "checkpoint", location, "--json").json["new"]
    writer.catalog.commit(rules.in_progress(writer.token, [1], "run"))
    path.write_bytes(path.read_bytes()[:-1])
    written = catalog(snapshots, "checkpoint", location)
    assert written.status == 0
    assert f"{checkpoint_path(6)} is written" in written.out
    assert f"{checkpoint_path(5)} was damaged, and is written again" in written.out
    assert snapshots("export", "verify", "--snapshot", location.as_uri(), "--depth", "quick").status == 0


@pytest.mark.parametrize("command", ["log", "show", "checkpoint", "gc", "prune"])
def test_where_there_is_no_snapshot_nothing_is_made(snapshots: Snapshots, tmp_path: Path, command: str) -> None:
    shown = catalog(snapshots, command, tmp_path / "nothing", "--json")
    assert (shown.status, shown.json["error"]["kind"]) == (5, "NoSnapshotError")
    assert not (tmp_path / "nothing").exists()
