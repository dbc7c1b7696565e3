"""Names that were hidden or replaced, on a bucket that keeps versions: of a name written once the oldest is true."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, takewhile
from operator import attrgetter
from typing import IO, cast

from snapshot_assets.catalog.log.checkpoints import read_checkpoint
from snapshot_assets.catalog.log.replay import FAULTS
from snapshot_assets.catalog.log.scan import LogScan, scan_log
from snapshot_assets.catalog.log.store import reachable_end, read_entry
from snapshot_assets.catalog.receipts import stands_for
from snapshot_assets.catalog.state.retained import needed_seals
from snapshot_assets.catalog.verify.faults import Fault, FaultKind
from snapshot_assets.catalog.verify.retained import needed_objects
from snapshot_assets.errors import LostLogError, ObjectNotFoundError, StoreDeniedError
from snapshot_assets.format.actions import ObjectRef
from snapshot_assets.format.layout import (
    COMPARISONS,
    HINTS,
    SEALS,
    TRANSACTIONS,
    VERIFICATIONS,
    checkpointed_revision,
    is_receipt,
    is_written_once,
    log_revision,
    revision_of,
    sealed_revision,
)
from snapshot_assets.format.units import time_text
from snapshot_assets.storage.base import ObjectInfo, ObjectStore, check_size
from snapshot_assets.storage.create import StoreWrapper
from snapshot_assets.storage.s3_bucket import ObjectVersion, S3Bucket, bucket_of

Names = Mapping[str, list[ObjectVersion]]
"""The versions and markers of each path, the newest first."""
_BLOCK = 1 << 20


def versioned_bucket(store: ObjectStore) -> S3Bucket | None:
    """Return the bucket of a location that keeps versions; None for another."""
    bucket = bucket_of(store)
    return bucket if bucket is not None and bucket.protection.versioned else None


def names_of(bucket: S3Bucket, prefix: str = "") -> Names:
    """Return all versions of a location below a prefix."""
    return {path: [*entries] for path, entries in groupby(bucket.versions(prefix), attrgetter("path"))}


class _VersionStore(StoreWrapper):
    """A location whose objects are chosen versions; it is only read, each object whole."""

    def __init__(self, store: ObjectStore, bucket: S3Bucket, chosen: Mapping[str, ObjectVersion]) -> None:
        super().__init__(store)
        self.bucket, self._chosen = bucket, chosen

    def get(self, path: str, *, limit: int | None = None) -> bytes:
        """Return an object's bytes; see `ObjectStore.get`."""
        check_size(f"{self._store.uri}/{path}", self.head(path).size, limit)
        with self.open_reader(path) as reader:
            return reader.read()

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Return a part of an object; see `ObjectStore.get_range`."""
        return self.get(path)[start : start + length]

    @contextmanager
    def open_reader(self, path: str) -> Iterator[IO[bytes]]:
        """Open an object, to be read once from its start."""
        self.head(path)
        with self.bucket.open_version(path, self._chosen[path].version) as reader:
            yield reader

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix; see `ObjectStore.list`."""
        yield from (self.head(path) for path in sorted(self._chosen) if path.startswith(prefix))

    def head(self, path: str) -> ObjectInfo:
        """Return an object's size and time; see `ObjectStore.head`."""
        if (each := self._chosen.get(path)) is None:
            raise ObjectNotFoundError(f"{path} in {self._store.uri} has no such version.", object=path)
        return ObjectInfo(path, each.bytes, each.modified)


def view_of(store: ObjectStore, bucket: S3Bucket, chosen: Mapping[str, ObjectVersion]) -> ObjectStore:
    """Return a location whose objects are chosen versions, to read from."""
    return cast(ObjectStore, _VersionStore(store, bucket, chosen))


def same_bytes(bucket: S3Bucket, one: ObjectVersion, other: ObjectVersion) -> bool:
    """Return whether two versions have the same bytes; reads both if their ETags differ, as with encryption."""
    if one.bytes != other.bytes or one.marker or other.marker:
        return False
    return one.tag == other.tag or _sha256(bucket, one) == _sha256(bucket, other)


