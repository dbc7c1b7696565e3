"""Locks on S3 by commands: extended, shown, continued after an interruption; legal holds; and every command there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.catalog.operations import locks
from snapshot_assets.format.layout import LOCKS
from snapshot_assets_tests.cli.helpers import RANGE, Result, Snapshots
from snapshot_assets_tests.servers.locked import LockedBucket

DAY = timedelta(days=1)


class Location:
    """A snapshot in a bucket with Object Lock, and the commands on it."""

    def __init__(self, snapshots: Snapshots, bucket: LockedBucket, folder: Path, **lock: Any) -> None:
        self.snapshots, self.bucket, self.file = snapshots, bucket, folder / "locks.yaml"
        self.configure(**lock)

    def configure(self, **lock: Any) -> None:
        options = self.bucket.options
        given = {name: getattr(options, name) for name in ("endpoint", "access_key_id", "secret_access_key", "region")}
        given |= {"allow_http": True, "lock": {"mode": "compliance", "for": "30d"} | lock}
        self.file.write_text(json.dumps({"storage": {"s3": {n: v for n, v in given.items() if v is not None}}}))

    def call(self, *command: str, status: int = 0) -> Result:
        ended = self.snapshots("--config", str(self.file), *command)
        assert ended.status == status, ended.err + ended.out
        return ended

    def on(self, *command: str, status: int = 0) -> Result:
        return self.call(*command, "--snapshot", self.bucket.uri, status=status)

    def export(self, source: str) -> None:
        self.call("export", "create", "--source", source, "--to", self.bucket.uri, *RANGE)

    def paths(self) -> list[str]:
        """Return the paths of all that is needed."""
        return [each.path for each in locks.to_lock(self.bucket.store().list())]

    def ends(self) -> Iterator[datetime]:
        for path in self.paths():
            until = self.bucket.bucket().retained_until(path)
            assert until is not None, path
            yield until


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
    assert (done["locked"], done["objects"], done["done_through"]) == (len(location.paths()),) * 2 + (None,)
    assert set(location.ends()) == {until}
    shown = location.on("status", "--json").json["locks"]
    assert (datetime.fromisoformat(shown["earliest_end"]), shown["complete"]) == (until, True)
    metrics = location.on("status", "--format", "openmetrics").out
    assert (
        f'snapshots_earliest_lock_end_timestamp_seconds{{location="{location.bucket.uri}"}} {until.timestamp():.0f}'
        in metrics
    )
    assert location.bucket.store().get(LOCKS)
