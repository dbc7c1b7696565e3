"""`snapshots catalog expire | rollback`: what they print, ask and commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import delete_rows, rollback
from snapshot_assets_tests.catalog.tags import reseal, sealed_by
from snapshot_assets_tests.cli.helpers import Snapshots, catalog, contents, store_of


def readable(location: Path) -> list[int]:
    return [seal.revision for seal in read_state(store_of(location)).readable()]


@pytest.fixture
def sealed(location: Path) -> Writer:
    """Seals at 5, 7 and 9; the one at 7 has a tag."""
    writer = Writer(store_of(location))
    writer.begin()
    sealed_by(writer)
    for _ in range(2):
        reseal(writer)
    create_tag(writer.catalog, "nightly", 7)
    return writer


def test_a_dry_run_of_expire_reports_what_expires_what_pins_keep_and_what_is_released(
    snapshots: Snapshots, location: Path, sealed: Writer
) -> None:
    before, [gone] = contents(location), sealed.catalog.state.files.at(5).chunk(1)
    [receipt] = sealed.catalog.state.at(5).chunks[1].chunk.receipts
    found = catalog(snapshots, "expire", location, "--keep-last", "1", "--dry-run", "--json").json
    assert found == {
        "uri": location.as_uri(),
        "dry_run": True,
        "revision": None,
        "tags": [],
        "expired": [5, 7],
        "pinned": [{"revision": 7, "pins": ["tag 'nightly'"]}],
        "readable": 2,
        "objects": 2,
        "bytes": 4 + receipt.bytes,
        "reasons": {"expired": {"objects": 2, "bytes": 4 + receipt.bytes}},
        "unneeded": [
            {"path": receipt.path, "bytes": receipt.bytes, "reason": "expired"},
            {"path": gone, "bytes": 4, "reason": "expired"},
        ],
    }
    text = catalog(snapshots, "expire", location, "--keep-last", "1", "--dry-run").out
    assert gone in text
    assert "2 sealed revisions, 1 of them pinned and kept so, of 3 would expire" in text
    assert "expired: 2 objects, 1.0 kB\n2 objects, 1.0 kB, needed by nothing then" in text
    assert contents(location) == before


def test_expire_commits_is_logged_and_gc_then_deletes(snapshots: Snapshots, location: Path, sealed: Writer) -> None:
    done = catalog(snapshots, "expire", location, "--keep-last", "1", "--yes")
    assert (done.status, "expired as of revision 11" in done.out) == (0, True)
    assert readable(location) == [7, 9]
    [newest, *_] = catalog(snapshots, "log", location, "--json").json["revisions"]
    assert (newest["what"], newest["actions"]) == (
        ["2 revisions expired: 5, 7"],
        [{"kind": "expired", "revisions": [5, 7]}],
    )
    collected = catalog(snapshots, "gc", location, "--grace", "0s", "--unsafe", "--yes", "--json").json
    assert any(each["bytes"] == 4 and each["path"].startswith("data/1/") for each in collected["garbage"])
    again = catalog(snapshots, "expire", location, "--keep-last", "1", "--yes")
    assert again.out == "nothing to expire; 2 sealed revisions can be read\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--keep-for", "a month"), "is not a duration"),
        (("--keep-last", "0"), "is not a whole number from 1 up"),
    ],
)
def test_an_invalid_rule_is_refused(
    snapshots: Snapshots, location: Path, sealed: Writer, arguments: tuple[str, ...], message: str
) -> None:
    refused = catalog(snapshots, "expire", location, *arguments, "--yes")
    assert (refused.status, message in refused.err) == (2, True)
    assert readable(location) == [5, 7, 9]


def test_without_a_rule_no_revision_expires(snapshots: Snapshots, location: Path, sealed: Writer) -> None:
    before = contents(location)
    done = catalog(snapshots, "expire", location, "--dry-run")
    rules = "--keep-last, --keep-for, --keep-daily, … or --plan"
    text = f"nothing to expire; 3 sealed revisions can be read; no rule was given: {rules}\n"
    assert (done.status, done.out, contents(location)) == (0, text, before)


@pytest.fixture
def planned(location: Path, tmp_path: Path) -> Callable[[str], list[str]]:
    """Write a configuration whose plan has a retention; returns what a call begins with."""
    file = tmp_path / "snapshots.yaml"

    def write(retention: str) -> list[str]:
        plan = f"{{source: 'duckdb:///a.duckdb', to: '{location.as_uri()}', retention: {retention}}}"
        file.write_text(f"plans:\n  nightly: {plan}\n")
        return ["--config", str(file), "catalog", "expire", "--plan", "nightly"]

    return write


def test_a_plan_gives_location_and_retention(
    snapshots: Snapshots, location: Path, sealed: Writer, planned: Callable[[str], list[str]]
) -> None:
    preview = snapshots(*planned("{keep_last: 2, keep_for: 0s}"), "--dry-run", "--json")
    assert preview.status == 2  # a plan's keep_for is at least 1s
    preview = snapshots(*planned("{keep_last: 2, keep_for: 1s}"), "--dry-run", "--json").json
    assert preview["uri"] == location.as_uri()
    assert snapshots(*planned("{keep_last: 2, keep_for: 1d}"), "--dry-run", "--json").json["expired"] == []
    assert snapshots(*planned("{keep_last: 2}"), "--yes", "--json").json["expired"] == [5]
    assert readable(location) == [7, 9]


@pytest.mark.parametrize(
    ("retention", "arguments", "message"),
    [
        (
            "{}",
            (),
            "Plan 'nightly' has none of keep_last, keep_for, keep_daily, ",
        ),
        (
            "{tag: {}}",
            (),
            "Plan 'nightly' has none of keep_last, keep_for, keep_daily, ",
        ),
        ("{keep_last: 1}", ("--keep-last", "2"), "--keep-last cannot be given beside --plan"),
        ("{keep_last: 1}", ("--keep-for", "2d"), "--keep-for cannot be given beside --plan"),
        ("{keep_last: 1}", ("--snapshot", "file:///x/y"), "not allowed with argument"),
        ("{keep_last: 1}", ("--plan", "nightl"), "has no plan 'nightl'"),
    ],
)
def test_a_plan_without_retention_or_with_options_beside_it_is_refused(
    snapshots: Snapshots,
    location: Path,
    sealed: Writer,
    planned: Callable[[str], list[str]],
    retention: str,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    refused = snapshots(*planned(retention), *arguments, "--yes")
    assert (refused.status, message in refused.err) == (2, True), refused.err
    assert readable(location) == [5, 7, 9]


@pytest.mark.parametrize("command", [("expire", "--keep-for", "0s"), ("rollback", "5", "--discard-newer")])
def test_nothing_changes_unless_the_answer_is_exactly_yes(
    snapshots: Snapshots, location: Path, sealed: Writer, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    before = contents(location)
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    refused = catalog(snapshots, command[0], location, *command[1:])
    assert (refused.status, refused.out) == (1, "")
    assert "will expire" in refused.err
    assert catalog(snapshots, command[0], location, *command[1:], "--json").json["revision"] is None
    assert {path: data for path, data in contents(location).items() if "probe" not in path} == before


def test_a_rollback_is_reported_confirmed_committed_and_logged(
    snapshots: Snapshots, location: Path, sealed: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    [now], [then] = (sealed.catalog.state.files.at(revision).chunk(1) for revision in (9, 7))
    preview = catalog(snapshots, "rollback", location, "tag:nightly", "--dry-run").out
    assert preview.splitlines() == [
        f"- {now}",
        f"+ {then}",
        "to revision 7, from 10: 1 file will leave it, 1 file will return",
        "0 objects, 0 B, needed by nothing then; `snapshots catalog gc` deletes what is",
    ]
    monkeypatch.setattr("builtins.input", lambda *_: "yes")
    done = catalog(snapshots, "rollback", location, "nightly")
    assert (done.status, done.out) == (0, "rolled back to revision 7, as of revision 11\n")
    assert list(read_state(store_of(location)).files.chunk(1)) == [then]
    [newest, *_] = catalog(snapshots, "log", location, "--json").json["revisions"]
    assert newest["what"][0] == "rolled back to 7"
    assert newest["what"][2:] == ["-1 file", "1 file returned"]
    assert (newest["files_removed"], newest["files_returned"]) == (1, 1)
    again = catalog(snapshots, "rollback", location, "7", "--yes")
    assert again.out == "the newest state is that of revision 7 already; nothing to do\n"


def test_what_is_committed_while_the_answer_is_awaited_is_not_undone(
    snapshots: Snapshots, location: Path, sealed: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(*_: str) -> str:
        reseal(Writer(store_of(location)))
        return "yes"

    monkeypatch.setattr("builtins.input", answer)
    refused = catalog(snapshots, "rollback", location, "5")
    assert (refused.status, "changed data after the rollback" in refused.err) == (1, True)
    assert readable(location) == [5, 7, 9, 12]


@pytest.mark.parametrize("as_json", [False, True])
def test_a_rollback_that_another_writer_commits_first_has_nothing_to_do(
    snapshots: Snapshots, location: Path, sealed: Writer, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    def answer(*_: str) -> str:
        rollback(Catalog.open_for_writing(sealed.store), 5)
        return "yes"

    monkeypatch.setattr("builtins.input", answer)
    done = catalog(snapshots, "rollback", location, "5", *(["--json"] if as_json else []))
    assert done.status == 0
    if as_json:
        assert (done.json["needed"], done.json["revision"]) == (False, None)
    else:
        assert done.out == "the newest state is that of revision 5 already; nothing to do\n"


def test_deleted_rows_come_back_only_with_undelete(snapshots: Snapshots, location: Path, sealed: Writer) -> None:
    delete_rows(Catalog.open_for_writing(sealed.store), TableName("main", "m"), "t is not null")
    refused = catalog(snapshots, "rollback", location, "9", "--yes")
    assert (refused.status, "revision 11 (rows of main.m)" in refused.err) == (2, True)
    preview = catalog(snapshots, "rollback", location, "9", "--undelete", "--dry-run")
    assert """back: rows of main.m where not ("t" is null), deleted at revision 11""" in preview.out
    done = catalog(snapshots, "rollback", location, "9", "--undelete", "--yes", "--json").json
    assert ([each["revision"] for each in done["undeleted"]], done["revision"]) == ([11], 12)
    assert read_state(store_of(location)).tombstones == {}
    catalog(snapshots, "rollback", location, "11", "--yes")
    [newest, *_] = catalog(snapshots, "log", location, "--json").json["revisions"]
    assert [each["revision"] for each in newest["actions"][0]["tombstones"]] == [11]


def test_newer_revisions_are_discarded_when_asked_for(snapshots: Snapshots, location: Path, sealed: Writer) -> None:
    preview = catalog(snapshots, "rollback", location, "5", "--discard-newer", "--dry-run")
    assert "expires: 7, 9\n" in preview.out  # 7 stays readable by its tag
    [gone], [receipt] = sealed.catalog.state.files.at(9).chunk(1), sealed.catalog.state.chunks[1].chunk.receipts
    found = catalog(snapshots, "rollback", location, "5", "--discard-newer", "--dry-run", "--json").json
    assert {each["path"]: each["bytes"] for each in found["unneeded"]} == {gone: 9, receipt.path: receipt.bytes}
    assert found["reasons"] == {"expired": {"objects": 2, "bytes": 9 + receipt.bytes}}
    assert "2 objects, 1.0 kB, needed by nothing then" in preview.out
    done = catalog(snapshots, "rollback", location, "5", "--discard-newer", "--yes", "--json").json
    assert (done["expired"], readable(location)) == ([7, 9], [5, 7, 11])
