"""`replicate_to` of a plan, and the storage options of further stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.errors import PlanError
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.read_configuration import parse_configuration
from snapshot_assets.storage.location import parse_location

PLAN = {"name": "demo", "source": "duckdb:///a.duckdb", "to": "s3://first/demo"}


def read(text: str) -> Configuration:
    return parse_configuration(text, Path("snapshots.yaml"), {})


def test_the_longest_uri_gives_a_locations_options_before_its_scheme() -> None:
    configuration = read(
        "storage:\n"
        "  s3: {region: general}\n"
        "  locations:\n"
        "    's3://second': {region: of bucket}\n"
        "    's3://second/a%20b/': {region: of folder}\n"
        "    'gs://second': {retries: 3}\n"
    )

    def region(uri: str) -> str | None:
        options = configuration.store_options_for(parse_location(uri))
        return options.region if options is not None else None

    assert region("s3://first/x") == "general"
    assert region("s3://second/x") == region("s3://second/a%20bc") == "of bucket"
    assert region("s3://second/a%20b") == region("s3://second/a%20b/c") == "of folder"
    assert region("gs://first/x") is None


@pytest.mark.parametrize(
    ("locations", "message"),
    [
        ("{second: {region: x}}", "is not a URI"),
        ("{'s3://second': {account_name: x}}", "account_name has no effect on s3:// locations"),
        ("{'file:///srv': {region: x}}", "region has no effect on file:// locations"),
        ("{'s3://second': {regio: x}}", "is not a storage option"),
    ],
)
def test_options_of_a_location_are_checked(locations: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        read(f"storage: {{locations: {locations}}}\n")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"replicate_to": "second/demo"}, "is not a URI"),
        ({"replicate_to": "s3://first/demo"}, "overlaps the plan's location"),
        ({"replicate_to": "s3://first/demo/replica"}, "overlaps the plan's location"),
        ({"replicate_to": "s3://second/demo", "kind": "query", "query": "SELECT 1"}, "has no effect with kind: query"),
        ({"replicate_delete": True}, "replicate_delete: has no effect without replicate_to"),
    ],
)
def test_a_replica_is_another_location(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Plan(**PLAN | fields)


def test_one_uri_at_two_services_is_no_overlap() -> None:
    plan = Plan(**PLAN, replicate_to="s3://first/demo", storage={"endpoint": "https://minio.example.com"})
    assert plan.replicate_to == plan.to
