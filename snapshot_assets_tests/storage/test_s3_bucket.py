"""Locks, versions and encryption on real servers: `weed` enforces locks, moto asks for checksums."""

from __future__ import annotations

import base64
import os
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from snapshot_assets.errors import ObjectExistsError, ObjectRetainedError, PlanError, StoreDeniedError
from snapshot_assets.plan.read_configuration import parse_configuration
from snapshot_assets.storage.create import probe
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import ObjectLock, StoreOptions, open_store
from snapshot_assets.storage.remote import PART_SIZE
from snapshot_assets.storage.s3_bucket import Protection, bucket_of, locked_bucket
from snapshot_assets_tests.catalog.attacks import second_later
from snapshot_assets_tests.servers.locked import LockedBucket, client_of, new_locked_bucket

DATA = "data/1/public.t-0123abcd-000000.parquet"
RECEIPT = "data/1/chunk-0123abcd.json"
GOVERNANCE = ObjectLock("governance", "30d")


def locked_days(bucket: LockedBucket, path: str) -> int:
    """Return for how many days the newest version of an object is locked, rounded."""
    until = bucket.bucket().retained_until(path)
    return 0 if until is None else round((until - datetime.now(UTC)) / timedelta(days=1))


def test_a_bucket_that_locks_new_objects_takes_puts_creates_and_uploads(locked: LockedBucket) -> None:
    store = locked.store()
    store.put("manifest.json", b"one")
    store.create(RECEIPT, b"{}")
    with pytest.raises(ObjectExistsError):
        store.create(RECEIPT, b"other")
    with store.open_writer(DATA) as writer:
        writer.write(os.urandom(2 * PART_SIZE + 1))
    assert probe(store).conditional_create
    assert locked.bucket().protection == Protection(True, True, "compliance", 3)
    locking = ["manifest.json", RECEIPT]
    locking += [DATA] if not locked.is_moto else []  # which forgets the lock of an upload in parts
    assert {locked_days(locked, path) for path in locking} == {3}


def test_the_option_locks_what_is_written_where_the_bucket_does_not(lockable: LockedBucket) -> None:
    store = lockable.store(lock=GOVERNANCE)
    store.put("manifest.json", b"one")
    store.create(RECEIPT, b"{}")
    for path, size in ((DATA, 2 * PART_SIZE + 1), (DATA.replace("000000", "000001"), 10)):
        with store.open_writer(path) as writer:
            writer.write(os.urandom(size))
        assert locked_days(lockable, path) == 30
    assert {locked_days(lockable, path) for path in ("manifest.json", RECEIPT)} == {30}
    probe(store)
    for each in lockable.versions():
        if each.path.startswith("transactions/probe-"):  # not locked, so that nothing of a probe need stay
            lockable.bucket().delete_version(each.path, each.version)
        elif not each.marker:
            with pytest.raises(ObjectRetainedError, match="locked or under legal hold"):
                lockable.bucket().delete_version(each.path, each.version)


def test_a_lock_is_extended_and_a_legal_hold_set_and_ended(lockable: LockedBucket) -> None:
    bucket = lockable.bucket(lock=GOVERNANCE)
    lockable.store().create(RECEIPT, b"{}")
    version = lockable.versions()[0].version
    bucket.retain(RECEIPT, datetime.now(UTC) + timedelta(days=60))
    assert locked_days(lockable, RECEIPT) == 60
    bucket.hold(RECEIPT, on=True)
    with pytest.raises(ObjectRetainedError):
        bucket.delete_version(RECEIPT, version)
    bucket.hold(RECEIPT, on=False)


def test_a_shorter_lock_is_refused(locked: LockedBucket) -> None:
    if locked.is_moto:
        pytest.skip("moto accepts shorter locks")
    locked.store().create(RECEIPT, b"{}")
    with pytest.raises(StoreDeniedError, match="Give the credentials the right to lock"):
        locked.bucket(lock=ObjectLock("compliance", "1d")).retain(RECEIPT, datetime.now(UTC) + timedelta(days=1))


