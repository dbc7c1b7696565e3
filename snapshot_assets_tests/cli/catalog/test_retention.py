"""`snapshots catalog expire | rollback`: what they print, ask and commit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.pins.tags import create_tag, hold_tag
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
        "surplus_tags": [],
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
    assert "2 of 3 sealed revisions would expire; tags or savepoints keep 1 of them" in text
    assert (
        "expired: 2 objects, 1.0 KiB\n2 objects, 1.0 KiB, unreferenced then; `snapshots catalog gc` deletes them"
        in text
    )
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
    text = "nothing to expire; 3 sealed revisions can be read\n"
    assert (done.status, done.out, contents(location)) == (0, text, before)
    assert "No rule was given, so no revision expires. Give --keep-last, --keep-for" in done.err
    assert "No rule was given" in catalog(snapshots, "expire", location, "--dry-run", "--json").err
    assert "No rule was given" not in catalog(snapshots, "expire", location, "--dry-run", "--keep-last", "9").err


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
            "Plan 'nightly' has neither tag nor any of keep_last, keep_for, keep_daily, ",
        ),
        ("{keep_last: 1}", ("--snapshot", "file:///x/y"), "not allowed with argument"),
        ("{keep_last: 1}", ("--plan", "nightl"), "has no plan 'nightl'"),
    ],
)
def test_a_plan_without_retention_or_beside_a_location_is_refused(
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


def test_options_are_the_rule_of_revisions_in_place_of_the_plans(
    snapshots: Snapshots, sealed: Writer, planned: Callable[[str], list[str]]
) -> None:
    call = (*planned("{keep_last: 3, keep_yearly: 9}"), "--dry-run", "--json")
    assert snapshots(*call).json["expired"] == []
    assert snapshots(*call, "--keep-last", "1").json["expired"] == [5, 7]
    bare = (*planned("{}"), "--dry-run", "--json")
    assert snapshots(*bare, "--keep-last", "2").json["expired"] == [5]


def test_the_rule_of_automatic_tags_of_a_plan_deletes_those_that_it_does_not_keep(
    snapshots: Snapshots, location: Path, sealed: Writer, planned: Callable[[str], list[str]]
) -> None:
    for name, revision in (("a", 5), ("held", 5), ("b", 7), ("c", 9)):
        create_tag(sealed.catalog, name, revision, automatic=True)
    hold_tag(sealed.catalog, "held", "case 7", "me")
    yesterday = Catalog(sealed.store, sealed.catalog.state, clock=lambda: datetime.now(UTC) - timedelta(days=1))
    create_tag(yesterday, "short", 9, timedelta(hours=1))
    call = planned("{tag: {name: 'day-{date}', num_retained_max: 1}}")
    before = contents(location)
    preview = snapshots(*call, "--dry-run", "--json").json
    assert (preview["tags"], preview["surplus_tags"], preview["expired"]) == (["short", "a", "b"], ["a", "b"], [])
    text = snapshots(*call, "--dry-run").out
    assert "1 tag (short) past the time retained would be deleted and 2 tags (a, b) that no rule keeps" in text
    assert contents(location) == before
    assert snapshots(*call, "--yes").status == 0
    assert set(read_state(store_of(location)).tags) == {"nightly", "held", "c"}
    assert not [path for path in contents(location) if "/tag/tag-a-" in path]
    assert snapshots(*call, "--yes", "--json").json["tags"] == []


@pytest.mark.parametrize("short", ["0s", "23h"])
def test_a_time_that_is_shorter_than_the_grace_expires_nothing_unasked(
    snapshots: Snapshots, location: Path, sealed: Writer, short: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearly everything would expire, as by a mistyped unit; `gc` also refuses such a time."""
    call = ("expire", location, "--keep-for", short)
    time = sealed.catalog.state.committed_at + timedelta(hours=23, minutes=30)
    monkeypatch.setattr(Catalog, "now", lambda _: time)
    refused = catalog(snapshots, *call, "--yes")
    assert refused.status == 2
    assert f"--keep-for {short} is shorter than the plan's grace period of 1d: 2 of 3 sealed revisions" in refused.err
    assert readable(location) == [5, 7, 9]
    assert catalog(snapshots, *call, "--yes", "--dry-run", "--json").json["expired"] == [5, 7]
    with_another_rule = catalog(snapshots, *call, "--keep-last", "2", "--yes", "--json").json
    assert with_another_rule["expired"] == [5]
    assert catalog(snapshots, *call, "--yes", "--unsafe", "--json").json["expired"] == [7]


def test_a_time_of_the_grace_or_longer_expires_without_a_question(
    snapshots: Snapshots, location: Path, sealed: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = sealed.catalog.state.committed_at + timedelta(days=2)
    monkeypatch.setattr(Catalog, "now", lambda _: time)
    assert catalog(snapshots, "expire", location, "--keep-for", "1d", "--yes", "--json").json["expired"] == [5, 7]


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
        "0 objects, 0 B, unreferenced then",
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
    assert "2 objects, 1.0 KiB, unreferenced then; `snapshots catalog gc` deletes them" in preview.out
    done = catalog(snapshots, "rollback", location, "5", "--discard-newer", "--yes", "--json").json
    assert (done["expired"], readable(location)) == ([7, 9], [5, 7, 11])
