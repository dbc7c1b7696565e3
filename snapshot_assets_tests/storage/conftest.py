"""The stores that every storage test runs against: the local disk, and a real S3 server by each of the two clients."""

from __future__ import annotations

import multiprocessing
import signal
from pathlib import Path

import pytest

from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.storage.opendal_s3 import open_opendal

SPAWN = multiprocessing.get_context("spawn")
MIB = 1024 * 1024


@pytest.fixture(params=["file", "obstore", "opendal"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "file":
        return open_store(parse_location((tmp_path / "location").as_uri()))
    uri, options = request.getfixturevalue("s3_location"), request.getfixturevalue("s3_server").options
    return open_store(parse_location(uri), options) if request.param == "obstore" else open_opendal(uri, options)


def kill_while_streaming(store: ObjectStore) -> None:
    """Kill a process after it wrote 20 MiB of `data/1/stream`."""
    ready = SPAWN.Event()
    process = SPAWN.Process(target=_stream_for_ever, args=(store, ready))
    process.start()
    assert ready.wait(60)
    process.kill()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def _stream_for_ever(store: ObjectStore, ready) -> None:  # type: ignore[no-untyped-def]
    with store.open_writer("data/1/stream") as writer:
        writer.write(bytes(20 * MIB))
        ready.set()
        while True:
            signal.pause()
