"""`snapshots status` in every condition of a location, and `export verify --sample`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.status import Moment, Size, Status, Unsealed, Verified
from snapshot_assets.catalog.verify.comparisons import ComparisonRecord, record_comparison
from snapshot_assets.catalog.verify.records import Verification
from snapshot_assets.cli.open_metrics import metrics_of, unreadable
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.tags import flip
from snapshot_assets_tests.cli.helpers import Result, Snapshots, store_of

AGE = timedelta(hours=30)


@pytest.fixture
def writer(location: Path) -> Writer:
    """A location whose commits are 30 hours old, of a chunk that is not sealed."""
    writer = Writer(store_of(location))
    writer.catalog._clock = lambda: datetime.now(UTC) - AGE
    writer.begin()
    writer.fill()
    return writer


@pytest.fixture
def sealed(writer: Writer) -> Writer:
    seal(writer.catalog)
    return writer


def status(snapshots: Snapshots, location: Path | str, *arguments: str) -> Result:
    uri = location if isinstance(location, str) else location.as_uri()
    return snapshots("status", "--snapshot", uri, *arguments)


def metrics(text: str) -> dict[str, list[Any]]:
    """Return the samples of an exposition by metric, as the specification reads it."""
    return {family.name: family.samples for family in text_string_to_metric_families(text)}


def test_a_fresh_location(snapshots: Snapshots, exported: Path) -> None:
    found = status(snapshots, exported, "--max-age", "26h")
    assert (found.status, found.err) == (0, "")
    assert found.out.startswith(f"OK: {exported.as_uri()} at revision ")
    assert "unsealed:       nothing" in found.out
    assert "verified:       never" in found.out


def test_a_stale_location(snapshots: Snapshots, location: Path, sealed: Writer) -> None:
    found = status(snapshots, location, "--max-age", "26h")
    assert found.status == 3
    assert found.out.startswith("STALE: ")
    assert "newest seal:    revision 5, 30 h 0 min old" in found.out
    assert found.out.endswith("The newest sealed export must not be older than 26h: it is 30 h 0 min.\n")
    assert status(snapshots, location, "--max-age", "31h").status == 0
    assert status(snapshots, location).status == 0
    found = status(snapshots, location, "--max-age", "26h", "--json")
    assert (found.status, found.json["stale"], found.json["healthy"], found.json["max_age"]) == (3, True, False, "26h")


def test_an_unsealed_location(snapshots: Snapshots, location: Path, writer: Writer) -> None:
    found = status(snapshots, location)
    assert found.status == 3
    assert found.out.startswith("UNSEALED: ")
    assert "newest seal:    none" in found.out
    assert "unsealed:       0 chunks not exported, 2 files not sealed (14 B)" in found.out
    assert status(snapshots, location, "--json").json["healthy"] is False
    found = status(snapshots, location, "--max-age", "26h")
    assert found.status == 3
    assert found.out.endswith("26h: nothing is sealed.\n")


def test_a_damaged_location(snapshots: Snapshots, location: Path, sealed: Writer) -> None:
    path = next(iter(sealed.catalog.state.files.chunk(1)))
    whole = sealed.store.get(path)
    flip(sealed.store, path)
    assert status(snapshots, location).status == 0
    assert snapshots("export", "verify", "--snapshot", location.as_uri()).status == 3
    found = status(snapshots, location)
    assert found.status == 3
    assert found.out.startswith("DAMAGED: ")
    assert f"damaged:        {path}\n" in found.out
    assert ", full, all readable revisions, 2 of 2 files read (14 B): 1 damaged object\n" in found.out
    sealed.store.put(path, whole)
    assert snapshots("export", "verify", "--sample", "1%", "--snapshot", location.as_uri()).status == 0
    assert status(snapshots, location).status == 0
    sealed.store.delete(path)
    found = status(snapshots, location, "--json")
    assert (found.status, found.json["damaged"], found.json["healthy"]) == (3, [path], False)


def test_a_location_that_was_compared_with_its_source(snapshots: Snapshots, location: Path, sealed: Writer) -> None:
    assert "  compared:       never with its source\n" in status(snapshots, location).out
    assert status(snapshots, location, "--json").json["compared"] == []
    assert snapshots("export", "verify", "--depth", "quick", "--snapshot", location.as_uri()).status == 0
    at = datetime.now(UTC) - AGE

    def record(scope: str, chosen: str = "", **counts: Any) -> None:
        record_comparison(sealed.store, sealed.catalog.state, ComparisonRecord(at, at, scope, chosen, **counts))

    record("all", parts=3, equal=2, changed=1)
    found = status(snapshots, location)
    assert found.status == 0
    assert re.search(r"  verified: +.*quick.*\n", found.out)
    shown = "  compared:       30 h 0 min ago at revision 5, everything, 3 parts: 2 equal, 1 changed\n"
    assert shown in found.out
    record("part", "tables s.a", parts=6, different=6, different_parts=tuple(f"{n}/s.a" for n in range(6)))
    found = status(snapshots, location)
    assert found.status == 3
    assert found.out.startswith("DAMAGED: ")
    assert shown in found.out
    assert " ago at revision 5, tables s.a, 6 parts: 6 different\n  different:      0/s.a\n" in found.out
    assert "  different:      and 1 more; `snapshots compare` names all and their rows\n" in found.out
    facts = status(snapshots, location, "--json").json
    assert [(each["scope"], each["changed"], each["different"]) for each in facts["compared"]] == [
        ("all", 1, 0),
        ("part", 0, 6),
    ]
    assert (facts["different"][0], facts["damaged"], facts["healthy"]) == ("0/s.a", [], False)
    values = metrics(status(snapshots, location, "--format", "openmetrics").out)
    ages = {sample.labels["scope"]: sample.value for sample in values["snapshots_comparison_age_seconds"]}
    assert ages.keys() == {"all", "part"}
    assert AGE.total_seconds() <= ages["all"] < AGE.total_seconds() + 600
    assert {sample.value for sample in values["snapshots_comparison_timestamp_seconds"]} == {at.timestamp()}
    [different] = values["snapshots_different_parts"]
    assert different.value == 6
    record("all", parts=3, equal=3)
    assert status(snapshots, location).status == 0


def test_a_location_with_a_damaged_log(snapshots: Snapshots, location: Path, sealed: Writer) -> None:
    flip(sealed.store, "transactions/00000000000000000003.txn")
    failed = status(snapshots, location, "--json")
    assert failed.json["error"]["kind"] == "TornObjectError"
    assert failed.status == status(snapshots, location, "--format", "openmetrics").status == 3


def test_a_replica(snapshots: Snapshots, exported: Path, tmp_path: Path) -> None:
    """Its garbage is what the source deletes, and only a replication deletes it there."""
    replica = tmp_path / "replica"
    assert snapshots("replicate", "--snapshot", exported.as_uri(), "--to", replica.as_uri()).status == 0
    found = status(snapshots, replica)
    assert found.status == 0
    assert f"  replica of:     {exported.as_uri()}\n" in found.out
    assert "`snapshots replicate --delete` deletes what the source no longer has" in found.out
    assert "catalog gc" not in found.out
    facts = status(snapshots, replica, "--json").json
    assert (facts["replica_of"], facts["promoting"]) == (exported.as_uri(), False)
    [sample] = metrics(status(snapshots, replica, "--format", "openmetrics").out)["snapshots_replica"]
    assert (sample.labels, sample.value) == ({"location": replica.as_uri(), "source": exported.as_uri()}, 1)
    assert status(snapshots, exported, "--json").json["replica_of"] is None
    [sample] = metrics(status(snapshots, exported, "--format", "openmetrics").out)["snapshots_replica"]
    assert (sample.labels, sample.value) == ({"location": exported.as_uri()}, 0)


def test_an_empty_location(snapshots: Snapshots, location: Path) -> None:
    failed = status(snapshots, location, "--json", "--max-age", "26h")
    assert (failed.status, failed.json["error"]["kind"]) == (5, "NoSnapshotError")
    assert not location.exists()


def test_an_unreachable_location(snapshots: Snapshots) -> None:
    Path("snapshots.yaml").write_text(
        "storage:\n  s3: {endpoint: 'http://127.0.0.1:1', allow_http: true, region: here, retry_timeout: 1s,"
        " access_key_id: key, secret_access_key: secret}\n"
    )
    failed = status(snapshots, "s3://bucket/here", "--json")
    assert failed.json["error"]["kind"] == "StoreUnavailableError"
    failed = status(snapshots, "s3://bucket/here", "--format", "openmetrics")
    assert failed.status == 4
    [sample] = metrics(failed.out)["snapshots_readable"]
    assert (sample.labels, sample.value) == ({"location": "s3://bucket/here"}, 0)


def test_the_metrics_are_those_of_the_specification(snapshots: Snapshots, location: Path, sealed: Writer) -> None:
    create_tag(sealed.catalog, "nightly", 5)
    for depth in ("quick", "full"):
        assert snapshots("export", "verify", "--depth", depth, "--snapshot", location.as_uri()).status == 0
    assert snapshots("export", "verify", "--sample", "5%", "--snapshot", location.as_uri()).status == 0
    found = status(snapshots, location, "--format", "openmetrics", "--max-age", "26h")
    assert found.status == 3
    values = metrics(found.out)
    assert {name: samples[0].value for name, samples in values.items() if len(samples) == 1}.items() >= {
        "snapshots_readable": 1,
        "snapshots_revision": 6,
        "snapshots_sealed": 1,
        "snapshots_seal_revision": 5,
        "snapshots_export_revision": 5,
        "snapshots_tag_revision": 5,
        "snapshots_missing_chunks": 0,
        "snapshots_damaged_objects": 0,
        "snapshots_log_transactions": 6,
        "snapshots_max_age_seconds": 26 * 3600,
        "snapshots_stale": 1,
    }.items()
    [age] = values["snapshots_export_age_seconds"]
    [time] = values["snapshots_export_timestamp_seconds"]
    assert AGE.total_seconds() <= age.value < AGE.total_seconds() + 600
    assert abs(datetime.now(UTC).timestamp() - time.value - age.value) < 60
    depths = {sample.labels["depth"]: sample.value for sample in values["snapshots_verification_read_bytes"]}
    assert depths.keys() == {"full", "sample"}
    assert depths["full"] == 14


def test_names_with_any_character_and_all_values_are_read_as_they_were() -> None:
    odd = 'file:///a "b"\\c\nd é'
    at = datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
    verified = Verified(Verification(at, "me", "all", "full", 1, 1, 1, 2**40, ()), 10**9)
    moment = Moment(12, at, 3, "t")
    size = Size(2**40, 2**53)
    known = Status(
        *(odd, "", "", "plan", 12, False, moment, None, moment, Unsealed(1, 2, 3), (verified,)),
        *(("x",), "torn", None, None, size, size),
    )
    values = metrics(metrics_of(known, None) + "\n")
    assert {sample.labels["location"] for samples in values.values() for sample in samples} == {odd}
    assert values["snapshots_seal_timestamp_seconds"][0].value == at.timestamp()
    assert values["snapshots_log_bytes"][0].value == 2**54
    assert values["snapshots_damaged_objects"][0].value == 2
    assert "snapshots_export_revision" not in values
    assert "snapshots_garbage_objects" not in values
    assert metrics(unreadable(odd) + "\n")["snapshots_readable"][0].value == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--json", "--format", "openmetrics"], "give one of them"),
        (["--max-age", "soon"], "'soon' is not a duration"),
    ],
)
def test_a_wrong_call_is_refused(
    snapshots: Snapshots, exported: Path, arguments: tuple[str, ...], message: str
) -> None:
    found = status(snapshots, exported, *arguments)
    assert (found.status, message in found.err) == (2, True)


def test_a_sample_says_what_it_read_and_when_all_is_read(snapshots: Snapshots, exported: Path) -> None:
    verify = ("export", "verify", "--snapshot", exported.as_uri())
    found = snapshots(*verify, "--sample", "5%")
    assert found.status == 0
    # One, and now and then more: names of files, by which they are chosen, have random parts.
    assert re.search(
        "sample: [1-4] of 4 data files read, others each day; daily runs read all within 39 days", found.out
    )
    found = snapshots(*verify, "--sample", "100%", "--json")
    assert (found.json["depth"], found.json["days"], found.json["hashed"]) == ("sample", 1, 4)
    for wrong in (("--sample", "0%"), ("--sample", "5"), ("--sample", "5%", "--depth", "quick")):
        assert snapshots(*verify, *wrong).status == 2


_MEASURED = """
import json, sys, time
from snapshot_assets.cli import main
call = ["status", "--snapshot", sys.argv[1]]
assert main(call) == 0
heavy = sorted({name.partition(".")[0] for name in sys.modules} & {"dagster", "pyspark", "duckdb"})
times = []
for _ in range(5):
    start = time.process_time()
    main(call)
    times.append(time.process_time() - start)
print(json.dumps([heavy, min(times)]))
"""


def test_it_imports_nothing_heavy_and_takes_200_ms_of_the_processor(exported: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _MEASURED, exported.as_uri()], capture_output=True, text=True, check=True
    )
    heavy, seconds = json.loads(run.stdout.splitlines()[-1])
    assert heavy == []
    assert seconds < 0.2
