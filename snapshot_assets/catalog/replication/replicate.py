"""Replicates a location: its marker, then objects, then the log that names them, then the hints.

At every moment the replica is a location whose head is whole, so a replication that was killed at any storage call is
continued by the next one. Every object is hashed while it is copied. What the source loses meanwhile, by a deleted tag
or by garbage collection, makes the replication plan again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import cast

from snapshot_assets.catalog.catalog import writer_name
from snapshot_assets.catalog.log.checkpoints import is_whole, write_checkpoint
from snapshot_assets.catalog.log.replay import read_from_log, read_state
from snapshot_assets.catalog.log.store import is_there
from snapshot_assets.catalog.manifest import hints_of, load_manifests_of, shown_state
from snapshot_assets.catalog.replica import Replica, with_versions
from snapshot_assets.catalog.replication.objects import GuardedStore, check_existing, copy_object, create_exactly
from snapshot_assets.catalog.replication.plan import ReplicationPlan, plan_replication, unneeded
from snapshot_assets.catalog.state.retained import needed_seals
from snapshot_assets.catalog.verify.faults import Fault, FaultKind
from snapshot_assets.catalog.verify.retained import needed_objects
from snapshot_assets.errors import ConflictError, DamageError, ObjectExistsError, ObjectNotFoundError, SupersededError
from snapshot_assets.format import documents
from snapshot_assets.format.actions import ObjectRef
from snapshot_assets.format.layout import (
    CHECKSUMS,
    MANIFEST,
    REPLICA,
    SEALS,
    checkpoint_path,
    sealed_revision,
    transaction_path,
)
from snapshot_assets.format.transactions import decode_transaction, trailing_sha256
from snapshot_assets.format.units import parse_time, time_text
from snapshot_assets.storage.base import ObjectStore, delete_unless_retained
from snapshot_assets.storage.bulk import Listed, in_parallel
from snapshot_assets.storage.create import SingleWriterStore, holds, probe, refuse_unlockable

_ATTEMPTS = 20
_SHOWN = 10

Progress = Callable[[ObjectRef, bool], None]
"""Is called with each object that is finished, and whether it was copied or was there already."""


@dataclass
class Replication:
    """The result of a replication.

    Attributes:
        previous: The revision that it had before; 0 for none.
        sealed: Whether that revision is sealed.
        objects: How many objects were copied, without the log and the hints.
        deleted: How many objects were deleted that the source no longer has.
    """

    source: str
    replica: str
    revision: int = 0
    previous: int = 0
    sealed: bool = False
    objects: int = 0
    bytes: int = 0
    transactions: int = 0
    deleted: int = 0
    deleted_bytes: int = 0


class _SourceChangedError(SupersededError):
    """The source no longer has what the plan copies."""


def replicate(
    source: ObjectStore,
    target: ObjectStore,
    *,
    delete: bool = False,
    only: Sequence[str] = (),
    accept_loss: bool = False,
    single_writer: bool = False,
    progress: Progress = lambda *_: None,
) -> Replication:
    """Copy what a replica lacks, up to the source's head.

    Args:
        source: The source; it is only read.
        target: The replica; an empty location becomes one.
        delete: Whether the replica loses what the source has deleted. By default it keeps it.
        only: Versions that the replica gets beside the head and those that it was given before; none for all.
        accept_loss: Follow a source that lost what the replica has, by a rebuild for example.
        single_writer: Accept a replica's store without conditional creates; the caller promises to be the only writer.
        progress: See `Progress`.

    Raises:
        DamageError: Objects of the source are damaged; all others are copied, and the replica's head stays.
        ConflictError: The source changed faster than it could be copied.
        SnapshotError: See `plan_replication`.
    """
    done, checked = Replication(source.uri, target.uri), None
    for attempt in range(_ATTEMPTS):
        plan = plan_replication(source, target, delete=delete, only=only, accept_loss=accept_loss)
        done.previous = done.previous or plan.log.last
        log = plan.mended or plan.log.transactions or plan.log.checkpoints
        if checked is None and (plan.marker is None or plan.copied or log):
            refuse_unlockable(target)
            checked = probe(target, single_writer=single_writer)
            if not checked.conditional_create:
                target = cast(ObjectStore, SingleWriterStore(target))
        try:
            return _Run(source, target, plan, done, progress).execute(delete, last=attempt == _ATTEMPTS - 1)
        except _SourceChangedError:
            continue
    raise ConflictError(f"{source.uri} changed {_ATTEMPTS} times while it was replicated; run again.", uri=source.uri)


@dataclass
class _Run:
    """One attempt to carry out a plan."""

    source: ObjectStore
    target: ObjectStore
    plan: ReplicationPlan
    done: Replication
    progress: Progress

    def execute(self, delete: bool, *, last: bool) -> Replication:
        """Carry the plan out, in the order that keeps the replica whole."""
        guarded = GuardedStore(self.target, self.plan.marker or self._mark())
        self.target = cast(ObjectStore, guarded)

        def check(ref: ObjectRef) -> None:
            check_existing(self.target, ref, self.target.head(ref.path), hashed=True)
            self.progress(ref, False)

        for _ in in_parallel(self.target, check, self.plan.leftovers):
            pass
        self._copy_objects(last)
        marker, chosen = guarded.check(), self.plan.revisions
        if chosen is not None and marker.revisions is not None:  # other replications may have chosen more meanwhile
            chosen = tuple(sorted({*chosen, *marker.revisions}))
        if marker.revisions not in (chosen, None):
            self.target.put(REPLICA, replace(marker, revisions=chosen).document())
        try:
            self._copy_log()
        except ObjectNotFoundError as error:
            raise _SourceChangedError(f"{self.source.uri} was pruned: {error}") from error
        self._copy_signatures()
        self._write_hints()
        if delete:  # what neither the replica's head needs nor the source has; both are read again
            state, objects = read_state(self.target), Listed(self.target)
            needed = needed_objects(state).keys() | needed_seals(state, objects)
            for info in unneeded(self.source, objects, needed):
                if delete_unless_retained(self.target, info.path):
                    self.done.deleted += 1
                    self.done.deleted_bytes += info.size
        self.done.revision, self.done.sealed = self.plan.state.revision, self.plan.state.sealed
        return self.done

    def _mark(self) -> Replica:
        location, revisions = self.plan.state.location_id, self.plan.revisions
        now = parse_time(time_text(datetime.now(UTC)))  # as the marker records it
        marker = Replica(location, self.source.uri, now, writer_name(), revisions)
        if self.plan.marker_damaged:  # chosen versions are added to it once their objects are there
            marker = marker if revisions is None else replace(marker, revisions=())
            self.target.put(REPLICA, marker.document())
            return marker
        try:
            self.target.create(REPLICA, marker.document())
            return marker
        except ObjectExistsError as error:  # another replication began at the same time
            raise _SourceChangedError(f"{self.target.uri} became a replica meanwhile.") from error

    def _copy_objects(self, last: bool) -> None:
        """Copy objects; an object that is gone is damage only if the source still needs it."""
        lock = threading.Lock()

        def copy(ref: ObjectRef) -> Fault | None:
            fault = copy_object(self.source, self.target, ref)
            if fault is None:
                with lock:
                    self.done.objects += 1
                    self.done.bytes += ref.bytes
                    self.progress(ref, True)
            return fault

        remote = next((store for store in (self.source, self.target) if not store.uri.startswith("file:")), self.target)
        faults = [fault for fault in in_parallel(remote, copy, self.plan.copied) if fault is not None]
        gone = any(fault.kind is FaultKind.MISSING for fault in faults)
        if gone and not last and read_state(self.source).revision != self.plan.state.revision:
            raise _SourceChangedError(f"{self.source.uri} changed: {faults[0].message}")
        if not faults:
            return
        some = " ".join(fault.message for fault in islice(faults, _SHOWN))
        more = f" And {len(faults) - _SHOWN:,} more." if len(faults) > _SHOWN else ""
        raise DamageError(
            f"{self.source.uri} is damaged, so the replica {self.target.uri} keeps its head: {some}{more} All other "
            "objects are copied. Repair the source (`snapshots export verify` says how), then replicate again.",
            objects=[fault.object for fault in faults],
            uri=self.source.uri,
        )

    def _copy_log(self) -> None:
        log = self.plan.log
        if log.last > log.head:
            raise _SourceChangedError("Another replication is ahead.")
        for path in self.plan.mended:
            data = self.source.get(path, limit=documents.MAX_TRANSACTION_BYTES)
            decode_transaction(data, path)
            self.target.put(path, data)
        if log.checkpoint_first:
            self._copy_checkpoint(log.head)
        for revision in log.transactions:
            path = transaction_path(revision)
            data = self.source.get(path, limit=documents.MAX_TRANSACTION_BYTES)
            decode_transaction(data, path)  # proves its own checksum
            if trailing_sha256(data) != log.sha256[revision]:
                raise _SourceChangedError(f"{path} in {self.source.uri} was replaced.")
            create_exactly(self.target, path, data)
            self.done.transactions += 1
        for revision in log.checkpoints:
            self._copy_checkpoint(revision)
        for path in log.outdated:
            self.target.delete(path)

    def _copy_checkpoint(self, revision: int) -> None:
        """Copy a checkpoint. If the source has none that is whole, compute the head's, or one that is damaged here."""
        path = checkpoint_path(revision)
        if is_whole(self.source, revision):
            data = self.source.get(path)
            try:
                self.target.create(path, data)
            except ObjectExistsError:
                if not holds(self.target, path, data) and not is_whole(self.target, revision):
                    self.target.put(path, data)
        elif revision == self.plan.log.head:
            write_checkpoint(self.target, self.plan.state)
        elif is_there(self.target, path):
            write_checkpoint(self.target, read_from_log(self.source, revision))

    def _copy_signatures(self) -> None:
        """Copy statements about seals that the replica has, and signatures that are newer than its own."""
        state = with_versions(self.plan.state, self.plan.revisions)
        offered = {each.path: each for each in self.source.list(SEALS)}
        known = {each.path: each.modified for each in self.target.list(SEALS)}
        for path in sorted(needed_seals(state, offered)):
            is_newer = path not in known or known[path] < offered[path].modified
            if is_newer and (sealed_revision(path) or 0) <= state.revision:
                with suppress(ObjectNotFoundError):  # the source has let the seal expire meanwhile
                    self.target.put(path, self.source.get(path, limit=documents.MAX_DOCUMENT_BYTES))

    def _write_hints(self) -> None:
        """Write the hints of the newest seal, as the source has them; before the first seal, those of the head."""
        shown = shown_state(self.plan.state)
        hints = hints_of(shown)
        wanted = {CHECKSUMS: hints[CHECKSUMS], **load_manifests_of(shown, self.target.uri), MANIFEST: hints[MANIFEST]}
        for path, data in wanted.items():
            try:
                same = data is not None and holds(self.target, path, data)
            except ObjectNotFoundError:
                same = data is None
            if not same and data is not None:
                self.target.put(path, data)
            elif not same:
                self.target.delete(path)
