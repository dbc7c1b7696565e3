"""Restores of snapshots that hold rows of a table which the newest schema lacks."""

from __future__ import annotations

import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.databases.partitions import former_partitions, with_former_partitions
from snapshot_assets.engine.restore.drill import compare
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.engine.schema_history import history_warnings
from snapshot_assets.errors import UnknownRelationError
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.continuous import FIRST, PLAN
from snapshot_assets_tests.engine.restore.imports import Into, execute

GONE = TableName("old", "gone")
ROWS = f"(id, t) AS (VALUES (1, TIMESTAMPTZ '{FIRST.isoformat()}'), (2, TIMESTAMPTZ '{FIRST.isoformat()}'))"


@pytest.fixture
def dropped(place: Place) -> Place:
    """A snapshot with two rows of `old.gone`, which is dropped with its schema before the newest window."""
    place.sql("CREATE SCHEMA old; CREATE TABLE old.gone (id INTEGER PRIMARY KEY, t TIMESTAMPTZ)")
    place.sql(f"INSERT INTO old.gone WITH v {ROWS} FROM v")
    place.sql(f"CREATE TABLE stays AS WITH v {ROWS} FROM v")
    place.export(chunks=[0, 1], seal=False, **PLAN)
    place.sql("DROP TABLE old.gone; DROP SCHEMA old")
    place.export(**PLAN)
    return place


def test_everything_else_is_restored_and_the_dropped_table_named(dropped: Place, duck: Into) -> None:
    done = duck.restore(dropped.store)
    assert done.finished
    assert set(duck.tables()) == {"events", "places", "readings", "stays"}
    [named] = [each for each in done.plan.warnings if "old.gone" in each]
    assert "--tables old.gone" in named


def test_naming_a_dropped_table_restores_it_as_it_was_last(dropped: Place, duck: Into) -> None:
    assert duck.restore(dropped.store).finished
    chosen = Filters(tables=(GONE,))
    done = duck.restore(dropped.store, filters=chosen)
    assert (done.finished, done.plan.warnings) == (True, ())
    assert duck.tables()["gone"]["id"].to_pylist() == [1, 2]
    assert "primary key" in " ".join(step.name for step in done.plan.steps.after)
    again = duck.restore(dropped.store, filters=chosen)
    assert (again.rows, again.finished) == (0, True)
    assert [each for each in compare(done.run) if not each.equal] == []


def test_a_dropped_table_gets_another_name_beside_the_one_that_has_its_name_now(dropped: Place, duck: Into) -> None:
    execute(duck, "CREATE SCHEMA old", "CREATE VIEW old.gone AS SELECT 1 AS id")
    renaming = Renaming.of((), [(GONE, TableName("old", "before"))])
    both = Filters(tables=(GONE, TableName("main", "stays")), renaming=renaming)
    assert duck.restore(dropped.store, filters=both).finished
    assert {name: table.num_rows for name, table in duck.tables().items()} == {"before": 2, "stays": 2}


def test_leaving_out_a_dropped_table_is_no_error_and_ends_its_warning(dropped: Place, duck: Into) -> None:
    for pattern in ("old.gone", "OLD.GONE", "old.*"):
        assert duck.run(dropped.store, filters=Filters(exclude_tables=(pattern,))).prepare().warnings == ()
    with pytest.raises(UnknownRelationError, match=r"old\.gnoe, which does not exist.*'old\.gone'"):
        duck.run(dropped.store, filters=Filters(exclude_tables=("old.gnoe",))).prepare()


def test_only_schemas_that_are_chosen_are_named(dropped: Place, duck: Into) -> None:
    plan = duck.run(dropped.store, filters=Filters(schemas=("main",))).prepare()
    assert plan.warnings == ()
    with pytest.raises(UnknownRelationError, match=r"old\.never|'never'"):
        duck.run(dropped.store, filters=Filters(tables=(TableName("old", "never"),))).prepare()


def test_a_partition_that_is_brought_back_leaves_its_name_to_a_dropped_table_that_is_too() -> None:
    old = {"schema": "s", "name": "p", "of": ["s", "t"], "bounds": "FOR VALUES FROM (1) TO (2)"}
    before, now = (
        Table(schema_name="s", name="t", columns=(), options={"partition_by": "RANGE (a)", "partitions": parts})
        for parts in ([old], [])
    )
    newest = DatabaseSchema(database="postgresql", schemas=(), tables=(now,), views=())
    gone = Table(schema_name="s", name="p", columns=())
    restored = newest.model_copy(update={"tables": (now, gone)})
    chosen = with_former_partitions(restored, newest, {now.table_name: [before]})
    assert former_partitions(chosen.tables[0]) == [TableName("s", "p_2")]


def test_the_export_names_the_way_to_restore_it_and_what_a_replacement_leaves_out(dropped: Place) -> None:
    [warning] = [each for each in history_warnings(dropped.store, read_state(dropped.store)) if "old.gone" in each]
    assert "except imports that name it under --tables" in warning
    dropped.sql("ALTER TABLE stays ADD COLUMN more INTEGER")
    dropped.export(chunks=[2], replace=True, **PLAN)
    warnings = history_warnings(dropped.store, read_state(dropped.store))
    [added] = [each for each in warnings if each.startswith("Column main.stays.more was not exported with 5 windows")]
    assert added.endswith("It leaves out what the database does not have any more, such as old.gone.")
