"""A simple model of a location after some commits, and its comparison with the real location."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from snapshot_assets.catalog.log.checkpoints import same_states
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import (
    AcceptanceNeededError,
    ConflictError,
    IncompleteError,
    TagExistsError,
    VersionNotFoundError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import chunk_of
from snapshot_assets_tests.deleted_rows import deleting
from snapshot_assets_tests.faults.interleaving import Actor, World

REFUSALS = (AcceptanceNeededError, ConflictError, IncompleteError, TagExistsError, VersionNotFoundError)
"""Errors that an actor may get; any other, such as a missing object, is a fault."""


@dataclass
class Model:
    """The state after some transactions, computed in the simplest way."""

    snapshot_id: str = ""
    live: dict[str, int] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    chunks: dict[int, act.ChunkStatus] = field(default_factory=dict)
    pins: dict[str | int, int] = field(default_factory=dict)
    expired: set[int] = field(default_factory=set)
    sealed: dict[int, tuple[set[str], dict[str, set[int]]]] = field(default_factory=dict)
    tombstones: list[int] = field(default_factory=list)
    through: dict[str, int] = field(default_factory=dict)
    version: int = 1

    def fold(self, transaction: act.Transaction) -> None:
        went_back = 0
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
                case act.TagCreated() | act.TagReplaced() | act.TagRenamed() | act.TagDeleted():
                    self.fold_tag(action)
                case act.SavepointCreated():
                    self.pins[action.id] = action.revision
                case act.SavepointDeleted():
                    del self.pins[action.id]
                case act.Expired():
                    self.expired.update(action.revisions)
                case act.Rollback():
                    self.snapshot_id, self.chunks = action.snapshot_id, {}
                    self.tombstones, went_back = list(action.tombstones), action.revision
                case act.ReturnedFiles():
                    self.live |= {path: chunk_of(path) for path in action.paths}
                case act.Seal():
                    self.sealed[transaction.revision] = set(self.live), self.pending()
                case act.Tombstone():
                    self.tombstones.append(transaction.revision)
                case act.Upgraded():
                    self.version = action.version
        if went_back:
            assert self.sealed[transaction.revision] == self.sealed[went_back]

    def fold_tag(self, action: act.TagCreated | act.TagReplaced | act.TagRenamed | act.TagDeleted) -> None:
        match action:
            case act.TagCreated():
                assert action.name not in self.pins
                self.pins[action.name] = action.revision
            case act.TagReplaced():
                assert action.tag.name in self.pins
                self.pins[action.tag.name] = action.tag.revision
            case act.TagRenamed():
                assert self.pins.pop(action.name) == action.tag.revision
                self.pins[action.tag.name] = action.tag.revision
            case act.TagDeleted():
                del self.pins[action.name]

    def readable(self) -> dict[int, tuple[set[str], dict[str, set[int]]]]:
        """Return files and tombstones of the readable sealed revisions."""
        gone = self.expired - set(self.pins.values())
        return {revision: found for revision, found in self.sealed.items() if revision not in gone}

    def pending(self) -> dict[str, set[int]]:
        """Return the tombstones that filter each live file."""
        return {path: {each for each in self.tombstones if each > self.through[path]} for path in self.live}

    def facts(self) -> dict[str, Any]:
        """Return the values that `facts_of` returns for a catalog."""
        found = {name: value for name, value in vars(self).items() if name not in ("through", "expired")}
        return found | {"sealed": self.readable(), "pending": self.pending()}


def facts_of(state: State) -> dict[str, Any]:
    """Return the catalog's values in the form of the model."""
    return {
        "snapshot_id": state.snapshot_id,
        "live": {known.file.path: known.file.chunk for known in state.live_files()},
        "known": state.files.paths(),
        "chunks": {number: known.chunk.status for number, known in state.chunks.items()},
        "pins": {
            **{name: known.pin.revision for name, known in state.tags.items()},
            **{number: known.pin.revision for number, known in state.pins.savepoints.items()},
        },
        "sealed": {known.revision: _files_of(state.at(known.revision)) for known in state.readable()},
        "tombstones": sorted(state.tombstones),
        "pending": _files_of(state)[1],
        "version": state.format_version,
    }


def _files_of(state: State) -> tuple[set[str], dict[str, set[int]]]:
    files = [known.file for known in state.live_files()]
    return {file.path for file in files}, {file.path: set(deleting(state, file)) for file in files}


def check(world: World, actors: list[Actor]) -> None:
    """Compare the objects on storage with the commits that the actors won."""
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
        assert not applied & pending, f"{path} is filtered by a tombstone that it already applies"
        assert applied | pending == set(model.tombstones), f"a deletion does not reach {path}"
    _check_objects(world, model)


def _check_log(world: World) -> None:
    scan = scan_log(world.store)
    assert not scan.faults, scan.faults
    known = [entry.transaction for entry in scan.entries if entry.transaction.uuid in world.unknown]
    world.won += known
    world.unknown.difference_update(transaction.uuid for transaction in known)
    won = {transaction.revision: transaction.uuid for transaction in world.won}
    assert sorted(won) == list(range(1, len(world.won) + 1)), "revisions are won once each, without a hole"
    logged = {entry.transaction.revision: entry.transaction.uuid for entry in scan.entries}
    assert set(logged) == set(range(scan.first + 1, len(world.won) + 1)), "only below a checkpoint may be pruned"
    assert {revision: won[revision] for revision in logged} == logged
    for sent in world.sent:
        assert len(set(sent) & set(logged.values())) <= 1, "an operation was committed twice"
    assert set(logged.values()) & set(chain(*world.sent)) <= set(won.values()), "a refused commit is in the log"
    assert same_states(read_state(world.store), scan.state)


def _check_objects(world: World, model: Model) -> None:
    there = {info.path for info in world.store.list()}
    for revision, (files, _) in model.readable().items():
        assert files <= there, f"retained revision {revision} lost {sorted(files - there)}"
    objects = {str(known.pin): known.pin.object.path for known in read_state(world.store).pins}
    assert not {pin: path for pin, path in objects.items() if path not in there}
    damage = [fault for fault in verify(world.store, depth="quick").faults if fault.is_damage]
    assert not damage, damage
