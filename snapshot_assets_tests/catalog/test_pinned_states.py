"""Retained states never change, whatever happens to a location, whether read from the log or from a checkpoint.

A simple model records which revisions were sealed, expired and pinned.
"""

from __future__ import annotations

import itertools
import shutil
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, note, settings
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
from snapshot_assets.catalog.log.checkpoints import checkpoint_bytes, same_states, write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.objects import create_savepoint
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag, rename_tag, replace_tag
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.receipt_selection import adoptable_receipts
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import AcceptanceNeededError, LogWholeError, NoSnapshotError
from snapshot_assets.format.documents import pretty_json, sha256_hex
from snapshot_assets.format.layout import log_revision
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import HEADER, Writer
from snapshot_assets_tests.catalog.execute import collect_garbage, delete_rows, expire, prune, rollback
from snapshot_assets_tests.catalog.merging import MERGED, commit_merged
from snapshot_assets_tests.catalog.rebuild.losses import LOSSES, OTHERS, Rebuilt, highest_named, lose, shows_nothing
from snapshot_assets_tests.catalog.tags import damage, delete_savepoint, wait_for_clock

NOW = timedelta(0)
NUMBERS = st.integers(0, 9)
CHUNKS = st.integers(1, 3)


class PinnedStates(RuleBasedStateMachine):
    """One location, and a model of its sealed revisions.

    Attributes:
        manifests: The manifest of each revision at its seal, by revision.
        expired: Expired revisions.
        copies: The revision that a sealed compaction compacted, by the revision of the compaction.
        rebuilt: Whether a rebuild may have lost `copies`.
        pins: Pinned revisions by the name of a tag or the number of a savepoint.
        savepoints: The number of savepoints that were ever created.
    """

    @initialize()
    def begin(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.writer = Writer(open_store(parse_location(f"file://{self.folder}")))
        self.writer.begin()
        self.writer.fill()
        self.manifests: dict[int, bytes] = {}
        self.expired: set[int] = set()
        self.copies: dict[int, int] = {}
        self.rebuilt = False
        self.pins: dict[str | int, int] = {}
        self.savepoints = 0
        self.names = itertools.count()
        self.pruned = False
        seal(self.catalog)

    @property
    def catalog(self) -> Catalog:
        return self.writer.catalog

    def readable(self, number: int) -> int:
        """Return one of the revisions that the model retains."""
        revisions = sorted(self.retained())
        return revisions[number % len(revisions)]

    def retained(self) -> set[int]:
        return self.manifests.keys() - (self.expired - set(self.pins.values()))

    def a_tag(self, number: int) -> str:
        tags = sorted(name for name in self.pins if isinstance(name, str))
        return tags[number % len(tags)]

    def a_savepoint(self, number: int) -> int:
        savepoints = sorted(name for name in self.pins if isinstance(name, int))
        return savepoints[number % len(savepoints)]

    # Exports and compactions

    @rule(chunk=CHUNKS, filled=st.booleans())
    def export(self, chunk: int, filled: bool) -> None:
        """Complete a chunk, or replace it if it is completed."""
        files = (self.writer.file(chunk, b"%d" % self.catalog.state.revision),) * filled
        replaces = tuple(self.catalog.state.files.chunk(chunk)) if self.catalog.state.completed(chunk) else None
        receipt, ref = self.writer.receipt(chunk, *files, supersedes=self.attempts(chunk))
        done = rules.FinishedChunk(chunk, files, (ref,), receipt.opened_at, receipt.fence, "r1", replaces)
        if replaces is not None:
            self.writer.token = self.catalog.token()  # as a run that opens its source now
        self.catalog.commit(rules.complete_chunks(self.writer.token, [done], self.catalog.now))

    def attempts(self, chunk: int) -> tuple[str, ...]:
        """Return the attempts that a receipt of a chunk supersedes."""
        return tuple(sorted({known.file.attempt for known in self.catalog.state.live_files(chunk)}))

    @rule(chunk=CHUNKS)
    def die(self, chunk: int) -> None:
        """Other writers die before they commit. A resume may adopt their receipt while the chunk is missing."""
        self.writer.receipt(chunk, self.writer.file(chunk, b"never committed"), supersedes=self.attempts(chunk))
        for path in ("tag/tag-orphan-01234567", "savepoint/savepoint-9-01234567"):
            self.writer.store.put(path, b"{}")

    @precondition(lambda self: self.catalog.state.files.chunks())
    @rule(number=NUMBERS)
    def compact(self, number: int) -> None:
        chunks = self.catalog.state.files.chunks()
        chunk = chunks[number % len(chunks)]
        file, merged = self.writer.file(chunk, b"merged"), self.attempts(chunk)
        receipt, ref = self.writer.receipt(chunk, file, compaction=MERGED, supersedes=merged)
        state = self.catalog.state
        copied = state.newest_seal.revision if state.sealed and state.newest_seal is not None else None
        revision = commit_merged(self.catalog, self.catalog.token(), receipt, ref)
        if revision is not None and copied is not None:
            self.copies[revision] = copied

    @precondition(lambda self: not self.catalog.state.missing())
    @rule()
    def seal(self) -> None:
        seal(self.catalog)

    @rule()
    def delete_rows(self) -> None:
        delete_rows(self.catalog, TableName("main", "m"), "t is not null")

    @precondition(lambda self: self.catalog.state.sealed)
    @rule()
    def force(self) -> None:
        name = f"demo{self.catalog.state.revision}"
        self.writer.begin(replace(HEADER, name=name), force=True)

    @rule()
    def work(self) -> None:
        self.catalog.commit(rules.in_progress(self.writer.token, [2], "run"))

    # Pins

    @precondition(lambda self: self.retained())
    @rule(number=NUMBERS)
    def tag(self, number: int) -> None:
        name, revision = f"tag{next(self.names)}", self.readable(number)
        create_tag(self.catalog, name, revision)
        self.pins[name] = revision

    @precondition(lambda self: self.catalog.state.tags)
    @rule(number=NUMBERS)
    def untag(self, number: int) -> None:
        name = self.a_tag(number)
        assert delete_tag(self.catalog, name)
        del self.pins[name]

    @precondition(lambda self: self.catalog.state.tags)
    @rule(number=NUMBERS)
    def rename(self, number: int) -> None:
        name, new_name = self.a_tag(number), f"renamed{next(self.names)}"
        rename_tag(self.catalog, name, new_name)
        self.pins[new_name] = self.pins.pop(name)

    @precondition(lambda self: self.catalog.state.tags)
    @rule(number=NUMBERS, other=NUMBERS)
    def retag(self, number: int, other: int) -> None:
        name, revision = self.a_tag(number), self.readable(other)
        replace_tag(self.catalog, name, revision)
        self.pins[name] = revision

    @precondition(lambda self: not self.catalog.state.missing())
    @rule()
    def save(self) -> None:
        revision = seal(self.catalog).seal.revision
        savepoint = create_savepoint(self.catalog, self.catalog.state.data_revision).pin
        assert savepoint.id == self.savepoints + 1  # numbers are never used again
        self.pins[savepoint.id], self.savepoints = revision, savepoint.id

    @precondition(lambda self: self.catalog.state.pins.savepoints)
    @rule(number=NUMBERS)
    def unsave(self, number: int) -> None:
        savepoint = self.a_savepoint(number)
        assert delete_savepoint(self.catalog, savepoint)
        del self.pins[savepoint]

    # Expiry and rollback

    @rule(keep=st.integers(1, 4))
    def expire(self, keep: int) -> None:
        left = sorted(self.manifests.keys() - self.expired)
        ends = [this for this, after in pairwise(left) if not self.has_rows_of(after, this)] + left[-1:]
        older = [each for each in left if each not in ends[-keep:]]
        expired = expire(self.catalog, keep_last=keep).expired
        if self.rebuilt:  # the compactions may be lost
            assert set(expired) <= set(left[:-1])
        else:
            assert expired == tuple(older)
        self.expired.update(expired)

    def has_rows_of(self, revision: int, older: int) -> bool:
        """Return whether only compactions lie between two sealed revisions."""
        while revision > older:
            revision = self.copies.get(revision, 0)
        return revision == older

    @precondition(lambda self: self.retained())
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
            newest = state.newest_seal.revision
            self.expired.update(each for each in self.manifests if revision < each < newest)

    # Maintenance

    @rule(reopen=st.booleans())
    def checkpoint(self, reopen: bool) -> None:
        write_checkpoint(self.writer.store, self.catalog.state)
        if reopen:
            self.writer.catalog = Catalog.open_for_writing(self.writer.store)

    @rule()
    def collect(self) -> None:
        wait_for_clock(self.writer.store, self.catalog.state.committed_at)
        collect_garbage(self.catalog, grace=NOW, unsafe=True)
        kinds = ("data/", "schema/", "tag/", "savepoint/", "transactions/probe-")
        there = {info.path for info in self.writer.store.list() if info.path.startswith(kinds)}
        reachable = self.reachable()
        assert there == reachable, there ^ reachable
        assert self.rebuilt or not self.catalog.state.files.unreferenced(self.catalog.state.retained())

    def reachable(self) -> set[str]:
        """Return the paths that retained states, pins and a resume can name."""
        state = self.catalog.refresh()
        found = {known.pin.object.path for known in state.pins}
        for each in (state, *(state.at(revision) for revision in self.retained())):
            found |= named_by(each)
        for receipt, ref in adoptable_receipts(self.writer.store, state, state.missing()):
            found |= {ref.path, *(file.path for file in receipt.files)}
        return found

    @rule()
    def prune(self) -> None:
        self.pruned |= bool(prune(self.catalog, grace=NOW, unsafe=True).deleted)

    # Losses

    @rule(kind=st.sampled_from(LOSSES), other=st.sampled_from(OTHERS), number=st.integers(0, 40), length=CHUNKS)
    def rebuild(self, kind: str, other: str, number: int, length: int) -> None:
        """Lose a part of the log and rebuild it. If nothing names the lost part, restore it."""
        store, before = self.writer.store, self.catalog.state
        spoiled = lose(store, kind, other, number, length)
        there, accepted = list(store.list()), False
        try:
            try:
                done = rebuild(store)
            except AcceptanceNeededError:
                assert list(store.list()) == there  # nothing was changed
                accepted, done = True, rebuild(store, accept_undeleted=True)
        except NoSnapshotError:
            assert shows_nothing(store)
        except LogWholeError:
            self.is_whole(before)
        else:
            note(f"lost {sorted(spoiled)} of revision {before.revision}; {done}")
            after = read_state(store)
            if done.proved == done.revision:
                self.is_whole(before)
            else:
                Rebuilt(before, self.manifests, spoiled, after, done, accepted).check()
                self.adopt(after, done.revision)
                needed = damage(store).keys()  # a rebuild cannot restore lost objects that the log names
                spoiled = {path: data for path, data in spoiled.items() if path in needed and not log_revision(path)}
        for path, data in spoiled.items():
            store.put(path, data)
        assert damage(store) == {}
        with pytest.raises(LogWholeError):
            rebuild(store)

    def is_whole(self, before: State) -> None:
        """Check that a whole log lost nothing, or only an end that nothing names."""
        left = read_state(self.writer.store)
        assert same_states(left, before) or left.revision < before.revision
        assert left.revision >= highest_named(self.writer.store)

    def adopt(self, state: State, rebuilt_at: int) -> None:
        """Take the rebuilt state as the model."""
        self.writer = Writer(self.writer.store)
        self.writer.token = self.catalog.token()
        readable = {seal.revision for seal in state.readable()}
        self.manifests = {number: each for number, each in self.manifests.items() if number < rebuilt_at}
        self.manifests |= {number: pretty_json(manifest_of(state.at(number))) for number in readable}
        self.expired = self.manifests.keys() - (readable - state.expired)
        self.rebuilt = True
        self.pins = pinned_by(state)
        self.savepoints = state.pins.last_savepoint

    # Invariants

    @invariant()
    def retained_states_are_unchanged(self) -> None:
        newest = read_state(self.writer.store)
        assert same_states(newest, self.catalog.state)
        assert checkpoint_bytes(newest) == checkpoint_bytes(self.catalog.state)
        if not self.pruned:
            assert same_states(newest, scan_log(self.writer.store).state)
        readable = {known.revision for known in newest.readable()}
        new = {revision for revision in readable if revision > max(self.manifests, default=0)}
        for revision in readable:
            manifest = pretty_json(manifest_of(newest.at(revision)))
            if revision in new:
                self.manifests[revision] = manifest
            assert self.manifests.get(revision) == manifest
            assert pretty_json(manifest_of(self.catalog.state.at(revision))) == manifest
        assert readable == self.retained()
        assert pinned_by(newest) == self.pins
        self.files_are_unchanged(newest)

    def files_are_unchanged(self, newest: State) -> None:
        states = [newest, *(newest.at(revision) for revision in self.retained())]
        files = {known.file.path: known.file.sha256 for each in states for known in each.live_files()}
        assert {path: sha256_hex(self.writer.store.get(path)) for path in files} == files

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            found = damage(self.writer.store)
            assert found == {}, found


def pinned_by(state: State) -> dict[str | int, int]:
    """Return the revisions that tags and savepoints pin, by name and by number."""
    return {name: known.pin.revision for name, known in state.tags.items()} | {
        number: known.pin.revision for number, known in state.pins.savepoints.items()
    }


def named_by(state: State) -> set[str]:
    """Return the files, receipts and schema documents of a state."""
    found = {known.file.path for known in state.live_files()}
    found |= {ref.path for known in state.chunks.values() for ref in known.chunk.receipts}
    return found | {ref.path for added in state.schemas.values() for ref in added.files}


@pytest.mark.parametrize("examples", [4, pytest.param(24, marks=pytest.mark.slow)])
def test_retained_states_never_change(scratch, examples: int) -> None:
    PinnedStates.folder = scratch / "pinned"
    chosen = settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(PinnedStates, settings=chosen)
