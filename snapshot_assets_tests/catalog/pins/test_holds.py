"""Legal holds: what a held tag survives. The list of what removes tags and objects is derived from the code."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import time, timedelta
from pathlib import Path
from typing import get_args

import pytest

import snapshot_assets
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.operations.delete import delete_snapshot
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.automatic import TagRule, Ticks, tags_to_delete
from snapshot_assets.catalog.pins.listing import list_tags
from snapshot_assets.catalog.pins.objects import delete_pin
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag, hold_tag, release_tag, rename_tag, replace_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.state.pins import refuse_changes
from snapshot_assets.catalog.state.retained import PinEnd
from snapshot_assets.catalog.state.totals import revision_summaries
from snapshot_assets.catalog.status import location_status
from snapshot_assets.engine.restore.pin import unpin
from snapshot_assets.errors import (
    ConflictError,
    DocumentError,
    PinnedError,
    PlanError,
    TagHeldError,
    VersionNotFoundError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format.documents import parse_json
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.pipeline.assets.tags import _metadata
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore, delete_unless_retained
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, expire, prune, rollback
from snapshot_assets_tests.catalog.rebuild.test_rebuild import lose
from snapshot_assets_tests.catalog.tags import (
    NOW,
    SEAL,
    damage,
    faults,
    meeting,
    objects,
    replaced,
    reseal,
    tag_objects,
)

WHY = "case 12 of 2025"


@pytest.fixture
def held(sealed: Writer) -> Writer:
    """A tag of revision 5, by a rule and past its time to live, which is held."""
    create_tag(sealed.catalog, "evidence", SEAL, timedelta(seconds=1), automatic=True)
    hold_tag(sealed.catalog, "evidence", WHY, "counsel")
    sealed.catalog._clock = lambda now=sealed.catalog._clock: now() + timedelta(minutes=1)
    reseal(sealed)
    return sealed


def kept(store: ObjectStore) -> bool:
    """Return whether the tag is held, and all that its revision needs is there."""
    state = read_state(store)
    known = state.tags.get("evidence")
    if known is None or known.hold is None or (known.hold.by, known.hold.reason) != ("counsel", WHY):
        return False
    needed = {live.file.path for live in state.at(SEAL).live_files()} | {known.pin.object.path}
    return bool(needed) and needed <= objects(store)


def test_a_hold_is_one_transaction_with_who_when_and_why_and_the_tag_stays_as_it_was(sealed: Writer) -> None:
    before = create_tag(sealed.catalog, "evidence", SEAL, DAY).known.pin
    done = hold_tag(Catalog.open_for_writing(sealed.store), "evidence", f" {WHY} ")
    [action] = [*scan_log(sealed.store).entries][-1].transaction.actions
    assert isinstance(action, act.TagHeld)
    assert replace(action.tag, object=before.object) == before
    assert (action.note.by, action.note.reason) == (done.known.created_by, WHY)
    assert action.note.at >= before.created_at
    assert tag_objects(sealed.store) == [done.known.pin.object.path]
    document = parse_json(sealed.store.get(done.known.pin.object.path), "tag")
    assert list(document) == ["version", "name", "created_at", "created_by", "ttl", "hold", "manifest"]
    assert document["hold"]["reason"] == WHY
    assert read_state(sealed.store).tags == {"evidence": done.known}
    assert faults(sealed.store) == set()
    assert not hold_tag(sealed.catalog, "evidence", WHY).new
    with pytest.raises(
        TagHeldError, match=rf"is held since .* \({WHY}\).* `snapshots tag release evidence --reason …`"
    ):
        hold_tag(sealed.catalog, "evidence", "another case")


def test_a_release_is_one_transaction_with_who_when_and_why_and_rules_apply_again(held: Writer) -> None:
    done = release_tag(held.catalog, "evidence", "settled", "judge")
    [action] = [*scan_log(held.store).entries][-1].transaction.actions
    assert isinstance(action, act.TagReleased)
    assert (action.note.by, action.note.reason) == ("judge", "settled")
    assert "hold" not in parse_json(held.store.get(done.known.pin.object.path), "tag")
    assert tag_objects(held.store) == [done.known.pin.object.path]
    assert faults(held.store) == set()
    with pytest.raises(PlanError, match="'evidence' is not held; nothing was changed"):
        release_tag(held.catalog, "evidence", "again")
    assert expire(held.catalog, keep_last=1).tags == ("evidence",)


def test_what_holds_and_releases_is_checked_before_anything_is_written(held: Writer) -> None:
    before = objects(held.store)
    for reason in ("", "  ", "two\nlines", "x" * 1001, "\ud800"):
        with pytest.raises(PlanError, match="--reason"):
            hold_tag(held.catalog, "evidence", reason)
    with pytest.raises(PlanError, match="--by is empty"):
        release_tag(held.catalog, "evidence", "x", "")
    for change in (hold_tag, release_tag):
        with pytest.raises(VersionNotFoundError, match="evidence"):
            change(held.catalog, "evidenc", "x")
    assert objects(held.store) == before


REFUSED: dict[str, Callable[[Writer], object]] = {
    "delete": lambda writer: delete_tag(writer.catalog, "evidence"),
    "planned deletion": lambda writer: delete_pin(
        writer.catalog, writer.catalog.state.tags["evidence"], PinEnd((), unreadable=None)
    ),
    "replace": lambda writer: replace_tag(writer.catalog, "evidence", SEAL + 4),
    "rename": lambda writer: rename_tag(writer.catalog, "evidence", "other"),
    "delete the location": lambda writer: delete_snapshot(writer.store),
    "delete the location with its tags": lambda writer: delete_snapshot(writer.store, with_tags=True),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_a_held_tag_is_neither_removed_nor_changed_and_nothing_is_written(held: Writer, refused: str) -> None:
    before, revision = objects(held.store), read_state(held.store).revision
    with pytest.raises(TagHeldError, match=r"Tag 'evidence' is held since .* by counsel .* tag release") as error:
        REFUSED[refused](held)
    assert isinstance(error.value, PinnedError)
    assert (objects(held.store), read_state(held.store).revision) == (before, revision)
    assert kept(held.store)


def _expire(writer: Writer) -> None:
    expire(writer.catalog, keep_last=1)


def _expire_tags(writer: Writer) -> None:
    expire(writer.catalog)


def _collect(writer: Writer) -> None:
    _expire(writer)
    collect_garbage(writer.catalog, grace=NOW, unsafe=True)


def _prune(writer: Writer) -> None:
    for _ in range(2):
        reseal(writer)
        write_checkpoint(writer.store, writer.catalog.state)
    assert prune(writer.catalog, grace=NOW, unsafe=True).deleted
    assert transaction_path(6) not in objects(writer.store)


def _roll_back(writer: Writer) -> None:
    expire(writer.catalog, keep_last=1)
    rollback(writer.catalog, SEAL)
    collect_garbage(writer.catalog, grace=NOW, unsafe=True)


def _roll_back_and_discard(writer: Writer) -> None:
    writer.catalog.commit(lambda state: [act.SavepointDeleted(9)])
    rollback(writer.catalog, SEAL, discard_newer=True)
    collect_garbage(writer.catalog, grace=NOW, unsafe=True)


def _force(writer: Writer) -> None:
    writer.begin(replace(HEADER, chunk_time_window=HEADER.chunk_time_window // 2), force=True)
    _expire_tags(writer)
    collect_garbage(writer.catalog, grace=NOW, unsafe=True)


def _automatic(writer: Writer) -> None:
    rule = TagRule(Ticks(DAY, time(0)), num_retained_max=1, default_time_retained=timedelta(seconds=1))
    state = writer.catalog.refresh()
    assert not tags_to_delete(state, writer.catalog.now() + 9 * DAY, rule)


def _rebuild(writer: Writer) -> None:
    _expire(writer)
    lose(writer.store, "transactions/", "manifest.json")
    rebuild(writer.store)
    writer.catalog = Catalog.open_for_writing(writer.store)
    collect_garbage(writer.catalog, grace=NOW, unsafe=True)


def _rebuild_without_the_hold(writer: Writer) -> None:
    hold = read_state(writer.store).tags["evidence"].committed
    writer.store.delete(transaction_path(hold))
    rebuild(writer.store)
    assert damage(writer.store) == {}
    _collect(Writer(writer.store))


def _rebuild_without_the_object(writer: Writer) -> None:
    path = read_state(writer.store).tags["evidence"].pin.object.path
    data = writer.store.get(path)
    writer.store.put(path, data[:-9])
    assert rebuild(writer.store).restored == (path,)
    writer.store.delete(path)
    writer.store.delete(transaction_path(read_state(writer.store).revision))
    rebuild(writer.store)
    assert damage(writer.store) == {}
    _collect(Writer(writer.store))


@pytest.mark.parametrize(
    "survived",
    [
        _expire,
        _expire_tags,
        _collect,
        _prune,
        _roll_back,
        _roll_back_and_discard,
        _force,
        _automatic,
        _rebuild,
        _rebuild_without_the_hold,
        _rebuild_without_the_object,
    ],
    ids=lambda survived: survived.__name__.strip("_"),
)
def test_a_held_tag_survives(held: Writer, survived: Callable[[Writer], None]) -> None:
    survived(held)
    assert kept(held.store)
    assert damage(held.store) == {}
    with pytest.raises(TagHeldError):
        delete_tag(Catalog.open_for_writing(held.store), "evidence")


def test_a_rebuild_keeps_a_held_tag_whose_revision_lost_a_file_and_what_is_left_of_it(held: Writer) -> None:
    _expire(held)
    state = read_state(held.store)
    replaced(held, 3)
    seal(held.catalog)
    then, now = ({live.file.path for live in each.live_files()} for each in (state.at(SEAL), read_state(held.store)))
    lost, *left = sorted(then - now)
    assert left
    held.store.delete(lost)
    held.store.delete(transaction_path(read_state(held.store).revision))
    done = rebuild(held.store)
    assert done.tags == ("evidence",)
    assert any("'evidence' is held and kept, although its revision 5 lacks" in each for each in done.lost)
    collect_garbage(Catalog.open_for_writing(held.store), grace=NOW, unsafe=True)
    assert {*left} <= objects(held.store)
    assert set(damage(held.store)) == {lost}


def test_a_rebuild_that_cannot_keep_a_held_tag_changes_nothing(held: Writer) -> None:
    state = read_state(held.store)
    then, now = ({live.file.path for live in each.live_files()} for each in (state.at(SEAL), state))
    [lost] = then - now
    held.store.delete(lost)
    for info in list(held.store.list("transactions/")):
        held.store.delete(info.path)
    before = objects(held.store)
    with pytest.raises(
        TagHeldError, match=r"'evidence' is held by counsel .* revision 5 lacks data/1/.* move that object"
    ):
        rebuild(held.store, accept_undeleted=True)
    assert objects(held.store) == before
    held.store.delete(state.tags["evidence"].pin.object.path)
    assert rebuild(held.store, accept_undeleted=True).tags == ()


def test_a_rebuild_takes_the_hold_of_two_objects_and_no_unheld_successor(held: Writer) -> None:
    store = held.store
    path = read_state(store).tags["evidence"].pin.object.path
    data = store.get(path)
    release_tag(held.catalog, "evidence", "settled")
    store.put(path, data)  # a release was killed before it deleted the object
    lose(store, "transactions/", "manifest.json")
    rebuild(store)
    assert kept(store)


def test_a_checkpoint_keeps_a_hold_and_drops_a_released_one(held: Writer) -> None:
    create_tag(held.catalog, "free", SEAL)
    hold_tag(held.catalog, "free", WHY)
    release_tag(held.catalog, "free", "settled")
    before = held.catalog.state.tags
    for _ in range(2):
        write_checkpoint(held.store, held.catalog.state)
        after = read_state(held.store)
        assert after.tags == before
        assert {name for name, known in after.tags.items() if known.hold} == {"evidence"}
        reseal(held)
    actions = [type(action) for event in read_state(held.store).events for action in event.actions]
    assert actions.count(act.TagHeld) == 1
    assert act.TagReleased not in actions


def test_a_release_ends_only_the_hold_that_it_read(held: Writer) -> None:
    def hold_again() -> None:
        other = Catalog.open_for_writing(held.store)
        release_tag(other, "evidence", "mistake")
        hold_tag(other, "evidence", WHY, "counsel")

    writer = Catalog(meeting(held.store, "tag/", hold_again), held.catalog.state)
    with pytest.raises(ConflictError, match="changed the hold meanwhile"):
        release_tag(writer, "evidence", "settled")
    assert kept(held.store)
    assert len(tag_objects(held.store)) == 1


def test_lists_show_holds(held: Writer) -> None:
    [listed] = list_tags(read_state(held.store))
    assert (listed.held_by, listed.hold_reason) == ("counsel", WHY)
    release_tag(held.catalog, "evidence", "settled")
    [listed] = list_tags(read_state(held.store))
    assert (listed.held_since, listed.held_by, listed.hold_reason) == (None, None, None)


def test_the_end_of_an_import_leaves_its_held_tag(held: Writer) -> None:
    for name in ("import-1", "import-2"):
        create_tag(held.catalog, name, SEAL)
    hold_tag(held.catalog, "import-1", WHY)
    assert unpin(held.store, ["import-1", "import-2"]) == ["import-1"]
    assert read_state(held.store).tags.keys() == {"evidence", "import-1"}


def test_the_status_names_held_tags(held: Writer) -> None:
    assert location_status(held.store, held.catalog.now()).held == ("evidence",)


def test_dagster_shows_who_holds_a_tag_and_why(held: Writer) -> None:
    plan = Plan(name="demo", source="duckdb:///nowhere.duckdb", to=held.store.uri)
    state = read_state(held.store)
    shown = _metadata(plan, state.tags["evidence"], revision_summaries(state)[SEAL], held.store.uri)
    hold = state.tags["evidence"].hold
    assert hold is not None
    assert shown["held_since"].value == hold.at.timestamp()
    assert (shown["held_by"], shown["hold_reason"]) == ("counsel", WHY)


# What could remove a tag or an object: derived from the code, so that an addition must be considered here.

ENDING: dict[type, Callable[[act.TagCreated], act.Action]] = {
    act.TagDeleted: lambda tag: act.TagDeleted(tag.name),
    act.TagRenamed: lambda tag: act.TagRenamed(tag.name, replace(tag, name="other")),
    act.TagReplaced: act.TagReplaced,
    act.TagHeld: lambda tag: act.TagHeld(tag, act.HoldNote(tag.created_at, "x", "y")),
    act.Deleted: lambda tag: act.Deleted(),
}
HARMLESS = {act.TagCreated, act.TagReleased}
"""The first cannot replace a tag, the second is the release."""


def test_every_action_on_tags_is_refused_before_it_is_written(held: Writer) -> None:
    on_tags = {kind for kind in get_args(act.Action) if kind.__name__.startswith("Tag")}
    on_tags |= {kind for kind in get_args(act.Action) if any("TagCreated" in str(each.type) for each in fields(kind))}
    assert on_tags | {act.Deleted} == ENDING.keys() | HARMLESS
    tag = held.catalog.state.tags["evidence"].pin
    for make in ENDING.values():
        revision = held.catalog.state.revision
        with pytest.raises(TagHeldError):
            held.catalog.commit(lambda _, make=make: [make(tag)])
        assert read_state(held.store).revision == revision


def test_a_reader_takes_a_transaction_that_removes_a_held_tag_for_damage(held: Writer) -> None:
    tag = held.catalog.state.tags["evidence"].pin
    for kind in (act.TagDeleted, act.TagRenamed, act.TagReplaced, act.Deleted):
        with pytest.raises(DocumentError, match=r"tag 'evidence'(, which)? is held"):
            held.catalog.state.after([ENDING[kind](tag)])
    with pytest.raises(DocumentError, match="releases tag 'free', which is not held"):
        held.catalog.state.after([act.TagReleased(replace(tag, name="free"), act.HoldNote(tag.created_at, "x", "y"))])


DELETING = {
    "catalog/log/store.py": "a transaction of its own, which lost a race with pruning",
    "catalog/manifest.py": "a hint",
    "catalog/operations/delete.py": "after the commit that a hold refuses",
    "catalog/operations/expire.py": "objects of tags whose deletion is committed",
    "catalog/operations/garbage.py": "what no retained revision and no pin needs",
    "catalog/operations/maintain_log.py": "the log before a checkpoint, which has the hold",
    "catalog/pins/objects.py": "objects of pins whose deletion is committed, or that were not committed",
    "catalog/pins/tags.py": "objects of tags whose replacement is committed",
    "catalog/rebuild/rebuild.py": "its own checkpoint",
    "catalog/replication/objects.py": "for replicate.py, while the marker of the replica stays",
    "catalog/replication/promote.py": "the marker of a replica",
    "catalog/replication/replicate.py": "in a replica, what neither its head, which has the hold, nor the source needs",
    "catalog/verify/comparisons.py": "the record of an unfinished comparison, after that of the finished one",
    "storage/base.py": "for these modules, unless the store keeps the object",
    "storage/create.py": "its own probe",
}
"""The modules that delete objects, and which ones; operations commit first, and a hold refuses the commit."""


def test_only_these_modules_delete_objects_and_commit() -> None:
    root, deleting, appending = Path(snapshot_assets.__file__).parent, set[str](), set[str]()
    for path in root.rglob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        name = path.relative_to(root).as_posix()
        deletes = [ast.unparse(call) for call in calls if isinstance(call, ast.Attribute) and call.attr == "delete"]
        deletes = [call for call in deletes if "store" in call or call == "self.target.delete"]
        if deletes or any(ast.unparse(call) == delete_unless_retained.__name__ for call in calls):
            deleting.add(name)
        if any(isinstance(call, ast.Name) and call.id == "append" for call in calls):
            appending.add(name)
    assert deleting == DELETING.keys()
    assert appending == {"catalog/catalog.py", "catalog/rebuild/rebuild.py"}, "commits must call `refuse_changes`"
    assert refuse_changes.__name__ in (root / "catalog/catalog.py").read_text()
