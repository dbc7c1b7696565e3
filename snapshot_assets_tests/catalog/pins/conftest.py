"""A sealed location, on the local disk and on a real S3 server."""

import pytest

from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.tags import sealed_by


@pytest.fixture
def store(any_location):
    uri, options = any_location
    return open_store(parse_location(uri), options)


@pytest.fixture
def sealed(writer) -> Writer:
    return sealed_by(writer)
