"""Upgradability: code of the next format version, which only tests have, meets this one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.store import append
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations.maintain_log import UpgradePlan, plan_upgrade
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import NoSnapshotError, PlanError, SnapshotError, SupersededError, UnsupportedVersionError
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import transaction_path
from snapshot_assets_tests.catalog.conftest import HEADER, Writer
from snapshot_assets_tests.catalog.execute import upgrade
from snapshot_assets_tests.catalog.next_version import NEXT, Noted, next_version
from snapshot_assets_tests.catalog.tags import Changed, reseal, sealed_by


@pytest.fixture
def sealed(writer: Writer) -> Writer:
    sealed_by(writer)
    create_tag(writer.catalog, "before", 5)
    return writer


def test_a_location_of_this_version_is_read_by_the_next_and_keeps_its_version_until_it_is_upgraded(
    sealed: Writer,
) -> None:
    then = manifest_of(sealed.catalog.state)
    with next_version():
        catalog = Catalog.open_for_writing(sealed.store)
        assert (catalog.state.format_version, manifest_of(catalog.state)) == (1, then)
        create_tag(catalog, "by-the-next", 5)
        assert verify(sealed.store).faults == []
    assert read_state(sealed.store).tags.keys() == {"before", "by-the-next"}
    assert verify(sealed.store).faults == []


def test_one_transaction_upgrades_and_everything_stays_readable(sealed: Writer) -> None:
    then = manifest_of(sealed.catalog.state)
    with next_version():
        catalog = Catalog.open_for_writing(sealed.store)
        assert plan_upgrade(catalog) == UpgradePlan(1, NEXT)
        assert upgrade(catalog) == UpgradePlan(1, NEXT, 7)
        assert upgrade(catalog) == UpgradePlan(NEXT, NEXT)
        catalog.commit(lambda _: [Noted()])
        assert manifest_of(catalog.state) == then
        writer = Writer(sealed.store)
        writer.token = writer.catalog.token()
        assert reseal(writer) == 10
        create_tag(writer.catalog, "after", 10)
        create_tag(writer.catalog, "of-the-past", 5)
        write_checkpoint(sealed.store, writer.catalog.state)
        for state in (read_state(sealed.store), writer.catalog.state):
            assert (state.format_version, manifest_of(state)["version"]) == (NEXT, NEXT)
            assert (state.at(5).format_version, manifest_of(state.at(5))) == (1, then)
        versions = {
            info.path.split("/")[1].rpartition("-")[0]: json.loads(sealed.store.get(info.path))["version"]
            for info in sealed.store.list("tag/")
        }
        assert versions == {"tag-before": 1, "tag-after": NEXT, "tag-of-the-past": NEXT}
        assert json.loads(sealed.store.get("manifest.json"))["version"] == NEXT
        assert verify(sealed.store).faults == []


def test_a_new_location_has_the_newest_version(store) -> None:
    with next_version():
        writer = Writer(store)
        writer.begin()
        assert read_state(store).format_version == NEXT
        write_checkpoint(store, writer.catalog.state)
        assert read_state(store).at(1).format_version == NEXT
        assert not any(fault.is_damage for fault in verify(store).faults)
    with pytest.raises(UnsupportedVersionError, match=f"version {NEXT}; this code reads up to 1"):
        read_state(store)


@pytest.mark.parametrize("kept", ["log", "checkpoint"])
def test_code_of_this_version_then_refuses_to_read_and_to_write_with_both_numbers(sealed: Writer, kept: str) -> None:
    asleep = sealed.catalog
    with next_version():
        catalog = Catalog.open_for_writing(sealed.store)
        upgrade(catalog)
        if kept == "checkpoint":
            write_checkpoint(sealed.store, catalog.state)
            for revision in range(2, 8):
                sealed.store.delete(transaction_path(revision))
            catalog.commit(lambda _: [act.ChunksInProgress((1,), "run")])
    both = f"format version {NEXT}; this code reads up to 1"
    for refused in (
        (
            lambda: read_state(sealed.store),
            lambda: Catalog.open_for_writing(sealed.store),
            lambda: asleep.commit(lambda _: [act.ChunksInProgress((1,), "run")]),
            lambda: seal(asleep),
        )
        if kept == "log"
        else (lambda: read_state(sealed.store), lambda: Catalog.open_for_writing(sealed.store))
    ):
        with pytest.raises(UnsupportedVersionError, match=both):
            refused()
    assert any(both in fault.message for fault in verify(sealed.store).faults)


def test_an_upgrade_aborts_every_plan_that_was_read_before_it(sealed: Writer) -> None:
    with next_version():
        old = Writer(sealed.store)
        old.token = old.catalog.token()
        file = old.file(1)
        upgrade(Catalog.open_for_writing(sealed.store))
        live = tuple(known.file.path for known in old.catalog.state.live_files(1))
        finished = old.finished(1, file, replaces=live)
        head = read_state(sealed.store).revision
        for prepare in (
            rules.complete_chunks(old.token, [finished], old.catalog.now),
            rules.in_progress(old.token, [1], "run"),
            rules.extend(old.token, HEADER.end),
            rules.delete(old.token, with_tags=True),
        ):
            with pytest.raises(SupersededError, match=f"upgraded or rebuilt at revision 7 .*version is {NEXT}"):
                old.catalog.commit(prepare)
        assert read_state(sealed.store).revision == head


def test_a_tag_whose_object_is_of_the_old_version_is_not_committed_on_the_new_one(sealed: Writer) -> None:
    with next_version():
        old = Catalog.open_for_writing(sealed.store)
        others = [lambda: upgrade(Catalog.open_for_writing(sealed.store))]

        def create(path: str, data: bytes) -> None:
            sealed.store.create(path, data)
            if path.startswith("tag/") and others:
                others.pop()()

        old.store = Changed(sealed.store, create=create)
        with pytest.raises(SupersededError, match="from format version 1 to 2 meanwhile"):
            create_tag(old, "late", 5)
        assert read_state(sealed.store).tags.keys() == {"before"}
        assert verify(sealed.store).faults == []
        assert create_tag(old, "late", 5).new


@pytest.mark.parametrize("version", [0, NEXT, NEXT + 1])
def test_a_version_that_cannot_be_written_is_refused_with_the_numbers(sealed: Writer, version: int) -> None:
    with pytest.raises(PlanError, match=f"has format version 1 and this code writes up to 1; format version {version}"):
        upgrade(sealed.catalog, version)
    assert read_state(sealed.store).revision == 6


def test_there_is_nothing_to_upgrade_where_there_is_no_snapshot(store) -> None:
    with pytest.raises(NoSnapshotError):
        upgrade(Catalog.open_for_writing(store))


def test_a_transaction_of_another_version_than_its_location_is_damage(sealed: Writer) -> None:
    with next_version():
        catalog = Catalog.open_for_writing(sealed.store)
        transaction = catalog._transaction([act.ChunksInProgress((1,), "run")])
        append(sealed.store, replace(transaction, version=NEXT))
        with pytest.raises(SnapshotError, match=f"has format version {NEXT}; expected 1"):
            read_state(sealed.store)
