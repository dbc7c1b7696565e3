"""Errors and options of the OpenDAL adapter. All other storage tests run against it too, by the fixture `store`."""

from __future__ import annotations

import socket
import sys

import pytest

from snapshot_assets.errors import PlanError, StoreDeniedError, StoreUnavailableError
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets.storage.options import StoreOptions
from snapshot_assets_tests.servers.s3 import S3Server
from snapshot_assets_tests.storage.opendal_s3 import open_opendal


def test_a_refusal_names_the_operation_and_the_object(s3_server: S3Server, s3_location: str) -> None:
    with pytest.raises(StoreDeniedError, match=f"Cannot create {s3_location}/a"):
        open_opendal(s3_location, s3_server.as_user("reader")).create("a", b"")


def test_a_server_that_does_not_answer_is_unavailable(s3_location: str) -> None:
    pytest.importorskip("opendal", reason="needs the extra 'oss'")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        silent = StoreOptions(
            endpoint=f"http://127.0.0.1:{closed.getsockname()[1]}",
            allow_http=True,
            access_key_id="key",
            secret_access_key="secret",
            retries=0,
        )
        with pytest.raises(StoreUnavailableError):
            open_opendal(s3_location, silent).get("a")
        with pytest.raises(StoreUnavailableError, match="oss://bucket/x/a"):
            open_store(parse_location("oss://bucket/x"), silent).create("a", b"")


def test_an_endpoint_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opendal", reason="needs the extra 'oss'")
    monkeypatch.delenv("OSS_ENDPOINT", raising=False)
    monkeypatch.delenv("ALIBABA_CLOUD_OSS_ENDPOINT", raising=False)
    with pytest.raises(PlanError, match="OSS_ENDPOINT"):
        open_store(parse_location("oss://bucket/x"))


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opendal", None)
    with pytest.raises(PlanError, match=r"snapshot-assets\[oss\]"):
        open_store(parse_location("oss://bucket/x"), StoreOptions(endpoint="https://oss.example"))