def test_versions_are_listed_the_newest_first_and_the_oldest_can_be_read(lockable: LockedBucket) -> None:
    store, names = lockable.store(), [f"data/1/chunk-{number:08x}.json" for number in range(1100)]
    for path in names[:3]:
        store.create(path, path.encode())
    second_later()  # S3 gives whole seconds, and lists versions and markers apart
    store.delete(names[0])
    second_later()
    store.create(names[0], b"forged")
    store.put(names[1], b"overwritten")
    store.delete(names[2])
    found = lockable.versions()
    assert [(each.path, each.newest, each.marker) for each in found] == [
        *((names[0], newest, marker) for newest, marker in ((True, False), (False, True), (False, False))),
        (names[1], True, False),
        (names[1], False, False),
        (names[2], True, True),
        (names[2], False, False),
    ]
    for path in names[:3]:
        oldest = [each for each in found if each.path == path and not each.marker][-1]
        with lockable.bucket().open_version(path, oldest.version) as reader:
            assert reader.read() == path.encode()
    below = bucket_of(open_store(parse_location(f"s3://{lockable.name}/night/data"), lockable.options))
    assert below is not None
    assert [each.path for each in below.versions()] == [each.path.removeprefix("data/") for each in found]


def test_a_store_that_is_pickled_keeps_its_locks(lockable: LockedBucket) -> None:
    store = lockable.store(lock=GOVERNANCE)
    store.create(RECEIPT, b"{}")
    pickle.loads(pickle.dumps(store)).create(DATA, b"x")
    assert locked_days(lockable, DATA) == 30


def test_what_has_no_locks_is_refused_by_name(
    lockable: LockedBucket, moto_server: StoreOptions, moto_location: str
) -> None:
    with pytest.raises(PlanError, match="has no storage option lock"):
        locked_bucket(lockable.store())
    locking = StoreOptions(**{**moto_server.__dict__, "lock": GOVERNANCE})
    with pytest.raises(PlanError, match="has no Object Lock"):
        locked_bucket(open_store(parse_location(moto_location), locking))
    with pytest.raises(PlanError, match="is not on S3"):
        locked_bucket(open_store(parse_location("file:///tmp/nowhere/at-all")))


def test_data_files_have_a_storage_class_and_the_log_has_not(moto_server: StoreOptions, moto_location: str) -> None:
    location = parse_location(moto_location)
    store = open_store(location, StoreOptions(**{**moto_server.__dict__, "storage_class": "STANDARD_IA"}))
    large = DATA.replace("000000", "000001")
    for path, size in ((DATA, 10), (large, PART_SIZE + 1)):
        with store.open_writer(path) as writer:
            writer.write(bytes(size))
    log = f"transactions/{1:020d}.txn"
    store.create(log, b"x")
    store.create(RECEIPT, b"{}")
    client = client_of(moto_server)
    classes = {
        path: client.head_object(Bucket=location.bucket, Key=f"{location.prefix}/{path}").get("StorageClass")
        for path in (DATA, large, log, RECEIPT)
    }
    assert classes == {DATA: "STANDARD_IA", large: "STANDARD_IA", log: None, RECEIPT: None}


def test_a_customers_key_encrypts_and_reads_objects(moto_server: StoreOptions) -> None:
    key = base64.b64encode(os.urandom(32)).decode()
    bucket = new_locked_bucket(moto_server, days=0)
    store = bucket.store(sse_customer_key_base64=key)
    with store.open_writer(DATA) as writer:
        writer.write(bytes(PART_SIZE + 1))
    store.create(RECEIPT, b"{}")
    assert (store.get(RECEIPT), store.head(DATA).size) == (b"{}", PART_SIZE + 1)
    versions = bucket.bucket(sse_customer_key_base64=key)
    with versions.open_version(RECEIPT, next(each.version for each in versions.versions())) as reader:
        assert reader.read() == b"{}"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("lock: {mode: strict, for: 30d}", "'governance' or 'compliance'"),
        ("lock: {mode: governance, for: 3h}", "write at least 1d"),
        ("lock: {mode: governance}", "s3.lock.for: is missing"),
        ("lock: {mode: governance, for: soon}", "soon"),
        ("storage_class: GLACIER", "cannot be read before"),
        ("sse_customer_key_base64: c2hvcnQ=", "not the Base64 of 32 bytes"),
        ("sse_bucket_key: true", "needs server_side_encryption"),
    ],
)
def test_a_wrong_option_is_named(written: str, message: str) -> None:
    text = f"storage:\n  s3:\n    {written}\nplans: {{}}\n"
    with pytest.raises(PlanError, match=message):
        parse_configuration(text, Path("snapshots.yaml"), {})


def test_a_lock_is_read_from_a_configuration() -> None:
    text = "storage:\n  s3: {lock: {mode: compliance, for: 30d, legal_holds: true}}\nplans: {}\n"
    options = parse_configuration(text, Path("snapshots.yaml"), {}).storage.s3
    assert options is not None
    assert options.lock == ObjectLock("compliance", "30d", legal_holds=True)
    assert hash(options)
