"""Snapshots on Azure Blob Storage, by Azurite."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets.catalog.operations.delete import delete_snapshot
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import StoreDeniedError
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.cli.helpers import Snapshots, export, make_plan
from snapshot_assets_tests.e2e.clouds import commands_work, store_works
from snapshot_assets_tests.servers.azurite import AzureServer

pytestmark = [pytest.mark.slow, pytest.mark.clouds]


@pytest.mark.parametrize("credentials", ["key", "signature"])
def test_export_verify_and_delete(
    azure_server: AzureServer, azure_location: str, source: str, credentials: str
) -> None:
    options = azure_server.options if credentials == "key" else azure_server.signature("rcwdl")
    store = open_store(parse_location(azure_location), options)
    plan = make_plan(source, azure_location, storage=options)
    assert {outcome.status for outcome in export(plan, store)} == {"exported"}
    assert {outcome.status for outcome in export(plan, store)} == {"present"}
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
    store_works(store)


def test_a_signature_without_a_right_is_refused(azure_server: AzureServer, azure_location: str) -> None:
    store = open_store(parse_location(azure_location), azure_server.signature("rl"))
    with pytest.raises(StoreDeniedError, match="right to create"):
        store.create("a", b"")
