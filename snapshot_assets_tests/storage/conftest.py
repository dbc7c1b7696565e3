"""The stores that every storage test runs against: the local disk and a real S3 server."""

from __future__ import annotations

import pytest

from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets.storage.options import StoreOptions


@pytest.fixture
def store(any_location: tuple[str, StoreOptions]) -> ObjectStore:
    uri, options = any_location
    return open_store(parse_location(uri), options)
