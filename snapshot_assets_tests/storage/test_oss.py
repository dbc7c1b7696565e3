"""The OpenDAL adapter, on a real S3 server: its oss service differs in protocol, not in interface."""

from __future__ import annotations

import os
import pickle
import socket
import sys

import pytest

from snapshot_assets.errors import (
    LimitExceededError,
    ObjectExistsError,
    ObjectNotFoundError,
    PlanError,
    StoreDeniedError,
    StoreUnavailableError,
)
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets.storage.options import StoreOptions
from snapshot_assets.storage.oss import OpendalStore
from snapshot_assets.storage.probe import probe
from snapshot_assets_tests.servers.s3 import S3Server

MIB = 1024 * 1024


def open_adapter(options: StoreOptions, uri: str) -> OpendalStore:
    pytest.importorskip("opendal", reason="needs the extra 'oss'")
    location = parse_location(uri)
    settings = {
        "bucket": location.bucket,
        "endpoint": str(options.endpoint),
        "region": "us-east-1",
        "access_key_id": str(options.access_key_id),
        "secret_access_key": str(options.secret_access_key),
        "disable_config_load": "true",
    }
    return OpendalStore(location, "s3", settings, options.retries)


@pytest.fixture
def adapter(s3_server: S3Server, s3_location: str) -> OpendalStore:
    return open_adapter(s3_server.options, s3_location)


def test_proves_itself(adapter: OpendalStore) -> None:
    assert probe(adapter).conditional_create


def test_create_and_put(adapter: OpendalStore) -> None:
    adapter.create("transactions/ü 1", b"one")
    with pytest.raises(ObjectExistsError, match="transactions"):
        adapter.create("transactions/ü 1", b"two")
    assert adapter.get("transactions/ü 1") == b"one"
    adapter.put("transactions/ü 1", b"three")
    assert adapter.get("transactions/ü 1", limit=5) == b"three"
    with pytest.raises(LimitExceededError):
        adapter.get("transactions/ü 1", limit=4)


def test_ranges_end_with_the_object(adapter: OpendalStore) -> None:
    adapter.put("digits", b"0123456789")
    assert adapter.get_range("digits", 8, 100) == b"89"
    assert adapter.get_range("digits", 10, 1) == adapter.get_range("digits", 3, 0) == b""
    with adapter.open_reader("digits") as reader:
        reader.seek(5)
        assert reader.read() == b"56789"


def test_lists_sorted_with_folders(adapter: OpendalStore) -> None:
    names = ["data/7/a", "data/7-a/q", "data/7.x", "a"]
    for name in names:
        adapter.put(name, b"x")
    assert [info.path for info in adapter.list()] == sorted(names)
    assert [info.path for info in adapter.list("data/7/")] == ["data/7/a"]
    assert adapter.folders("data/") == ("7", "7-a")
    assert adapter.folders() == ("data",)
    assert list(adapter.list("nothing/")) == []


def test_missing_objects(adapter: OpendalStore) -> None:
    for call in (adapter.get, adapter.head):
        with pytest.raises(ObjectNotFoundError, match="nothing"):
            call("nothing")
    adapter.delete("nothing")


@pytest.mark.parametrize("size", [0, 10, 20 * MIB])
def test_a_stream_is_seen_whole_or_not_at_all(adapter: OpendalStore, size: int) -> None:
    data = os.urandom(size)
    with pytest.raises(RuntimeError):
        _write_and_raise(adapter, data)
    assert list(adapter.list()) == []
    with adapter.open_writer("stream") as writer:
        assert writer.write(memoryview(data)) == size
    assert adapter.get("stream") == data


def _write_and_raise(adapter: OpendalStore, data: bytes) -> None:
    with adapter.open_writer("stream") as writer:
        writer.write(data)
        raise RuntimeError


def test_refusals_and_silence_have_their_kinds(s3_server: S3Server, s3_location: str) -> None:
    with pytest.raises(StoreDeniedError, match=f"Cannot create {s3_location}/a"):
        open_adapter(s3_server.as_user("reader"), s3_location).create("a", b"")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        silent = StoreOptions(endpoint=f"http://127.0.0.1:{closed.getsockname()[1]}", allow_http=True, retries=0)
        with pytest.raises(StoreUnavailableError):
            open_adapter(silent, s3_location).get("a")


def test_a_pickled_store_connects_again(adapter: OpendalStore) -> None:
    adapter.put("a", b"x")
    assert pickle.loads(pickle.dumps(adapter)).get("a") == b"x"


def test_the_oss_client_takes_the_options() -> None:
    pytest.importorskip("opendal", reason="needs the extra 'oss'")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        options = StoreOptions(
            endpoint=f"http://127.0.0.1:{closed.getsockname()[1]}",
            allow_http=True,
            access_key_id="key",
            secret_access_key="secret",
            retries=0,
        )
        store = open_store(parse_location("oss://bucket/x"), options)
        with pytest.raises(StoreUnavailableError, match="oss://bucket/x/a"):
            store.create("a", b"")


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
