"""Answers that pass: conflicts, throttling, lost replies. Through a real proxy in front of a real S3 server."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest

from snapshot_assets.errors import (
    ConditionalCreateUnsupportedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreUnavailableError,
)
from snapshot_assets.storage import retry
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.cloud import CloudStore
from snapshot_assets.storage.create import create_own, probe
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.servers.proxy import Fault, Proxy, proxy_of
from snapshot_assets_tests.servers.s3 import S3Server
from snapshot_assets_tests.storage.opendal_s3 import open_opendal
from snapshot_assets_tests.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[Proxy]:
    with proxy_of(s3_server.options) as running:
        yield running


@pytest.fixture(params=["obstore", "opendal"])
def remote(request: pytest.FixtureRequest, proxy: Proxy, s3_location: str) -> ObjectStore:
    """A store behind the proxy, by each of the two clients."""
    if request.param == "obstore":
        return open_store(parse_location(s3_location), proxy.options)
    return open_opendal(s3_location, proxy.options)


def read(store: ObjectStore, path: str) -> bytes:
    with store.open_reader(path) as reader:
        return reader.read()


CALLS: dict[str, tuple[str, Callable[[ObjectStore], object]]] = {
    "get": ("GET .*/there", lambda store: store.get("there")),
    "get_range": ("GET .*/there", lambda store: store.get_range("there", 1, 2)),
    "open_reader": ("GET .*/there", lambda store: read(store, "there")),
    "head": ("HEAD .*/there", lambda store: store.head("there").size),
    "list": (r"GET .*\?.*list-type", lambda store: [info.path for info in store.list()]),
    "folders": (r"GET .*\?.*list-type", lambda store: store.folders()),
    "put": ("PUT .*/new", lambda store: store.put("new", b"bytes")),
    "create": ("PUT .*/new", lambda store: store.create("new", b"bytes")),
    "delete": ("DELETE .*/there", lambda store: store.delete("there")),
    "probe": ("PUT .*/probe-", lambda store: probe(store).conditional_create),
}


@pytest.mark.parametrize(
    ("call", "status"),
    [*((call, 409) for call in CALLS), ("get", 503), ("create", 503), ("delete", 503), ("put", 429), ("create", 429)],
)
def test_an_answer_that_passes_is_not_seen(remote: ObjectStore, proxy: Proxy, call: str, status: int) -> None:
    remote.put("there", b"123")
    request, act = CALLS[call]
    expected = act(remote)
    remote.put("there", b"123")
    remote.delete("new")
    proxy.strike(Fault(request, status, "ConditionalRequestConflict" if status == 409 else "SlowDown"))
    assert act(remote) == expected
    assert status in proxy.statuses(request)
    if "new" in request:
        assert remote.get("new") == b"bytes"
    if call == "delete":
        assert [info.path for info in remote.list()] == []


@pytest.mark.parametrize("status", [409, 503])
def test_patience_has_an_end(remote: ObjectStore, proxy: Proxy, status: int) -> None:
    proxy.strike(Fault("PUT .*/new", status, "OperationAborted" if status == 409 else "SlowDown", times=100))
    with pytest.raises(StoreUnavailableError, match=f"{remote.uri}/new.*run again"):
        create_own(remote, "new", b"bytes")
    # Two repetitions, as in the options, and perhaps those of OpenDAL, which it does not report.
    assert len(proxy.statuses("PUT .*/new")) in ((3,) if isinstance(remote, CloudStore) else (3, 9))


@pytest.mark.parametrize("forwarded", [False, True])
def test_a_create_without_a_reply_is_made_once(proxy: Proxy, s3_location: str, forwarded: bool) -> None:
    store = open_store(parse_location(s3_location), proxy.options)
    proxy.strike(Fault("PUT .*/new", 0, forwarded=forwarded))
    create_own(store, "new", b"bytes")
    assert store.get("new") == b"bytes"
    with pytest.raises(ObjectExistsError, match="new"):
        create_own(store, "new", b"other")
    assert store.get("new") == b"bytes"


UPLOAD = 20 * 1024 * 1024
END = "POST .*/new.*uploadId"
LOST_REPLY = (Fault(END, 0, forwarded=True), Fault(END, 404, "NoSuchUpload", times=100))


def upload(store: ObjectStore) -> None:
    with store.open_writer("new") as writer:
        writer.write(bytes(UPLOAD))


def test_an_upload_whose_last_reply_is_lost_is_whole(remote: ObjectStore, proxy: Proxy) -> None:
    """The client asks again, and the store has no such upload any more."""
    proxy.strike(*LOST_REPLY)
    upload(remote)
    assert remote.get("new") == bytes(UPLOAD)
    assert proxy.statuses(END) == [0, 404]


def test_an_upload_by_opendal_keeps_to_the_time_limit(proxy: Proxy, s3_location: str) -> None:
    options = replace(proxy.options, retries=None, retry_timeout="2s")
    proxy.strike(Fault("POST .*/new.*uploads", 503, "SlowDown", times=1000))
    with pytest.raises(StoreUnavailableError):
        upload(open_opendal(s3_location, options))
    assert 2 <= len(proxy.statuses("POST .*/new.*uploads")) <= 4  # waits of 0.2, 0.4 and 0.8 s


@pytest.mark.parametrize("code", ["NoSuchUpload", "InvalidPart", "InvalidBlockList"])
def test_an_upload_that_the_store_has_lost_may_be_made_again(remote: ObjectStore, proxy: Proxy, code: str) -> None:
    proxy.strike(Fault(END, 404 if code == "NoSuchUpload" else 400, code, times=100))
    with pytest.raises(StoreUnavailableError, match=f"{remote.uri}/new.*lost the upload"):
        upload(remote)
    assert list(remote.list()) == []


@pytest.mark.parametrize("first_answers", [2, 100])
def test_the_probe_never_takes_a_passing_answer_for_a_missing_condition(
    remote: ObjectStore, proxy: Proxy, first_answers: int
) -> None:
    proxy.strike(Fault("PUT .*/probe-", 409, "ConditionalRequestConflict", times=first_answers))
    if first_answers < 100:
        assert probe(remote).conditional_create
    else:
        with pytest.raises(StoreUnavailableError) as caught:
            probe(remote)
        assert "single" not in str(caught.value)
    proxy.strike()
    assert list(remote.list()) == []


def test_the_probe_asks_for_a_single_writer_where_creates_are_not_implemented(proxy: Proxy, s3_location: str) -> None:
    store = open_store(parse_location(s3_location), proxy.options)
    proxy.strike(Fault("PUT .*/probe-", 501, "NotImplemented", times=100))
    with pytest.raises(ConditionalCreateUnsupportedError, match="single_writer: true"):
        probe(store)


@pytest.mark.parametrize("code", ["BlobAlreadyExists", "FileAlreadyExists"])
def test_a_conflict_that_names_an_object_that_is_there_is_final(proxy: Proxy, s3_location: str, code: str) -> None:
    """Azure and OSS refuse a second create with 409."""
    store = open_store(parse_location(s3_location), proxy.options)
    proxy.strike(Fault("PUT .*/new", 409, code, times=100))
    with pytest.raises(ObjectExistsError):
        store.create("new", b"bytes")
    assert proxy.statuses("PUT .*/new") == [409]


LONG_CALLS: dict[str, tuple[str, Callable[[ObjectStore], object]]] = {
    "list": (r"GET .*\?.*list-type", lambda store: list(store.list())),
    "upload": ("POST .*/new.*uploads", lambda store: upload(store)),
}


@pytest.mark.parametrize("met", [False, True])
@pytest.mark.parametrize("call", LONG_CALLS)
def test_a_request_is_repeated_by_the_client_or_here(remote: ObjectStore, proxy: Proxy, call: str, met: bool) -> None:
    if met:
        remote.put("there", b"x")
    request, act = LONG_CALLS[call]
    proxy.strike(Fault(request, 503, "SlowDown", times=1000))
    with pytest.raises(StoreUnavailableError):
        act(remote)
    assert len(proxy.statuses(request)) == 3  # two repetitions, as in the options


@pytest.mark.parametrize("call", [*CALLS, "upload"])
def test_a_store_that_never_answered_is_given_up_early(
    remote: ObjectStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(retry, "FIRST_CONTACT", 0.0)
    proxy.strike(Fault(".", 0, times=1000))
    _, act = (CALLS | LONG_CALLS)[call]
    with pytest.raises(StoreUnavailableError):
        act(remote)
    requests = proxy.statuses(".")
    assert len(requests) == (2 if call.startswith("probe") else 1)  # the probe also deletes its object


def test_every_answer_is_a_contact_for_all_stores_of_a_bucket(
    proxy: Proxy, s3_location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "FIRST_CONTACT", 0.0)
    with pytest.raises(ObjectNotFoundError):
        open_store(parse_location(s3_location), proxy.options).head("nothing")
    proxy.strike(Fault("PUT .*/new", 0, times=1))
    open_store(parse_location(f"{s3_location}/below"), proxy.options).put("new", b"x")
    assert proxy.statuses("PUT .*/new") == [0, 200]


def test_pages_and_parts_count_as_requests(
    s3_server: S3Server, proxy: Proxy, s3_location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = open_store(parse_location(s3_location), s3_server.options)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: calm.put(f"many/{number}", b""), range(2001)))
    pauses: list[float] = []
    monkeypatch.setattr(retry, "pause", pauses.append)
    monkeypatch.setattr(retry, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    store = open_store(parse_location(s3_location), replace(proxy.options, requests_per_second=2.0))
    store.head("many/1")
    assert len(list(store.list("many"))) == 2001
    assert pauses == [0, 0.5, 1, 1.5]  # three pages, each half a second after the request before it
    upload(store)
    assert pauses[4:] == [2, 3]  # two whole parts count, and the request beside them


def test_a_closed_reader_ends_its_requests(proxy: Proxy, s3_location: str) -> None:
    store = open_store(parse_location(s3_location), replace(proxy.options, retries=None, retry_timeout="30s"))
    store.put("there", os.urandom(UPLOAD))
    with store.open_reader("there") as reader:
        proxy.strike(Fault("GET .*/there", 503, "SlowDown", times=100_000))
        raw = reader.raw  # type: ignore[attr-defined]
        failures: list[Exception] = []

        def read_on() -> None:
            try:
                raw.readinto(bytearray(1))
            except StoreUnavailableError as error:
                failures.append(error)

        thread = threading.Thread(target=read_on)
        thread.start()
        until(lambda: proxy.statuses("GET .*/there"))
        raw.close()
        thread.join(10)
        assert not thread.is_alive()
        assert failures
