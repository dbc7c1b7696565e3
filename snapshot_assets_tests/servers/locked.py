"""Buckets with Object Lock, on both servers of S3: `weed` enforces locks everywhere, moto asks for checksums too."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import Any

import boto3
import pytest

from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import StoreOptions, open_store
from snapshot_assets.storage.s3_bucket import ObjectVersion, S3Bucket, bucket_of


@dataclass(frozen=True)
class LockedBucket:
    """A new bucket with Object Lock, and so with versions.

    Attributes:
        name: Its name.
        options: Options of a user who may do everything but delete what is locked.
    """

    name: str
    options: StoreOptions

    @property
    def is_moto(self) -> bool:
        """Whether moto serves it."""
        return self.options.access_key_id == "key"

    @property
    def uri(self) -> str:
        """A location in the bucket."""
        return f"s3://{self.name}/night"

    @property
    def client(self) -> Any:
        """A boto3 client, as an attacker has one."""
        return client_of(self.options)

    def store(self, uri: str = "", **options: Any) -> ObjectStore:
        """Return the store of a location in the bucket."""
        return open_store(parse_location(uri or self.uri), replace(self.options, **options))

    def versions(self, uri: str = "") -> list[ObjectVersion]:
        """Return all versions and markers of a location."""
        return list(self.bucket(uri).versions())

    def bucket(self, uri: str = "", **options: Any) -> S3Bucket:
        """Return what the store keeps beside the objects of a location."""
        found = bucket_of(self.store(uri, **options))
        assert found is not None
        return found


def client_of(options: StoreOptions) -> Any:
    """Return a boto3 client of a server."""
    return boto3.client(
        "s3",
        endpoint_url=options.endpoint,
        aws_access_key_id=options.access_key_id,
        aws_secret_access_key=options.secret_access_key,
        region_name=options.region,
    )


def new_locked_bucket(options: StoreOptions, mode: str = "COMPLIANCE", days: int = 3) -> LockedBucket:
    """Create a bucket with Object Lock that locks new objects; with 0 days, it does not lock them by itself."""
    client, name = client_of(options), f"locked-{uuid.uuid4().hex[:12]}"
    client.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    if days:
        rule = {"DefaultRetention": {"Mode": mode, "Days": days}}
        configuration = {"ObjectLockEnabled": "Enabled", "Rule": rule}
        client.put_object_lock_configuration(Bucket=name, ObjectLockConfiguration=configuration)
    return LockedBucket(name, options)


def server_options(request: pytest.FixtureRequest, server: str) -> StoreOptions:
    """Return the options of a server: `weed` or `moto`."""
    if server == "weed":
        found: StoreOptions = request.getfixturevalue("s3_server").options
    else:
        found = request.getfixturevalue("moto_server")
    return found


@pytest.fixture(params=["weed", pytest.param("moto", marks=pytest.mark.slow)])
def locked(request: pytest.FixtureRequest) -> LockedBucket:
    """A new bucket that locks all new objects for three days; on moto's server in slow tests only."""
    return new_locked_bucket(server_options(request, request.param))


@pytest.fixture(params=["weed", pytest.param("moto", marks=pytest.mark.slow)])
def lockable(request: pytest.FixtureRequest) -> LockedBucket:
    """A new bucket with Object Lock that locks no object by itself."""
    return new_locked_bucket(server_options(request, request.param), days=0)
