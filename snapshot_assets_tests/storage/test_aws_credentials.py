"""Services of AWS credentials that fail for the moment, in front of a real S3 server."""

from __future__ import annotations

import json
import shutil
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from snapshot_assets.errors import StorageError, StoreDeniedError, StoreUnavailableError
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import StoreOptions, open_store
from snapshot_assets_tests.servers.certificates import certificates
from snapshot_assets_tests.servers.http import Handler, serving
from snapshot_assets_tests.servers.s3 import S3Server

ROLE = "/latest/meta-data/iam/security-credentials/"


@dataclass
class Metadata:
    """A metadata service: the credentials that it gives, and how it answers.

    Attributes:
        healthy: How many credentials it gives before it fails.
        failing: How many requests fail after these.
        status: The status of these.
        given: How many credentials it has given.
        url: Its address.
    """

    keys: dict[str, str] = field(default_factory=dict)
    healthy: int = 0
    failing: int = 0
    status: int = 503
    given: int = 0
    url: str = ""


@pytest.fixture
def metadata(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Metadata]:
    options = s3_server.options
    service = Metadata({"AccessKeyId": str(options.access_key_id), "SecretAccessKey": str(options.secret_access_key)})

    class Giving(Handler):
        def do_GET(self) -> None:
            if service.given >= service.healthy and service.failing > 0:
                service.failing -= 1
                self.answer(service.status)
            elif self.path == ROLE:
                self.answer(200, b"role")
            else:
                service.given += 1
                soon = datetime.now(UTC) + timedelta(minutes=2)  # so that botocore renews them at each request
                document = {"Code": "Success", "Token": "", "Expiration": f"{soon:%Y-%m-%dT%H:%M:%SZ}"}
                self.answer(200, json.dumps(document | service.keys).encode())

        def do_PUT(self) -> None:
            self.answer(404)  # of the first version: without session tokens

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with serving(Giving) as port:
        service.url = f"http://127.0.0.1:{port}"
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url)
        yield service


def opened(server: S3Server, uri: str, retries: int | None = None) -> ObjectStore:
    options = replace(server.options, access_key_id=None, secret_access_key=None, retries=retries)
    return open_store(parse_location(uri), options)


def test_a_service_that_fails_at_first_is_asked_again(
    metadata: Metadata, s3_server: S3Server, s3_location: str
) -> None:
    metadata.failing = 12
    store = opened(s3_server, s3_location)
    store.put("a", b"x")
    assert store.get("a") == b"x"
    assert metadata.failing == 0


@pytest.mark.slow
@pytest.mark.parametrize(("of_container", "healthy"), [(False, 0), (True, 0), (True, 2)])
def test_a_service_that_keeps_failing_is_unavailable(
    metadata: Metadata,
    s3_server: S3Server,
    s3_location: str,
    monkeypatch: pytest.MonkeyPatch,
    of_container: bool,
    healthy: int,
) -> None:
    if of_container:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{metadata.url}/container")
    metadata.healthy, metadata.failing = healthy, 1000
    with pytest.raises(StoreUnavailableError, match=f"{s3_location}.*run again"):
        opened(s3_server, s3_location, retries=1).put("a", b"x")


@pytest.mark.slow
def test_a_renewal_that_fails_is_repeated(
    metadata: Metadata, s3_server: S3Server, s3_location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{metadata.url}/container")  # an instance's last longer
    metadata.healthy, metadata.failing = 2, 4  # boto3 itself asks three times
    opened(s3_server, s3_location).put("a", b"x")
    assert metadata.failing == 0


def test_a_machine_without_a_role_is_denied(metadata: Metadata, s3_server: S3Server, s3_location: str) -> None:
    metadata.failing, metadata.status = 1000, 404
    with pytest.raises(StoreDeniedError, match="no credentials were found"):
        opened(s3_server, s3_location).put("a", b"x")


def test_an_sts_that_is_not_there_is_unavailable(
    metadata: Metadata, s3_server: S3Server, s3_location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(
        "[profile far]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = near\nregion = us-east-1\n"
        "[profile near]\naws_access_key_id = a\naws_secret_access_key = b\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    options = replace(s3_server.options, access_key_id=None, secret_access_key=None, profile="far", retries=0)
    with pytest.raises(StoreUnavailableError, match="of profile 'far'"):
        open_store(parse_location(s3_location), options).put("a", b"x")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates")
def test_an_own_authority_is_trusted_by_sts_too(
    metadata: Metadata, s3_server: S3Server, s3_location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = certificates(tmp_path)
    (tmp_path / "config").write_text(
        "[profile far]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = near\nregion = us-east-1\n"
        "[profile near]\naws_access_key_id = a\naws_secret_access_key = b\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)  # as in an executor, which gets the certificates as text
    options = replace(s3_server.options, access_key_id=None, secret_access_key=None, profile="far", retries=0)
    with sts(tmp_path, s3_server.options) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        with pytest.raises(StorageError, match="CERTIFICATE_VERIFY_FAILED"):
            open_store(parse_location(s3_location), options).put("a", b"x")
        store = open_store(parse_location(s3_location), replace(options, ca_bundle=authority.read_text()))
        store.put("a", b"x")
        assert store.get("a") == b"x"


@contextmanager
def sts(folder: Path, options: StoreOptions) -> Iterator[str]:
    """Run a service that gives everybody an administrator's keys, with the certificate in a folder; yields its URL."""
    keys = {"AccessKeyId": options.access_key_id, "SecretAccessKey": options.secret_access_key, "SessionToken": ""}
    elements = "".join(f"<{name}>{value}</{name}>" for name, value in keys.items())
    end = f"<Expiration>{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}</Expiration>"
    body = (
        '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>'
        f"{elements}{end}</Credentials></AssumeRoleResult></AssumeRoleResponse>"
    ).encode()

    class Assuming(Handler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(200, body)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "leaf.pem", folder / "leaf.key")
    with serving(Assuming, context) as port:
        yield f"https://localhost:{port}"


def test_the_stores_of_a_process_share_a_look_up(metadata: Metadata, s3_server: S3Server, s3_location: str) -> None:
    stores = [opened(s3_server, f"{s3_location}/{number}") for number in range(4)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: stores[number % 4].put(f"a{number}", b"x"), range(16)))
    # Two by the first look-up, one by each store's client.
    assert metadata.given <= 6
