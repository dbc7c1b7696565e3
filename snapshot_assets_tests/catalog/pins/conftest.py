import pytest

from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.tags import sealed_by


@pytest.fixture
def sealed(writer) -> Writer:
    return sealed_by(writer)
