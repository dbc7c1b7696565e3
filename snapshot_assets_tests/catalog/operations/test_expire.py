"""Expiry: which revisions expire, what nothing needs then, and what pins keep."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations.expire import ExpiryPlan, execute_expiry, plan_expiry
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag
from snapshot_assets.catalog.rules.expire import Retention
from snapshot_assets.catalog.state.retained_events import needed_events
from snapshot_assets.catalog.state.unreferenced import ReleasedObject, end_of_pin
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import DamageError, PlanError, VersionNotFoundError
from snapshot_assets.format.actions import ChunksInProgress, Expired
from snapshot_assets.format.layout import is_receipt, transaction_path
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, expire
from snapshot_assets_tests.catalog.merging import MERGED, commit_merged
from snapshot_assets_tests.catalog.operations.test_collect_garbage import damage
from snapshot_assets_tests.catalog.tags import NOW, Changed, collected, file_of, readable, reseal, sealed_by


@pytest.fixture
def sealed(writer: Writer) -> Writer:
    """Seals at 5, 7, 9 and 11, each with another file of chunk 1."""
    sealed_by(writer)
    for _ in range(3):
        reseal(writer)
    assert [seal.revision for seal in writer.catalog.state.seals] == [5, 7, 9, 11]
    return writer


@pytest.mark.parametrize(
    ("rules", "expired"),
    [
        ({"keep_last": 1}, (5, 7, 9)),
        ({"keep_last": 3}, (5,)),
        ({"keep_last": 9}, ()),
        ({"keep_for": NOW}, (5, 7, 9)),  # the newest seal always stays
        ({"keep_for": DAY}, ()),
        ({"keep_last": 2, "keep_for": NOW}, (5, 7)),
        ({"keep_last": 1, "keep_for": DAY}, ()),
    ],
)
def test_a_revision_that_either_rule_keeps_is_kept(sealed: Writer, rules: dict, expired: tuple[int, ...]) -> None:
    before = sealed.catalog.state.revision
    plan = plan_expiry(sealed.catalog, Retention(**rules))
    assert (plan.expired, plan.revision, plan.kept) == (expired, None, 4 - len(expired))
    assert read_state(sealed.store).revision == before
    done = expire(sealed.catalog, **rules)
    assert (done.expired, done.released, done.kept) == (plan.expired, plan.released, plan.kept)
    assert done.revision == (before + 1 if expired else None)
    assert readable(sealed.store) == [each for each in (5, 7, 9, 11) if each not in expired]


def test_what_was_only_compacted_counts_as_one_with_what_it_was_made_of(sealed: Writer) -> None:
    """A compaction seals for each chunk: it must not push out what was exported."""
    merged = [merge(sealed, chunk) for chunk in (1, 2)]
    assert (merged, readable(sealed.store)) == ([12, 13], [5, 7, 9, 11, 12, 13])
    assert plan_expiry(sealed.catalog, Retention(keep_last=4)).expired == (11, 12)
    write_checkpoint(sealed.store, sealed.catalog.state)
    assert expire(Catalog.open_for_writing(sealed.store), keep_last=2).expired == (5, 7, 11, 12)
    assert readable(sealed.store) == [9, 13]
    assert reseal(sealed) == 16
    assert expire(sealed.catalog, keep_last=2).expired == (9,)
    assert expire(sealed.catalog, keep_last=1).expired == (13,)


def merge(writer: Writer, chunk: int) -> int | None:
    """Compact a chunk, which seals it too."""
    catalog = writer.catalog
    older = tuple(sorted({known.file.attempt for known in catalog.refresh().live_files(chunk)}))
    file = writer.file(chunk, b"merged")
    receipt, ref = writer.receipt(chunk, file, compaction=MERGED, supersedes=older)
    return commit_merged(catalog, catalog.token(), receipt, ref)


def test_keep_for_counts_from_the_commit(sealed: Writer) -> None:
    times = {seal.revision: seal.committed_at for seal in sealed.catalog.state.seals}
    sealed.catalog._clock = lambda: times[9] + DAY  # exactly as old as what is kept
    assert plan_expiry(sealed.catalog, Retention(keep_for=DAY)).expired == (5, 7)


@pytest.mark.parametrize("rules", [{"keep_last": 0}, {"keep_for": -DAY}])
def test_an_invalid_rule_is_refused(sealed: Writer, rules: dict) -> None:
    with pytest.raises(PlanError, match=r"keep_(last|for)"):
        expire(sealed.catalog, **rules)
    assert readable(sealed.store) == [5, 7, 9, 11]


def test_what_nothing_needs_after_an_expiry_is_planned_and_collected_later(sealed: Writer) -> None:
    gone = {file_of(sealed, 5), file_of(sealed, 7)}
    plan = plan_expiry(sealed.catalog, Retention(keep_last=2))
    assert {each.path for each in plan.released if not is_receipt(each.path)} == gone
    assert plan.bytes == sum(sealed.store.head(each.path).size for each in plan.released)
    assert collected(sealed) == set()
    expire(sealed.catalog, keep_last=2)
    assert all(sealed.store.head(path) for path in gone)  # expiring deletes nothing
    assert collected(sealed) == gone
    assert not verify(sealed.store).faults
    assert expire(sealed.catalog, keep_last=2) == ExpiryPlan((), {}, 2)  # once is enough


def test_a_head_that_is_not_sealed_and_the_newest_seal_both_stay(sealed: Writer) -> None:
    sealed.complete(1, sealed.file(1, b"not sealed"), replaces=tuple(sealed.catalog.state.files.chunk(1)))
    expire(sealed.catalog, keep_for=NOW)
    assert read_state(sealed.store).retained() == [11, 13]
    collected(sealed)
    for revision in (11, 13):
        assert sealed.store.head(file_of(sealed, revision))
    sealed.begin(HEADER, force=True)
    assert expire(sealed.catalog, keep_last=1).expired == ()
    assert readable(sealed.store) == [11]


def test_a_pinned_revision_stays_readable_until_its_last_pin_goes(sealed: Writer) -> None:
    for name, revision in (("one", 7), ("two", 7), ("newest", 11)):
        create_tag(sealed.catalog, name, revision)
    pinned = file_of(sealed, 7)
    done = expire(sealed.catalog, keep_last=1)
    assert (done.expired, done.pinned, done.kept) == ((5, 7, 9), {7: ("tag 'one'", "tag 'two'")}, 2)
    assert {each.path for each in done.released} > {file_of(sealed, 5), file_of(sealed, 9)}
    assert collected(sealed) == {each.path for each in done.released if not is_receipt(each.path)}
    write_checkpoint(sealed.store, sealed.catalog.refresh())
    delete_tag(sealed.catalog, "one")
    assert (readable(sealed.store), collected(sealed)) == ([7, 11], set())
    state = sealed.catalog.state
    [two] = [known for known in state.pins if known.pin.revision == 7]
    ends = end_of_pin(state, two)
    assert ReleasedObject(pinned, len(b"late rows"), "tag deleted") in ends.released
    assert ends.unreadable == 7
    delete_tag(sealed.catalog, "two")
    assert (readable(sealed.store), collected(sealed)) == ([11], {pinned})
    assert not verify(sealed.store).faults


@pytest.mark.parametrize("reopened", [False, True])
def test_what_an_expiry_releases_stays_for_a_grace_period(sealed: Writer, reopened: bool) -> None:
    """A reader may be at work on it."""
    store, gone, grace = sealed.store, file_of(sealed, 5), timedelta(seconds=2)
    time.sleep(2.1)  # longer ago than that the file was replaced
    expire(sealed.catalog, keep_last=3)
    if reopened:
        write_checkpoint(store, sealed.catalog.state)
        sealed.catalog = Catalog.open_for_writing(store)
    waiting = collect_garbage(sealed.catalog, grace=grace, unsafe=True).waiting
    assert gone in {each.path for each in waiting}
    assert store.head(gone)
    time.sleep(2.1)
    assert gone in {each.path for each in collect_garbage(sealed.catalog, grace=grace, unsafe=True).deleted}


def test_checkpoints_record_an_expiry_for_two_grace_periods(sealed: Writer) -> None:
    expired = expire(sealed.catalog, keep_last=3).expired
    state = sealed.catalog.state
    for age, recorded in ((2 * DAY - timedelta(seconds=5), [expired]), (2 * DAY, [])):
        state.committed_at = state.events[-1].committed_at + age
        actions = [action for event in needed_events(state) for action in event.actions]
        assert [action.revisions for action in actions if isinstance(action, Expired)] == recorded


@pytest.mark.parametrize("when", ["before", "during"])
def test_only_what_was_planned_expires(sealed: Writer, when: str) -> None:
    plan, other, raced = plan_expiry(sealed.catalog, Retention(keep_last=3)), Writer(sealed.store), list[int]()

    def create(path: str, data: bytes) -> None:
        if not raced:
            raced.append(0)
            raced.append(reseal(other))
        sealed.store.create(path, data)

    if when == "before":
        reseal(other)
    else:
        sealed.catalog.store = Changed(sealed.store, create=create)
    assert execute_expiry(sealed.catalog, plan).expired == (5,)
    assert readable(sealed.store) == [7, 9, 11, 13]
    assert expire(sealed.catalog, keep_last=3).expired == (7,)


def test_nothing_expires_where_the_log_is_damaged_after_the_plan(sealed: Writer) -> None:
    write_checkpoint(sealed.store, sealed.catalog.state)
    plan = plan_expiry(sealed.catalog, Retention(keep_last=1))
    damage(sealed.store, transaction_path(3))
    with pytest.raises(DamageError, match="The log has a fault, so nothing expired"):
        execute_expiry(Catalog.open_for_writing(sealed.store), plan)
    assert readable(sealed.store) == [5, 7, 9, 11]


@pytest.mark.parametrize("first", ["tag", "expire"])
def test_a_tag_and_an_expiry_that_race_never_leave_a_pin_with_missing_files(
    any_location, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    uri, options = any_location
    writer = Writer(open_store(parse_location(uri), options))
    writer.begin()
    sealed_by(writer)
    reseal(writer)
    slow, quick = (Catalog.open_for_writing(writer.store) for _ in range(2))
    actions = {
        "tag": lambda catalog: create_tag(catalog, "old", 5),
        "expire": lambda catalog: expire(catalog, keep_last=1),
    }
    late = "expire" if first == "tag" else "tag"
    commit = slow.commit

    def commit_late(prepare):
        actions[first](quick)
        return commit(prepare)

    monkeypatch.setattr(slow, "commit", commit_late)
    if late == "tag":
        with pytest.raises(VersionNotFoundError, match="Revision 5"):
            actions[late](slow)
        assert not read_state(writer.store).tags
    else:
        assert actions[late](slow).pinned == {5: ("tag 'old'",)}
    state = read_state(writer.store)
    assert state.files.unreferenced(state.retained()).keys() == ({file_of(writer, 5)} if late == "tag" else set())
    collected(writer)
    assert not verify(writer.store).faults


def test_garbage_of_tags_is_what_nothing_else_needs(writer: Writer) -> None:
    """Paimon's example: tags at 100, 200 and 300; a file added at 105 and removed at 120, another removed at 201."""
    writer.fill()

    def work_until(revision: int) -> None:
        while writer.catalog.state.revision < revision:
            writer.catalog.commit(lambda _: [ChunksInProgress((2,), "run")])

    def replace_chunk(chunk: int, content: bytes) -> str:
        file = writer.file(chunk, content)
        writer.complete(chunk, file, replaces=tuple(writer.catalog.state.files.chunk(chunk)))
        return file.path

    def seal_at(revision: int) -> None:
        work_until(revision - 1)
        assert seal(writer.catalog).seal.revision == revision

    def tag(revision: int) -> None:
        create_tag(writer.catalog, f"tag{revision}", revision)

    first, other = file_of(writer, 4), file_of(writer, 4, 3)
    replace_chunk(2, b"before the tags")
    seal_at(100)
    tag(100)
    work_until(104)
    short = replace_chunk(1, b"105 to 120")
    assert writer.catalog.state.revision == 105
    seal(writer.catalog)
    work_until(119)
    long = replace_chunk(1, b"120 to 201")
    assert writer.catalog.state.revision == 120
    seal_at(200)
    last = replace_chunk(1, b"from 201 on")
    assert writer.catalog.state.revision == 201
    tag(200)
    seal_at(300)
    tag(300)
    expire(writer.catalog, keep_last=1)
    assert readable(writer.store) == [100, 200, 300]
    assert collected(writer) == {short}  # no tag has it
    then = {revision: manifest_of(read_state(writer.store, through=revision)) for revision in (100, 200, 300)}
    delete_tag(writer.catalog, "tag200")
    assert collected(writer) == {long}  # 100 is older than it, 300 is younger
    delete_tag(writer.catalog, "tag100")
    assert collected(writer) == {first}
    delete_tag(writer.catalog, "tag300")
    assert collected(writer) == set()  # the newest seal stays without a tag
    assert manifest_of(read_state(writer.store).at(300)) == then[300]
    assert {known.file.path for known in read_state(writer.store).live_files()} >= {last, other}
    assert not verify(writer.store).faults
