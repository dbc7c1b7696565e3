"""The public interface: complete, lazy, and quick to import."""

import subprocess
import sys

import pytest

import snapshot_assets

_LAZY = """
import sys, snapshot_assets
heavy = {"dagster", "pyspark", "pyarrow", "pydantic", "duckdb"} & set(sys.modules)
assert not heavy, heavy
assert snapshot_assets.Plan.__name__ == "Plan"
assert not {"dagster", "pyspark", "duckdb"} & set(sys.modules)
"""


@pytest.mark.parametrize("name", snapshot_assets.__all__)
def test_every_public_name_is_there_and_documented(name):
    value = getattr(snapshot_assets, name)
    assert name in dir(snapshot_assets)
    if name != "__version__":
        assert value.__doc__
        assert name in snapshot_assets.__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'plans'"):
        _ = snapshot_assets.plans


def test_importing_the_package_starts_nothing_heavy():
    subprocess.run([sys.executable, "-c", _LAZY], check=True)
