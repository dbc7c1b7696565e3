"""Whatever happens to a location, what can be read stays as it was, from the log and from any checkpoint."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.checkpoints import checkpoint_bytes, same_states, write_checkpoint
from snapshot_assets.catalog.garbage import collect_garbage
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.pins import create_tag, delete_tag
from snapshot_assets.catalog.prune import prune
from snapshot_assets.catalog.replay import read_state, scan_log
from snapshot_assets.catalog.retention import expire
from snapshot_assets.catalog.rollback import rollback
from snapshot_assets.catalog.seal import seal
from snapshot_assets.catalog.tombstones import delete_rows
from snapshot_assets.catalog.verify import verify
from snapshot_assets.errors import AcceptanceNeededError
from snapshot_assets.format.documents import pretty_json
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets_tests.catalog.conftest import HEADER, Writer

NOW = timedelta(0)
NUMBERS = st.integers(0, 9)


class PinnedStates(RuleBasedStateMachine):
    """One location, and the manifests that its sealed revisions had when they were sealed."""

    @initialize()
    def begin(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.writer = Writer(open_store(parse_location(f"file://{self.folder}")))
        self.writer.begin()
        self.writer.fill()
        self.manifests: dict[int, bytes] = {}
        self.pruned = False
        seal(self.catalog)

    @property
    def catalog(self) -> Catalog:
        return self.writer.catalog

    def readable(self, number: int) -> int:
        seals = self.catalog.state.readable()
        return seals[number % len(seals)].revision

    @rule(chunk=st.integers(1, 3), filled=st.booleans())
    def replace(self, chunk: int, filled: bool) -> None:
        files = [self.writer.file(chunk, b"%d" % self.catalog.state.revision)] * filled
        replaces = tuple(self.catalog.state.files.chunk(chunk)) if self.catalog.state.completed(chunk) else None
        self.writer.complete(chunk, *files, replaces=replaces)

    @precondition(lambda self: not self.catalog.state.missing())
    @rule()
    def seal(self) -> None:
        seal(self.catalog)

    @rule(number=NUMBERS)
    def tag(self, number: int) -> None:
        create_tag(self.catalog, f"tag{self.catalog.state.revision}", self.readable(number))

    @precondition(lambda self: self.catalog.state.tags)
    @rule(number=NUMBERS)
    def untag(self, number: int) -> None:
        tags = sorted(self.catalog.state.tags)
        delete_tag(self.catalog, tags[number % len(tags)])

    @rule(keep=st.integers(1, 4))
    def expire(self, keep: int) -> None:
        kept = [seal.revision for seal in self.catalog.state.readable()]
        pinned = self.catalog.state.pins.revisions()
        done = expire(self.catalog, keep_last=keep)
        now = [seal.revision for seal in self.catalog.state.readable()]
        assert set(kept) - set(now) == set(done.expired) - pinned

    @rule(number=NUMBERS, undelete=st.booleans(), discard=st.booleans())
    def rollback(self, number: int, undelete: bool, discard: bool) -> None:
        revision = self.readable(number)
        then = self.catalog.state.at(revision)
        try:
            done = rollback(self.catalog, revision, undelete=undelete, discard_newer=discard)
        except AcceptanceNeededError:
            assert not undelete
            return
        state = self.catalog.state
        assert state.sealed
        assert state.newest_seal.seal.checksum == then.newest_seal.seal.checksum
        assert [known.file for known in state.live_files()] == [known.file for known in then.live_files()]
        if done.revision is not None:
            self.writer.token = self.catalog.token()
        if discard:
            pins = state.pins.revisions() | {state.newest_seal.revision}
            assert {seal.revision for seal in state.readable() if seal.revision > revision} <= pins

    @rule()
    def delete_rows(self) -> None:
        delete_rows(self.catalog, TableName("main", "m"), "t is not null")

    @precondition(lambda self: self.catalog.state.sealed)
    @rule()
    def force(self) -> None:
        name = f"demo{self.catalog.state.revision}"
        self.writer.begin(replace(HEADER, name=name), force=True)

    @rule(reopen=st.booleans())
    def checkpoint(self, reopen: bool) -> None:
        write_checkpoint(self.writer.store, self.catalog.state)
        if reopen:
            self.writer.catalog = Catalog.open_for_writing(self.writer.store)

    @rule()
    def collect(self) -> None:
        collect_garbage(self.catalog, grace=NOW, unsafe=True)
        state = self.catalog.refresh()
        data = {info.path for info in self.writer.store.list("data/") if info.path.endswith(".parquet")}
        assert data == state.files.paths()  # nothing that is needed is gone, and nothing else is left
        assert not state.files.unneeded(state.retained())

    @rule()
    def prune(self) -> None:
        self.pruned |= bool(prune(self.catalog, grace=NOW, unsafe=True).deleted)

    @rule()
    def work(self) -> None:
        self.catalog.commit(rules.in_progress(self.writer.token, [2], "run"))

    @invariant()
    def what_can_be_read_is_as_it_was(self) -> None:
        newest = read_state(self.writer.store)
        assert same_states(newest, self.catalog.state)
        assert checkpoint_bytes(newest) == checkpoint_bytes(self.catalog.state)
        if not self.pruned:
            assert same_states(newest, scan_log(self.writer.store).state)
        for known in newest.readable():
            manifest = pretty_json(manifest_of(newest.at(known.revision)))
            assert self.manifests.setdefault(known.revision, manifest) == manifest
            assert pretty_json(manifest_of(self.catalog.state.at(known.revision))) == manifest

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            assert not [fault for fault in verify(self.writer.store).faults if fault.is_damage]


@pytest.mark.parametrize("examples", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_what_can_be_read_stays_as_it_was(scratch, examples: int) -> None:
    PinnedStates.folder = scratch / "pinned"
    chosen = settings(
        max_examples=examples, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(PinnedStates, settings=chosen)
