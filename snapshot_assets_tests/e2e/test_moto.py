"""Snapshots on S3 as moto's server implements it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from snapshot_assets.errors import ObjectExistsError
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets.storage.options import StoreOptions
from snapshot_assets.storage.probe import probe
from snapshot_assets_tests.cli.helpers import Snapshots
from snapshot_assets_tests.e2e.clouds import commands_work

pytestmark = [pytest.mark.slow, pytest.mark.clouds]
MIB = 1024 * 1024


def test_every_command_that_moves_data_works(
    moto_server: StoreOptions, moto_location: str, snapshots: Snapshots, source: str, tmp_path: Path
) -> None:
    commands_work(snapshots, moto_location, moto_server, source, tmp_path)


def test_a_create_is_conditional_and_an_upload_of_several_parts_is_whole(
    moto_server: StoreOptions, moto_location: str
) -> None:
    store = open_store(parse_location(moto_location), moto_server)
    assert probe(store).conditional_create
    store.create("transactions/1", b"ours")
    with pytest.raises(ObjectExistsError):
        store.create("transactions/1", b"another")
    assert store.get("transactions/1") == b"ours"
    data = os.urandom(20 * MIB)
    with store.open_writer("data/1") as writer:
        for start in range(0, len(data), MIB):
            writer.write(data[start : start + MIB])
    with store.open_reader("data/1") as reader:
        assert reader.read() == data
    assert [info.path for info in store.list("data")] == ["data/1"]
    assert store.folders() == ("data", "transactions")
