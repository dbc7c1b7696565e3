from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.format.units import parse_time
from snapshot_assets_tests.cli.helpers import Snapshots, export, make_plan, store_of


def test_list_shows_one_line_per_snapshot_below_a_folder(snapshots: Snapshots, source: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / "all" / name
        export(make_plan(source, folder.as_uri(), name=name), store_of(folder))
    shown = snapshots("export", "list", "--location", (tmp_path / "all").as_uri())
    header, *rows = shown.out.splitlines()
    assert shown.status == 0
    assert header.split() == ["Location", "Name", "Created", "Chunks", "Rows", "Size", "Status"]
    assert {(row.split()[1], row.split()[3], row.split()[4], row.split()[-1]) for row in rows} == {
        ("one", "4/4", "74", "complete"),
        ("two", "4/4", "74", "complete"),
    }


def test_list_as_json_is_one_document(snapshots: Snapshots, exported: Path) -> None:
    [found] = snapshots("export", "list", "--location", exported.as_uri(), "--json").json
    assert found["uri"] == exported.as_uri()
    assert found["status"] == "complete"
    assert (found["chunks_done"], found["chunks"], found["rows"]) == (4, 4, 74)


def test_list_of_an_empty_folder_says_so_and_is_no_failure(snapshots: Snapshots, tmp_path: Path) -> None:
    shown = snapshots("export", "list", "--location", (tmp_path / "nothing").as_uri())
    assert (shown.status, shown.out) == (0, "")
    assert "No snapshots at" in shown.err
    assert snapshots("export", "list", "--location", (tmp_path / "nothing").as_uri(), "--json").json == []


def test_list_shows_unfinished_work(snapshots: Snapshots, source: str, location: Path) -> None:
    export(make_plan(source, location.as_uri()), store_of(location), chunks=[1])
    [found] = snapshots("export", "list", "--location", location.as_uri(), "--json").json
    assert (found["status"], found["chunks_done"], found["chunks"]) == ("incomplete", 1, 4)


def test_list_names_an_unreadable_snapshot_and_fails(snapshots: Snapshots, exported: Path) -> None:
    first = exported / "transactions" / "00000000000000000001.txn"
    first.write_bytes(first.read_bytes()[:-1])
    shown = snapshots("export", "list", "--location", exported.as_uri())
    assert shown.status == 1
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
    assert full.status == 1
    assert full.json["damaged"]
    path = file.relative_to(exported).as_posix()
    assert [fault["kind"] for fault in full.json["faults"] if fault["object"] == path] == ["checksum"]
    assert snapshots("export", "verify", "--snapshot", exported.as_uri(), "--depth", "quick").status == 0


def test_verify_finds_a_manifest_edited_by_hand(snapshots: Snapshots, exported: Path) -> None:
    manifest = exported / "manifest.json"
    document = json.loads(manifest.read_text())
    document["chunks"][1]["rows"] = 1_000_000
    manifest.write_text(json.dumps(document))
    shown = snapshots("export", "verify", "--snapshot", exported.as_uri(), "--depth", "quick")
    assert shown.status == 1
    assert "manifest.json" in shown.out
    assert "DAMAGED" in shown.out


@pytest.mark.parametrize("command", [("export", "verify"), ("catalog", "show"), ("catalog", "gc", "--yes")])
def test_a_lost_log_is_told_from_a_wrong_uri(snapshots: Snapshots, exported: Path, command: tuple[str, ...]) -> None:
    shutil.rmtree(exported / "transactions")
    lost = snapshots(*command, "--snapshot", exported.as_uri())
    assert lost.status == 1
    assert "the log was lost. Rebuild it with `snapshots catalog rebuild`" in lost.err
    wrong = snapshots(*command, "--snapshot", f"{exported.as_uri()}x")
    assert wrong.status == 1
    assert "check the URI" in wrong.err


def test_verify_at_an_earlier_seal(snapshots: Snapshots, exported: Path) -> None:
    [found] = snapshots("export", "list", "--location", exported.as_uri(), "--json").json
    revision = found["sealed_revision"]
    call = ("export", "verify", "--snapshot", exported.as_uri(), "--json", "--at")
    assert snapshots(*call, f"rev:{revision}").json["revision"] == revision
    missing = snapshots(*call, "tag:never")
    assert missing.status == 2
    assert missing.json["error"]["kind"] == "VersionNotFoundError"
    assert snapshots(*call, "rev:1").status == 2


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
    assert (found["status"], found["sealed_revision"]) == ("complete", revision)


def test_verify_at_a_tag_and_of_its_object(snapshots: Snapshots, tagged: tuple[Path, int]) -> None:
    location, revision = tagged
    call = ("export", "verify", "--snapshot", location.as_uri(), "--json", "--at")
    for version in ("tag:before-migration", "before-migration"):
        shown = snapshots(*call, version)
        assert (shown.status, shown.json["revision"]) == (0, revision)
    missed = snapshots(*call, "before-migratoin")
    assert missed.status == 2
    assert "did you mean 'before-migration'?" in missed.json["error"]["message"]
    [object_] = location.glob("tag/*")
    object_.write_bytes(object_.read_bytes().replace(b"7d", b"9d"))
    shown = snapshots("export", "verify", "--snapshot", location.as_uri(), "--depth", "quick")
    assert shown.status == 1
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


def test_verify_where_there_is_no_snapshot_fails_naming_the_location(snapshots: Snapshots, tmp_path: Path) -> None:
    uri = (tmp_path / "nothing").as_uri()
    shown = snapshots("export", "verify", "--snapshot", uri)
    assert shown.status == 1
    assert uri in shown.out + shown.err
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("answer", ["y", "YES", "yes please", "", " yes yes", "no"])
def test_delete_wants_exactly_yes(
    snapshots: Snapshots, exported: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    before = sorted(exported.rglob("*"))
    monkeypatch.setattr("builtins.input", lambda *_: answer)
    shown = snapshots("export", "delete", "--snapshot", exported.as_uri())
    assert (shown.status, shown.out) == (1, "")
    assert "Nothing was deleted" in shown.err
    assert sorted(exported.rglob("*")) == before


def test_delete_without_anyone_to_ask_deletes_nothing(
    snapshots: Snapshots, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: object) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", closed)
    shown = snapshots("export", "delete", "--snapshot", exported.as_uri(), "--json")
    assert shown.status == 1
    assert shown.json == {"uri": exported.as_uri(), "deleted": False, "objects": 0, "temporary": 0, "foreign": []}
    assert (exported / "manifest.json").exists()


def test_an_interrupted_delete_deletes_nothing_and_says_how_to_go_on(
    snapshots: Snapshots, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", interrupted)
    shown = snapshots("export", "delete", "--snapshot", exported.as_uri(), "--json")
    assert shown.status == 1
    assert "interrupted; run the same command again to finish the deletion" in shown.err
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
    assert shown.status == 1
    assert "nothing was deleted" in shown.err
    assert (tmp_path / "mine" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("/tmp/x", "file:///tmp/x"),
        ("./x", "file:///"),
        ("s3://bucket", "bucket"),
        ("file:///data", "data"),
        ("ftp://host/x", "ftp"),
        ("s3://bucket/a/../b", ".."),
        ("file:///a/%2e%2e/b/c", ".."),
    ],
)
@pytest.mark.parametrize("command", ["verify", "delete"])
def test_an_unfit_location_is_refused_with_what_to_write_instead(
    snapshots: Snapshots, command: str, uri: str, message: str
) -> None:
    shown = snapshots("export", command, "--snapshot", uri)
    assert (shown.status, shown.out) == (2, "")
    assert message in shown.err


def test_list_shows_the_members_of_a_federation(snapshots: Snapshots, source: str, tmp_path: Path) -> None:
    for writer in ("one", "two"):
        folder = tmp_path / "all" / writer / "shop"
        export(make_plan(source, folder.as_uri(), name=writer), store_of(folder))
    found = snapshots("export", "list", "--location", (tmp_path / "all").as_uri(), "--json").json
    assert {each["uri"] for each in found} == {(tmp_path / "all" / name / "shop").as_uri() for name in ("one", "two")}


@pytest.mark.parametrize(
    "command",
    [["export", "verify"], ["catalog", "show"], ["catalog", "table", "files"], ["export", "verify", "--json"]],
)
def test_an_empty_version_is_not_the_newest(snapshots: Snapshots, exported: Path, command: list[str]) -> None:
    refused = snapshots(*command, "--snapshot", exported.as_uri(), "--at", "")
    assert refused.status == 2
    assert "There is no tag ''" in refused.err
