"""Text and copies on a real S3 server: whole, slow down, cut off."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.engine.export.copy import copy
from snapshot_assets.errors import ExportFailedError
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.execute import delete_rows
from snapshot_assets_tests.engine.compact.compactions import compact
from snapshot_assets_tests.engine.export.test_copy import plan, run_of
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.reading.data_source import Load, rows, source_rows, store_options
from snapshot_assets_tests.engine.restore.imports import IN_RANGE, Into
from snapshot_assets_tests.faults.source import CHUNKS
from snapshot_assets_tests.servers.proxy import Fault, Proxy, proxy_of
from snapshot_assets_tests.servers.s3 import S3Server
from snapshot_assets_tests.storage.conftest import SPAWN

PLANS: dict[str, dict[str, Any]] = {
    "parquet": {},
    "csv": {"format": "csv", "format_options": {"header": True, "compression": "gzip"}},
    "json": {"format": "json", "format_options": {"compression": "zstd"}},
}
PLAIN: dict[str, dict[str, Any]] = {"parquet": {}, "csv": {"format": "csv"}}
LARGE = """
    SELECT i, list_aggregate(list_transform(range(10), lambda x: sha256((i * 10 + x)::VARCHAR)), 'string_agg', '') AS t
    FROM range(40_000) AS r(i)
"""
"""26 MB in any format: an upload of several parts."""

every_plan = pytest.mark.parametrize("fields", PLANS.values(), ids=PLANS)
every_plain_format = pytest.mark.parametrize("fields", PLAIN.values(), ids=PLAIN)


@pytest.fixture
def store(s3_server: S3Server, s3_location: str) -> ObjectStore:
    return open_store(parse_location(s3_location), s3_server.options)


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[Proxy]:
    with proxy_of(s3_server.options) as running:
        yield running


def export(place: Place, store: ObjectStore, fields: dict[str, Any]) -> None:
    with place.run(store=store, **fields).open() as opened:
        list(opened.export(CHUNKS))
        opened.seal()


@pytest.mark.slow
@every_plan
def test_a_snapshot_goes_to_s3_and_back(
    place: Place, store: ObjectStore, s3_server: S3Server, load: Load, duck: Into, fields: dict[str, Any]
) -> None:
    export(place, store, fields)
    assert verify(store, depth="full").faults == []
    inside, gone = f"({IN_RANGE['readings']})", "(sensor = 's0' and value < 5)"
    there = store_options(s3_server.options)
    assert rows(load(store.uri, "main.readings", **there)) == source_rows(place, f"FROM readings WHERE {inside}")
    delete_rows(Catalog.open_for_writing(store), TableName("main", "readings"), gone)
    compact(store)
    where = f"{inside} AND {gone} IS NOT TRUE"
    assert rows(load(store.uri, "main.readings", **there)) == source_rows(place, f"FROM readings WHERE {where}")
    assert duck.restore(store).finished
    assert duck.differences(place.source, {**IN_RANGE, "readings": where}) == {}


@pytest.mark.slow
@every_plan
def test_a_store_that_refuses_a_fifth_of_the_requests_gets_everything(
    place: Place, proxy: Proxy, s3_location: str, store: ObjectStore, fields: dict[str, Any]
) -> None:
    proxy.strike(Fault(".", 503, "SlowDown", times=1_000_000, every=5))
    patient = replace(proxy.options, retries=None)
    export(place, open_store(parse_location(s3_location), patient), fields)
    assert proxy.statuses(".").count(503) > 10
    assert verify(store, depth="full").faults == []
    below = f"{s3_location}/copy"
    query = plan(place.source, "SELECT t, sensor, value FROM readings", place.folder, **fields)
    assert copy(replace(run_of(query), store=open_store(parse_location(below), patient))).sealed
    assert verify(open_store(parse_location(below), patient)).faults == []


@pytest.mark.slow
@every_plain_format
@pytest.mark.parametrize("times", [1, 1_000_000])
def test_an_upload_that_is_cut_is_made_again_or_fails_and_leaves_nothing(
    place: Place, proxy: Proxy, s3_server: S3Server, store: ObjectStore, fields: dict[str, Any], times: int
) -> None:
    run = replace(run_of(plan(place.source, LARGE, place.folder, **fields)), store=store)
    struck = replace(run, store=open_store(parse_location(store.uri), proxy.options))
    proxy.strike(Fault(r"PUT .*[?&]partNumber=2\b", 0, times=times))
    if times == 1:
        assert copy(struck).rows == 40_000
    else:
        with pytest.raises(ExportFailedError, match=rf"Cannot write {store.uri}/data/0/main\.copied"):
            copy(struck)
        assert [info.path for info in store.list("data/")] == []
        assert list(read_state(store).live_files()) == []
    assert proxy.statuses("partNumber=2")[0] == 0
    assert s3_server.uploads(store.uri) == []
    if times > 1:
        assert copy(run).rows == 40_000
    assert verify(store, depth="full").faults == []


@pytest.mark.slow
@every_plain_format
def test_a_killed_copy_shows_no_part_of_its_file_and_the_next_one_finishes(
    place: Place, proxy: Proxy, s3_server: S3Server, store: ObjectStore, fields: dict[str, Any]
) -> None:
    """The parts of a killed process's upload stay until a rule of the bucket removes them; no reader sees them."""
    run = replace(run_of(plan(place.source, LARGE, place.folder, **fields)), store=store)
    held = replace(run, store=open_store(parse_location(store.uri), proxy.options))
    proxy.strike(Fault(r"PUT .*[?&]partNumber=2\b", held=True))
    process = SPAWN.Process(target=copy, args=(held,))
    process.start()
    while not proxy.statuses("partNumber=2"):
        assert process.is_alive()
    process.kill()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert len(s3_server.uploads(store.uri)) == 1
    assert [info.path for info in store.list("data/")] == []
    assert copy(run).rows == 40_000
    report = verify(store, depth="full")
    assert (report.faults, report.files) == ([], len(list(read_state(store).live_files())))
