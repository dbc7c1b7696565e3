"""A replica has a tag under legal hold; its source released the hold and pruned the transaction that shows it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag, hold_tag, release_tag, rename_tag, replace_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.replication.replicate import replicate
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import expire, prune
from snapshot_assets_tests.catalog.tags import reseal, sealed_by

NOW = {"grace": timedelta(0), "unsafe": True}

CHANGES: dict[str, Callable[[Writer], object]] = {
    "stays": lambda writer: None,
    "deleted": lambda writer: delete_tag(writer.catalog, "evidence"),
    "renamed": lambda writer: rename_tag(writer.catalog, "evidence", "old"),
    "replaced": lambda writer: replace_tag(writer.catalog, "evidence", writer.catalog.state.newest_seal.revision),
}


@pytest.fixture
def replica(tmp_path: Path) -> ObjectStore:
    return open_store(parse_location(f"file://{tmp_path}/a replica"))


@pytest.fixture
def held(writer: Writer, replica: ObjectStore) -> Writer:
    """A location with a held tag, and a replica that has it."""
    sealed_by(writer)
    create_tag(writer.catalog, "evidence", seal(writer.catalog).seal.revision)
    hold_tag(writer.catalog, "evidence", "case 7")
    replicate(writer.store, replica)
    return writer


def pruned(writer: Writer) -> None:
    """Prune the log up to its end."""
    for number in range(3):
        reseal(writer, b"rows %d" % number)
        write_checkpoint(writer.store, writer.catalog.state)
    assert prune(writer.catalog, **NOW).released
    writer.catalog = Catalog.open_for_writing(writer.store)


@pytest.mark.parametrize("change", CHANGES)
def test_replication_follows_a_release_that_was_pruned_whatever_became_of_the_tag(
    held: Writer, replica: ObjectStore, change: str
) -> None:
    release_tag(held.catalog, "evidence", "settled")
    CHANGES[change](held)
    pruned(held)
    for _ in range(2):
        pruned(held)  # later checkpoints keep the release too
    replicate(held.store, replica)
    assert read_state(replica).revision == held.catalog.state.revision
    assert not verify(replica).damaged


def test_it_follows_a_release_before_a_rebuild(held: Writer, replica: ObjectStore) -> None:
    release_tag(held.catalog, "evidence", "settled")
    delete_tag(held.catalog, "evidence")
    expire(held.catalog, keep_last=1)
    pruned(held)
    pruned(held)
    held.store.delete(transaction_path(held.catalog.state.revision))
    rebuild(held.store, accept_undeleted=True)
    replicate(held.store, replica, accept_loss=True)
    assert read_state(replica).revision == read_state(held.store).revision
