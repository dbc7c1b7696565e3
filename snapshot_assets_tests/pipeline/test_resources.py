"""Resources: every field of an `S3Resource` is used or refused, and a cluster gets no files of one machine."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import NoReturn

import pytest
from dagster_aws.s3 import S3Resource

from snapshot_assets.errors import PlanError, SnapshotError
from snapshot_assets.pipeline.dagster.resources import Snapshots, options_of
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.storage.options import StoreOptions
from snapshot_assets_tests.cli.helpers import make_plan

KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}


def test_every_option_that_is_used_reaches_the_store() -> None:
    given = S3Resource(
        endpoint_url="http://minio:9000",
        region_name="eu-central-1",
        **KEYS,
        aws_session_token="c",
        max_attempts=2,
        use_ssl=False,  # as in the endpoint
        verify=True,
    )
    assert options_of(given) == StoreOptions(
        endpoint="http://minio:9000",
        region="eu-central-1",
        access_key_id="a",
        secret_access_key="b",
        session_token="c",
        allow_http=True,
        retries=2,
    )
    assert options_of(S3Resource()) == StoreOptions()


def test_a_profile_is_taken() -> None:
    assert options_of(S3Resource(profile_name="prod")).profile == "prod"


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [("use_unsigned_session", True, "keys"), ("use_ssl", False, "http://"), ("verify", False, "SSL_CERT_FILE")],
)
def test_an_option_that_would_be_ignored_is_refused(name: str, value: bool, instead: str) -> None:
    with pytest.raises(PlanError, match=f"S3Resource's {name}.*{instead}"):
        options_of(S3Resource(**{name: value}))


def test_every_field_of_the_resource_is_known_here() -> None:
    """A field of a later dagster-aws would be ignored: use it, or refuse it."""
    used = {"endpoint_url", "region_name", "aws_access_key_id", "aws_secret_access_key", "aws_session_token"}
    assert set(S3Resource.model_fields) == used | {
        "max_attempts",
        "profile_name",
        "use_unsigned_session",
        "use_ssl",
        "verify",
    }


def no_session() -> NoReturn:
    raise AssertionError("Spark was started")


def snapshots(source: str, to: str, master: str) -> Snapshots:
    return Snapshots(Configuration(plans=(make_plan(source, to),)), "run", no_session, master=master)


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host:443"])
def test_local_files_are_refused_on_a_cluster_before_anything_starts(tmp_path: Path, master: str) -> None:
    to = (tmp_path / "location").as_uri()
    with pytest.raises(PlanError) as refused:
        snapshots("postgresql://host/db", to, master).export_run("location")
    assert to in str(refused.value)
    assert master in str(refused.value)
    assert "s3" in str(refused.value)
    with pytest.raises(PlanError, match="database 'a', a DuckDB file"):
        snapshots("duckdb:///data/a.duckdb", "s3://bucket/prefix", master).export_run("location")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "to", "master"),
    [
        ("duckdb:///data/a.duckdb", "file:///srv/a", "local[*,4]"),
        ("duckdb:///data/a.duckdb", "file:///srv/a", "local"),
        ("postgresql://host/db", "s3://bucket/prefix", "spark://host:7077"),
    ],
)
def test_other_plans_get_their_run(source: str, to: str, master: str) -> None:
    assert snapshots(source, to, master).export_run("location").plan.to == to


class _Foreign:
    """A project's own resource of a Spark session; its settings may be anywhere."""

    def __init__(self, **config: object) -> None:
        self.spark_config = config
        self.started = 0

    @property
    def spark_session(self) -> NoReturn:
        self.started += 1
        raise SnapshotError("started")


@pytest.mark.parametrize(
    ("config", "early"),
    [
        ({"spark.master": "spark://host:7077"}, 1),
        ({"spark": {"master": "spark://host:7077"}}, 1),
        ({}, 1),
        ({"spark.master": "local[2]"}, 0),
    ],
)
def test_executors_of_a_projects_own_session_are_checked_early_unless_it_is_known_to_be_local(
    config: dict[str, object], early: int
) -> None:
    plan, resource = make_plan("postgresql://host/db", "s3://bucket/prefix"), _Foreign(**config)
    run = Snapshots(Configuration(plans=(plan,)), "run")
    run.bind_spark(resource)
    with pytest.raises(SnapshotError, match="started") if early else nullcontext():
        run.export_run("location").runner.ready()
    assert resource.started == early
