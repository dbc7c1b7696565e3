"""Concurrent writers, compactors, deleters of rows, taggers, upgraders, collectors, pruners and checkpointers.

Their storage calls are interleaved by hypothesis.

What is proved, for every schedule that is drawn: with the plan's own grace period, and as long as no process stands
still before one storage call for longer than half of it, no commit is lost or doubled, nobody who was refused left a
trace in the log, the state is what a simple model gives for the commits in their order, every deletion of rows filters
every file that was not made with it, and no file that a live or sealed state needs was deleted, though collectors and
pruners work at the same time. What lies on storage from before
is days older than the grace period, so they have something to delete from the first call on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from snapshot_assets.catalog import catalog as catalog_module
from snapshot_assets.catalog import replay, rules
from snapshot_assets.catalog.checkpoints import same_states, write_checkpoint
from snapshot_assets.catalog.garbage import collect_garbage
from snapshot_assets.catalog.pins import create_tag, delete_tag
from snapshot_assets.catalog.prune import prune
from snapshot_assets.catalog.receipts import Receipt, find_adoptable, write_receipt
from snapshot_assets.catalog.replay import read_state, scan_log
from snapshot_assets.catalog.seal import seal
from snapshot_assets.catalog.state import State
from snapshot_assets.catalog.tombstones import delete_rows
from snapshot_assets.catalog.upgrade import upgrade
from snapshot_assets.catalog.verify import verify
from snapshot_assets.errors import ConflictError, IncompleteError, ObjectNotFoundError, TagExistsError
from snapshot_assets.format import actions as act
from snapshot_assets.format.checksums import sha256_hex
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import data_file_stem, new_attempt
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.catalog.conftest import HEADER, SCHEMA, START
from snapshot_assets_tests.catalog.merging import MERGED, commit_merged
from snapshot_assets_tests.catalog.next_version import next_version
from snapshot_assets_tests.deleted_rows import deleting
from snapshot_assets_tests.faults.interleaving import Actor, Clock, Recorded, SeenStore, Turn, World, play
from snapshot_assets_tests.faults.operations import store_at
from snapshot_assets_tests.schema_documents import write_schema

CHUNKS = (1, 2, 3)
GRACE = timedelta(microseconds=HEADER.grace)
HOUR = timedelta(hours=1)
REFUSALS = (ConflictError, IncompleteError, TagExistsError)
"""What an actor may be told; anything else, such as an object that is not there, is a fault."""


# What actors do


def _write(catalog: Recorded, chunk: int, **facts: Any) -> tuple[rules.Token, Receipt, act.ObjectRef]:
    """Write a file and its receipt, as an export does before it commits; a compaction says more."""
    store, clock = catalog.store, catalog.store.world.clock
    token, opened_at, attempt = catalog.token(), clock(), new_attempt()
    content = b"rows of " + attempt.encode()
    path = data_file_stem(chunk, TableName("main", "m"), attempt) + "-0000.parquet"
    store.put(path, content)
    file = DataFile(path, "main", "m", chunk, attempt, 2, len(content), sha256_hex(content), 1, token.revision)
    schema = catalog.state.schemas[token.schema_id].sha256
    fence, plan = {"run": "r"}, {"location_id": catalog.state.location_id, "header": catalog.state.header}
    receipt = Receipt(
        token.snapshot_id, token.revision, schema, chunk, attempt, opened_at, fence, (file,), **plan, **facts
    )
    store.world.applied[path] = set(catalog.state.tombstones)
    return token, receipt, write_receipt(store, receipt)


def _commit(catalog: Recorded, token: rules.Token, receipt: Receipt, ref: act.ObjectRef, replaces=None) -> None:
    finished = rules.FinishedChunk(
        receipt.chunk, receipt.files, (ref,), receipt.opened_at, receipt.fence, "r", replaces
    )
    catalog.commit(rules.complete_chunk(token, finished, catalog.store.world.clock))


def _export(catalog: Recorded, chunk: int) -> None:
    """Complete a chunk, or replace it where it is completed."""
    state = catalog.refresh()
    replaces = tuple(state.files.chunk(chunk)) if state.completed(chunk) else None
    _commit(catalog, *_write(catalog, chunk), replaces)


def writer(*chunks: int) -> Callable[[Actor], None]:
    def work(actor: Actor) -> None:
        catalog = actor.open()
        for chunk in chunks:
            _export(catalog, chunk)
        seal(catalog)

    return work


def dying(chunk: int) -> Callable[[Actor], None]:
    """A writer that ends between receipt and commit."""

    def work(actor: Actor) -> None:
        _write(actor.open(), chunk)

    return work


def resumer(actor: Actor) -> None:
    """Adopts receipts, exports what is missing, and seals."""
    catalog = actor.open()
    token, state = catalog.token(), catalog.state
    found = find_adoptable(catalog.store, state, state.missing(), state.schemas[state.schema_id].sha256)
    for receipt, ref in found.values():
        now = catalog.store.world.clock()
        adopted = rules.FinishedChunk(
            receipt.chunk, receipt.files, (ref,), now, receipt.fence, "r", base_revision=receipt.base_revision
        )
        with suppress(rules.StaleReceiptError):
            catalog.commit(rules.complete_chunk(token, adopted, catalog.store.world.clock))
    for chunk in catalog.refresh().missing():
        _export(catalog, chunk)
    seal(catalog)


def failing(chunk: int) -> Callable[[Actor], None]:
    def work(actor: Actor) -> None:
        catalog = actor.open()
        catalog.commit(rules.fail_chunk(catalog.token(), chunk, "no", "r"))

    return work


def compactor(*chunks: int) -> Callable[[Actor], None]:
    """Merges the files of chunks. One that finds its input gone was overtaken, and gives up."""

    def work(actor: Actor) -> None:
        catalog = actor.open()
        for chunk in chunks:
            if catalog.refresh().files.chunk(chunk):
                token, receipt, ref = _write(catalog, chunk, compaction=MERGED)
                inputs = set(catalog.state.files.chunk(chunk))
                try:
                    commit_merged(catalog, token, receipt, ref)
                except ObjectNotFoundError:
                    assert not inputs <= set(catalog.refresh().files.chunk(chunk))

    return work


def tombstoner(where: str) -> Callable[[Actor], None]:
    def work(actor: Actor) -> None:
        delete_rows(actor.open(), TableName("main", "m"), where)

    return work


def upgrader(actor: Actor) -> None:
    upgrade(actor.open())


def forcer(actor: Actor) -> None:
    catalog = actor.open()
    header = replace(HEADER, name="forced")
    catalog.commit(rules.begin(header, write_schema(catalog.store, SCHEMA), force=True))


def tagger(name: str) -> Callable[[Actor], None]:
    def work(actor: Actor) -> None:
        catalog = actor.open()
        create_tag(catalog, name, catalog.state.seals[-1].revision)

    return work


def untagger(actor: Actor) -> None:
    delete_tag(actor.open(), "first")


def collector(actor: Actor) -> None:
    collect_garbage(actor.open())


def pruner(actor: Actor) -> None:
    prune(actor.open())


def checkpointer(actor: Actor) -> None:
    catalog = actor.open()
    write_checkpoint(actor.store, catalog.refresh())


def reader(actor: Actor) -> None:
    """Opens the newest state and each sealed one."""
    for known in read_state(actor.store).seals:
        assert read_state(actor.store, through=known.revision).revision == known.revision


def verifier(actor: Actor) -> None:
    damage = [fault for fault in verify(actor.store, depth="quick").faults if fault.is_damage]
    assert not damage, damage


KINDS: dict[str, Callable[[Actor], None]] = {
    **{f"writer of {chunks}": writer(*chunks) for chunks in ((1,), (2,), (1, 3), (3, 2))},
    **{f"dying writer of {chunk}": dying(chunk) for chunk in (1, 2)},
    "failing writer of 2": failing(2),
    "resumer": resumer,
    **{f"compactor of {chunks}": compactor(*chunks) for chunks in ((1,), (2, 1), (3, 2))},
    "tombstoner": tombstoner("t is null"),
    "other tombstoner": tombstoner("t < '2025-01-02T00:00:00Z'"),
    "upgrader": upgrader,
    "tagger": tagger("nightly"),
    "tagger of first": tagger("first"),
    "untagger": untagger,
    "collector": collector,
    "second collector": collector,
    "pruner": pruner,
    "checkpointer": checkpointer,
    "second checkpointer": checkpointer,
    "reader": reader,
    "verifier": verifier,
    "forcer": forcer,
}


# The model


@dataclass
class Model:
    """What transactions say, as simply as it can be told."""

    snapshot_id: str = ""
    live: dict[str, int] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    chunks: dict[int, act.ChunkStatus] = field(default_factory=dict)
    tags: dict[str, int] = field(default_factory=dict)
    sealed: dict[int, tuple[set[str], dict[str, set[int]]]] = field(default_factory=dict)
    tombstones: list[int] = field(default_factory=list)
    through: dict[str, int] = field(default_factory=dict)
    version: int = 1

    def fold(self, transaction: act.Transaction) -> None:
        for action in transaction.actions:
            match action:
                case act.Begin():
                    self.snapshot_id, self.live, self.chunks, self.tombstones = action.snapshot_id, {}, {}, []
                case act.Chunk():
                    self.chunks[action.id] = action.status
                case act.AddFile():
                    self.live[action.file.path] = action.file.chunk
                    self.known.add(action.file.path)
                    self.through[action.file.path] = action.file.tombstones_through
                case act.RemoveFile():
                    del self.live[action.path]
                case act.Purged():
                    self.known -= set(action.paths)
                case act.TagCreated():
                    self.tags[action.name] = action.revision
                case act.TagDeleted():
                    del self.tags[action.name]
                case act.Seal():
                    self.sealed[transaction.revision] = set(self.live), self.pending()
                case act.Tombstone():
                    self.tombstones.append(transaction.revision)
                case act.Upgraded():
                    self.version = action.version

    def pending(self) -> dict[str, set[int]]:
        """Return the tombstones that the live files are to be filtered by."""
        return {path: {each for each in self.tombstones if each > self.through[path]} for path in self.live}

    def facts(self) -> dict[str, Any]:
        """Return what the catalog says too."""
        found = {name: value for name, value in vars(self).items() if name != "through"}
        return found | {"pending": self.pending()}


def facts_of(state: State) -> dict[str, Any]:
    """Return what the catalog says."""
    return {
        "snapshot_id": state.snapshot_id,
        "live": {known.file.path: known.file.chunk for known in state.live_files()},
        "known": state.files.paths(),
        "chunks": {number: known.chunk.status for number, known in state.chunks.items()},
        "tags": {name: known.tag.revision for name, known in state.tags.items()},
        "sealed": {known.revision: _files_of(state.at(known.revision)) for known in state.seals},
        "tombstones": sorted(state.tombstones),
        "pending": _files_of(state)[1],
        "version": state.format_version,
    }


def _files_of(state: State) -> tuple[set[str], dict[str, set[int]]]:
    files = [known.file for known in state.live_files()]
    return {file.path for file in files}, {file.path: set(deleting(state, file)) for file in files}


# The world before


@pytest.fixture(scope="module")
def world(scratch) -> World:
    """Seals with checkpoints between them, files that no seal has, orphans; all of it older than the grace period."""
    folder = scratch / "interleaved"
    made = World(store_at(folder), Clock(datetime.now(START.tzinfo) - 5 * GRACE))
    catalog = Recorded.open_for_writing(SeenStore(made), clock=made.clock)
    catalog.commit(rules.begin(HEADER, write_schema(catalog.store, SCHEMA)))
    for chunk in (*CHUNKS, 1, 2, 1):
        _export(catalog, chunk)
        if not catalog.state.missing() and catalog.state.revision != 5:
            seal(catalog)
            write_checkpoint(catalog.store, catalog.state)
    create_tag(catalog, "first", catalog.state.seals[0].revision)
    _export(catalog, 3)
    _export(catalog, 3)
    _write(catalog, 2)
    made.clock.now += 3 * GRACE
    return made


@pytest.fixture(scope="module", autouse=True)
def _often():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog_module, "CHECKPOINT_INTERVAL", 4)
        patch.setattr(replay, "_READERS", 1 << 30)  # readers of a pool of threads would not stand still
        yield


# The test


def check(world: World, actors: list[Actor]) -> None:
    """Compare what lies on storage with what the actors were told."""
    for actor in actors:
        assert actor.crash is None, f"{actor.name}: {actor.crash!r}"
        assert actor.error is None or isinstance(actor.error, REFUSALS), f"{actor.name}: {actor.error!r}"
    _check_log(world)
    state = read_state(world.store)
    model = Model()
    for transaction in sorted(world.won, key=lambda won: won.revision):
        model.fold(transaction)
    assert facts_of(state) == model.facts()
    for path, pending in model.pending().items():
        applied = world.applied[path] & set(model.tombstones)
        assert not applied & pending, f"{path} is filtered by what it was made with"
        assert applied | pending == set(model.tombstones), f"a deletion does not reach {path}"
    _check_objects(world, model)


def _check_log(world: World) -> None:
    won = {transaction.revision: transaction.uuid for transaction in world.won}
    assert sorted(won) == list(range(1, len(world.won) + 1)), "revisions are won once each, without a hole"
    scan = scan_log(world.store)
    assert not scan.faults, scan.faults
    logged = {entry.transaction.revision: entry.transaction.uuid for entry in scan.entries}
    assert set(logged) == set(range(scan.first + 1, len(world.won) + 1)), "only below a checkpoint may be pruned"
    assert {revision: won[revision] for revision in logged} == logged
    refused = world.tried - set(won.values())
    assert not refused & set(logged.values())
    assert same_states(read_state(world.store), scan.state)


def _check_objects(world: World, model: Model) -> None:
    there = {info.path for info in world.store.list()}
    for revision, (files, _) in model.sealed.items():
        assert files <= there, f"sealed revision {revision} lost {sorted(files - there)}"
    damage = [fault for fault in verify(world.store, depth="quick").faults if fault.is_damage]
    assert not damage, damage


TURNS = st.builds(
    Turn,
    st.integers(0, 7),
    st.integers(1, 25),
    st.sampled_from([0 * HOUR, 0 * HOUR, HOUR, 6 * HOUR, 11 * HOUR]),
)
PLAYS = {
    "names": st.lists(st.sampled_from(sorted(KINDS)), min_size=2, max_size=8),
    "schedule": st.lists(TURNS, max_size=40),
}


def _play(world: World, folder: Path, names: list[str], schedule: list[Turn]) -> None:
    copy = world.copy(folder)
    actors = [Actor(copy, f"{number} {name}", KINDS[name]) for number, name in enumerate(names)]
    with next_version():
        play(copy, actors, schedule, GRACE / 2)
        check(copy, actors)


_SETTINGS = {"suppress_health_check": list(HealthCheck), "print_blob": True}


@given(**PLAYS)
@settings(max_examples=60, **_SETTINGS)
def test_however_actors_interleave_no_commit_and_no_file_is_lost(world, scratch, names, schedule):
    _play(world, scratch / "played", names, schedule)


@pytest.mark.slow
@given(**PLAYS)
@settings(max_examples=2000, **_SETTINGS)
def test_however_actors_interleave_no_commit_and_no_file_is_lost_many_times(world, scratch, names, schedule):
    _play(world, scratch / "played", names, schedule)
