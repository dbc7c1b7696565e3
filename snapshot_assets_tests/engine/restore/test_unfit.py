"""A dry run finds values of DuckDB that PostgreSQL refuses, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets.errors import RestoreFailedError
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into, execute
from snapshot_assets_tests.servers.postgresql import MakeDatabase

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
    make_postgresql_database: MakeDatabase, tmp_path: Path
) -> None:
    place, into = Place(f"duckdb://{tmp_path}/s.duckdb", tmp_path / "l"), Into(make_postgresql_database())
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
