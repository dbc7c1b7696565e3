from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"opendal", "dagster", "pyspark", "pyarrow", "duckdb", "boto3", "pydantic"}


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import snapshot_assets.storage.open", HEAVY | {"obstore"}),
        ("from snapshot_assets.storage.open import open_store as o\n"
         "from snapshot_assets.storage.location import parse_location as p\n"
         "o(p('file:///data/x'))", HEAVY | {"obstore"}),
        ("from snapshot_assets.storage.open import open_store as o\n"
         "from snapshot_assets.storage.location import parse_location as p\n"
         "o(p('s3://bucket/x'))", HEAVY),
    ],
)  # fmt: skip
def test_only_what_a_location_needs_is_imported(statement: str, unwanted: set[str]) -> None:
    script = f"{statement}\nimport sys\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert unwanted & set(loaded) == set()
