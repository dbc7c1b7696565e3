"""Golden locations by every reader without Spark, and by Spark's data source in this process: the same rows."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from snapshot_assets.engine.reading.snapshot import open_version
from snapshot_assets_tests.engine.reading.data_source import read, rows
from snapshot_assets_tests.engine.reading.test_sql import same
from snapshot_assets_tests.golden.contents import texts
from snapshot_assets_tests.golden.make import HERE
from snapshot_assets_tests.golden.test_golden import LIVING, copied


@pytest.mark.parametrize("name", LIVING)
def test_every_reader_returns_the_rows_of_every_version(name: str, tmp_path: Path) -> None:
    store, known = copied(name, tmp_path), json.loads((HERE / f"{name}.json").read_text())
    for revision, tables in known["rows"].items():
        snapshot = open_version(store, f"rev:{revision}")
        assert {table.rpartition(".")[2] for table in snapshot.tables} >= tables.keys()
        for table in snapshot.tables:
            found = snapshot.table(table).to_arrow()
            expected = tables.get(table.rpartition(".")[2], [])
            assert snapshot.table(table).count() == found.num_rows == len(expected)
            assert rows(found) == rows(read(store.uri, table, version=f"rev:{revision}").cast(found.schema))
            assert snapshot.table(table).to_polars().collect().height == found.num_rows
            assert len(same(snapshot, f"FROM {table}")) == found.num_rows
            if "sensors" in table:  # of one schema
                assert Counter(texts(found.to_batches())) == Counter(expected)
