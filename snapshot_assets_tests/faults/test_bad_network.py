"""A bad network: busy answers, delays and broken connections. Every command completes, and the rows are equal."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from snapshot_assets.catalog.log.store import append
from snapshot_assets.errors import ObjectExistsError, OutcomeUnknownError, StoreUnavailableError
from snapshot_assets.format import actions as act
from snapshot_assets.storage import retry
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.servers.proxy import Fault, Proxy, Weather, proxy_of
from snapshot_assets_tests.servers.s3 import S3Server

pytestmark = [pytest.mark.slow, pytest.mark.clouds]

STORM = Weather(busy=0.2, delay=0.2, cut=0.05)
MIB = 1024 * 1024
ROWS = "SELECT count(*), sum(i), md5(string_agg(md5(b), '' ORDER BY i)), min(t), max(t) FROM m"


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[Proxy]:
    with proxy_of(replace(s3_server.options, retries=None)) as running:
        yield running


@pytest.fixture
def stormy(proxy: Proxy, s3_location: str) -> ObjectStore:
    proxy.weather(replace(STORM, delay=0.002, cut=0.2))
    return open_store(parse_location(s3_location), proxy.options)


@pytest.fixture
def calm(s3_server: S3Server, s3_location: str) -> ObjectStore:
    return open_store(parse_location(s3_location), s3_server.options)


@pytest.fixture
def project(tmp_path: Path, proxy: Proxy) -> Path:
    """Four days of rows, one of which takes several parts of an upload, and a configuration behind the proxy."""
    with duckdb.connect(str(tmp_path / "source.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE m AS SELECT i, timestamptz '2025-01-01T00:00:00Z' + to_seconds(i * 720) AS t, "
            "CASE WHEN i < 120 THEN string_agg(md5(concat(i, '-', j)), '') ELSE 'x' END AS b "
            "FROM range(480) AS r(i), range(6000) AS s(j) GROUP BY i"
        )
    options = proxy.options
    storage = {"endpoint": options.endpoint, "region": options.region, "allow_http": True}
    keys = {"access_key_id": options.access_key_id, "secret_access_key": options.secret_access_key}
    (tmp_path / "snapshots.yaml").write_text(json.dumps({"storage": {"s3": {**storage, **keys}}}))
    return tmp_path


def command(project: Path, *arguments: str, home: str = "dagster") -> subprocess.Popen[str]:
    environment = os.environ | {"DAGSTER_HOME": str(project / home)}
    return subprocess.Popen(
        [sys.executable, "-m", "snapshot_assets.cli", *arguments],
        cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def result(process: subprocess.Popen[str]) -> Any:
    output, errors = process.communicate()
    assert process.returncode == 0, errors[-4000:]
    return json.loads(output)


@pytest.mark.timeout(1800)
def test_two_exporters_verification_import_and_collection_complete(
    project: Path, proxy: Proxy, s3_location: str
) -> None:
    proxy.weather(STORM)
    export = (
        *("export", "create", "--json", "--source", f"duckdb://{project}/source.duckdb", "--to", s3_location),
        *("--start-time", "2025-01-01T00:00:00Z", "--end-time", "2025-01-05T00:00:00Z", "--chunk-time-window", "1d"),
    )
    # Each has a Dagster instance of its own, because two processes cannot create one at the same time.
    for exporter in [command(project, *export), command(project, *export, home="other")]:
        result(exporter)
    verified = result(command(project, "export", "verify", "--snapshot", s3_location, "--depth", "full", "--json"))
    assert {fault["kind"] for fault in verified["faults"]} <= {"orphan"}  # of the exporter that lost a chunk
    target = f"duckdb://{project}/target.duckdb"
    result(command(project, "import", "--from", s3_location, "--target", target, "--json"))
    result(command(project, "catalog", "gc", "--snapshot", s3_location, "--json", "--yes"))
    result(command(project, "export", "verify", "--snapshot", s3_location, "--depth", "full", "--json"))
    with (
        closing(duckdb.connect(f"{project}/source.duckdb")) as source,
        closing(duckdb.connect(f"{project}/target.duckdb")) as restored,
    ):
        assert restored.execute(ROWS).fetchall() == source.execute(ROWS).fetchall()
    assert {0, 503} <= set(proxy.statuses(".*"))


def test_a_create_is_won_once_whatever_reply_is_lost(stormy: ObjectStore, calm: ObjectStore) -> None:
    for number in range(40):
        stormy.create(f"transactions/{number}", b"ours")
        with pytest.raises(ObjectExistsError):
            stormy.create(f"transactions/{number}", b"another")
        assert calm.get(f"transactions/{number}") == b"ours"


def test_uploads_reads_and_lists_are_whole(stormy: ObjectStore, calm: ObjectStore) -> None:
    data = os.urandom(20 * MIB)
    for number in range(6):
        _upload(stormy, f"data/{number}", data)
        assert hashlib.sha256(calm.get(f"data/{number}")).digest() == hashlib.sha256(data).digest()
    with stormy.open_reader("data/0") as reader:
        reader.seek(5 * MIB)
        assert reader.read() == data[5 * MIB :]
    for number in range(1100):  # two pages
        calm.put(f"many/a-{number}", b"")
        calm.put(f"many/a/{number}", b"")
    expected = [info.path for info in calm.list("many")]
    assert len(expected) == 2200
    for _ in range(5):
        assert [info.path for info in stormy.list("many")] == expected


def _upload(store: ObjectStore, path: str, data: bytes) -> None:
    """Upload until it succeeds: an end that never reached the store fails the task, which the engine repeats."""
    for _ in range(10):
        try:
            with store.open_writer(path) as writer:
                for start in range(0, len(data), MIB):
                    writer.write(data[start : start + MIB])
        except StoreUnavailableError:
            continue
        return
    raise AssertionError("ten uploads failed")


def test_a_call_ends_after_its_limit(proxy: Proxy, s3_location: str) -> None:
    store = open_store(parse_location(s3_location), replace(proxy.options, retry_timeout="2s"))
    proxy.strike(Fault(".", 503, "SlowDown", times=1_000_000))
    with pytest.raises(StoreUnavailableError, match=r"503.*\d+ tries in"):
        store.get("a")
    writer = act.Transaction(
        version=1, location_id="6a" * 16, revision=1, uuid="b" * 32, previous_uuid="", previous_sha256="",
        writer_id="1", committed_at=datetime(2025, 1, 1, tzinfo=UTC), actions=(),
    )  # fmt: skip
    with pytest.raises(OutcomeUnknownError):
        append(store, writer)
    assert proxy.statuses("PUT .*transactions/")
    assert proxy.statuses("GET .*transactions/") == []  # to read back would begin the limit again


def test_requests_are_spread_over_the_seconds(proxy: Proxy, s3_location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(retry, "pause", pauses.append)
    monkeypatch.setattr(retry, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    store = open_store(parse_location(s3_location), replace(proxy.options, requests_per_second=20.0))
    store.put("a", b"x")
    for _ in range(20):
        store.head("a")
    assert pauses == pytest.approx([number / 20 for number in range(21)])