def _sha256(bucket: S3Bucket, each: ObjectVersion) -> str:
    digest = hashlib.sha256()
    with bucket.open_version(each.path, each.version) as reader:
        while block := reader.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def true_version(
    store: ObjectStore, bucket: S3Bucket, versions: Sequence[ObjectVersion], ref: ObjectRef | None = None
) -> ObjectVersion:
    """Return the oldest of some versions, the newest first, of a name that is written once.

    If it is damaged, return the oldest that is what the log says, which a repair wrote. `ref` is what the log says of
    it; objects of the log have checksums of their own.
    """
    oldest = versions[-1]
    checked = ref is not None or log_revision(oldest.path)
    if not checked or all(same_bytes(bucket, each, oldest) for each in versions):
        return oldest
    return next((each for each in reversed(versions) if _fits(store, bucket, each, ref)), oldest)


def _fits(store: ObjectStore, bucket: S3Bucket, each: ObjectVersion, ref: ObjectRef | None) -> bool:
    """Return whether a version is what the log says, or a whole object of the log."""
    if ref is not None and not is_receipt(each.path):
        return each.bytes == ref.bytes and _sha256(bucket, each) == ref.sha256
    view, revision = view_of(store, bucket, {each.path: each}), log_revision(each.path)
    if ref is not None:
        return stands_for(view.get(each.path), ref)
    try:
        read_entry(view, revision) if revision_of(each.path) else read_checkpoint(view, revision, whole=True)
    except FAULTS:
        return False
    return True


def true_objects(
    store: ObjectStore, bucket: S3Bucket, names: Names, scan: LogScan | None = None
) -> tuple[dict[str, ObjectVersion], dict[str, ObjectRef], LogScan]:
    """Return the true versions of a location's objects but hints, what of them its true log needs, and that log.

    What is hidden was deleted, unless the log needs it. Objects of the log that it cannot reach are left out. `scan` is
    the log as `names` show it, if the caller has read it; nothing is read again unless a part of it is altered.
    """
    versions = {path: [each for each in entries if not each.marker] for path, entries in names.items()}
    versions = {path: found for path, found in versions.items() if found}
    true = {path: true_version(store, bucket, found) for path, found in versions.items() if is_written_once(path)}
    shown = {path: entries[0] for path, entries in names.items() if not entries[0].marker and path not in HINTS}
    scan = scan or scan_log(view_of(store, bucket, shown))
    end = reachable_end(scan.state.revision, map(log_revision, versions))
    objects = {path: true.get(path, newest) for path, newest in shown.items() if log_revision(path) <= end}
    hidden = {path for path in true.keys() - shown.keys() if log_revision(path) <= end}
    objects |= {path: true[path] for path in _hidden_log(hidden, objects.keys(), scan.state.rebuilt_at)}
    log = {path for path in objects.keys() | shown.keys() if log_revision(path)}
    if not log <= objects.keys() or not all(same_bytes(bucket, names[path][0], objects[path]) for path in log):
        scan = scan_log(view_of(store, bucket, objects))
        # A hidden checkpoint that the log does not give is of a rebuild that a recovery undid.
        if undone := {path for path, _ in scan.faults if path in hidden and checkpointed_revision(path)}:
            objects = {path: each for path, each in objects.items() if path not in undone}
            scan = scan_log(view_of(store, bucket, objects))
    needed = needed_objects(scan.state) if scan.state.has_snapshot else {}
    objects |= {path: true_version(store, bucket, versions[path], ref) for path, ref in needed.items() if path in true}
    seals = [path for path in versions if (sealed_revision(path) or 0) <= scan.state.revision]
    return objects | {path: versions[path][0] for path in needed_seals(scan.state, seals)}, needed, scan


def _hidden_log(hidden: Set[str], shown: Set[str], rebuilt_at: int) -> Iterator[str]:
    """Yield the hidden objects of a log, without what pruning deleted or lies below a rebuild.

    Only the beginning is ever pruned, up to a checkpoint, which stands for its transaction, too; but never revision 1.
    """
    log = [path for path in shown if log_revision(path) > 1]
    first = min(map(log_revision, log)) if any(map(checkpointed_revision, log)) else 1
    for path in hidden:
        revision = log_revision(path)
        if revision == 1 or revision >= max(first + bool(revision_of(path)), rebuilt_at):
            yield path


