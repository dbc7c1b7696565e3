"""The commit protocol: one linear log, whatever the store and other writers do."""

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log import store as log
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.operations.delete import delete_snapshot
from snapshot_assets.errors import (
    BrokenLinkError,
    ClockError,
    ConditionalCreateUnsupportedError,
    ConflictError,
    ForeignLocationError,
    ForkError,
    GapError,
    MisnamedError,
    ObjectExistsError,
    OutcomeUnknownError,
    PlanError,
    SnapshotExistsError,
    StoreUnavailableError,
    SupersededError,
)
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.format.transactions import encode_transaction
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, SCHEMA, START, Writer
from snapshot_assets_tests.catalog.tags import Changed
from snapshot_assets_tests.schema_documents import write_schema


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch):
    monkeypatch.setattr(log, "_SETTLE_WAIT", 0)


def test_beginning_with_another_range_is_refused_naming_both(writer):
    other = Writer(writer.store)
    changed = replace(HEADER, requested_end="2025-02-01T00:00:00Z", chunk_time_window=3_600_000_000)
    with pytest.raises(SnapshotExistsError) as refused:
        other.begin(changed)
    for text in (
        "chunk_time_window is 1d there and 1h here",
        "2025-01-04T00:00:00Z",
        "2025-02-01T00:00:00Z",
        "--force",
    ):
        assert text in str(refused.value)
    assert read_state(writer.store).revision == 1


def test_a_store_that_refuses_conditional_creates_serves_a_single_writer(store):
    def create(path, data):
        raise ConditionalCreateUnsupportedError("501")

    refusing = Changed(store, create=create)
    with pytest.raises(ConditionalCreateUnsupportedError):
        Catalog.open_for_writing(refusing)
    catalog = Catalog.open_for_writing(refusing, single_writer=True)
    content = write_schema(catalog.store, SCHEMA)
    assert catalog.commit(rules.begin(HEADER, content)) == 1
    assert catalog.commit(rules.in_progress(catalog.token(), [1], "r")) == 2
    assert read_state(store).revision == 2


FIELDS = (
    "requested_schemas requested_tables requested_start format schema_only source time_zone kind"
    " exclude_tables exclude_columns mask encoding"
)


@pytest.mark.parametrize("field", FIELDS.split())
def test_each_field_of_the_plan_is_compared(writer, field):
    lists = ("requested_schemas", "requested_tables", "exclude_tables", "exclude_columns")
    value = {"schema_only": True, "mask": {"x.y.z": "NULL"}, **dict.fromkeys(lists, ("x.y",))}.get(field, "x")
    with pytest.raises(SnapshotExistsError):
        Writer(writer.store).begin(replace(HEADER, **{field: value}))


def test_force_begins_a_new_snapshot_on_the_same_log(writer):
    writer.complete(1, writer.file(1))
    old = writer.catalog.state.snapshot_id
    assert Writer(writer.store).begin(force=True) == 3
    state = read_state(writer.store)
    assert state.snapshot_id != old
    assert not list(state.live_files())
    with pytest.raises(SupersededError, match=old):
        writer.complete(2, writer.file(2))


def test_a_chunk_that_another_writer_completed_counts_as_done_and_its_files_stay(writer):
    other = Writer(writer.store)
    other.begin()
    writer.complete(1, writer.file(1))
    late = other.file(1, b"late")
    assert other.complete(1, late) is None
    assert writer.store.get(late.path) == b"late"
    assert [known.file.path for known in read_state(writer.store).live_files(1)] != [late.path]


@pytest.mark.parametrize("error", [StoreUnavailableError("the reply was lost"), ObjectExistsError("retried")])
def test_a_create_whose_reply_was_lost_or_that_met_itself_is_settled_by_reading_back(writer, error):
    def create(path, data):
        writer.store.create(path, data)
        raise error

    catalog = Catalog(Changed(writer.store, create=create), writer.catalog.state)
    assert catalog.commit(rules.in_progress(writer.token, [1], "r")) == 2
    assert read_state(writer.store).in_progress == {1: "r"}


def test_a_create_that_never_arrived_is_sent_again_with_the_same_bytes(writer):
    sent = []

    def create(path, data):
        sent.append(data)
        if len(sent) < 3:
            raise StoreUnavailableError("no")
        writer.store.create(path, data)

    catalog = Catalog(Changed(writer.store, create=create), writer.catalog.state)
    assert catalog.commit(rules.in_progress(writer.token, [1], "r")) == 2
    assert len(set(sent)) == 1


def test_an_outcome_that_cannot_be_read_is_unknown(writer):
    def fail(*_, **__):
        raise StoreUnavailableError("down")

    catalog = Catalog(Changed(writer.store, create=fail, get=fail), writer.catalog.state)
    with pytest.raises(OutcomeUnknownError, match="unknown"):
        catalog.commit(rules.in_progress(writer.token, [1], "r"))


def test_a_writer_that_outlives_a_deletion_leaves_the_location_usable(writer):
    other = Writer(writer.store)
    other.begin()
    delete_snapshot(writer.store)
    with pytest.raises(SupersededError, match="taken back"):
        other.catalog.commit(rules.in_progress(other.token, [1], "r"))
    new = Writer(writer.store)
    assert new.begin() == 1
    with pytest.raises((SupersededError, ConflictError)):
        other.complete(1)
    assert read_state(writer.store).snapshot_id == new.catalog.state.snapshot_id


def test_commit_times_increase_even_when_the_clock_is_set_back(writer, caplog):
    clock = lambda: datetime.now(UTC) - timedelta(hours=1)  # noqa: E731
    catalog = Catalog(writer.store, writer.catalog.state, clock=clock)
    before = catalog.state.committed_at
    with caplog.at_level(logging.WARNING):
        catalog.commit(rules.in_progress(writer.token, [1], "r"))
    assert catalog.state.committed_at == before + timedelta(milliseconds=1)
    assert "set back" in caplog.text


