"""Snapshots on a real S3 server, as on the local disk."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_aws.s3 import S3Resource
from pyspark.sql import SparkSession

from snapshot_assets.catalog.listing import list_snapshots
from snapshot_assets.catalog.operations.delete import delete_snapshot
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import StoreDeniedError
from snapshot_assets.pipeline.build import build_definitions
from snapshot_assets.pipeline.dagster.resources import SPARK
from snapshot_assets.pipeline.dagster.spark_session import spark_resource
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import StoreOptions, open_store
from snapshot_assets_tests.cli.helpers import RANGE, Snapshots, export, make_plan
from snapshot_assets_tests.servers.s3 import S3Server


def s3_resource(options: StoreOptions) -> S3Resource:
    return S3Resource(
        endpoint_url=options.endpoint,
        region_name=options.region,
        aws_access_key_id=options.access_key_id,
        aws_secret_access_key=options.secret_access_key,
    )


def test_export_verify_list_and_delete_work_as_on_the_local_disk(
    s3_server: S3Server, s3_location: str, source: str
) -> None:
    uri, options = s3_location, s3_server.options
    location = parse_location(uri)
    store = open_store(location, options)
    plan = make_plan(source, uri, storage=options)
    assert {outcome.status for outcome in export(plan, store)} == {"exported"}
    assert {outcome.status for outcome in export(plan, store)} == {"present"}
    report = verify(store, depth="full")
    assert (report.faults, report.files) == ([], 4)
    [listed] = list_snapshots(store, lambda name: open_store(location.child(name), options))
    assert (listed.status, listed.chunks_done, listed.rows) == ("complete", 4, 74)
    sums = store.get("SHA256SUMS", limit=1 << 20).decode()
    for line in sums.splitlines():
        assert store.head(line.split("  ", 1)[1]).size > 0
    assert delete_snapshot(store).foreign == ()
    assert list(store.list()) == []


def test_a_snapshot_may_be_copied_to_another_store(
    s3_server: S3Server, s3_location: str, source: str, exported: Path
) -> None:
    copy = open_store(parse_location(s3_location), s3_server.options)
    for file in exported.rglob("*"):
        if file.is_file():
            copy.put(file.relative_to(exported).as_posix(), file.read_bytes())
    assert verify(copy, depth="full").faults == []


def test_the_command_line_on_s3(
    snapshots: Snapshots, s3_server: S3Server, s3_user: Any, s3_location: str, source: str
) -> None:
    options = ["--config", s3_user("admin")]
    location = ["--to", s3_location]
    call = (*options, "export", "create", "--source", source, *location, "--schema-only", "--json")
    created = snapshots(*call)
    assert created.status == 0, created.err
    assert (created.json["chunks"], created.json["files"]) == (0, 0)
    assert snapshots(*call).json["run_id"] is None
    assert snapshots(*options, "export", "verify", "--snapshot", s3_location).status == 0
    reading = ["--config", s3_user("reader")]
    assert snapshots(*reading, "export", "verify", "--snapshot", s3_location, "--depth", "quick").status == 0
    status = snapshots(*reading, "status", "--snapshot", s3_location, "--max-age", "1h", "--json")
    assert (status.status, [each["depth"] for each in status.json["verified"]]) == (0, ["full"])
    s3_user("admin")
    above = s3_location.rpartition("/")[0]
    foreign = f"{parse_location(above).prefix}/foreign/new\nline"  # a key that no listing of this package's takes
    s3_server.client().put_object(Bucket=s3_server.bucket, Key=foreign, Body=b"")
    found = snapshots(*options, "export", "list", "--location", above, "--json").json
    assert [item["status"] for item in found if item["uri"] == s3_location] == ["schema-only"]
    assert [item["status"] for item in found if item["uri"] == f"{above}/foreign"] == ["unreadable"]
    assert snapshots(*options, "export", "delete", "--snapshot", s3_location, "--yes").status == 0
    assert snapshots(*options, "export", "list", "--location", s3_location, "--json").json == []


@pytest.mark.parametrize(
    ("user", "call"),
    [
        *((user, ("export", "create", *RANGE)) for user in ("reader", "stranger", "unsigned")),
        pytest.param("reader", ("copy", "main.sensors"), marks=pytest.mark.slow),
    ],
)
def test_missing_rights_are_reported_before_anything_is_written(
    snapshots: Snapshots,
    s3_server: S3Server,
    s3_user: Any,
    s3_location: str,
    source: str,
    tmp_path: Path,
    call: tuple[str, ...],
    user: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = ["--config", s3_user("admin" if user == "unsigned" else user)]
    if user == "unsigned":
        monkeypatch.setenv("TEST_KEY", "wrong-secret-wrong-secret")
    created = snapshots(*options, *call, "--source", source, "--to", s3_location, "--json")
    assert created.status == 4
    assert created.json["error"]["kind"] == StoreDeniedError.__name__
    assert s3_location in created.err
    assert "secret" not in created.err
    assert not (tmp_path / "dagster").exists() or call[0] == "copy"  # whose run Dagster records
    assert list(open_store(parse_location(s3_location), s3_server.options).list()) == []


@pytest.fixture
def s3_run(
    spark: SparkSession, s3_server: S3Server, s3_location: str, source: str, tmp_path: Path
) -> Iterator[tuple[dg.DagsterInstance, dg.ExecuteInProcessResult]]:
    """One run of all assets through Dagster and Spark, with credentials from dagster-aws's resource alone."""
    plan = make_plan(source, s3_location)
    definitions = build_definitions(
        Configuration(plans=(plan,)), resources={SPARK: spark_resource()}, s3=s3_resource(s3_server.options)
    )
    (tmp_path / "instance").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "instance")) as instance:
        yield (
            instance,
            definitions.resolve_implicit_global_asset_job_def().execute_in_process(
                instance=instance,
                asset_selection=[
                    key for key in definitions.resolve_all_asset_keys() if key.path[-1] not in ("source", "tag")
                ],
                tags={
                    "dagster/asset_partition_range_start": "2025-01-01T00:00",
                    "dagster/asset_partition_range_end": "2025-01-03T00:00",
                },
                raise_on_error=False,
            ),
        )


def test_dagster_and_spark_export_to_s3_without_revealing_credentials(
    s3_run: tuple[dg.DagsterInstance, dg.ExecuteInProcessResult],
    s3_server: S3Server,
    s3_location: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    instance, result = s3_run
    assert result.success
    store = open_store(parse_location(s3_location), s3_server.options)
    report = verify(store, depth="full")
    assert (report.faults, report.files) == ([], 4)

    instance.dispose()
    output = "".join(capfd.readouterr()) + caplog.text
    recorded = b"".join(file.read_bytes() for file in (tmp_path / "instance").rglob("*") if file.is_file())
    stored = b"".join(store.get(info.path, limit=1 << 24) for info in store.list())
    assert result.run_id.encode() in recorded  # proves that Dagster wrote there
    for secret in (s3_server.options.access_key_id, s3_server.options.secret_access_key):
        assert secret
        assert secret not in output
        assert secret.encode() not in recorded
        assert secret.encode() not in stored
        assert secret not in repr(store)
        assert secret.encode() in pickle.dumps(store)  # tasks get it only in their closure
