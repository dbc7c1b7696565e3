"""The stores that every storage test runs against: the local disk, and a real S3 server by each of the two clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets_tests.storage.opendal_s3 import open_opendal


@pytest.fixture(params=["file", "obstore", "opendal"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "file":
        return open_store(parse_location((tmp_path / "location").as_uri()))
    uri, options = request.getfixturevalue("s3_location"), request.getfixturevalue("s3_server").options
    return open_store(parse_location(uri), options) if request.param == "obstore" else open_opendal(uri, options)