@pytest.mark.parametrize(
    ("minutes", "message"), [(6, "0:0[56]:.* ahead of the clock"), (-6, "0:0[56]:.* behind the clock")]
)
def test_a_clock_far_from_the_stores_is_refused_before_anything_is_written(store, minutes, message):
    """Seals and tags of a slow clock would look old, and so expire."""
    with pytest.raises(ClockError, match=message):
        Catalog.open_for_writing(store, clock=lambda: datetime.now(UTC) + timedelta(minutes=minutes))
    assert list(store.list()) == []
    Catalog.open_for_writing(store, clock=lambda: datetime.now(UTC) + timedelta(minutes=minutes * 2 / 3))


def test_a_store_without_conditional_creates_is_refused_unless_the_plan_promises_one_writer(store):
    lax = Changed(store, create=store.put)
    with pytest.raises(ConditionalCreateUnsupportedError, match="single_writer"):
        Catalog.open_for_writing(lax)
    assert Catalog.open_for_writing(lax, single_writer=True).state.revision == 0


def _rewrite(writer, at, **changes):
    entry = [*scan_log(writer.store).entries][at - 1]
    writer.store.put(transaction_path(at), encode_transaction(replace(entry.transaction, **changes)))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"location_id": "ab" * 16}, ForeignLocationError),
        ({"previous_uuid": "ab" * 16}, ForkError),
        ({"previous_sha256": "ab" * 32}, BrokenLinkError),
        ({"revision": 1}, MisnamedError),
        ({"revision": 7}, MisnamedError),
    ],
)
def test_each_fault_of_the_chain_is_an_error_of_its_own(writer, changes, error):
    writer.complete(1)
    _rewrite(writer, 2, **changes)
    with pytest.raises(error, match=r"transactions/0{19}2\.txn"):
        read_state(writer.store)


def test_a_missing_revision_is_a_gap(writer):
    writer.fill()
    writer.store.delete(transaction_path(2))
    with pytest.raises(GapError, match=r"0{19}2\.txn is missing"):
        read_state(writer.store)


def test_history_rewritten_with_correct_checksums_still_breaks_the_next_link(writer):
    writer.fill()
    _rewrite(writer, 2, writer_id="another writer")
    with pytest.raises(BrokenLinkError, match=r"0{19}3\.txn"):
        read_state(writer.store)


def test_a_replace_of_what_was_committed_after_the_source_was_opened_is_refused(writer):
    old = writer.file(1)
    writer.complete(1, old)
    opened = writer.catalog.token()
    late = writer.file(1, b"late rows")
    writer.complete(1, late, replaces=(old.path,))
    finished = writer.finished(1, writer.file(1, b"older rows"), replaces=(late.path,))
    with pytest.raises(ConflictError, match="older rows would replace newer ones"):
        writer.catalog.commit(rules.complete_chunks(opened, [finished], writer.catalog.now))


def test_a_chunk_outside_the_range_is_refused(writer):
    with pytest.raises(PlanError, match="no window 4"):
        writer.complete(4)


def test_the_age_of_files_is_checked_again_after_a_lost_race(writer):
    """A process that slept could otherwise commit files that were deleted meanwhile."""
    now = [datetime.now(UTC)]

    def create(path, data):
        if path == transaction_path(2):
            other.complete(1, other.file(1))
            now[0] += timedelta(hours=13)
        writer.store.create(path, data)

    other = Writer(writer.store)
    other.begin()
    finished = writer.finished(2, writer.file(2))
    catalog = Catalog(Changed(writer.store, create=create), read_state(writer.store), clock=lambda: now[0])
    with pytest.raises(ConflictError, match="half the grace period"):
        catalog.commit(rules.complete_chunks(writer.token, [finished], catalog.now))
    assert not read_state(writer.store).completed(2)


def test_a_schema_only_snapshot_takes_no_data(store):
    writer = Writer(store)
    writer.begin(replace(HEADER, schema_only=True))
    with pytest.raises(ConflictError, match="schema-only"):
        writer.complete(1)


def test_equal_schema_is_adopted_and_another_gets_the_next_id(writer):
    changed = SCHEMA.model_copy(update={"views": ()})
    assert writer.catalog.commit(rules.add_schema(writer.token, write_schema(writer.store, changed))) is None
    other = SCHEMA.model_copy(update={"database": "postgresql"})
    content = write_schema(writer.store, other)
    assert writer.catalog.commit(rules.add_schema(writer.token, content)) == 2
    assert rules.schema_id_of(writer.catalog.state, content) == 2
    third = write_schema(writer.store, SCHEMA.model_copy(update={"database": "spark"}))
    with pytest.raises(ConflictError, match="Another writer added schema 2"):
        writer.catalog.commit(rules.add_schema(writer.token, third))


def test_the_end_of_a_continuous_plan_only_moves_forward_and_that_of_others_never(store):
    writer = Writer(store)
    writer.begin(replace(HEADER, kind="continuous"))
    later = START + 5 * DAY
    assert writer.catalog.commit(rules.extend(writer.token, later)) == 2
    assert writer.catalog.commit(rules.extend(writer.token, later)) is None
    assert writer.catalog.commit(rules.extend(writer.token, START + DAY)) is None
    assert len(read_state(store).windows()) == 5
    writer.begin(HEADER, force=True)
    with pytest.raises(ConflictError, match="Only a continuous plan can be extended"):
        writer.catalog.commit(rules.extend(writer.token, later))
