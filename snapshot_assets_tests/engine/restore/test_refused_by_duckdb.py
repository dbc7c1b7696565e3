"""Names that a DuckDB file cannot have: an import refuses them, or its dry run lists what would fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import RefusedImportError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into, execute
from snapshot_assets_tests.servers.postgresql import MakeDatabase


def test_names_that_differ_only_in_case_are_refused_by_duckdb(
    make_postgresql_database: MakeDatabase, tmp_path: Path
) -> None:
    place = Place(make_postgresql_database(), tmp_path / "location")
    execute(
        place.source,
        "CREATE SCHEMA s",
        'CREATE TABLE s."T1" (id int)',
        "CREATE TABLE s.t1 (id int)",
        'CREATE TABLE s.columns ("A" int, a int)',
        "CREATE TABLE s.fine (id int)",
    )
    place.export()
    duck = Into(f"duckdb://{tmp_path}/target.duckdb")
    with pytest.raises(RefusedImportError) as raised:
        duck.run(place.store).prepare()
    text = str(raised.value)
    assert "Tables s.T1 and s.t1 would be one in DuckDB" in text
    assert "--map-table s.T1=" in text
    assert "Columns A and a of s.columns would be one in DuckDB" in text
    assert not (tmp_path / "target.duckdb").exists()
    chosen = Filters(tables=(TableName("s", "T1"), TableName("s", "fine")))
    assert duck.restore(place.store, filters=chosen).finished


def test_an_index_whose_name_is_taken_in_a_duckdb_file_would_fail(tmp_path: Path) -> None:
    place, duck = (
        Place(f"duckdb://{tmp_path}/source.duckdb", tmp_path / "location"),
        Into(f"duckdb://{tmp_path}/target.duckdb"),
    )
    execute(place.source, "CREATE TABLE t (id INTEGER)", "CREATE INDEX by_id ON t (id)")
    place.export()
    execute(duck, "CREATE TABLE other (id INTEGER)", "CREATE INDEX BY_ID ON other (id)")
    plan = duck.run(place.store).prepare(rehearse=True)
    assert [(str(each.statement.key), each.message) for each in plan.rehearsal.failed] == [
        ("index by_id of main.t", "an index by_id is in schema main already")
    ]
    execute(duck, "DROP INDEX by_id")
    assert duck.restore(place.store).finished
