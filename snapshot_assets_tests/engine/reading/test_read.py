"""`snapshot_assets.read`: Spark's own Parquet reader returns the rows and types of the Python source, or gives way."""

from __future__ import annotations

import snapshot_assets
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.reading.data_source import RANGE, Load, is_native, rows


def test_a_table_is_read_by_sparks_own_reader_with_the_rows_and_types_of_the_source(
    load: Load, registered, exported_place: Place
) -> None:
    uri = exported_place.store.uri
    for table in ("main.readings", "main.places"):
        native, python = snapshot_assets.read(registered, uri, table), load(uri, table)
        assert is_native(native)
        assert native.schema == python.schema
        assert rows(native) == rows(python) != []
        assert native.count() == python.count()


def test_a_time_range_opens_only_its_files(load: Load, registered, exported_place: Place) -> None:
    uri = exported_place.store.uri
    found = snapshot_assets.read(registered, uri, "main.readings", columns=["value"], **RANGE)
    assert is_native(found)
    assert rows(found) == rows(load(uri, "main.readings", columns="value", **RANGE)) != []
    every = snapshot_assets.read(registered, uri, "main.readings")
    assert 0 < len(found.inputFiles()) < len(every.inputFiles())
