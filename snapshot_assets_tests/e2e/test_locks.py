"""Locks on S3 by commands: extended, shown, continued after an interruption; legal holds; and every command there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations import locks
from snapshot_assets.catalog.operations.locks import execute_extension, plan_extension
from snapshot_assets.catalog.status import location_status
from snapshot_assets.format.layout import LOCKS
from snapshot_assets.storage.base import ObjectInfo
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import ObjectLock, StoreOptions, open_store
from snapshot_assets_tests.cli.helpers import RANGE, Result, Snapshots
from snapshot_assets_tests.servers.locked import LockedBucket, new_locked_bucket
from snapshot_assets_tests.servers.proxy import Fault, proxy_of
from snapshot_assets_tests.servers.s3 import S3Server
from snapshot_assets_tests.waiting import until

DAY = timedelta(days=1)
THIRTY_DAYS = ObjectLock("compliance", "30d")


class Location:
    """A snapshot in a bucket with Object Lock, and the commands on it."""

    def __init__(self, snapshots: Snapshots, bucket: LockedBucket, folder: Path, *, uri: str = "", **lock: Any) -> None:
        self.snapshots, self.bucket, self.file = snapshots, bucket, folder / "locks.yaml"
        self.uri = uri or bucket.uri
        self.configure(**lock)

    def configure(self, through: StoreOptions | None = None, *, locking: bool = True, **lock: Any) -> None:
        """Write the configuration: options of the server, or of a proxy, and the option `lock`."""
        options = through or self.bucket.options
        names = ("endpoint", "access_key_id", "secret_access_key", "region", "retries")
        given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
        given |= {"allow_http": True} | ({"lock": {"mode": "compliance", "for": "30d"} | lock} if locking else {})
        self.file.write_text(json.dumps({"storage": {"s3": given}}))

    def call(self, *command: str, status: int = 0) -> Result:
        ended = self.snapshots("--config", str(self.file), *command)
        assert ended.status == status, ended.err + ended.out[:3000]
        return ended

    def on(self, *command: str, status: int = 0) -> Result:
        return self.call(*command, "--snapshot", self.uri, status=status)

    def export(self, source: str) -> None:
        self.call("export", "create", "--source", source, "--to", self.uri, *RANGE)
        newest = max(each.modified for each in self.bucket.store(self.uri).list())
        until(lambda: datetime.now(UTC).replace(microsecond=0) > newest)  # an extension counts what is a second older

    def paths(self) -> list[str]:
        """Return the paths of all that needs a lock, if there is no garbage."""
        return [each.path for each in locks.to_lock(self.bucket.store().list())]

    def ends(self) -> Iterator[datetime]:
        for path in self.paths():
            until = self.bucket.bucket().retained_until(path)
            assert until is not None, path
            yield until

    def held(self) -> set[str]:
        """Return the paths of all versions under legal hold."""
        client, prefix = self.bucket.client, parse_location(self.uri).prefix
        held = set()
        for each in self.bucket.versions():
            if not each.marker:
                key = {"Bucket": self.bucket.name, "Key": f"{prefix}/{each.path}", "VersionId": each.version}
                if client.head_object(**key).get("ObjectLockLegalHoldStatus") == "ON":
                    held.add(each.path)
        return held


@pytest.fixture
def location(snapshots: Snapshots, locked: LockedBucket, source: str, tmp_path: Path) -> Location:
    made = Location(snapshots, locked, tmp_path)
    made.export(source)
    return made


def test_locks_are_extended_and_status_shows_when_the_first_ends(location: Location) -> None:
    before = location.on("status", "--json").json["locks"]
    assert before["extended_at"] is None
    end = datetime.fromisoformat(before["earliest_end"])
    assert timedelta(0) < end - datetime.now(UTC) <= 3 * DAY
    assert "never extended; the earliest lock ends at" in location.on("status").out
    done = location.on("catalog", "extend-locks", "--json").json
    until = datetime.fromisoformat(done["until"])
    paths = {*location.paths()}
    assert done["extended"] == done["objects"] == sum(each.path in paths for each in location.bucket.versions())
    assert set(location.ends()) == {until}
    shown = location.on("status", "--json").json["locks"]
    assert datetime.fromisoformat(shown["earliest_end"]) == until
    metrics = location.on("status", "--format", "openmetrics").out
    assert (
        f'snapshots_earliest_lock_end_timestamp_seconds{{location="{location.bucket.uri}"}} {until.timestamp():.0f}'
        in metrics
    )
    assert location.bucket.store().get(LOCKS)


def test_an_interrupted_extension_passes_over_what_is_locked(location: Location) -> None:
    store, now = location.bucket.store(lock=THIRTY_DAYS), datetime.now(UTC)
    catalog = Catalog(store, Catalog.open(store).state, clock=lambda: now)  # no day ends meanwhile
    planned = plan_extension(catalog)

    class KilledError(Exception):
        pass

    done_so_far = count()

    def killed() -> None:
        if next(done_so_far) == 7:
            raise KilledError

    with pytest.raises(KilledError):
        execute_extension(catalog, planned, killed)
    assert location.on("status", "--json").json["locks"]["extended_at"] is None
    done = execute_extension(catalog, plan_extension(catalog))
    assert done.extended < done.run.objects == len(planned.versions)
    assert set(location.ends()) == {planned.run.until} == {done.run.until}
    assert execute_extension(catalog, plan_extension(catalog)).extended == 0


def test_a_forged_record_does_not_keep_objects_from_being_locked(location: Location) -> None:
    store = location.bucket.store(lock=THIRTY_DAYS)
    run = plan_extension(Catalog.open(store)).run
    store.put(LOCKS, run.document())
    done = location.on("catalog", "extend-locks", "--json").json
    assert done["extended"] == done["objects"]
    for forged in (b"no JSON", b"[]", b'{"version": 1}', run._replace(location_id="other").document()):
        store.put(LOCKS, forged)
        assert location.on("status", "--json").json["locks"]["extended_at"] is None


def test_an_export_into_a_location_whose_log_was_hidden_or_deleted_is_refused(
    snapshots: Snapshots, lockable: LockedBucket, source: str, tmp_path: Path
) -> None:
    location = Location(snapshots, lockable, tmp_path, locking=False)
    location.export(source)
    store, create = lockable.store(), ("export", "create", "--source", source, "--to", location.uri, *RANGE)
    for info in list(store.list()):
        store.delete(info.path)
    refused = location.call(*create, status=3).err
    assert f"{location.uri} has no log, but versions of one: " in refused
    assert "`snapshots --config" in refused
    [before] = re.findall(r" catalog recover --before ([^ ]+) --snapshot", refused)
    assert list(store.list()) == []
    location.on("catalog", "recover", "--before", before, "--yes")
    location.on("export", "verify")
    location.on("export", "delete", "--yes")
    assert "it was deleted or hidden" in location.call(*create, status=3).err


def test_status_asks_the_store_and_believes_no_record(
    snapshots: Snapshots, lockable: LockedBucket, source: str, tmp_path: Path
) -> None:
    """A forged record, and the option `lock` of a plan whose objects were written without one."""
    if lockable.is_moto:
        pytest.skip("moto does not answer whether an object is locked")
    location = Location(snapshots, lockable, tmp_path, locking=False)
    location.export(source)
    store = lockable.store(lock=THIRTY_DAYS)
    location.configure()
    assert location.on("status", status=3).out.startswith("UNLOCKED")
    forged = plan_extension(Catalog.open(store)).run
    store.put(LOCKS, forged.document())
    shown = location.on("status", "--json", status=3).json
    ended = datetime.fromisoformat(shown["locks"]["earliest_end"])
    assert (shown["unlocked"], ended) == (True, min(each.modified for each in locks.to_lock(store.list())))
    location.on("catalog", "extend-locks")
    assert location.on("status").out.startswith("OK")


def test_status_finds_what_a_writer_without_the_option_wrote_last(
    snapshots: Snapshots, lockable: LockedBucket, source: str, tmp_path: Path
) -> None:
    if lockable.is_moto:
        pytest.skip("moto does not answer whether an object is locked")
    location = Location(snapshots, lockable, tmp_path)
    location.export(source)
    assert location.on("status").out.startswith("OK")
    location.configure(locking=False)
    location.on("tag", "create", "one")
    location.configure()
    assert location.on("status", status=3).out.startswith("UNLOCKED")


def test_status_passes_over_what_was_collected_meanwhile(location: Location) -> None:
    head = Catalog.open(store := location.bucket.store(lock=THIRTY_DAYS)).state
    gone = ObjectInfo("data/1/chunk-01234567.json", 1, datetime.now(UTC) - DAY)
    found = locks.known_locks(store, head, [*store.list(), gone])
    assert found is not None
    assert (found.object, found.earliest_end) == (gone.path, gone.modified + 3 * DAY)


@pytest.mark.parametrize("status", [403, 500])
def test_status_says_that_locks_are_unknown_where_it_may_not_ask(location: Location, status: int) -> None:
    with proxy_of(location.bucket.options) as proxy:
        location.configure(proxy.options)
        proxy.strike(Fault(r"HEAD .*/(data/|schema/|transactions/0*1\.)", status, times=1000))
        assert location.on("status", "--json").json["locks"]["earliest_end"] is None
        assert "locked:         unknown; grant the right s3:GetObjectRetention" in location.on("status").out
        assert "lock_end" not in location.on("status", "--format", "openmetrics").out


def test_a_longer_lock_stays(location: Location) -> None:
    path, until = location.paths()[0], datetime.now(UTC).replace(microsecond=0) + 60 * DAY
    location.bucket.bucket(lock=ObjectLock("compliance", "60d")).retain(path, until)
    location.on("catalog", "extend-locks")
    if not location.bucket.is_moto:  # which accepts a shorter one
        assert location.bucket.bucket().retained_until(path) == until
    location.configure(**{"for": "40d"})
    longer = datetime.fromisoformat(location.on("catalog", "extend-locks", "--json").json["until"])
    location.configure(**{"for": "10d"})
    location.on("catalog", "extend-locks")
    assert min(location.ends()) == longer


def test_an_end_in_the_past_is_a_finding(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    late = Catalog.open(location.bucket.store(lock=THIRTY_DAYS))
    found = location_status(late.store, datetime.now(UTC) + 4 * DAY)
    assert (found.unlocked, found.is_damaged) == (True, False)
    location.on("catalog", "extend-locks")
    assert not location_status(late.store, datetime.now(UTC) + 4 * DAY).unlocked


def test_the_first_version_of_what_was_overwritten_is_locked_too(location: Location) -> None:
    path, bucket = location.paths()[0], location.bucket.bucket()
    [first] = [each for each in location.bucket.versions() if each.path == path]
    for forged in (b"one", b"two"):
        location.bucket.store().put(first.path, forged)
    until = datetime.fromisoformat(location.on("catalog", "extend-locks", "--json").json["until"])
    assert (bucket.retained_until(first.path), bucket.retained_until(first.path, first.version)) == (until, until)


@pytest.mark.parametrize("what", [r".*\.parquet", r"seals/.*", r"transactions/0*[3-9]\.txn|data/.*json|seals/.*"])
def test_what_an_attacker_hid_is_locked_too(location: Location, what: str) -> None:
    """Also data files that the shown log does not need, because its end is hidden."""
    if location.bucket.is_moto:
        pytest.skip("moto locks no version below a marker")
    needed = [each for each in location.bucket.versions() if each.path in location.paths()]
    hidden = [each for each in needed if re.fullmatch(what, each.path)]
    assert hidden
    for each in hidden:
        location.bucket.store().delete(each.path)
    until = datetime.fromisoformat(location.on("catalog", "extend-locks", "--json").json["until"])
    ends = {each.path: location.bucket.bucket().retained_until(each.path, each.version) for each in needed}
    assert ends == dict.fromkeys(ends, until)


def test_a_store_without_such_requests_is_not_taken_for_one_without_objects(location: Location) -> None:
    with proxy_of(location.bucket.options) as proxy:
        proxy.strike(Fault("PUT .*retention", 501, "NotImplemented", times=1000))
        location.configure(proxy.options)
        assert "NotImplemented" in location.on("catalog", "extend-locks", status=1).err
    location.configure()
    assert location.on("status", "--json").json["locks"]["extended_at"] is None


def test_a_damaged_pin_keeps_nothing_from_being_locked(location: Location) -> None:
    location.on("tag", "create", "kept")
    [tag] = [path for path in location.paths() if path.startswith("tag/")]
    location.bucket.store().put(tag, b"forged")
    location.on("catalog", "extend-locks")
    assert min(location.ends()) - datetime.now(UTC) > 29 * DAY


def test_legal_holds_of_tags_are_those_of_the_store(
    snapshots: Snapshots, lockable: LockedBucket, source: str, tmp_path: Path
) -> None:
    location = Location(snapshots, lockable, tmp_path, mode="governance", legal_holds=True)
    location.export(source)
    for tag in ("one", "two"):
        location.on("tag", "create", tag)
    needed = set(location.paths())
    location.on("tag", "hold", "one", "--reason", "case 17")
    location.on("tag", "hold", "two", "--reason", "case 18")
    held = location.held()
    assert {path for path in needed if not path.startswith("tag/")} <= held
    location.on("tag", "hold", "one", "--reason", "case 17")  # again, as after an interruption
    location.on("tag", "release", "two", "--reason", "closed")
    assert {path for path in needed if not path.startswith("tag/tag-")} <= location.held()
    location.on("tag", "release", "one", "--reason", "closed")
    assert location.held() == set()


def test_a_hold_that_the_store_refuses_can_be_repeated(
    snapshots: Snapshots, lockable: LockedBucket, source: str, tmp_path: Path
) -> None:
    location = Location(snapshots, lockable, tmp_path, mode="governance", legal_holds=True)
    location.export(source)
    location.on("tag", "create", "one")
    with proxy_of(lockable.options) as proxy:
        proxy.strike(Fault(r"PUT .*manifest|PUT .*data/.*legal-hold", 403, times=1000))
        location.configure(proxy.options, mode="governance", legal_holds=True)
        refused = location.on("tag", "hold", "one", "--reason", "case 17", status=4)
    assert "is held in the log, but only" in refused.err
    assert "run the same command again to go on" in refused.err
    location.configure(mode="governance", legal_holds=True)
    location.on("tag", "hold", "one", "--reason", "case 17")
    assert {path for path in location.paths() if path.startswith("data/")} <= location.held()


def test_doctor_says_what_the_bucket_keeps_and_what_is_missing(
    snapshots: Snapshots, locked: LockedBucket, s3_server: S3Server, source: str, tmp_path: Path
) -> None:
    location = Location(snapshots, locked, tmp_path, legal_holds=True)

    def found(uri: str = locked.uri, status: int = 0) -> dict[str, Any]:
        checks = location.call("doctor", "--no-spark", "--json", "--snapshot", uri, status=status).json["checks"]
        [check] = [each for each in checks if each["check"] == "object lock"]
        return check

    options = "option lock: 30d, compliance mode, with legal holds"
    kept = "versions kept; the bucket locks new objects for 3d, in compliance mode"
    assert found()["detail"] == f"{kept}; {options}"
    with proxy_of(locked.options) as proxy:
        proxy.strike(Fault(r"PUT .*retention", 403, times=1000))
        location.configure(proxy.options)
        assert found(status=1)["remedy"] == "Grant the right s3:PutObjectRetention."
        proxy.strike(Fault(r"PUT .*retention", 501, "NotImplemented", times=1000))
        assert found(status=1)["remedy"].startswith("Use a store that locks objects")
        proxy.strike(Fault(r"GET .*object-lock", 403, times=1000))
        assert "s3:GetBucketObjectLockConfiguration" in found(status=1)["remedy"]
        location.configure(proxy.options, locking=False)
        assert found()["detail"].startswith("unknown, for lack of a right")
    location.configure(locking=False)
    assert found()["detail"] == "the bucket locks new objects for 3d, in compliance mode; versions kept"
    if not locked.is_moto:
        plain = f"s3://{s3_server.bucket}/{tmp_path.name}"
        assert found(plain)["detail"] == "not locked; versions not kept"
        location.configure()
        assert "created with Object Lock" in found(plain, status=1)["remedy"]


def test_every_command_works_on_a_bucket_that_locks(location: Location, source: str, tmp_path: Path) -> None:
    other = f"s3://{new_locked_bucket(location.bucket.options).name}/replica"
    on, call = location.on, location.call
    call("doctor", "--no-spark", "--snapshot", location.bucket.uri)
    on("export", "verify")
    on("tag", "create", "one")
    on("tag", "hold", "one", "--reason", "case 17")
    on("catalog", "tombstone", "--table", "main.readings", "--where", "value < 30", "--yes")
    on("catalog", "compact")
    location.export(source)
    on("tag", "release", "one", "--reason", "closed")
    on("tag", "delete", "one", "--yes")
    on("catalog", "expire", "--keep-last", "1", "--yes")
    on("catalog", "gc", "--grace", "0s", "--unsafe", "--yes")
    for _ in range(2):
        on("catalog", "checkpoint")
        on("tag", "create", f"tag-{_}")
    on("catalog", "checkpoint")
    on("catalog", "prune", "--grace", "0s", "--unsafe", "--yes")
    on("replicate", "--to", other)
    call("catalog", "extend-locks", "--snapshot", other)
    call("export", "verify", "--snapshot", other)
    on("catalog", "rollback", "tag:tag-0", "--yes")
    [*_, head] = location.bucket.store().list("transactions")
    location.bucket.store().delete(head.path)
    on("catalog", "rebuild", "--accept-undeleted")
    on("catalog", "extend-locks")
    on("export", "verify")
    on("status")
    call("import", "--from", location.bucket.uri, "--target", f"duckdb://{tmp_path}/target.duckdb")


def test_what_a_store_keeps_is_reported_and_tried_again(
    snapshots: Snapshots, s3_server: S3Server, s3_location: str, source: str, tmp_path: Path
) -> None:
    options = s3_server.options
    with proxy_of(options) as proxy:
        bucket = LockedBucket(parse_location(s3_location).bucket, proxy.options)
        location = Location(snapshots, bucket, tmp_path, uri=s3_location, locking=False)
        location.export(source)
        on, refuse = location.on, lambda path: proxy.strike(retained(path))
        on("tag", "create", "one")
        on("catalog", "tombstone", "--table", "main.readings", "--where", "value < 30", "--yes")
        on("catalog", "compact")
        location.export(source)
        refuse("(data|tag|transactions/probe)")
        on("tag", "delete", "one", "--yes")
        on("catalog", "expire", "--keep-last", "1", "--yes")
        gc = ("catalog", "gc", "--grace", "0s", "--unsafe", "--yes")
        done = on(*gc, "--json").json
        assert done["retained"]
        assert not any(each["path"].startswith(("data/", "tag/")) for each in done["garbage"])
        kept = {each["path"] for each in done["retained"]}
        assert "stay: the store keeps them until their retention ends; the next call tries again" in on(*gc).out
        proxy.strike()
        again = on(*gc, "--json").json
        assert kept <= {each["path"] for each in again["garbage"]}
        assert again["retained"] == []
        for each in range(3):
            on("catalog", "checkpoint")
            on("tag", "create", f"tag-{each}")
        prune = ("catalog", "prune", "--grace", "0s", "--unsafe", "--yes")
        refuse(r"transactions/0+3\.")
        pruned = on(*prune, "--json").json
        assert pruned["retained"].startswith("transactions/")
        assert [each["path"] for each in pruned["unneeded"]] == ["transactions/00000000000000000002.txn"]
        assert "and later objects stay" in on(*prune).out
        refuse("data")
        deleted = call_delete(location)
        assert deleted["retained"]
        assert all(path.startswith("data/") for path in deleted["retained"])
        proxy.strike()
        assert call_delete(location)["retained"] == []
        assert list(open_store(parse_location(s3_location), options).list()) == []


def retained(path: str) -> Fault:
    """Return the answer to deletions of objects whose path matches, as Azure gives it."""
    return Fault(rf"DELETE .*/{path}", 409, "BlobImmutableDueToPolicy", times=10_000)


def call_delete(location: Location) -> Any:
    return location.on("export", "delete", "--with-tags", "--yes", "--json").json
