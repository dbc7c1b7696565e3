"""Writers that slept while others pruned the log, and what they create in its place."""

from __future__ import annotations

from datetime import timedelta

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.log.store import list_log
from snapshot_assets.catalog.operations.maintain_log import plan_pruning
from snapshot_assets.errors import SupersededError
from snapshot_assets.format.layout import checkpoint_path, transaction_path
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
