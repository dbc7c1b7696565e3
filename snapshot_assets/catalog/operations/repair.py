"""Writes objects again that the log gives: hints, receipts, checkpoints, and the objects of tags and savepoints.

The source is not needed. Nothing is committed: the log, its versions, tags and holds stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_from_log
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.log.truncation import refuse_faults
from snapshot_assets.catalog.manifest import write_hints
from snapshot_assets.catalog.operations.maintain_log import damaged_checkpoints
from snapshot_assets.catalog.pins.objects import damaged_objects
from snapshot_assets.catalog.receipts.written_again import receipt_again
from snapshot_assets.catalog.replica import refuse_replica
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.faults import object_faults
from snapshot_assets.catalog.verify.hints import hint_faults
from snapshot_assets.catalog.verify.retained import older_documents
from snapshot_assets.format.actions import ObjectRef
from snapshot_assets.format.layout import checkpoint_path, is_receipt
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.listed import Listed


@dataclass(frozen=True)
class RepairPlan:
    """What a repair writes again.

    Attributes:
        hints: Paths of the hints that differ from what the log gives; all hints are written again then.
        objects: The bytes of receipts, tags and savepoints, by path.
        checkpoints: Revisions of damaged checkpoints that the log before them gives.
    """

    hints: tuple[str, ...]
    objects: Mapping[str, bytes]
    checkpoints: tuple[int, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of everything that is damaged or missing, and is written again."""
        return (*self.hints, *sorted(self.objects), *map(checkpoint_path, self.checkpoints))


def plan_repair(catalog: Catalog) -> RepairPlan:
    """Return what the log can repair; changes nothing.

    Raises:
        ReplicaError: The location is a replica: replication brings its objects back.
        DamageError: The log itself is damaged.
    """
    store = catalog.store
    refuse_replica(store)
    refuse_faults(store, "nothing was repaired")
    head = catalog.refresh()
    pinned = {known.pin.object for known in head.pins}
    whole = pinned - {ref for ref, _ in _damaged(store, dict.fromkeys(pinned, head), "tag/", "savepoint/")}
    known = frozenset(head.files.paths())
    receipts = {ref.path: receipt_again(state, ref, known) for ref, state in _damaged(store, _receipts(head), "data/")}
    return RepairPlan(
        tuple(dict.fromkeys(fault.object for fault in hint_faults(store, scan_log(store), replica=False))),
        receipts | damaged_objects(head, whole),
        tuple(revision for revision in damaged_checkpoints(store, head) if revision > _start(store)),
    )


def execute_repair(catalog: Catalog, plan: RepairPlan) -> RepairPlan:
    """Write again what was planned. If interrupted, it has repaired less."""
    store = catalog.store
    for path, data in plan.objects.items():
        store.put(path, data)
    for revision in plan.checkpoints:
        write_checkpoint(store, read_from_log(store, revision))
    head = catalog.refresh()
    if plan.hints:
        newest = head.newest_seal
        write_hints(store, head if newest is None or head.sealed else head.at(newest.revision), catalog.refresh)
    return plan


def _start(store: ObjectStore) -> int:
    """Return the checkpoint that the log starts with, which nothing else gives; 0 for none."""
    return scan_log(store).start


def _receipts(head: State) -> dict[ObjectRef, State]:
    """Return the receipts that readable revisions name, each with the newest state that names it."""
    named = {ref: head for known in head.chunks.values() for ref in known.chunk.receipts}
    older = {ref: revisions[-1] for ref, revisions in older_documents(head).items() if is_receipt(ref.path)}
    states = {revision: head.at(revision) for revision in set(older.values())}
    return {ref: states[revision] for ref, revision in older.items()} | named


def _damaged(store: ObjectStore, named: Mapping[ObjectRef, State], *folders: str) -> Iterator[tuple[ObjectRef, State]]:
    """Yield the objects that are missing or damaged, with their states."""
    objects = Listed(store, *folders)
    for ref, state in named.items():
        if any(object_faults(store, ref, ref.path in objects)):
            yield ref, state
