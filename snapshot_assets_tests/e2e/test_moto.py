"""Snapshots on S3 as moto's server implements it."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import StoreOptions, open_store
from snapshot_assets_tests.cli.helpers import Snapshots
from snapshot_assets_tests.e2e.clouds import commands_work, store_works

pytestmark = [pytest.mark.slow, pytest.mark.clouds]


def test_every_command_that_moves_data_works(
    moto_server: StoreOptions, moto_location: str, snapshots: Snapshots, source: str, tmp_path: Path
) -> None:
    commands_work(snapshots, moto_location, moto_server, source, tmp_path)


def test_a_create_is_conditional_and_an_upload_of_several_parts_is_whole(
    moto_server: StoreOptions, moto_location: str
) -> None:
    store = open_store(parse_location(moto_location), moto_server)
    store_works(store)
