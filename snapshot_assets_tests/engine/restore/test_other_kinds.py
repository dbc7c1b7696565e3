"""Names and values that another kind of database cannot have: refused by an import, or listed by its dry run."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import RefusedImportError, RestoreFailedError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into, execute, only_duckdb


def test_names_that_differ_only_in_case_are_refused_by_duckdb(
    postgresql_database: str, duck: Into, tmp_path: Path
) -> None:
    place = Place(postgresql_database, tmp_path / "location")
    execute(
        place.source,
        "CREATE SCHEMA s",
        'CREATE TABLE s."T1" (id int)',
        "CREATE TABLE s.t1 (id int)",
        'CREATE TABLE s.columns ("A" int, a int)',
        "CREATE TABLE s.fine (id int)",
    )
    place.export()
    with pytest.raises(RefusedImportError) as raised:
        duck.run(place.store).prepare()
    text = str(raised.value)
    assert "Tables s.T1 and s.t1 would be one in DuckDB" in text
    assert "--map-table s.T1=" in text
    assert "Columns A and a of s.columns would be one in DuckDB" in text
    assert not (tmp_path / "target.duckdb").exists()
    chosen = Filters(tables=(TableName("s", "T1"), TableName("s", "fine")))
    assert duck.restore(place.store, filters=chosen).finished


@only_duckdb
def test_an_index_whose_name_is_taken_in_a_duckdb_file_would_fail(pair: tuple[Place, Into]) -> None:
    place, duck = pair
    execute(place.source, "CREATE TABLE t (id INTEGER)", "CREATE INDEX by_id ON t (id)")
    place.export()
    execute(duck, "CREATE TABLE other (id INTEGER)", "CREATE INDEX BY_ID ON other (id)")
    plan = duck.run(place.store).prepare(rehearse=True)
    assert [(str(each.statement.key), each.message) for each in plan.rehearsal.failed] == [
        ("index by_id of main.t", "an index by_id is in schema main already")
    ]
    execute(duck, "DROP INDEX by_id")
    assert duck.restore(place.store).finished


NUL, EARLY = "with the character NUL", "before 4714-11-24 BC, or later than type"
UNFIT = {
    "nul": ("VARCHAR", "'a' || chr(0)", NUL),
    "nuls": ("VARCHAR[]", "['a', chr(0)]", NUL),
    "early": ("DATE", "DATE '4714-11-23 (BC)'", EARLY),
    "earlies": ("DATE[]", "[DATE '5000-01-01 (BC)']", EARLY),
    "late": ("DATE", "DATE '5874898-01-01'", EARLY),
    "time": ("TIMESTAMP", "TIMESTAMP '4714-11-23 (BC) 23:59:59'", EARLY),
    "instant": ("TIMESTAMPTZ", "TIMESTAMPTZ '5000-01-01 (BC) 00:00:00+00'", EARLY),
}
FITTING = {
    "text": ("VARCHAR", "'a'"),
    "bytes": ("BLOB", "'\\x00'::BLOB"),
    "first": ("DATE", "DATE '4714-11-24 (BC)'"),
    "last": ("DATE", "DATE '5874897-12-31'"),
    "ancient": ("TIMESTAMP", "TIMESTAMP '4714-11-24 (BC) 00:00:00'"),
    "instants": ("TIMESTAMPTZ", "TIMESTAMPTZ '294246-01-01 00:00:00+00'"),
    "nothing": ("DATE[]", "NULL"),
}


@pytest.mark.slow
def test_a_dry_run_lists_exactly_the_columns_that_an_import_could_not_load(
    postgresql_database: str, tmp_path: Path
) -> None:
    place, into = Place(f"duckdb://{tmp_path}/s.duckdb", tmp_path / "l"), Into(postgresql_database)
    rows = {name: (kind, value) for name, (kind, value, _) in UNFIT.items()} | FITTING
    tables = [f"CREATE TABLE {name}_ (v {kind})" for name, (kind, _) in rows.items()]
    execute(place.source, *tables, *(f"INSERT INTO {name}_ SELECT {value}" for name, (_, value) in rows.items()))
    place.export(time_columns=dict.fromkeys((f"main.{name}_" for name in rows), None))
    run = into.run(place.store)
    plan = run.prepare(rehearse=True)
    found = {str(each.statement.key): each.message for each in plan.rehearsal.failed}
    assert found.keys() == {f"rows of main.{name}_" for name in UNFIT}
    for name, (_, _, what) in UNFIT.items():
        assert f"column v has 1 value {what}" in found[f"rows of main.{name}_"]
    run.begin()
    with pytest.raises(RestoreFailedError) as error:
        list(run.restore())
    assert set(error.value.attributes["tables"]) == {f"main.{name}_" for name in UNFIT}
