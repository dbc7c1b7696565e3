"""Replication between stores of different kinds, and between two services of one kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.replication import objects
from snapshot_assets.catalog.replication.replicate import replicate
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.replication.test_replicate import assert_equal, replace_chunk
from snapshot_assets_tests.cli.helpers import Snapshots, snapshots  # noqa: F401  a fixture
from snapshot_assets_tests.servers.s3 import S3Server, start_s3

pytestmark = pytest.mark.slow


def filled(store: ObjectStore) -> Writer:
    writer = Writer(store)
    writer.begin()
    writer.fill()
    create_tag(writer.catalog, "nightly", seal(writer.catalog).seal.revision)
    return writer


def test_a_disk_is_replicated_to_s3_and_back(
    tmp_path: Path, s3_server: S3Server, s3_location: str, monkeypatch
) -> None:
    monkeypatch.setattr(objects, "IN_MEMORY", 5)  # so that some objects are streamed, and others are not
    writer = filled(open_store(parse_location(f"{tmp_path.as_uri()}/source")))
    middle = open_store(parse_location(s3_location), s3_server.options)
    last = open_store(parse_location(f"{tmp_path.as_uri()}/last"))
    for _ in range(2):
        assert replicate(writer.store, middle).objects
        assert_equal(writer.store, middle)
        assert replicate(middle, last).objects
        assert_equal(writer.store, last)
        replace_chunk(writer, b"more rows than before")
        seal(writer.catalog)


_STORAGE = """
storage:
  s3: {endpoint: '%s', region: us-east-1, access_key_id: %s, secret_access_key: %s, allow_http: true}
  locations:
    '%s': {endpoint: '%s', region: us-east-1, access_key_id: %s, secret_access_key: %s, allow_http: true}
"""


def test_two_services_have_their_own_options(
    tmp_path: Path,
    s3_server: S3Server,
    s3_location: str,
    snapshots: Snapshots,  # noqa: F811
) -> None:
    writer = filled(open_store(parse_location(s3_location), s3_server.options))
    (tmp_path / "second").mkdir()
    with start_s3(tmp_path / "second") as second:
        replica = f"s3://{second.bucket}/replicas/one"
        keys = [
            (each.options.endpoint, each.options.access_key_id, each.options.secret_access_key)
            for each in (s3_server, second)
        ]
        config = tmp_path / "snapshots.yaml"
        config.write_text(_STORAGE % (*keys[0], f"s3://{second.bucket}/replicas", *keys[1]))
        done = snapshots("--config", str(config), "replicate", "--snapshot", s3_location, "--to", replica, "--json")
        assert done.status == 0, done.err
        store = open_store(parse_location(replica), second.options)
        assert_equal(writer.store, store)
        assert not read_state(open_store(parse_location(replica), s3_server.options)).revision
        verified = snapshots("--config", str(config), "export", "verify", "--snapshot", replica)
        assert verified.status == 0, verified.err
