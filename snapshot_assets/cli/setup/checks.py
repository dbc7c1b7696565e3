"""The checks of `snapshots doctor` on this machine, and on a location.

On the machine: Java, free disk, and the folder of Dagster's instance. On a location: rights, conditional creates and
the clock, by one probe.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from snapshot_assets.catalog.catalog import MAX_CLOCK_SKEW, Catalog
from snapshot_assets.catalog.verify.comparisons import last_full_comparison
from snapshot_assets.errors import (
    ObjectNotFoundError,
    SnapshotError,
    StorageError,
    StoreDeniedError,
    StoreUnavailableError,
)
from snapshot_assets.format.layout import TRANSACTIONS
from snapshot_assets.format.scrub import scrub
from snapshot_assets.format.units import duration_text, human_bytes, human_seconds, size_text
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.create import probe
from snapshot_assets.storage.location import FILE, Location, parse_location
from snapshot_assets.storage.options import StoreOptions, open_store
from snapshot_assets.storage.s3_bucket import S3Bucket, bucket_of

_LEAST_JAVA = 17
_LEAST_FREE = 1 << 30
_VERSION = re.compile(r'version "((?:1\.)?(\d+)[^"]*)"')


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        check: What was checked, such as `java`.
        subject: Which one, such as a location's URI.
        ok: Whether it is as an export needs it.
        detail: What was found.
        remedy: What to do; "" if it is well. Of what is `ok`, advice: an export works, but lacks something.
    """

    check: str
    subject: str
    ok: bool
    detail: str
    remedy: str = ""


def failed(check: str, subject: str, error: Exception, remedy: str) -> Check:
    """Return the check that an error ended."""
    return Check(check, subject, False, scrub(str(error).strip() or type(error).__name__), remedy)


def check_java(environment: Mapping[str, str] = os.environ) -> Check:
    """Check the Java that Spark's scripts start: that of JAVA_HOME, else the one on the path."""
    home = environment.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    remedy = f"Install Java {_LEAST_JAVA} or later (Debian: apt-get install openjdk-17-jre-headless)" + (
        ", and let JAVA_HOME name its folder." if home else ", or let JAVA_HOME name its folder."
    )
    if java is None:
        return Check("java", "java", False, "not on the path, and JAVA_HOME is not set", remedy)
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return failed("java", java, error, remedy)
    found = _VERSION.search(done.stderr + done.stdout)
    if done.returncode or found is None:
        return Check("java", java, False, scrub((done.stderr or done.stdout).strip()) or "prints no version", remedy)
    ok = int(found[2]) >= _LEAST_JAVA
    return Check("java", java, ok, f"Java {found[1]}", "" if ok else remedy)


def check_disk(folders: Mapping[Path, int]) -> Iterator[Check]:
    """Check the free space of folders, which may not exist yet; those on one device need it together.

    Args:
        folders: By folder, the bytes that must be free there beside what every export needs.
    """
    places: dict[int, tuple[Path, int]] = {}
    for folder, needed in folders.items():
        place = existing(folder)
        first, together = places.get(place.stat().st_dev, (place, 0))
        places[place.stat().st_dev] = (first if together > needed else place, together + needed)
    for place, needed in places.values():
        free, least = shutil.disk_usage(place).free, max(needed, _LEAST_FREE)
        remedy = f"Free {size_text(least)} or more there, or choose another folder." if free < least else ""
        yield Check("disk", str(place), free >= least, f"{human_bytes(free)} free", remedy)


def existing(folder: Path) -> Path:
    """Return a folder, or the nearest one above it that exists."""
    return next(each for each in (folder, *folder.parents) if each.is_dir())


def check_dagster(home: Path) -> Check:
    """Check that the folder of Dagster's instance can be written, or made."""
    place = existing(home)
    ok = os.access(place, os.W_OK | os.X_OK)
    remedy = "" if ok else "Let DAGSTER_HOME name a folder that this user may write to."
    return Check("dagster", str(home), ok, "can be written" if ok else f"{place} cannot be written", remedy)


