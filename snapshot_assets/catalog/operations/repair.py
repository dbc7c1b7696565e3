"""Writes objects again that the log gives: hints, receipts, checkpoints, and the objects of tags and savepoints.

The source is not needed. Nothing is committed: the log, its versions, tags and holds stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.log.truncation import refuse_faults
from snapshot_assets.catalog.manifest import shown_state, write_hints
from snapshot_assets.catalog.operations.maintain_log import mend_checkpoints
from snapshot_assets.catalog.pins.objects import damaged_objects
from snapshot_assets.catalog.receipts import receipt_again
from snapshot_assets.catalog.replica import refuse_replica
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.faults import faults_by_object
from snapshot_assets.catalog.verify.hints import hint_faults
from snapshot_assets.catalog.verify.retained import older_documents
from snapshot_assets.format.actions import ObjectRef
from snapshot_assets.format.layout import checkpoint_path, is_receipt, log_revision
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
    scan = scan_log(store)
    refuse_faults(scan, "nothing was repaired")
    head = catalog.refresh()
    pinned = {known.pin.object for known in head.pins}
    whole = pinned - _damaged(store, pinned, "tag/", "savepoint/")
    return RepairPlan(
        tuple(dict.fromkeys(fault.object for fault in hint_faults(store, scan, replica=False))),
        dict(_receipts_again(store, head)) | damaged_objects(head, whole),
        tuple(sorted(map(log_revision, scan.torn))),
    )


def execute_repair(catalog: Catalog, plan: RepairPlan) -> RepairPlan:
    """Write again what was planned. If interrupted, it has repaired less.

    Raises:
        DamageError: The log cannot reproduce a checkpoint; everything else is written.
    """
    store = catalog.store
    for path, data in plan.objects.items():
        store.put(path, data)
    if plan.hints:
        write_hints(store, shown_state(catalog.refresh()), catalog.refresh)
    mend_checkpoints(store, plan.checkpoints)
    return plan


def _receipts_again(store: ObjectStore, head: State) -> Iterator[tuple[str, bytes]]:
    """Yield the damaged receipts that readable revisions name, as the newest state that names each gives them."""
    named = {ref: revisions[-1] for ref, revisions in older_documents(head).items() if is_receipt(ref.path)}
    named |= {ref: head.revision for known in head.chunks.values() for ref in known.chunk.receipts}
    paths = frozenset(head.files.paths())
    damaged = sorted(_damaged(store, named, "data/"), key=named.__getitem__)
    for revision, refs in groupby(damaged, named.__getitem__):
        state = head if revision == head.revision else head.at(revision)
        yield from ((ref.path, receipt_again(state, ref, paths)) for ref in refs)


def _damaged(store: ObjectStore, refs: Collection[ObjectRef], *folders: str) -> set[ObjectRef]:
    """Return the objects that are missing or damaged."""
    return {ref for ref, _ in faults_by_object(store, refs, Listed(store, *folders))}
