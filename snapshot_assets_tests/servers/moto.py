"""S3 by moto's server, on the loopback interface: a second implementation, beside the server of `s3`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import uuid
from collections.abc import Iterator

import boto3
import pytest

from snapshot_assets.storage.options import StoreOptions
from snapshot_assets_tests.servers.ports import free_port, listens
from snapshot_assets_tests.waiting import until

_BUCKET = "snapshots"


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreOptions]:
    """Options of a running server with a bucket; skips the test where moto is not installed."""
    if missing := [name for name in ("moto", "flask", "flask_cors") if importlib.util.find_spec(name) is None]:
        pytest.skip(f"needs {', '.join(missing)}, of the development group")
    port = free_port()
    log = tmp_path_factory.mktemp("moto") / "log"
    with log.open("wb") as written:
        command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
        server = subprocess.Popen(command, stdout=written, stderr=subprocess.STDOUT)
    try:
        until(lambda: listens(port), explain=lambda: log.read_text()[-4000:], process=server)
        options = StoreOptions(
            endpoint=f"http://127.0.0.1:{port}",
            region="us-east-1",
            access_key_id="key",
            secret_access_key="only-for-tests",
            allow_http=True,
            retries=2,
        )
        client = boto3.client(
            "s3",
            endpoint_url=options.endpoint,
            aws_access_key_id=options.access_key_id,
            aws_secret_access_key=options.secret_access_key,
            region_name=options.region,
        )
        client.create_bucket(Bucket=_BUCKET)
        yield options
    finally:
        server.terminate()
        server.wait(20)


@pytest.fixture
def moto_location() -> str:
    """The URI of a new prefix on moto's server."""
    return f"s3://{_BUCKET}/tests/{uuid.uuid4().hex}"
