"""Hostile snapshots are refused with a clear error before the target is changed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from snapshot_assets.errors import LimitExceededError, UnsafePathError
from snapshot_assets.format import actions as act
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.documents import MAX_DEPTH
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.engine.forged import Forged, append, nested, table
from snapshot_assets_tests.engine.restore.imports import Into

HASH = "0" * 64
PATHS = (
    "../../outside-00000000-0000.parquet",
    "data/0/../../../outside-00000000-0000.parquet",
    "/etc/passwd",
    "file:///etc/passwd",
    "s3://other/data/0/main.t-00000000-0000.parquet",
    "data\\0\\main.t-00000000-0000.parquet",
    "data/0/..\\main.t-00000000-0000.parquet",
    "data/0/%2e%2e/main.t-00000000-0000.parquet",
    "data/0/%2e%2e%2fmain.t-00000000-0000.parquet",
    "data/0/main.t-00000000-0000.parquet\0",
    "data/0/main.t-00000000-0000.parquet\n",
    "./data/0/main.t-00000000-0000.parquet",
    "data//0/main.t-00000000-0000.parquet",
    "transactions/00000000000000000001.txn",
    "manifest.json",
    "",
)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(parse_location(f"file://{tmp_path}/a location"))


def untouched(into: Into) -> bool:
    return not Path(into.uri.removeprefix("duckdb://")).exists()


def data_file(path: str) -> act.Action:
    return act.AddFile(DataFile(path, "main", "t", 0, "0" * 8, 1, 1, HASH, 1, 1))


def receipt(path: str) -> act.Action:
    refs = (act.ObjectRef(path, HASH, 1),)
    return act.Chunk(0, None, None, act.ChunkStatus.COMPLETED, HASH, 0, "", {}, refs, "r")


def schema(path: str) -> act.Action:
    return act.SchemaAdded(2, "schema/000000000000", HASH, (act.ObjectRef(path, HASH, 1),))


def tag(path: str) -> act.Action:
    return act.TagCreated("x", 3, act.ObjectRef(path, HASH, 1), datetime(2025, 1, 1, tzinfo=UTC), None)


@pytest.mark.parametrize("names", [data_file, receipt, schema, tag])
def test_a_path_that_leaves_the_location_is_refused_before_anything_is_read_from_it(
    names: Callable[[str], act.Action], store: ObjectStore, duck: Into
) -> None:
    Forged(tables=(table("main", "t"),)).write(store)
    for path in PATHS:
        transaction = append(store, names(path))
        with pytest.raises(UnsafePathError, match="does not follow the layout") as error:
            duck.restore(store)
        assert error.value.attributes["path"] == path
        assert untouched(duck)
        store.delete(transaction)
    assert duck.restore(store).finished  # what was refused were the paths


def test_documents_nested_deeper_than_any_that_is_written_are_refused(store: ObjectStore, duck: Into) -> None:
    Forged(texts={"tables.json": nested(MAX_DEPTH + 1)}).write(store)
    with pytest.raises(LimitExceededError, match=r"tables\.json is nested \d+ deep"):
        duck.restore(store)
    assert untouched(duck)


@pytest.mark.slow
def test_a_manifest_of_100_mb_of_nesting_is_passed_over_by_a_restore(store: ObjectStore, duck: Into) -> None:
    Forged(tables=(table("main", "t"),)).write(store)
    store.put("manifest.json", nested(50 << 20))
    restored = duck.restore(store)
    assert restored.finished
    assert "manifest.json is nested 52428801 deep; at most 64" in "".join(restored.plan.warnings)
