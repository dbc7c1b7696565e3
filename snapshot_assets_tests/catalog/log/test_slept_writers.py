"""Writers that slept while others pruned the log, and what they create in its place."""

from __future__ import annotations

import os
from datetime import datetime, timedelta

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.log.store import list_log, read_entry
from snapshot_assets.catalog.operations.maintain_log import plan_pruning
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.errors import OutcomeUnknownError, StoreUnavailableError, SupersededError
from snapshot_assets.format.layout import checkpoint_path, transaction_path
from snapshot_assets.storage.location import parse_location
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import prune
from snapshot_assets_tests.catalog.tags import NOW, Changed, wait_for_clock


def work(catalog: Catalog, run: str = "run") -> int | None:
    return catalog.commit(rules.in_progress(catalog.token(), [1], run))


def work_until(writer: Writer, revision: int) -> None:
    while writer.catalog.state.revision < revision:
        work(writer.catalog)


def prune_to(writer: Writer, revision: int) -> None:
    """Commit up to a revision and another one, with checkpoints of both, and prune what is older."""
    work_until(writer, revision)
    write_checkpoint(writer.store, writer.catalog.state)
    work(writer.catalog)
    write_checkpoint(writer.store, writer.catalog.state)
    wait_for_clock(writer.store, writer.catalog.state.committed_at)
    assert prune(writer.catalog, grace=NOW, unsafe=True).kept == revision


@pytest.mark.parametrize("base", [1, 2, 3])
def test_a_commit_that_follows_one_of_a_writer_that_slept_too_does_not_count(writer: Writer, base: int) -> None:
    """The first one has not taken its commit back when the second one reads it and commits after it."""
    work_until(writer, base)
    second, refused = Catalog(writer.store, read_state(writer.store)), []

    def delete(path: str) -> None:
        with pytest.raises(SupersededError) as error:
            work(second, "second")
        refused.append(error.value.attributes["revision"])
        writer.store.delete(path)

    first = Catalog(Changed(writer.store, delete=delete), read_state(writer.store))
    prune_to(writer, base + 5)
    with pytest.raises(SupersededError):
        work(first, "first")
    assert refused == [base + 2]
    assert list_log(writer.store).transactions == [1, base + 5, base + 6]
    assert not scan_log(writer.store).faults


@pytest.mark.parametrize("opened", [1, 2])
def test_a_checkpoint_that_was_written_late_proves_no_commit_after_it(writer: Writer, opened: int) -> None:
    """A writer slept between its commit and the checkpoint; another one had read that commit before the pruning."""
    first, second = (Catalog(writer.store, read_state(writer.store)) for _ in range(2))
    work(first)
    if opened == 2:
        second = Catalog(writer.store, read_state(writer.store))
    second.refresh()
    writer.catalog.refresh()
    prune_to(writer, 6)
    write_checkpoint(writer.store, first.state)
    assert checkpoint_path(2) in {info.path for info in writer.store.list("transactions/")}
    with pytest.raises(SupersededError):
        work(second, "second")
    assert list_log(writer.store).transactions == [1, 6, 7]


def test_a_commit_after_others_counts_while_still_others_go_on(writer: Writer) -> None:
    other = Writer(writer.store)

    def create(path: str, data: bytes) -> None:
        writer.store.create(path, data)
        for _ in range(3):
            work(other.catalog, "other")

    late = Catalog(Changed(writer.store, create=create), read_state(writer.store))
    work(other.catalog)
    assert work(late) is not None
    assert not scan_log(writer.store).faults


def test_a_commit_in_a_location_that_was_deleted_does_not_count_after_another_one_either(writer: Writer) -> None:
    work(writer.catalog)
    second = Catalog(writer.store, read_state(writer.store))

    def delete(path: str) -> None:
        with pytest.raises(SupersededError):
            work(second)
        writer.store.delete(path)

    first = Catalog(Changed(writer.store, delete=delete), read_state(writer.store))
    for revision in (1, 2):
        writer.store.delete(transaction_path(revision))
    with pytest.raises(SupersededError):
        work(first)
    assert not list_log(writer.store).transactions


def test_revision_2_is_not_pruned_alone(writer: Writer) -> None:
    """If a writer that slept died before it took a later revision 2 back, it would look like the log's."""
    for revision in (3, 4):
        work_until(writer, revision)
        write_checkpoint(writer.store, writer.catalog.state)
    assert plan_pruning(writer.catalog, grace=timedelta(0), unsafe=True).released == ()


