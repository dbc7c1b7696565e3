"""Failures that only remote stores have: rights, credentials, endpoints, half-sent uploads, forks."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from snapshot_assets.errors import (
    LocationUnusableError,
    PlanError,
    StorageError,
    StoreDeniedError,
    StoreUnavailableError,
    TransientError,
)
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.bulk import hashing_threads
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import StoreOptions, open_store
from snapshot_assets_tests.servers.s3 import S3Server
from snapshot_assets_tests.storage.opendal_s3 import open_opendal

MIB = 1024 * 1024


def open_s3(uri: str, options: StoreOptions) -> ObjectStore:
    return open_store(parse_location(uri), options)


def test_an_aborted_upload_leaves_no_parts_on_the_server(s3_server: S3Server, s3_location: str) -> None:
    store = open_s3(s3_location, s3_server.options)
    pending_inside: list[str] = []
    with pytest.raises(RuntimeError):
        _abort_after(store, s3_server, pending_inside)
    assert pending_inside  # so that the next line can fail
    assert s3_server.uploads(s3_location) == []
    assert list(store.list()) == []


def _abort_after(store: ObjectStore, server: S3Server, pending: list[str]) -> None:
    with store.open_writer("data/1/a") as writer:
        writer.write(os.urandom(40 * MIB))
        pending += server.uploads(store.uri)
        raise RuntimeError


def test_missing_rights_name_the_operation_and_the_object(s3_server: S3Server, s3_location: str) -> None:
    open_s3(s3_location, s3_server.options).put("a", b"x")
    reader = open_s3(s3_location, s3_server.as_user("reader"))
    stranger = open_s3(s3_location, s3_server.as_user("stranger"))
    assert reader.get("a") == b"x"
    assert [info.path for info in reader.list()] == ["a"]
    calls = {
        "write": lambda: reader.put("a", b"y"),
        "create": lambda: reader.create("a", b"y"),
        "delete": lambda: reader.delete("a"),
        "read": lambda: stranger.get("a"),
        "list": lambda: list(stranger.list()),
    }
    for operation, call in calls.items():
        with pytest.raises(StoreDeniedError, match=f"Cannot {operation} {s3_location}.*403.*right to {operation}"):
            call()
    with pytest.raises(StoreDeniedError), reader.open_writer("b") as writer:
        writer.write(b"x")
    with pytest.raises(StoreDeniedError):
        stranger.head("a")
    with pytest.raises(StoreDeniedError):
        stranger.folders()
    assert reader.get("a") == b"x"


def test_wrong_credentials_are_refused_without_being_repeated(s3_server: S3Server, s3_location: str) -> None:
    options = replace(s3_server.options, secret_access_key="a-wrong-secret")
    with pytest.raises(StoreDeniedError, match="SignatureDoesNotMatch") as caught:
        open_s3(s3_location, options).get("a")
    assert "a-wrong-secret" not in f"{caught.value!r}{caught.value.attributes}"


def test_a_missing_bucket_is_named(s3_server: S3Server) -> None:
    store = open_s3("s3://no-such-bucket/x", s3_server.as_user("reader"))
    for call in (lambda: store.get("a"), lambda: list(store.list())):
        named = r"s3://no-such-bucket/x.*NoSuchBucket.*Create the bucket"
        with pytest.raises(LocationUnusableError, match=named) as caught:
            call()
        assert not isinstance(caught.value, TransientError)


def test_a_missing_bucket_is_named_by_a_listing_of_opendal(s3_server: S3Server) -> None:
    store = open_opendal("s3://no-such-bucket/x", s3_server.as_user("reader"))
    with pytest.raises(LocationUnusableError, match=r"s3://no-such-bucket/x.*NoSuchBucket.*Create the bucket"):
        list(store.list())


def test_a_server_that_does_not_answer_is_worth_a_retry(s3_server: S3Server) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, never listening: connections are refused
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
        store = open_s3("s3://bucket/x", replace(s3_server.options, endpoint=endpoint, retries=0))
        for call in (
            lambda: store.get("a"),
            lambda: store.head("a"),
            lambda: store.put("a", b""),
            lambda: store.create("a", b""),
            lambda: store.delete("a"),
            lambda: list(store.list()),
        ):
            with pytest.raises(StoreUnavailableError, match="s3://bucket/x"):
                call()
        with pytest.raises(StoreUnavailableError), store.open_writer("a") as writer:
            writer.write(bytes(20 * MIB))


def test_a_forked_child_gets_an_error_instead_of_hanging(s3_server: S3Server, s3_location: str) -> None:
    # A process for each call: a pool's threads would be there at the fork, and a child may hang on a lock of theirs.
    script = """
import multiprocessing, pickle, sys
fork = multiprocessing.get_context("fork")
def answer(sender, call, arguments):
    try:
        sender.send(call(*arguments))
    except Exception as error:
        sender.send(f"{type(error).__name__} {error}")
