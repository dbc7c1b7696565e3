"""`snapshots tag`: what it prints and commits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.pins.tags import create_tag, replace_tag
from snapshot_assets.format import actions as act
from snapshot_assets.format.units import time_text
from snapshot_assets_tests.catalog.conftest import DAY, Writer
from snapshot_assets_tests.catalog.execute import expire
from snapshot_assets_tests.catalog.tags import SEAL, file_of, reseal, sealed_by
from snapshot_assets_tests.cli.helpers import Result, Snapshots, store_of


def tag(snapshots: Snapshots, location: Path, *arguments: str) -> Result:
    return snapshots("tag", *arguments, "--snapshot", location.as_uri())


def tags(location: Path) -> dict[str, tuple[int, timedelta | None]]:
    """Return revision and time to live of each tag of the log, by name."""
    known = read_state(store_of(location)).tags
    return {name: (each.pin.revision, each.pin.ttl) for name, each in known.items()}


@pytest.fixture
def writer(location: Path) -> Writer:
    """A location with seals at 5 and 7."""
    writer = Writer(store_of(location))
    writer.begin()
    sealed_by(writer)
    assert reseal(writer) == 7
    return writer


def test_a_tag_is_created_of_the_newest_seal_or_of_a_version(
    snapshots: Snapshots, location: Path, writer: Writer
) -> None:
    done = tag(snapshots, location, "create", "friday", "--time-retained", "90d")
    assert (done.status, done.out) == (0, f"{location.as_uri()}: tag friday keeps revision 7 for 90d\n")
    assert tag(snapshots, location, "create", "friday", "--time-retained", "90d").out.endswith(" for 90d, as before\n")
    [listed] = tag(snapshots, location, "list", "--json").json
    again = tag(snapshots, location, "create", "friday", "--time-retained", "90d", "--json").json
    assert again == {"uri": location.as_uri(), "new": False, **listed}
    earlier = time_text(writer.catalog.state.seals[0].committed_at)
    for name, version in (("a", "rev:5"), ("b", "5"), ("c", f"ts:{earlier}"), ("d", earlier), ("e", "tag:friday")):
        assert tag(snapshots, location, "create", name, "--at", version).status == 0
    assert tags(location) == {
        "friday": (7, 90 * DAY),
        **dict.fromkeys("abcd", (5, None)),
        "e": (7, None),
    }


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("delete", "old"), "tag 'old' was changed by another writer meanwhile; nothing was deleted. Run again."),
        (("replace", "old", "--at", "7"), "Tag 'old' was changed by another writer meanwhile; nothing was replaced."),
    ],
)
def test_a_tag_that_is_replaced_while_the_answer_is_awaited_stays(
    snapshots: Snapshots,
    location: Path,
    writer: Writer,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    message: str,
) -> None:
    create_tag(writer.catalog, "old", 5)
    expire(writer.catalog, keep_last=1)

    def answer(*_: str) -> str:
        replace_tag(writer.catalog, "old", 7, DAY)
        return "yes"

    monkeypatch.setattr("builtins.input", answer)
    refused = tag(snapshots, location, *command)
    assert (refused.status, refused.out, tags(location)) == (1, "", {"old": (7, DAY)})
    assert message in refused.err


def test_tags_are_listed_by_commit_time(snapshots: Snapshots, location: Path, writer: Writer) -> None:
    none = tag(snapshots, location, "list")
    assert (none.status, none.out, none.err) == (0, "", f"No tags at {location.as_uri()}.\n")
    assert tag(snapshots, location, "list", "--json").json == []
    tag(snapshots, location, "create", "a-newer", "--time-retained", "1d")
    tag(snapshots, location, "create", "older", "--at", "5")
    head, first, second = tag(snapshots, location, "list").out.splitlines()
    assert head.split("  ")[0] == "Tag"
    assert (first.split()[:2], first.split()[-3:]) == (["older", "5"], ["for", "ever", "never"])
    known = read_state(store_of(location)).tags["a-newer"].pin
    assert second.split()[:2] == ["a-newer", "7"]
    assert second.split()[-2:] == ["1d", time_text(known.created_at + DAY)]


def test_a_tag_is_renamed_replaced_and_deleted(snapshots: Snapshots, location: Path, writer: Writer) -> None:
    tag(snapshots, location, "create", "friday", "--at", "5", "--time-retained", "90d")
    assert tag(snapshots, location, "rename", "friday", "kept").out.endswith(": tag kept keeps revision 5 for 90d\n")
    assert tags(location) == {"kept": (5, 90 * DAY)}
    assert tag(snapshots, location, "replace", "kept").out.endswith(": tag kept keeps revision 7\n")
    assert tags(location) == {"kept": (7, None)}
    replaced = tag(snapshots, location, "replace", "kept", "--at", "5", "--time-retained", "2h", "--json").json
    assert replaced["tagged_snapshot_id"] == 5
    assert tags(location) == {"kept": (5, timedelta(hours=2))}
    assert tag(snapshots, location, "delete", "kept").out == f"{location.as_uri()}: tag kept is deleted\n"
    assert tags(location) == {}
    assert [info.path for info in writer.store.list("tag/")] == []
    what = snapshots("catalog", "log", "--limit", "4", "--json", "--snapshot", location.as_uri()).json["revisions"]
    assert [each["what"] for each in what] == [
        ["tag 'kept' deleted"],
        ["tag replaced: tag 'kept' pins 5 for 2h"],
        ["tag replaced: tag 'kept' pins 7"],
        ["tag 'friday' renamed: tag 'kept' pins 5 for 90d"],
    ]
    assert [each["actions"][0]["kind"] for each in what[1:]] == ["tag_replaced", "tag_replaced", "tag_renamed"]


def test_a_dry_run_reports_what_a_tag_releases(snapshots: Snapshots, location: Path, writer: Writer) -> None:
    for name, revision in (("old", 5), ("newest", 7)):
        tag(snapshots, location, "create", name, "--at", str(revision))
    own = writer.catalog.refresh().tags["old"].pin.object
    kept = tag(snapshots, location, "delete", "old", "--dry-run", "--json").json  # 5 has not expired
    assert (kept["reasons"], kept["unreadable"]) == ({"pin object": {"objects": 1, "bytes": own.bytes}}, None)
    expire(writer.catalog, keep_last=1)
    gone, before = file_of(writer, 5), {info.path: info.size for info in writer.store.list()}
    preview = tag(snapshots, location, "delete", "old", "--dry-run", "--json").json
    [receipt] = {each["path"] for each in preview["unneeded"]} - {gone, own.path}
    assert preview == {
        "uri": location.as_uri(),
        "tag_name": "old",
        "deleted": False,
        "dry_run": True,
        "unreadable": 5,
        "objects": 3,
        "bytes": 4 + before[receipt] + own.bytes,
        "reasons": {
            "pin object": {"objects": 1, "bytes": own.bytes},
            "tag deleted": {"objects": 2, "bytes": 4 + before[receipt]},
        },
        "unneeded": [
            {"path": receipt, "bytes": before[receipt], "reason": "tag deleted"},
            {"path": gone, "bytes": 4, "reason": "tag deleted"},
            {"path": own.path, "bytes": own.bytes, "reason": "pin object"},
        ],
    }
    text, head, *lines = tag(snapshots, location, "delete", "old", "--dry-run").out.splitlines()
    assert text == "tag 'old' would be deleted, and revision 5 not be readable"
    assert (head.split(), lines[1].split()) == (["Reason", "Size", "Object"], ["tag", "deleted", "4", "B", gone])
    assert [line.split(",")[0] for line in lines[3:5]] == ["pin object: 1 object", "tag deleted: 2 objects"]
    replaced = tag(snapshots, location, "replace", "old", "--dry-run", "--json").json
    assert (replaced["tagged_snapshot_id"], replaced["replaced"], replaced["unreadable"]) == (7, False, 5)
    assert replaced["reasons"]["tag replaced"] == preview["reasons"]["tag deleted"]
    assert "tag 'old' would pin revision 7" in tag(snapshots, location, "replace", "old", "--dry-run").out
    assert tag(snapshots, location, "delete", "newest", "--dry-run", "--json").json["reasons"].keys() == {"pin object"}
    assert {info.path: info.size for info in writer.store.list()} == before  # touched nothing


@pytest.mark.parametrize("command", ["delete", "replace"])
def test_the_last_pin_of_an_expired_revision_goes_only_after_a_yes(
    snapshots: Snapshots, location: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    for name in ("one", "two", "three"):
        tag(snapshots, location, "create", name, "--at", "5")
    expire(writer.catalog, keep_last=1)
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda *_: asked.append("") or "no")
    for name in ("one", "two"):
        assert tag(snapshots, location, command, name).status == 0
    assert asked == []
    before = tags(location)
    refused = tag(snapshots, location, command, "three")
    assert (refused.status, refused.out, len(asked)) == (1, "", 1)
    assert "only tag 'three' keeps revision 5 readable, which has expired" in refused.err
    refused = tag(snapshots, location, command, "three", "--json")
    assert (refused.status, refused.json[f"{command}d"], refused.json["dry_run"]) == (1, False, False)
    assert tags(location) == before
    monkeypatch.setattr("builtins.input", lambda *_: "yes")
    if command == "replace":  # to live for another time
        assert tag(snapshots, location, "replace", "three", "--at", "5", "--time-retained", "9d").status == 0
    assert tag(snapshots, location, command, "three", "--yes").status == 0
    assert 5 not in {revision for revision, _ in tags(location).values()}


def test_a_tag_that_outlived_its_time_is_marked_and_pins_until_it_is_deleted(
    snapshots: Snapshots, location: Path, writer: Writer
) -> None:
    yesterday = Catalog(writer.store, writer.catalog.state, clock=lambda: datetime.now(UTC) - DAY)
    create_tag(yesterday, "old", 5, timedelta(hours=1))
    tag(snapshots, location, "create", "young", "--time-retained", "1d")
    _, old, young = tag(snapshots, location, "list").out.splitlines()
    assert (old.endswith(" (outlived)"), young.endswith("Z")) == (True, True)
    expire = ("catalog", "expire", "--snapshot", location.as_uri())
    preview = snapshots(*expire, "--dry-run")
    assert "1 tag (old) past the time retained would be deleted" in preview.out
    assert set(tags(location)) == {"old", "young"}
    assert snapshots(*expire, "--yes", "--json").json["tags"] == ["old"]
    assert set(tags(location)) == {"young"}


def test_whether_there_is_a_tag_is_the_exit_status(snapshots: Snapshots, location: Path, writer: Writer) -> None:
    no = tag(snapshots, location, "exists", "friday")
    assert (no.status, no.out, no.err) == (5, "no\n", "")
    tag(snapshots, location, "create", "friday")
    yes = tag(snapshots, location, "exists", "friday")
    assert (yes.status, yes.out) == (0, "yes\n")
    found = tag(snapshots, location, "exists", "friday", "--json").json
    assert found == {"uri": location.as_uri(), "tag_name": "friday", "exists": True}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "new", "--at", "6"], "Revision 6 is not sealed"),
        (["create", "new", "--at", "5"], "Revision 5 has expired, and no tag or savepoint pins it; sealed is 1"),
        (["create", "new", "--time-retained", "soon"], "soon"),
        (["create", "friday", "--time-retained", "1d"], "'friday' is there already: it pins revision 7"),
        (["delete", "fridy"], "no tag 'fridy'; did you mean 'friday'?"),
        (["rename", "friday", "other"], "'other' is there already"),
        (["replace", "friday", "--at", ""], "no tag ''"),  # as of a variable that is not set
        (["create", "new", "--at", ""], "no tag ''"),
    ],
)
def test_a_wrong_call_names_what_there_is_and_changes_nothing(
    snapshots: Snapshots, location: Path, writer: Writer, arguments: list[str], message: str
) -> None:
    for name in ("friday", "other"):
        tag(snapshots, location, "create", name)
    writer.catalog.refresh()
    writer.catalog.commit(lambda _: [act.Expired((SEAL,))])
    before = tags(location), [info.path for info in writer.store.list("tag/")]
    refused = tag(snapshots, location, *arguments)
    assert (refused.status, refused.out) == (5 if "no tag" in message or "Revision" in message else 2, "")
    assert message in refused.err
    assert (tags(location), [info.path for info in writer.store.list("tag/")]) == before


def test_a_tag_is_held_and_released_with_who_when_and_why(snapshots: Snapshots, location: Path, writer: Writer) -> None:
    create_tag(writer.catalog, "friday", 5)
    assert "Held" not in tag(snapshots, location, "list").out
    held = tag(snapshots, location, "hold", "friday", "--reason", "case 12", "--by", "counsel")
    assert (held.status, held.out) == (0, f"{location.as_uri()}: tag friday keeps revision 5, held: case 12\n")
    assert tag(snapshots, location, "hold", "friday", "--reason", "case 12").out.endswith(", held as before\n")
    [listed] = tag(snapshots, location, "list", "--json").json
    assert (listed["held_by"], listed["hold_reason"]) == ("counsel", "case 12")
    assert listed["held_since"].endswith("Z")
    shown = tag(snapshots, location, "list").out
    assert all(text in shown for text in ("Held since", "counsel", "case 12", listed["held_since"]))
    where = ("--snapshot", location.as_uri())
    assert "for ever, held by counsel: case 12" in snapshots("catalog", "show", *where).out
    assert "tag 'friday' held by counsel: case 12" in snapshots("catalog", "log", *where).out
    released = tag(snapshots, location, "release", "friday", "--reason", "settled", "--json").json
    assert (released["new"], released["held_since"], released["hold_reason"]) == (True, None, None)
    assert " released by snapshot_assets/" in snapshots("catalog", "log", *where).out
    again = tag(snapshots, location, "release", "friday", "--reason", "settled")
    assert (again.status, "'friday' is not held" in again.err) == (2, True)
    for command in ("hold", "release"):
        assert "--reason" in tag(snapshots, location, command, "friday").err


@pytest.mark.parametrize(
    "command",
    [
        ("tag", "delete", "friday", "--yes"),
        ("tag", "delete", "friday", "--dry-run"),
        ("tag", "replace", "friday", "--at", "rev:7", "--yes"),
        ("tag", "rename", "friday", "monday"),
        ("export", "delete", "--yes"),
        ("export", "delete", "--with-tags", "--yes"),
        ("export", "delete", "--with-tags"),
    ],
    ids=" ".join,
)
def test_a_held_tag_is_named_with_its_release_before_anything_is_asked_or_removed(
    snapshots: Snapshots, location: Path, writer: Writer, command: tuple[str, ...]
) -> None:
    create_tag(writer.catalog, "friday", 5)
    assert tag(snapshots, location, "hold", "friday", "--reason", "case 12").status == 0
    before = {path: path.read_bytes() for path in location.rglob("*") if path.is_file()}
    refused = snapshots(*command, "--snapshot", location.as_uri())
    assert refused.status == 2
    assert "Tag 'friday' is held since" in refused.err
    assert "`snapshots tag release friday --reason … --snapshot file:" in refused.err
    assert "Type yes" not in refused.err
    after = {path: path.read_bytes() for path in location.rglob("*") if path.is_file()}
    assert {path: data for path, data in after.items() if "probe-" not in path.name} == before
