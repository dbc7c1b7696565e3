"""Objects of other locations, and of another past of this one, do not count in a rebuild."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.rebuild.test_rebuild import lose
from snapshot_assets_tests.catalog.tags import damage, reseal, sealed_by


@pytest.fixture
def foreign(tmp_path: Path) -> Writer:
    """Another location, sealed at 5, 7 and 9."""
    other = Writer(open_store(parse_location(f"file://{tmp_path}/another")))
    other.begin()
    sealed_by(other)
    assert (reseal(other), reseal(other)) == (7, 9)
    create_tag(other.catalog, "foreign", 9)
    write_checkpoint(other.store, other.catalog.state)
    return other


def bring(foreign: Writer, store: ObjectStore, prefixes: tuple[str, ...]) -> list[str]:
    paths = [info.path for info in foreign.store.list() if info.path.startswith(prefixes)]
    for path in paths:
        store.put(path, foreign.store.get(path))
    return paths


@pytest.mark.parametrize("log", ["with a hole", "lost"])
@pytest.mark.parametrize("what", ["manifest.json", "tag/", "data/1/chunk-", transaction_path(6), "transactions/0"])
def test_objects_of_another_location_do_not_count(writer: Writer, foreign: Writer, log: str, what: str) -> None:
    sealed_by(writer)
    create_tag(writer.catalog, "own", reseal(writer))
    before = manifest_of(writer.catalog.state)
    prefixes = (f"{transaction_path(10)[:-3]}ckpt",) if what == "transactions/0" else (what,)
    if log == "lost":
        lose(writer.store, "transactions/")
    brought = bring(foreign, writer.store, prefixes)
    if log != "lost":
        writer.store.delete(transaction_path(4))
    done = rebuild(writer.store)
    after = read_state(writer.store)
    assert (manifest_of(after), done.tags) == (before, ("own",))
    named = " ".join(done.lost)
    assert all(f"{path} belongs to " in named for path in brought)
    assert damage(writer.store).keys() <= set(brought)


def test_a_manifest_of_another_past_does_not_count(writer: Writer) -> None:
    """The log was set back to 5 and went on from there, before it got a hole."""
    sealed_by(writer)
    reseal(writer)
    past = writer.store.get("manifest.json")
    lose(writer.store, transaction_path(6), transaction_path(7), "manifest.json")
    again = Writer(writer.store)
    again.token = again.catalog.token()
    assert reseal(again) == 7
    writer.store.put("manifest.json", past)
    writer.store.delete(transaction_path(4))
    done = rebuild(writer.store, accept_undeleted=True)
    assert any("manifest.json is not used: " in line for line in done.lost)
    assert (done.proved, done.revision) == (3, 8)
    assert damage(writer.store) == {}