@dataclass(frozen=True)
class Alteration:
    """A name whose newest entry is a marker, or a version with other bytes than the true one."""

    path: str
    since: datetime
    hidden: bool


def alterations(store: ObjectStore, bucket: S3Bucket, names: Names, scan: LogScan) -> list[Alteration]:
    """Return by path the altered names that a location needs, and those of its log and of records.

    What lies below a rebuild, and what a repair wrote, are not altered.
    """
    objects, needed, true = true_objects(store, bucket, names, scan)
    if true.state.deleted and not scan.state.revision:
        return []  # by a command

    def counts(path: str) -> bool:
        return (
            path in needed
            or log_revision(path) >= max(true.state.rebuilt_at, 1)
            or path.startswith((VERIFICATIONS, COMPARISONS, SEALS))
        )

    def altered(path: str) -> Iterator[Alteration]:
        newest, each, ref = names[path][0], objects[path], needed.get(path)
        is_same = newest == each or same_bytes(bucket, newest, each)
        if not is_same and (newest.marker or ref is None or not _fits(store, bucket, newest, ref)):
            # An earlier alteration that was undone is none: a recovery wrote the true bytes again.
            since = takewhile(lambda other: not same_bytes(bucket, other, each), names[path])
            yield Alteration(path, [other.modified for other in since][-1], newest.marker)

    return [each for path in sorted(objects) if counts(path) for each in altered(path)]


def altered_faults(scan: LogScan) -> Iterator[Fault]:
    """Yield the faults of altered names, or one warning if the store does not show versions; lists all of them."""
    store = scan.store
    try:
        if (bucket := versioned_bucket(store)) is None:
            return
        found = alterations(store, bucket, names_of(bucket), scan)
        if found:  # others may have deleted something since the log was read
            found = alterations(store, bucket, names_of(bucket), scan_log(store))
    except StoreDeniedError as error:
        why = f"Whether names were hidden or replaced is unknown, as the store does not show their versions: {error}"
        yield Fault(FaultKind.UNCHECKED, "transactions/", why)
        return
    for number, each in enumerate(found):
        what = "is hidden by a delete marker" if each.hidden else "has other bytes than its oldest version"
        message = f"{each.path} {what} since {time_text(each.since)}."
        yield Fault(FaultKind.ALTERED, each.path, message if number else f"{message} {remedy(found)}")


def refuse_hidden_log(store: ObjectStore) -> None:
    """Refuse a location without a log if its bucket has versions of one.

    A new log would have other bytes under names that are written once, also if a command deleted the old one.

    Raises:
        LostLogError: It was deleted or hidden.
    """
    try:
        if (bucket := versioned_bucket(store)) is None:
            return
        names = {path: each for path, each in names_of(bucket, TRANSACTIONS).items() if log_revision(path)}
    except StoreDeniedError:  # whoever may not list versions cannot know
        return
    if not (times := [each.modified for entries in names.values() for each in entries if not each.marker]):
        return
    later = (newest.modified for newest, *_ in names.values() if newest.modified >= max(times))
    since = min(later)  # what was hidden before was pruned
    with suppress(StoreDeniedError):  # whoever may list versions may perhaps not read them
        if true_objects(store, bucket, names)[2].state.deleted:
            since = max(times)  # a deletion is the last revision, and deletes data before the log
    raise LostLogError(
        f"{store.uri} has no log, but versions of one: it was deleted or hidden. `snapshots catalog recover "
        f"--before {time_text(since)}` brings back what was there before that second; else use another location.",
        uri=store.uri,
    )


def remedy(found: list[Alteration]) -> str:
    """Return how altered names are brought back."""
    before = time_text(min(each.since for each in found))
    return f"`snapshots catalog recover --before {before}` brings all back that was there before that second."
