"""The store's own legal holds: on all objects that a held tag needs, with the storage option `lock.legal_holds`.

They are set after the hold is in the log, and ended before its release is, so that a second call goes on where one was
interrupted. The log up to the hold is held, too: from it, readers prove what the tag pins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from snapshot_assets.catalog.manifest import used_schema_files
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import TagState
from snapshot_assets.errors import StorageError
from snapshot_assets.format.layout import SEALS, TRANSACTIONS, log_revision, sealed_revision
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.bulk import in_parallel
from snapshot_assets.storage.s3_bucket import S3Bucket, bucket_of, locked_bucket

_T = TypeVar("_T")


def holding_bucket(store: ObjectStore) -> S3Bucket | None:
    """Return the bucket that holds what a held tag needs; None without the option `lock.legal_holds`.

    Raises:
        PlanError: The bucket has no Object Lock.
    """
    bucket = bucket_of(store)
    if bucket is None or bucket.options.lock is None or not bucket.options.lock.legal_holds:
        return None
    return locked_bucket(store)


def set_holds(store: ObjectStore, bucket: S3Bucket, state: State, tag: TagState) -> None:
    """Put all that a held tag needs under the store's legal hold.

    Raises:
        StorageError: The store refused or failed; says how far it came.
    """
    log = [each.path for each in store.list(TRANSACTIONS) if 0 < log_revision(each.path) <= tag.committed]
    paths = sorted({*_needed(store, state, tag), *log})
    _each(store, paths, lambda path: bucket.hold(path, on=True), f"{tag.pin} is held in the log, but only", "are")


def end_holds(store: ObjectStore, bucket: S3Bucket, state: State, tag: TagState) -> None:
    """End the store's legal hold on all versions of what a tag needs and no other held tag does.

    Raises:
        StorageError: The store refused or failed; says how far it came.
    """
    others = [each for each in state.tags.values() if each.hold is not None and each.pin.name != tag.pin.name]
    own = _needed(store, state, tag).difference(*(_needed(store, state, each) for each in others))
    log = max((each.committed for each in others), default=0)
    held = [
        (each.path, each.version)
        for each in bucket.versions()
        if not each.marker and (each.path in own or log < log_revision(each.path) <= tag.committed)
    ]
    what = f"{tag.pin} is still held in the log, and only"
    _each(store, held, lambda each: bucket.hold(*each, on=False), what, "are no longer")


def _needed(store: ObjectStore, state: State, tag: TagState) -> set[str]:
    """Return the paths of what a tag needs beside the log."""
    at = state.at(tag.pin.revision)
    receipts = {ref.path for each in at.chunks.values() for ref in each.chunk.receipts}
    seals = {each.path for each in store.list(SEALS) if sealed_revision(each.path) == tag.pin.revision}
    return seals | {
        tag.pin.object.path,
        *(live.file.path for live in at.live_files()),
        *used_schema_files(at),
        *receipts,
    }


def _each(store: ObjectStore, items: Collection[_T], work: Callable[[_T], None], what: str, verb: str) -> None:
    done = 0
    try:
        for _ in in_parallel(store, work, items):
            done += 1
    except StorageError as error:
        raise type(error)(
            f"{error} {what} {done:,} of {len(items):,} objects {verb} under the store's legal hold; run the same "
            "command again to go on.",
            **error.attributes,
        ) from error
