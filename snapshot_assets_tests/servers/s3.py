"""A real S3 server: SeaweedFS's `weed mini` on the loopback interface, with six users."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import boto3
import pytest

from snapshot_assets.errors import StorageError
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import StoreOptions, open_store
from snapshot_assets_tests.servers.ports import free_port
from snapshot_assets_tests.waiting import until

BUCKET = "snapshots"
BACKUPS = ("backups", "backups-elsewhere")
"""Buckets of the fixture `backups`, as documents and examples name them."""

_COMPONENTS = ("master", "volume", "filer", "s3", "admin")
_USERS = {
    "admin": ["Admin", "Read", "Write", "List", "Tagging"],
    "reader": ["Read", "List"],
    "stranger": ["Read:elsewhere"],
    "blind": ["Read", "Write"],
    **{
        user: [f"{right}:{bucket}" for right in ("Read", "Write", "List")]
        for user, bucket in zip(("exporter", "copier"), BACKUPS, strict=True)
    },
}


@dataclass(frozen=True)
class S3Server:
    """The running server.

    Attributes:
        options: Options of a user with all permissions.
        bucket: An existing bucket.
    """

    options: StoreOptions
    bucket: str

    def as_user(self, name: str) -> StoreOptions:
        """Return the options of a user: `admin`, `reader` (no writes), `blind` (no lists), `stranger` (no rights),
        and of the buckets `BACKUPS`, `exporter` (the first one only) or `copier` (the second one only).
        """
        assert name in _USERS
        return replace(self.options, access_key_id=f"{name}-key", secret_access_key=_secret(name))

    def uploads(self, uri: str) -> list[str]:
        """Return the keys of unfinished multipart uploads below a location."""
        found = self.client().list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])
        return [each["Key"] for each in found if each["Key"].startswith(parse_location(uri).prefix)]

    def client(self) -> Any:
        """Return a boto3 client: obstore can neither list uploads nor write certain names."""
        return boto3.client(
            "s3",
            endpoint_url=self.options.endpoint,
            aws_access_key_id=self.options.access_key_id,
            aws_secret_access_key=self.options.secret_access_key,
            region_name=self.options.region,
        )


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A running S3 server with a bucket."""
    with start_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@contextmanager
def start_s3(home: Path) -> Iterator[S3Server]:
    """Run an S3 server with a bucket until the context ends.

    Args:
        home: An existing folder for its data and its log.
    """
    config = home / "identities.json"
    config.write_text(json.dumps({"identities": [_identity(name) for name in _USERS]}))
    ports = [free_port() for _ in range(2 * len(_COMPONENTS))]
    weed = Path(sys.executable).parent / "weed"
    with (home / "log").open("wb") as log:
        # An environment of its own: AWS_* variables would become identities of the server.
        server = subprocess.Popen(
            [weed, "mini", *_arguments(home, config, ports)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={"PATH": os.defpath, "HOME": str(home)},
            cwd=home,
        )
    try:
        endpoint = f"http://127.0.0.1:{ports[_COMPONENTS.index('s3')]}"
        _wait_until_ready(server, endpoint, home / "log")
        admin = StoreOptions(
            endpoint=endpoint,
            region="us-east-1",
            access_key_id="admin-key",
            secret_access_key=_secret("admin"),
            allow_http=True,
            retries=2,
        )
        _wait_for_bucket(admin)
        yield S3Server(admin, BUCKET)
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        for port in ports:  # the server does not delete its sockets
            for socket_file in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                socket_file.unlink(missing_ok=True)


@pytest.fixture
def s3_location(s3_server: S3Server) -> str:
    """The URI of a new prefix on the S3 server."""
    return f"s3://{s3_server.bucket}/tests/1-{uuid.uuid4().hex}"


@pytest.fixture
def backups(s3_server: S3Server) -> Iterator[dict[str, str]]:
    """Two empty buckets, `BACKUPS`: the variables of somebody whose own credentials are only for the first."""
    client = s3_server.client()
    for bucket in BACKUPS:
        client.create_bucket(Bucket=bucket)
    yield variables_of(s3_server.as_user("exporter"))
    for bucket in BACKUPS:
        for found in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            for each in found.get("Contents", []):
                client.delete_object(Bucket=bucket, Key=each["Key"])
        client.delete_bucket(Bucket=bucket)


def variables_of(options: StoreOptions) -> dict[str, str]:
    """Return Amazon's variables for a user of a server."""
    return {
        "AWS_REGION": str(options.region),
        "AWS_ACCESS_KEY_ID": str(options.access_key_id),
        "AWS_SECRET_ACCESS_KEY": str(options.secret_access_key),
        "AWS_ENDPOINT_URL_S3": str(options.endpoint),
        "AWS_ALLOW_HTTP": "true",
    }


@pytest.fixture(params=["file", "s3"])
def any_location(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, StoreOptions]:
    """A new location and its options, on the local disk and on S3."""
    if request.param == "file":
        return (tmp_path / "location").as_uri(), StoreOptions()
    return request.getfixturevalue("s3_location"), request.getfixturevalue("s3_server").options


def _secret(user: str) -> str:
    return f"{user}-only-for-tests"


def _identity(name: str) -> dict[str, object]:
    keys = {"accessKey": f"{name}-key", "secretKey": _secret(name)}
    return {"name": name, "credentials": [keys], "actions": _USERS[name]}


def _arguments(home: Path, config: Path, ports: list[int]) -> list[str]:
    half = len(_COMPONENTS)
    http, grpc = dict(zip(_COMPONENTS, ports[:half], strict=True)), dict(zip(_COMPONENTS, ports[half:], strict=True))
    return [
        f"-dir={home}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        *(f"-{name}.port={port}" for name, port in http.items()),
        *(f"-{name}.port.grpc={port}" for name, port in grpc.items()),
        f"-s3.config={config}",
        f"-bucket={BUCKET}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-webdav=false",
        "-admin.ui=false",
        "-master.telemetry=false",
    ]


def _wait_until_ready(server: subprocess.Popen[bytes], endpoint: str, log: Path) -> None:
    """Wait until the server refuses a request without credentials."""
    until(
        lambda: _status(f"{endpoint}/{BUCKET}") == 403,
        explain=lambda: log.read_text(errors="replace")[-4000:],
        process=server,
    )


def _wait_for_bucket(options: StoreOptions) -> None:
    """Wait until the bucket exists: the server creates it soon after its first answers."""
    store = open_store(parse_location(f"s3://{BUCKET}/ready"), options)
    until(lambda: _lists(store))


def _lists(store: ObjectStore) -> bool:
    try:
        list(store.list())
    except StorageError:
        return False
    return True


def _status(url: str) -> int:
    try:
        with urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code
    except (URLError, OSError):
        return 0
