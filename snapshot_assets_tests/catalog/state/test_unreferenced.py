"""Unreferenced files and schema documents: garbage collection keeps them for a grace period, then deletes them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import same_states, write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations import garbage
from snapshot_assets.catalog.operations.garbage import plan_collection
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.schemas import describe_schema, write_documents
from snapshot_assets.catalog.state.data_files import FileSet
from snapshot_assets.catalog.state.retained import needed_events
from snapshot_assets.catalog.verify.faults import read_object
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import PlanError
from snapshot_assets.format import actions as act
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.documents import sha256_hex
from snapshot_assets.format.layout import transaction_path
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, SCHEMA, Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, expire
from snapshot_assets_tests.catalog.operations.test_unpinned import aged, working
from snapshot_assets_tests.catalog.tags import NOW, file_of, reseal, sealed_by, wait_for_clock


@pytest.fixture
def fresh(store) -> Writer:
    return Writer(store)


def test_the_newest_expiry_of_a_file_is_the_newest_of_its_revisions() -> None:
    """The expected value checks every file against every revision."""
    choose, at = random.Random(7), datetime(2025, 1, 1, tzinfo=UTC)
    files = FileSet()
    lives = []
    for number in range(200):
        added = choose.randint(1, 90)
        removed = choose.randint(added + 1, 100)
        name = f"data/1/main.m-{number:08x}-0000.parquet"
        files.add(DataFile(name, "main", "m", 1, f"{number:08x}", 1, 1, sha256_hex(b""), 1, 0), added)
        files.remove(1, name, removed, at + removed * DAY)
        lives.append((name, added, removed))
    for expired in (37, 1, 0):
        late = {
            each: (revision := choose.randint(101, 120), at + revision * DAY)
            for each in choose.sample(range(1, 100), expired)
        }
        expected = {
            name: max([(removed, at + removed * DAY), *(late[each] for each in late if added <= each < removed)])
            for name, added, removed in lives
        }
        assert files.unreferenced([121], late) == expected


def with_deleted_tags(writer: Writer, tags: int) -> Catalog:
    """Delete all but one of several tags, each the last pin of an expired revision."""
    sealed_by(writer)
    for number in range(tags):
        create_tag(writer.catalog, f"tag{number}", reseal(writer))
    reseal(writer)
    expire(writer.catalog, keep_last=1)
    for number in range(tags - 1):  # one stays
        delete_tag(writer.catalog, f"tag{number}")
    return writer.catalog


@pytest.mark.parametrize("tags", [2, 6])
def test_the_work_of_a_collection_does_not_depend_on_the_number_of_deleted_tags(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, tags: int
) -> None:
    catalog = with_deleted_tags(writer, tags)
    merged, read = [], []
    merge = FileSet.merged
    monkeypatch.setattr(FileSet, "merged", lambda self: merged.append(1) or merge(self))
    monkeypatch.setattr(
        garbage, "read_object", lambda store, ref, there: read.append(ref) or read_object(store, ref, there)
    )
    found = plan_collection(catalog, grace=DAY)
    assert len([each for each in found.waiting if each.path.endswith("parquet")]) == tags
    assert (len(merged), len(read)) == (4, 1)
    assert collect_garbage(catalog, grace=NOW, unsafe=True).deleted
    assert len(read) == 2  # once for both passes
    assert not verify(writer.store).faults


def test_a_grace_period_longer_than_the_expiries_in_checkpoints_is_refused(writer: Writer) -> None:
    with pytest.raises(PlanError, match=r"3d is longer than twice the plan's: .* 2d only"):
        collect_garbage(writer.catalog, grace=3 * DAY)
    collect_garbage(writer.catalog, grace=2 * DAY)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_checkpoints_keep_expiries_for_twice_the_plans_grace_period(fresh: Writer, checkpoint: bool) -> None:
    working(fresh, 9 * DAY).begin()
    reseal(sealed_by(fresh))
    gone = file_of(fresh, 5)
    aged(fresh, 9 * DAY)
    expire(working(fresh, timedelta(hours=36)).catalog, keep_last=1)
    create_tag(working(fresh, 0 * DAY).catalog, "newest", 7)
    if checkpoint:
        write_checkpoint(fresh.store, fresh.catalog.state)
    found = plan_collection(Catalog.open_for_writing(fresh.store), grace=2 * DAY)
    assert gone in {each.path for each in found.waiting}


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_snapshot_with_a_longer_grace_period_keeps_what_expired_before_it(fresh: Writer, checkpoint: bool) -> None:
    """A checkpoint dropped the expiry after two of the shorter grace periods."""
    working(fresh, 20 * DAY).begin()
    reseal(sealed_by(fresh))
    gone = file_of(fresh, 5)
    aged(fresh, 20 * DAY)
    expire(working(fresh, 5 * DAY).catalog, keep_last=1)
    create_tag(working(fresh, 2 * DAY).catalog, "newest", 7)
    if checkpoint:
        write_checkpoint(fresh.store, fresh.catalog.state)
    working(fresh, 1 * DAY).begin(HEADER.__class__(**(vars(HEADER) | {"grace": HEADER.grace * 7})), force=True)
    found = plan_collection(Catalog.open_for_writing(fresh.store))
    assert gone in {each.path for each in found.waiting}


def folders(writer: Writer) -> set[str]:
    return {info.path.split("/")[1] for info in writer.store.list("schema/")}


def forced(writer: Writer, name: str) -> str:
    """Replace the snapshot by a sealed one with another schema, and return the folder of its documents."""
    schema = SCHEMA.model_copy(update={"database": name})
    writer.begin(force=writer.catalog.state.has_snapshot, schema=schema)
    writer.fill()
    seal(writer.catalog)
    return describe_schema(schema)[0].folder.removeprefix("schema/")


@pytest.mark.parametrize("checkpoint", [False, True])
def test_schema_documents_of_expired_snapshots_are_deleted(fresh: Writer, checkpoint: bool) -> None:
    schemas = [forced(fresh, name) for name in ("duckdb", "postgresql", "spark", "mysql")]
    create_tag(fresh.catalog, "kept", 10)  # of the second
    assert folders(fresh) == set(schemas)
    expire(fresh.catalog, keep_last=1)

    def collected(**options) -> dict[str, str]:
        if checkpoint:
            write_checkpoint(fresh.store, fresh.catalog.refresh())
            fresh.catalog = Catalog.open_for_writing(fresh.store)
        wait_for_clock(fresh.store, read_state(fresh.store).committed_at)
        found = collect_garbage(fresh.catalog, **options)
        assert not [fault for fault in verify(fresh.store).faults if fault.is_damage]
        assert same_states(fresh.catalog.refresh(), scan_log(fresh.store).state)
        deleted = {each.path.split("/")[1]: each.reason for each in found.deleted if each.path.startswith("schema/")}
        assert deleted.keys().isdisjoint(folders(fresh))
        return deleted

    before = {revision: manifest_of(fresh.catalog.state.at(revision)) for revision in (10, 20)}
    assert collected() == {}  # for a grace period
    assert collected(grace=NOW, unsafe=True) == {schemas[0]: "expired", schemas[2]: "expired"}
    assert {revision: manifest_of(fresh.catalog.state.at(revision)) for revision in (10, 20)} == before
    delete_tag(fresh.catalog, "kept")
    assert collected(grace=NOW, unsafe=True) == {schemas[1]: "expired"}
    assert folders(fresh) == {schemas[3]}


def test_schema_documents_stay_for_one_grace_period_and_in_checkpoints_for_two(
    fresh: Writer,
) -> None:
    first = working(fresh, 9 * DAY) and forced(fresh, "duckdb")
    second = forced(fresh, "postgresql")
    aged(fresh, 9 * DAY)
    expire(working(fresh, 0 * DAY).catalog, keep_last=1)
    write_checkpoint(fresh.store, fresh.catalog.state)
    fresh.catalog = Catalog.open_for_writing(fresh.store)
    found = collect_garbage(fresh.catalog)
    assert {first} <= {each.path.split("/")[1] for each in found.waiting}
    assert folders(fresh) == {first, second}

    def kept() -> list[str]:
        actions = [action for event in needed_events(fresh.catalog.state) for action in event.actions]
        return [action.folder.removeprefix("schema/") for action in actions if isinstance(action, act.SchemaAdded)]

    assert kept() == [first, second]
    fresh.catalog.state.committed_at += 3 * DAY
    assert kept() == [second]


def test_rebuild_drops_a_revision_whose_schema_documents_are_missing(fresh: Writer) -> None:
    """The expiry of the revision was lost after its documents were deleted."""
    for name in ("duckdb", "postgresql"):
        fresh.begin(force=fresh.catalog.state.has_snapshot, schema=SCHEMA.model_copy(update={"database": name}))
        for chunk in (1, 2, 3):
            fresh.complete(chunk)
        seal(fresh.catalog)
    expired = expire(fresh.catalog, keep_last=1)
    collect_garbage(fresh.catalog, grace=NOW, unsafe=True)
    assert (expired.expired, expired.revision, len(folders(fresh))) == ((5,), 11, 1)
    create_tag(fresh.catalog, "newest", 10)
    fresh.store.delete(transaction_path(11))
    assert "Revision 5 cannot be read: schema/" in " ".join(rebuild(fresh.store).lost)
    assert [each.revision for each in read_state(fresh.store).readable()] == [10]
    assert not [fault for fault in verify(fresh.store).faults if fault.is_damage]


def test_rewriting_schema_documents_restarts_their_grace_period(fresh: Writer) -> None:
    """An expired snapshot may have the same schema as the next one."""
    working(fresh, 9 * DAY)
    first, _ = forced(fresh, "duckdb"), forced(fresh, "postgresql")
    expire(fresh.catalog, keep_last=1)
    aged(fresh, 9 * DAY)
    _, files = describe_schema(SCHEMA)
    for known, waits in ((True, False), (False, True)):
        write_documents(fresh.store, files, known=known)
        found = plan_collection(Catalog.open_for_writing(fresh.store))
        assert (first in {each.path.split("/")[1] for each in found.waiting}) is waits