def test_revision_2_is_not_pruned_alone_either_if_the_next_one_is_too_young(writer: Writer) -> None:
    work_until(writer, 10)
    for revision in (10, 11):
        work_until(writer, revision)
        write_checkpoint(writer.store, writer.catalog.state)
    folder = parse_location(writer.store.uri).local_path
    assert folder is not None
    old = datetime.now().timestamp() - timedelta(days=10).total_seconds()
    for revision in (1, 2):
        os.utime(folder / transaction_path(revision), (old, old))
    assert plan_pruning(writer.catalog).released == ()
    os.utime(folder / transaction_path(3), (old, old))
    assert len(plan_pruning(writer.catalog).released) == 2


def test_a_writer_that_wakes_over_another_log_deletes_nothing_of_it(writer: Writer) -> None:
    def create(path: str, data: bytes) -> None:
        writer.store.create(path, data)
        if path == transaction_path(4):
            for info in list(writer.store.list()):
                writer.store.delete(info.path)
            other = Writer(writer.store)
            other.begin()
            work_until(other, 6)

    work_until(writer, 3)
    slept = Catalog(Changed(writer.store, create=create), read_state(writer.store))
    with pytest.raises(SupersededError, match="another one is in its place"):
        work(slept)
    assert list_log(writer.store).transactions == [1, 2, 3, 4, 5, 6]


def test_a_commit_below_a_log_that_was_rebuilt_meanwhile_stays(writer: Writer) -> None:
    """It keeps the revision from a third writer, whose commit would be in no state."""

    def create(path: str, data: bytes) -> None:
        writer.store.create(path, data)
        if path == transaction_path(5) and 6 not in list_log(writer.store).transactions:
            writer.store.put(transaction_path(2), b"damaged")
            rebuild(writer.store, accept_undeleted=True)

    work_until(writer, 3)
    first = Catalog(Changed(writer.store, create=create), read_state(writer.store))
    work_until(writer, 4)
    second = Catalog(writer.store, read_state(writer.store))
    with pytest.raises(OutcomeUnknownError, match="rebuilt at revision 6"):
        work(first)
    with pytest.raises(SupersededError, match="rebuilt at revision 6"):
        work(second)
    assert list_log(writer.store).transactions == [1, 2, 3, 4, 5, 6]


def test_a_log_that_lost_its_first_revision_takes_commits_of_writers_that_follow_each_other(writer: Writer) -> None:
    prune_to(writer, 6)
    writer.store.delete(transaction_path(1))
    writers = [Catalog(writer.store, read_state(writer.store)) for _ in range(2)]
    assert [work(each) for each in writers * 2] == [8, 9, 10, 11]


def test_a_writer_that_opened_a_location_with_a_commit_of_one_that_slept_is_refused(writer: Writer) -> None:
    """Opening reads what follows the newest checkpoint one by one: here a revision that is created late."""
    work_until(writer, 5)
    slept, opened = (Catalog(writer.store, read_state(writer.store)) for _ in range(2))
    refused = list[str]()

    def delete(path: str) -> None:
        opened.state.apply(read_entry(writer.store, 6), path)
        with pytest.raises(SupersededError):
            work(opened)
        refused.append(path)
        writer.store.delete(path)

    prune_to(writer, 10)
    with pytest.raises(SupersededError):
        work(Catalog(Changed(writer.store, delete=delete), slept.state))
    assert refused == [transaction_path(6)]
    assert list_log(writer.store).transactions == [1, 10, 11]


def test_a_commit_that_cannot_be_checked_has_an_unknown_outcome(writer: Writer) -> None:
    """A caller would repeat it after an error that passes."""
    created = list[str]()

    def create(path: str, data: bytes) -> None:
        writer.store.create(path, data)
        created.append(path)

    def get(path: str, limit: int | None = None) -> bytes:
        if created:
            raise StoreUnavailableError("The store answered 503.")
        return writer.store.get(path, limit=limit)

    with pytest.raises(OutcomeUnknownError):
        work(Catalog(Changed(writer.store, create=create, get=get), read_state(writer.store)))
    assert created == [transaction_path(2)]
