"""Snapshots on Azure Blob Storage, by Azurite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from snapshot_assets.catalog.operations.delete_snapshot import delete_snapshot
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import ObjectExistsError, ObjectNotFoundError, StoreDeniedError
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets.storage.probe import probe
from snapshot_assets_tests.cli.helpers import Snapshots, export, make_plan
from snapshot_assets_tests.e2e.clouds import commands_work
from snapshot_assets_tests.servers.azurite import AzureServer

pytestmark = [pytest.mark.slow, pytest.mark.clouds]

MIB = 1024 * 1024


@pytest.mark.parametrize("credentials", ["key", "signature"])
def test_export_verify_and_delete(
    azure_server: AzureServer, azure_location: str, source: str, credentials: str
) -> None:
    options = azure_server.options if credentials == "key" else azure_server.signature("rcwdl")
    store = open_store(parse_location(azure_location), options)
    plan = make_plan(source, azure_location, storage=options)
    assert {outcome.status for outcome in export(plan, store)} == {"exported"}
    assert {outcome.status for outcome in export(plan, store)} == {"skipped"}
    report = verify(store, depth="full")
    assert (report.faults, report.files) == ([], 4)
    assert delete_snapshot(store).foreign == ()
    assert list(store.list()) == []


def test_every_command_that_moves_data_works(
    azure_server: AzureServer, azure_location: str, snapshots: Snapshots, source: str, tmp_path: Path
) -> None:
    commands_work(snapshots, azure_location, azure_server.options, source, tmp_path)


def test_a_create_is_conditional_and_an_upload_of_several_parts_is_whole(
    azure_server: AzureServer, azure_location: str
) -> None:
    store = open_store(parse_location(azure_location), azure_server.options)
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
    store.delete("data/1")
    with pytest.raises(ObjectNotFoundError):
        store.head("data/1")


def test_a_signature_without_a_right_is_refused(azure_server: AzureServer, azure_location: str) -> None:
    store = open_store(parse_location(azure_location), azure_server.signature("rl"))
    with pytest.raises(StoreDeniedError, match="right to create"):
        store.create("a", b"")
