"""What S3 is sent with each kind of request: who pays for it, and how its object is encrypted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import StoreOptions, open_store
from snapshot_assets_tests.servers.http import Handler, serving

PAYER, ENCRYPTION = "x-amz-request-payer", "x-amz-server-side-encryption"
KEY = f"{ENCRYPTION}-aws-kms-key-id"
CUSTOMER = f"{ENCRYPTION}-customer-key"
CHECKSUM, ALGORITHM = "x-amz-checksum-sha256", "x-amz-sdk-checksum-algorithm"
WRITES = ("PUT whole", "PUT created", "POST parts?uploads")
"""Requests that decide how an object is encrypted; the parts of an upload follow it."""
OTHERS = ("PUT parts?partNumber", "POST parts?uploadId", "GET whole", "DELETE whole", "GET ?list-type")


@dataclass
class Bucket:
    """A server that takes and gives everything; it keeps no object.

    Attributes:
        headers: Headers of the last request of each kind.
    """

    port: int = 0
    headers: dict[str, dict[str, str]] = field(default_factory=dict)


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    made = Bucket()

    class Taking(Handler):
        def take(self) -> None:
            path, _, query = self.path.removeprefix("/bucket").removeprefix("/x").removeprefix("/").partition("?")
            first = re.match(r"uploads|uploadId|partNumber|list-type", query)
            kind = f"{self.command} {path}{'?' + first[0] if first else ''}"
            made.headers[kind] = {name.lower(): value for name, value in self.headers.items()}
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = b"x" if self.command == "GET" and not first else _ANSWERS.get(first[0] if first else "", b"")
            self.answer(200, body, {"ETag": '"e"', "Last-Modified": "Wed, 01 Jan 2025 00:00:00 GMT"})

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = take

    with serving(Taking) as made.port:
        yield made


_ANSWERS = {
    "uploads": b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>",
    "uploadId": b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>",
    "list-type": b"<ListBucketResult><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>",
}


def requests(bucket: Bucket, **given: Any) -> dict[str, dict[str, str]]:
    """Write, create, upload in parts, read, list and delete; return the headers of each kind of request."""
    keys: dict[str, Any] = {"access_key_id": "key", "secret_access_key": "secret", "region": "us-east-1"}
    options = StoreOptions(endpoint=f"http://127.0.0.1:{bucket.port}", allow_http=True, retries=0, **keys, **given)
    store = open_store(parse_location("s3://bucket/x"), options)
    store.put("whole", b"x")
    store.create("created", b"x")
    with store.open_writer("parts") as writer:
        writer.write(bytes(20 << 20))
    store.get("whole")
    assert list(store.list()) == []
    store.delete("whole")
    return bucket.headers


def test_the_requester_pays_for_every_request(bucket: Bucket) -> None:
    sent = requests(bucket, request_payer=True)
    assert {*WRITES, *OTHERS} <= sent.keys()
    assert {kind: headers.get(PAYER) for kind, headers in sent.items()} == dict.fromkeys(sent, "requester")


@pytest.mark.parametrize(
    ("how", "key"), [("AES256", None), ("aws:kms", None), ("aws:kms", "arn:aws:kms:us-east-1:1:key/a")]
)
def test_every_object_is_encrypted_as_the_options_say(bucket: Bucket, how: str, key: str | None) -> None:
    given = {"server_side_encryption": how} | ({"sse_kms_key_id": key} if key else {})
    sent = requests(bucket, **given)
    assert {kind: (sent[kind].get(ENCRYPTION), sent[kind].get(KEY)) for kind in WRITES} == dict.fromkeys(
        WRITES, (how, key)
    )


def test_a_customers_key_goes_with_every_object(bucket: Bucket) -> None:
    key = f"{'A' * 43}="
    sent = requests(bucket, sse_customer_key_base64=key)
    with_key = {*WRITES, "PUT parts?partNumber", "GET whole"}
    assert {kind for kind, headers in sent.items() if headers.get(CUSTOMER) == key} >= with_key
    assert not [headers for headers in sent.values() if ENCRYPTION in headers]


def test_the_bucket_may_keep_a_key(bucket: Bucket) -> None:
    sent = requests(bucket, server_side_encryption="aws:kms", sse_bucket_key=True)
    assert {sent[kind].get(f"{ENCRYPTION}-bucket-key-enabled") for kind in WRITES} == {"true"}


def test_everything_that_is_written_has_a_checksum(bucket: Bucket) -> None:
    sent = requests(bucket)
    written = {"PUT whole", "PUT created", "PUT parts?partNumber"}
    assert {kind for kind, headers in sent.items() if CHECKSUM in headers} == written
    assert {kind for kind, headers in sent.items() if ALGORITHM in headers} >= written
    assert not {ALGORITHM, CHECKSUM} & (sent["GET whole"].keys() | sent["GET ?list-type"].keys())


def test_a_store_that_knows_no_checksums_gets_none(bucket: Bucket) -> None:
    sent = requests(bucket, checksums=False)
    assert not [headers for headers in sent.values() if {ALGORITHM, CHECKSUM} & headers.keys()]


def test_without_options_no_such_header_is_sent(bucket: Bucket) -> None:
    sent = requests(bucket)
    assert not [headers for headers in sent.values() if {PAYER, ENCRYPTION, KEY} & headers.keys()]
