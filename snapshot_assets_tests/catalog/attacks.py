"""Attacks with the rights to put and delete, on a location in a bucket that keeps versions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.verify.altered import alterations, names_of, versioned_bucket
from snapshot_assets.catalog.verify.faults import FaultKind
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.format.layout import is_written_once
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.waiting import until

Attack = Callable[[ObjectStore, str], object]


def altered(store: ObjectStore) -> set[str]:
    return {fault.object for fault in verify(store).faults if fault.kind is FaultKind.ALTERED}


def first_alteration(store: ObjectStore) -> datetime:
    """Return the time that a verification prints in its remedy."""
    bucket = versioned_bucket(store)
    assert bucket is not None
    return min(each.since for each in alterations(store, bucket, names_of(bucket), scan_log(store)))


def contents(store: ObjectStore) -> dict[str, bytes]:
    """Return all of a location but its hints and probes."""
    return {info.path: store.get(info.path) for info in store.list() if is_written_once(info.path)}


def second_later() -> datetime:
    """Return the present second, once it has passed: S3 counts in whole ones."""
    now = datetime.now(UTC).replace(microsecond=0)
    return until(lambda: datetime.now(UTC), lambda then: then >= now + timedelta(seconds=2)) - timedelta(seconds=1)


def snapshot_at(store: ObjectStore, rounds: int = 2) -> Writer:
    """A location with sealed revisions, a tag, a checkpoint, and receipts and files that older ones need."""
    writer = Writer(store)
    writer.begin()
    writer.fill()
    seal(writer.catalog)
    create_tag(writer.catalog, "one", writer.catalog.state.revision)
    for number in range(rounds):
        if number == rounds // 2:
            write_checkpoint(store, writer.catalog.state)
        old = next(known.file.path for known in writer.catalog.state.live_files(1))
        writer.complete(1, writer.file(1, b"newer rows %d" % number), replaces=(old,))
        seal(writer.catalog)
    return writer


def hide(store: ObjectStore, path: str) -> None:
    store.delete(path)


def hide_and_create(store: ObjectStore, path: str) -> None:
    store.delete(path)
    store.create(path, b"forged")


def overwrite(store: ObjectStore, path: str) -> None:
    store.put(path, b"overwritten")


def overwrite_twice(store: ObjectStore, path: str) -> None:
    true = store.get(path)
    store.put(path, b"overwritten")
    store.put(path, true[:-1] + bytes([true[-1] ^ 1]))


def overwrite_and_hide(store: ObjectStore, path: str) -> None:
    store.put(path, b"overwritten")
    store.delete(path)


ATTACKS: list[Attack] = [hide, hide_and_create, overwrite, overwrite_twice, overwrite_and_hide]