def in_a_fork(call, *arguments):
    receiver, sender = fork.Pipe(duplex=False)
    fork.Process(target=answer, args=(sender, call, arguments)).start()
    sender.close()
    return receiver.recv()
store = pickle.loads(sys.stdin.buffer.read())
in_a_fork(store.put, "child", b"before the parent used it")
print(store.get("child").decode())
print(in_a_fork(store.get, "child"))
"""
    store = open_s3(s3_location, s3_server.options)
    shown = subprocess.run(
        [sys.executable, "-c", script], input=pickle.dumps(store), capture_output=True, check=True, timeout=60
    ).stdout.decode()
    first, second = shown.splitlines()
    assert first == "before the parent used it"
    assert second.startswith("StorageError")
    assert "spawn" in second


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("gs://bucket/x", StoreOptions(service_account='{"client_email": "a"}')),
        ("azblob://container/x", StoreOptions()),
    ],
)
def test_options_that_do_not_fit_name_the_location(
    uri: str, options: StoreOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(StorageError, match=uri):
        open_s3(uri, options).get("a")


def test_a_session_token_of_the_environment_is_not_joined_with_given_keys(
    s3_server: S3Server, s3_location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-another-user")
    store = open_s3(s3_location, s3_server.options)
    store.put("a", b"x")
    assert store.get("a") == b"x"


def test_the_environment_supplies_what_is_left_out(
    s3_server: S3Server, s3_location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = s3_server.options
    variables = {
        "AWS_ENDPOINT_URL": options.endpoint,
        "AWS_ACCESS_KEY_ID": options.access_key_id,
        "AWS_SECRET_ACCESS_KEY": options.secret_access_key,
        "AWS_REGION": options.region,
        "AWS_ALLOW_HTTP": "true",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))
    store = open_s3(s3_location, StoreOptions())
    for name in variables:
        monkeypatch.delenv(name)
    store = pickle.loads(pickle.dumps(store))  # as on a machine with another environment
    store.put("a", b"x")
    assert store.get("a") == b"x"


def test_a_foreign_object_with_an_impossible_name_is_reported(s3_server: S3Server, s3_location: str) -> None:
    client = s3_server.client()
    client.put_object(Bucket=s3_server.bucket, Key=f"{parse_location(s3_location).prefix}/new\nline", Body=b"")
    with pytest.raises(StorageError, match=f"Cannot list {s3_location}"):
        list(open_s3(s3_location, s3_server.options).list())


def test_secrets_are_not_shown(s3_server: S3Server) -> None:
    options = StoreOptions(
        access_key_id="s3cret", secret_access_key="s3cret", session_token="s3cret", account_key="s3cret",
        service_account="s3cret",
    )  # fmt: skip
    assert "s3cret" not in repr(options)
    for_s3 = replace(options, account_key=None, service_account=None)
    assert "s3cret" not in repr(open_s3("s3://bucket/x", for_s3))


def test_few_objects_of_a_store_are_read_at_a_time(tmp_path: Path) -> None:
    """Each takes 24 MiB of memory; a local file takes none."""
    local = open_store(parse_location(tmp_path.as_uri()))
    remote = open_s3("s3://bucket/x", StoreOptions(access_key_id="a", secret_access_key="b"))
    assert [hashing_threads(local, 64), hashing_threads(remote, 64), hashing_threads(remote, 4)] == [64, 16, 4]


def test_options_resolve_as_a_whole() -> None:
    environment = {"AWS_ACCESS_KEY_ID": "theirs", "AWS_SECRET_ACCESS_KEY": "theirs", "AWS_SESSION_TOKEN": "theirs"}
    mine = StoreOptions(access_key_id="mine", secret_access_key="mine")
    assert mine.resolved("s3", environment) == mine
    assert StoreOptions().resolved("s3", environment).session_token == "theirs"
    assert StoreOptions().resolved("gs", environment) == StoreOptions()


# The OpenDAL adapter; all tests with the fixture `store` run against it too


def test_a_refusal_names_the_operation_and_the_object(s3_server: S3Server, s3_location: str) -> None:
    with pytest.raises(StoreDeniedError, match=f"Cannot create {s3_location}/a"):
        open_opendal(s3_location, s3_server.as_user("reader")).create("a", b"")
    reader = open_opendal(s3_location, s3_server.as_user("reader"))
    with (
        pytest.raises(StoreDeniedError, match=f"Cannot write {s3_location}/a"),
        reader.open_writer("a") as writer,
    ):
        writer.write(bytes(20 * MIB))


def test_a_server_that_does_not_answer_is_unavailable(s3_location: str) -> None:
    pytest.importorskip("opendal", reason="needs the extra 'oss'")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        silent = StoreOptions(
            endpoint=f"http://localhost:{closed.getsockname()[1]}",  # OSS puts the bucket in front of a name
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
