from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.format.units import parse_time
from snapshot_assets_tests.cli.helpers import Snapshots, export, make_plan, store_of


@pytest.mark.parametrize("below", ["", "shop"], ids=["locations", "members of a federation"])
def test_list_shows_one_line_per_snapshot_below_a_folder(
    snapshots: Snapshots, source: str, tmp_path: Path, below: str
) -> None:
    for name in ("one", "two"):
        folder = tmp_path / "all" / name / below
        export(make_plan(source, folder.as_uri(), name=name), store_of(folder))
    shown = snapshots("export", "list", "--location", (tmp_path / "all").as_uri())
    header, *rows = shown.out.splitlines()
    assert shown.status == 0
    assert header.split() == ["Location", "Name", "Created", "Chunks", "Rows", "Size", "Status"]
    assert {(row.split()[1], row.split()[3], row.split()[4], row.split()[-1]) for row in rows} == {
        ("one", "4/4", "74", "complete"),
        ("two", "4/4", "74", "complete"),
    }


def test_list_of_an_empty_folder_says_so_and_is_no_failure(snapshots: Snapshots, tmp_path: Path) -> None:
    shown = snapshots("export", "list", "--location", (tmp_path / "nothing").as_uri())
    assert (shown.status, shown.out) == (0, "")
    assert "No snapshots at" in shown.err
    assert snapshots("export", "list", "--location", (tmp_path / "nothing").as_uri(), "--json").json == []


def test_list_names_an_unreadable_snapshot_and_fails(snapshots: Snapshots, exported: Path) -> None:
    first = exported / "transactions" / "00000000000000000001.txn"
    first.write_bytes(first.read_bytes()[:-1])
    shown = snapshots("export", "list", "--location", exported.as_uri())
    assert shown.status == 3
    assert "unreadable" in shown.out
    assert "00000000000000000001.txn" in shown.err


@pytest.mark.parametrize("depth", ["quick", "full"])
def test_verify_of_a_sound_snapshot(snapshots: Snapshots, exported: Path, depth: str) -> None:
    shown = snapshots("export", "verify", "--snapshot", exported.as_uri(), "--depth", depth)
    assert shown.status == 0
    assert shown.out.startswith(f"OK: {exported.as_uri()} at revision")
    assert ("no data read" in shown.out) == (depth == "quick")


