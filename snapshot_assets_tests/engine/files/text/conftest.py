from pathlib import Path

import pytest

from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(parse_location(f"file://{tmp_path}/location"))