def spark_folders(settings: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the folders for temporary files of Spark's tasks on this machine."""
    chosen = environment.get("SPARK_LOCAL_DIRS") or settings.get("spark.local.dir") or tempfile.gettempdir()
    return [Path(folder.strip()).absolute() for folder in chosen.split(",") if folder.strip()]


_PATIENCE = "10s"
_CONDITIONAL = (
    "Use a store with conditional creates (If-None-Match); or write `single_writer: true` in the plan, if no other"
    " writer ever uses the location."
)


def check_location(uri: str, options: StoreOptions | None, *, single_writer: bool) -> Iterator[Check]:
    """Check a location by a probe, which leaves nothing behind.

    Args:
        uri: The location.
        options: Its storage options.
        single_writer: Whether a plan does without conditional creates.
    """
    try:
        location = parse_location(uri)
        if location.scheme != FILE:
            options = replace(options or StoreOptions(), retry_timeout=_PATIENCE)
        with _without_new_folders(location):
            store = open_store(location, options)
            probed = probe(store, single_writer=True)
    except Exception as error:  # whatever it is, the other checks go on
        remedy = "Correct the location, or its storage options in the configuration or the environment; grant its user"
        yield failed("store", uri, error, f"{remedy} the rights to read, write, list and delete objects there.")
        return
    yield Check("store", uri, True, "an object was written, read, listed and deleted")
    conditional = probed.conditional_create
    detail = "the second of two creates was refused" if conditional else "two creates of one object both succeeded"
    if not conditional and single_writer:
        detail += "; the plan has `single_writer: true`"
    ok = conditional or single_writer
    yield Check("conditional create", uri, ok, detail, "" if ok else _CONDITIONAL)
    seconds = (datetime.now(UTC) - probed.store_time).total_seconds()
    ok = abs(seconds) <= MAX_CLOCK_SKEW.total_seconds()
    where = "ahead of" if seconds > 0 else "behind"
    most = duration_text(MAX_CLOCK_SKEW)
    detail = f"this machine's clock is {abs(seconds):.0f} s {where} the store's; at most {most} is accepted"
    yield Check("clock", uri, ok, detail, "" if ok else "Set this machine's clock, by NTP.")
    if (bucket := bucket_of(store)) is not None:
        yield _check_lock(uri, bucket)
    with suppress(SnapshotError):
        yield _last_comparison(store)


_READ_LOCK = "Grant the rights s3:GetBucketVersioning and s3:GetBucketObjectLockConfiguration."


def _check_lock(uri: str, bucket: S3Bucket) -> Check:
    """Check that a bucket locks objects as the option `lock` says; without it, tell what the bucket keeps."""
    check, lock = "object lock", bucket.options.lock
    try:
        found = bucket.protection
    except SnapshotError as error:
        if lock is not None:
            return failed(check, uri, error, _READ_LOCK)
        return Check(check, uri, True, "unknown, for lack of a right to read the bucket's configuration")
    own = f"the bucket locks new objects for {found.days}d, in {found.mode} mode" if found.mode else "not locked"
    facts = ["versions kept" if found.versioned else "versions not kept", own]
    if lock is None:
        return Check(check, uri, True, "; ".join(reversed(facts)))
    holds = ", with legal holds" if lock.legal_holds else ""
    detail = "; ".join([*facts[: 2 if found.mode else 1], f"option lock: {lock.until}, {lock.mode} mode{holds}"])
    if not found.lockable:
        advice = "Use a bucket that was created with Object Lock, or remove the storage option lock."
        return Check(check, uri, False, f"{detail}; the bucket has no Object Lock", advice)
    until = datetime.now(UTC) + lock.period
    rights: dict[str, Callable[[str], None]] = {"s3:PutObjectRetention": lambda path: bucket.retain(path, until)}
    if lock.legal_holds:
        rights["s3:PutObjectLegalHold"] = lambda path: bucket.hold(path, on=True)
    for right, work in rights.items():
        try:
            work(f"{TRANSACTIONS}probe-{uuid.uuid4().hex}")  # which does not exist, so that nothing is locked
        except StoreDeniedError as error:
            return failed(check, uri, error, f"Grant the right {right}.")
        except (ObjectNotFoundError, StoreUnavailableError):  # some servers fail at an object that is not there
            continue
        except StorageError as error:
            return failed(check, uri, error, "Use a store that locks objects, or remove the storage option lock.")
    return Check(check, uri, True, detail)


def _last_comparison(store: ObjectStore) -> Check:
    """Return when a snapshot was last compared with its source as a whole; a SnapshotError if there is none."""
    detail = "never compared with its source"
    if last := last_full_comparison(store, Catalog.open(store).require_snapshot()):
        ago = human_seconds((datetime.now(UTC) - last.started_at).total_seconds())
        detail = f"{ago} ago at revision {last.revision}, {last}"
    return Check("comparison", store.uri, True, detail)


@contextmanager
def _without_new_folders(location: Location) -> Iterator[None]:
    """Remove the folders of a location on disk that the context made, unless others use them."""
    path = location.local_path if location.scheme == FILE else None
    new = [folder for folder in (path, *path.parents) if not folder.exists()] if path is not None else []
    try:
        yield
    finally:
        for folder in new:
            with suppress(OSError):
                folder.rmdir()
