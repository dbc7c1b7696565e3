"""Garbage collection: the only operation that deletes data.

Garbage is what no retained revision, no pin and no adoptable receipt needs; if one of these cannot be read, nothing is
collected. It is deleted after a grace period, so that writers which work on it can still commit it (InfluxDB IOx,
"Garbage Collection").
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import itemgetter

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.iceberg.objects import superseded_metadata
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.log.truncation import check_receipt, newest_state, refuse_faults
from snapshot_assets.catalog.receipt_selection import adoptable_receipts
from snapshot_assets.catalog.receipts import read_receipt
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import PinState
from snapshot_assets.catalog.state.retained import (
    EXPIRED,
    expiries_since,
    needed_documents,
    needed_seals,
    unreferenced_schemas,
)
from snapshot_assets.catalog.verify.comparisons import superseded_comparisons
from snapshot_assets.catalog.verify.faults import Fault, read_object
from snapshot_assets.catalog.verify.records import superseded
from snapshot_assets.errors import DamageError, ObjectExistsError, ObjectNotFoundError, PlanError
from snapshot_assets.format import documents
from snapshot_assets.format.actions import ObjectRef, TagCreated
from snapshot_assets.format.layout import (
    COLLECTED,
    SEALS,
    SIGNATURE,
    in_layout,
    is_probe,
    is_receipt,
    is_record_signature,
    is_temporary,
    log_revision,
    revision_of,
    sealed_revision,
    transaction_path,
)
from snapshot_assets.format.units import duration_text
from snapshot_assets.storage.base import ObjectInfo, ObjectStore, delete_unless_retained
from snapshot_assets.storage.bulk import Listed
from snapshot_assets.storage.create import probe

_PATH = re.compile(rb'"path": "((?:data|schema)/[^"]+)"')


@dataclass(frozen=True, slots=True)
class Garbage:
    """An object that nothing needs.

    Attributes:
        reason: `replaced` (no retained revision has it), `expired` (a revision that expired had it, and the log still
            records this), `orphan` (no transaction names it, or none that counts), `probe`, `superseded` (the record of
            a verification or comparison that a later one covers, or of an unfinished comparison; or Iceberg metadata
            that newer one replaced), `temporary` (a file
            of the local driver whose writer did not finish), or `old version` (see `old_versions`).
        since: When it was written or became unreferenced, whichever is later. On the store's clock, or by the log's
            times where these are later.
        version: The version that is meant, in a bucket that keeps several; "" for the object.
    """

    path: str
    bytes: int
    reason: str
    since: datetime
    version: str = ""


@dataclass
class PinnedPaths:
    """Paths that the objects of tags and savepoints name, and their own.

    Each object is read once, as none changes. A pin that is deleted during a collection keeps its files until the next
    one.
    """

    objects: set[ObjectRef] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)

    def read(self, store: ObjectStore, pins: Iterable[PinState]) -> None:
        """Read the pins that were not read before."""
        for pin in pins:
            if pin.pin.object not in self.objects:
                self._read(store, pin)

    def _read(self, store: ObjectStore, known: PinState) -> None:
        """Add the path of a pin's object, and the paths that it names.

        The object's checksum proves the manifest, which may name a million files. So it is not parsed: a regular
        expression takes the paths, in which JSON escapes no character.
        """
        pin = known.pin
        content = read_object(store, pin.object, True)
        if isinstance(content, Fault):
            raise DamageError(
                f"The object of {pin} at {store.uri}, which pins files, cannot be read: {content.message} Nothing was "
                "deleted. `snapshots catalog repair` writes it again from the log; or delete the "
                f"{'tag' if isinstance(pin, TagCreated) else 'savepoint'}.",
                object=pin.object.path,
            )
        self.paths.add(pin.object.path)
        self.paths.update(match[1].decode() for match in _PATH.finditer(content))
        self.objects.add(pin.object)


@dataclass(frozen=True)
class GarbageScan:
    """All garbage of a location at one revision.

    Attributes:
        foreign: Paths of objects that are not part of the format.
    """

    garbage: Sequence[Garbage]
    foreign: tuple[str, ...]

    def by_age(self, before: datetime) -> tuple[tuple[Garbage, ...], tuple[Garbage, ...]]:
        """Return the garbage of a time or earlier, and the younger garbage.

        Counts in whole seconds, as some stores' clocks do: by the log's milliseconds, what expired in the second of
        such a time would be younger than it.
        """
        old = tuple(each for each in self.garbage if each.since.replace(microsecond=0) <= before)
        return old, tuple(each for each in self.garbage if each.since.replace(microsecond=0) > before)


def scan_head(store: ObjectStore, before: datetime, pinned: PinnedPaths) -> GarbageScan:
    """Return the garbage at the head.

    The head is read from storage. A process that slept while the log after its own state was pruned would take that
    state for the newest. An object that cannot be read is a fault only if the head did not change meanwhile: the
    deletion of a tag, for example, removes its object. Expiries since `before` still protect what they released.
    `pinned` has what was read of pins, and gets the others.

    Raises:
        DamageError: A tag, savepoint or receipt cannot be read, or the log has a fault.
    """
    while True:
        objects = Listed(store)
        state = Catalog(store, newest_state(store, objects.values())).require_snapshot()
        try:
            pinned.read(store, state.pins)
            return scan_state(store, state, objects, before, pinned.paths)
        except DamageError:
            if read_state(store).revision == state.revision:
                raise


def scan_state(store: ObjectStore, state: State, objects: Listed, before: datetime, pinned: Set[str]) -> GarbageScan:
    """Return the garbage at a head; see `scan_head`.

    Receipts are read after `objects` were listed: what is written later does not count. The head's pins name `pinned`.
    """
    from snapshot_assets.catalog.state.data_files import FileSet  # loads Arrow

    known = FileSet(state.files.merged())
    is_file = known.path_lookup()
    others = [info for info in objects.values() if not info.path.startswith(COLLECTED)]
    clock = _LogTimes(store, others)
    expiries = expiries_since(state, before, clock.of)
    unreferenced = known.unreferenced(state.retained(), expiries)
    needed = needed_documents(state).keys() | pinned | needed_seals(state, (info.path for info in others))
    for receipt, ref in adoptable_receipts(store, state, state.missing(), objects):
        check_receipt(store, state, receipt)
        needed |= {ref.path, *(file.path for file in receipt.files)}
    expired = set[str]()  # the files that would be needed if no revision had expired or lost its last pin
    if state.expired:
        retained = sorted(state.expired.union(state.retained()))
        expired = unreferenced.keys() - known.unreferenced(retained).keys()
    schemas, schemas_of_expired = unreferenced_schemas(state, expiries)
    unreferenced |= schemas
    expired |= schemas_of_expired
    # The log does not record what expired before this time, and what a rebuild left out may have been needed until it.
    earliest = state.expiries_dropped_until
    if rebuilt := state.rebuilt_at:
        committed = (event.committed_at for event in state.events if event.revision == rebuilt)
        earliest = max(earliest, clock.of(rebuilt), *committed)
    garbage, foreign = [], []

    def needs(path: str) -> bool:
        return path in needed or (path not in unreferenced and is_file(path))

    for info in objects.values():
        if not in_layout(info.path):
            foreign.append(info.path)
        elif (info.path.startswith((*COLLECTED, SEALS)) or is_probe(info.path)) and not needs(info.path):
            files = _files_of(store, state, info.path) & unreferenced.keys()
            since, reason = max(info.modified, earliest), "probe" if is_probe(info.path) else "orphan"
            if files:
                revision, removed_at = max(unreferenced[path] for path in files)
                since = max(since, removed_at, clock.of(revision))
                reason = "replaced" if files.isdisjoint(expired) else EXPIRED
            if sealed := sealed_revision(info.path):
                end, at = expiries.get(sealed, (0, since))
                since, reason = max(since, at, clock.of(end) if end else since), EXPIRED
            garbage.append(Garbage(info.path, info.size, reason, since))
    sizes = {info.path: info.size for info in others}
    records = superseded(others) | superseded_comparisons(others) | superseded_metadata(store, others)
    for info in filter(lambda info: is_record_signature(info.path), others):
        record = info.path.removesuffix(SIGNATURE)
        if record in records or record not in sizes:
            records[info.path] = records.get(record, info.modified)
    garbage += [Garbage(path, sizes[path], "superseded", since) for path, since in records.items()]
    temporary = [info for info in store.temporaries() if is_temporary(info.path)]
    garbage += [Garbage(info.path, info.size, "temporary", info.modified) for info in temporary]
    return GarbageScan(garbage, tuple(foreign))


class _LogTimes:
    """When revisions were committed, on the store's clock; the log itself records the times of writers' clocks."""

    def __init__(self, store: ObjectStore, objects: Sequence[ObjectInfo]) -> None:
        self._store = store
        log = [info for info in objects if log_revision(info.path)]
        self._transactions = {log_revision(info.path): info.modified for info in log if revision_of(info.path)}
        self._log = sorted((log_revision(info.path), info.modified) for info in log)

    def of(self, revision: int) -> datetime:
        """Return when a revision was written; for a pruned one, when the oldest later object of the log was."""
        later = self._log[bisect_left(self._log, revision, key=itemgetter(0)) :]
        if not later:  # the listing missed it, or it was committed since
            self._transactions[revision] = self._store.head(transaction_path(revision)).modified
        return self._transactions.get(revision) or later[0][1]


def _files_of(store: ObjectStore, state: State, path: str) -> set[str]:
    """Return the files whose removal makes an object garbage: those of a receipt, or the object itself."""
    if not is_receipt(path):
        return {path}
    try:
        receipt, _ = read_receipt(store, path)
    except (DamageError, ObjectNotFoundError):  # torn, or deleted since it was listed
        return set()
    check_receipt(store, state, receipt)  # a log copied over this one would delete all of it
    return {file.path for file in receipt.files}


_BYTES_PER_PATH = 2048  # none is longer than 1 KiB (object stores' limit)


@dataclass(frozen=True)
class GarbagePlan:
    """What a garbage collection deletes.

    Attributes:
        deleted: Garbage that is older than the grace period.
        waiting: Garbage that is younger.
        foreign: Objects that are not part of the format; they stay.
        retained: What was to be deleted, but the store keeps it until a time; the next collection tries again.
        retained_until: When the last lock of old versions in it ends, if the store says that.
        pinned: What the pins of the head name that this was planned on.
    """

    deleted: tuple[Garbage, ...]
    waiting: tuple[Garbage, ...]
    foreign: tuple[str, ...]
    grace: timedelta
    pinned: PinnedPaths = field(default_factory=PinnedPaths, repr=False, compare=False)
    retained: tuple[Garbage, ...] = ()
    retained_until: datetime | None = None


def plan_collection(catalog: Catalog, *, grace: timedelta | None = None, unsafe: bool = False) -> GarbagePlan:
    """Return what a garbage collection would delete; changes nothing.

    `grace` is None for the plan's own grace period. `unsafe` accepts a shorter one: no writer may be at work.

    Raises:
        PlanError: The grace period is shorter than the plan's, or longer than twice that.
        LostLogError: The log's end was lost.
        DamageError: The log has a fault, or the object of a tag or savepoint, or a receipt, cannot be read.
    """
    catalog.refresh()
    grace = checked_grace(catalog.require_snapshot(), grace, unsafe)
    most = 2 * _own_grace(catalog.state)
    if grace > most:  # files of a forgotten expiry would count from their removal, and go too early
        raise PlanError(
            f"A grace period of {duration_text(grace)} is longer than twice the plan's: checkpoints record what expired"
            f" for {duration_text(most)} only. Give at most that, or leave it out."
        )
    before = catalog.now() - grace
    pinned = PinnedPaths()
    scan = scan_head(catalog.store, before, pinned)
    deleted, waiting = scan.by_age(before)
    if deleted:
        refuse_faults(scan_log(catalog.store), "nothing was deleted")
    return GarbagePlan(deleted, waiting, scan.foreign, grace, pinned)


def execute_collection(
    catalog: Catalog, plan: GarbagePlan, progress: Callable[[Garbage], None] = lambda _: None
) -> GarbagePlan:
    """Delete the garbage of a plan: commits that the files leave the state, then deletes the objects.

    Deletes nothing but what was planned, and is still garbage and old enough on the store's clock. If interrupted, it
    leaves objects that no transaction names; the next collection deletes them. `progress` is called for each deleted
    object. In the plan that is returned, other planned garbage is `waiting`, unless it is needed again or gone.

    Raises:
        LostLogError: The log's end was lost.
        DamageError: The log has a fault, or the object of a tag or savepoint, or a receipt, cannot be read.
        ConflictError: Another writer committed what was about to be deleted; nothing was deleted.
    """
    if not plan.deleted:
        return plan
    catalog.refresh()
    before = probe(catalog.store, single_writer=True).store_time - plan.grace
    # Before the purge: a purged file is an orphan, so its age no longer shows when a revision that had it expired.
    scan = scan_head(catalog.store, before, plan.pinned)
    planned = {each.path for each in plan.deleted}
    due = planned.intersection(each.path for each in scan.by_age(before)[0])
    if due:
        refuse_faults(scan_log(catalog.store), "nothing was deleted")
    paths, most = sorted(due), max(documents.MAX_TRANSACTION_BYTES // _BYTES_PER_PATH, 1)
    for start in range(0, len(paths), most):  # as many as one transaction holds
        catalog.commit(rules.purge(paths[start : start + most]))
    scan = scan_head(catalog.store, before, plan.pinned)
    due.intersection_update(each.path for each in scan.by_age(before)[0])
    planned -= due
    waiting = tuple(each for each in scan.garbage if each.path in planned)
    schemas = {path for path in due if path.startswith("schema/")}
    retained, named = _delete_schemas(catalog.store, schemas)
    due -= named
    deleted = tuple(each for each in plan.deleted if each.path in due)
    for each in deleted:
        if each.path not in schemas and not delete_unless_retained(catalog.store, each.path):
            retained.add(each.path)
        progress(each)
    gone, kept = ([each for each in deleted if (each.path in retained) == stays] for stays in (False, True))
    return replace(plan, deleted=tuple(gone), waiting=plan.waiting + waiting, retained=tuple(kept))


def _delete_schemas(store: ObjectStore, paths: Set[str]) -> tuple[set[str], Set[str]]:
    """Delete schema documents. Return those that the store retains, and those that were written back.

    A writer writes documents again before its commit, and looks for them after it. If it does both between the scan
    and the deletion, it cannot know that they go. So what the head names after the deletion is written back.
    """
    contents = dict[str, bytes]()
    for path in sorted(paths):
        with suppress(ObjectNotFoundError):  # another collection was faster
            contents[path] = store.get(path)
    retained = {path for path in contents if not delete_unless_retained(store, path)}
    named = needed_documents(read_state(store)).keys() & contents.keys() if contents else set[str]()
    for path in sorted(named):
        with suppress(ObjectExistsError):
            store.create(path, contents[path])
    return retained, named


def checked_grace(state: State, grace: timedelta | None, unsafe: bool) -> timedelta:
    """Return a grace period; the plan's own if none is given.

    Raises:
        PlanError: It is shorter than the plan's, and `unsafe` is not given.
    """
    own = _own_grace(state)
    if grace is None:
        return own
    if grace < own and not unsafe:
        raise PlanError(
            f"A grace period of {duration_text(grace)} is shorter than the plan's {duration_text(own)}, which writers"
            " rely on; give --unsafe only if none is at work."
        )
    return grace


def _own_grace(state: State) -> timedelta:
    assert state.header is not None
    return timedelta(microseconds=state.header.grace)