def test_verify_finds_a_flipped_byte_only_by_reading_it(snapshots: Snapshots, exported: Path) -> None:
    file = min(exported.glob("data/2/*.parquet"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    full = snapshots("export", "verify", "--snapshot", exported.as_uri(), "--json")
    assert full.status == 3
    assert full.json["damaged"]
    path = file.relative_to(exported).as_posix()
    assert [fault["kind"] for fault in full.json["faults"] if fault["object"] == path] == ["checksum"]
    assert snapshots("export", "verify", "--snapshot", exported.as_uri(), "--depth", "quick").status == 0


@pytest.mark.parametrize("command", [("export", "verify"), ("catalog", "show"), ("catalog", "gc", "--yes")])
def test_a_lost_log_is_told_from_a_wrong_uri(snapshots: Snapshots, exported: Path, command: tuple[str, ...]) -> None:
    shutil.rmtree(exported / "transactions")
    lost = snapshots(*command, "--snapshot", exported.as_uri())
    assert lost.status == 3
    assert f"rebuild the log with `snapshots catalog rebuild --snapshot {exported.as_uri()}`" in lost.err
    wrong = snapshots(*command, "--snapshot", f"{exported.as_uri()}x")
    assert wrong.status == 5
    assert "check the URI" in wrong.err


@pytest.fixture
def tagged(exported: Path) -> tuple[Path, int]:
    """A location whose newest seal has the tag `before-migration` for a week; and that revision."""
    catalog = Catalog.open_for_writing(store_of(exported))
    assert catalog.state.newest_seal is not None
    revision = catalog.state.newest_seal.revision
    create_tag(catalog, "before-migration", revision, timedelta(days=7))
    return exported, revision


def test_list_as_json_shows_the_tags_of_a_location(snapshots: Snapshots, tagged: tuple[Path, int]) -> None:
    location, revision = tagged
    [found] = snapshots("export", "list", "--location", location.as_uri(), "--json").json
    [tag] = found["tags"]
    assert (tag["tag_name"], tag["tagged_snapshot_id"], tag["time_retained"]) == ("before-migration", revision, "7d")
    assert parse_time(tag["create_time"]) > parse_time(found["created_at"])
    assert (found["uri"], found["status"], found["sealed_revision"]) == (location.as_uri(), "complete", revision)
    assert (found["chunks_done"], found["chunks"], found["rows"]) == (4, 4, 74)


def test_verify_at_a_version_and_of_a_tags_object(snapshots: Snapshots, tagged: tuple[Path, int]) -> None:
    location, revision = tagged
    call = ("export", "verify", "--snapshot", location.as_uri(), "--json", "--at")
    for version in ("tag:before-migration", "before-migration", f"rev:{revision}"):
        shown = snapshots(*call, version)
        assert (shown.status, shown.json["revision"]) == (0, revision)
    missed = snapshots(*call, "before-migratoin")
    assert (missed.status, missed.json["error"]["kind"]) == (5, "VersionNotFoundError")
    assert "did you mean 'before-migration'?" in missed.json["error"]["message"]
    assert snapshots(*call, "rev:1").status == 5
    [object_] = location.glob("tag/*")
    object_.write_bytes(object_.read_bytes().replace(b"7d", b"9d"))
    shown = snapshots("export", "verify", "--snapshot", location.as_uri(), "--depth", "quick")
    assert shown.status == 3
    assert f"tag/{object_.name} has SHA-256" in shown.out


def test_delete_refuses_while_tags_exist_before_it_asks_anybody(
    snapshots: Snapshots, tagged: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    location, _ = tagged
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("no confirmation is due"))
    before = sorted(location.rglob("*"))
    for options in ((), ("--yes",), ("--yes", "--json")):
        shown = snapshots("export", "delete", "--snapshot", location.as_uri(), *options)
        assert shown.status == 2
        assert "Tag before-migration pins" in shown.err
        assert "--with-tags" in shown.err
    assert shown.json["error"]["kind"] == "PinnedError"
    assert sorted(location.rglob("*")) == before


def test_delete_with_tags_deletes_them_too(snapshots: Snapshots, tagged: tuple[Path, int]) -> None:
    location, _ = tagged
    shown = snapshots("export", "delete", "--snapshot", location.as_uri(), "--yes", "--with-tags", "--json")
    assert (shown.status, shown.json["deleted"], shown.json["foreign"]) == (0, True, [])
    assert [path for path in location.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("answer", ["y", " yes yes", EOFError])
def test_delete_wants_exactly_yes(
    snapshots: Snapshots, exported: Path, monkeypatch: pytest.MonkeyPatch, answer: str | type[EOFError]
) -> None:
    def reply(*_: object) -> str:
        if answer is EOFError:
            raise EOFError
        return str(answer)

    monkeypatch.setattr("builtins.input", reply)
    before = sorted(exported.rglob("*"))
    shown = snapshots("export", "delete", "--snapshot", exported.as_uri(), "--json")
    assert shown.status == 1
    assert shown.json == {"uri": exported.as_uri(), "deleted": False, "objects": 0, "temporary": 0, "foreign": []}
    assert "Nothing was deleted" in shown.err
    assert sorted(exported.rglob("*")) == before


def test_an_interrupted_delete_deletes_nothing_and_says_how_to_go_on(
    snapshots: Snapshots, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", interrupted)
    shown = snapshots("export", "delete", "--snapshot", exported.as_uri(), "--json")
    assert shown.status == 130
    assert "interrupted; what was committed stays. Run the same command again" in shown.err
    assert shown.json["error"]["kind"] == "KeyboardInterrupt"
    assert (exported / "manifest.json").exists()


@pytest.mark.parametrize("confirmed", ["--yes", "yes"])
def test_delete_removes_what_the_snapshot_wrote_and_nothing_else(
    snapshots: Snapshots, exported: Path, monkeypatch: pytest.MonkeyPatch, confirmed: str
) -> None:
    foreign = exported / "data" / "1" / "notes.txt"
    foreign.write_text("mine")
    monkeypatch.setattr("builtins.input", lambda *_: confirmed)
    shown = snapshots(
        "export", "delete", "--snapshot", exported.as_uri(), "--json", *(["--yes"] if confirmed == "--yes" else [])
    )
    assert shown.status == 0
    assert shown.json["deleted"]
    assert shown.json["foreign"] == ["data/1/notes.txt"]
    assert [path for path in exported.rglob("*") if path.is_file()] == [foreign]
    assert "4/4 chunks, 74 rows" in shown.err  # the summary comes before the deletion
    assert snapshots("export", "list", "--location", exported.as_uri(), "--json").json == []


def test_delete_where_there_is_no_snapshot_touches_nothing(snapshots: Snapshots, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "manifest.json").write_text("{}")
    shown = snapshots("export", "delete", "--snapshot", (tmp_path / "mine").as_uri(), "--yes")
    assert shown.status == 5
    assert "nothing was deleted" in shown.err
    assert (tmp_path / "mine" / "manifest.json").exists()


@pytest.mark.parametrize("command", ["export verify", "export delete", "catalog log", "catalog gc"])
def test_an_unfit_location_is_refused_with_what_to_write_instead(snapshots: Snapshots, command: str) -> None:
    shown = snapshots(*command.split(), "--snapshot", "/tmp/x")
    assert (shown.status, shown.out) == (2, "")
    assert "file:///tmp/x" in shown.err


@pytest.mark.parametrize("command", [["export", "verify"], ["catalog", "show"], ["catalog", "table", "files"]])
def test_an_empty_version_is_not_the_newest(snapshots: Snapshots, exported: Path, command: list[str]) -> None:
    refused = snapshots(*command, "--snapshot", exported.as_uri(), "--at", "")
    assert refused.status == 5
    assert "There is no tag ''" in refused.err
