"""Steps of the schema that fail in DuckDB are made by a later run."""

from __future__ import annotations

from contextlib import closing

import pytest

from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.errors import SchemaIncompleteError
from snapshot_assets.format.kinds import counts_by_kind
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into, execute, finished, incomplete, numbers, only_duckdb

pytestmark = [pytest.mark.slow, only_duckdb]


def test_a_view_that_fails_is_listed_and_made_by_the_next_run(pair: tuple[Place, Into]) -> None:
    place, into = pair
    execute(
        place.source,
        "CREATE MACRO twice(n) AS TABLE SELECT n * 2 AS n",
        "CREATE TABLE t (n INTEGER PRIMARY KEY)",
        "INSERT INTO t VALUES (1), (2)",
        "CREATE VIEW v AS SELECT n FROM twice(21)",
        "CREATE VIEW w AS SELECT n FROM v",
        "COMMENT ON VIEW v IS 'x'",
    )
    place.export()
    planned = into.run(place.store).prepare(rehearse=True)
    assert {str(each.statement.key) for each in planned.rehearsal.failed} == {
        "view main.v",
        "comment on main.v",
        "view main.w",
    }
    _, failed = incomplete(place, into)
    assert [each["object"] for each in failed] == ["view main.v", "comment on main.v", "view main.w"]
    assert failed[0]["statements"] == ['CREATE VIEW "main"."v" ("n") AS SELECT n FROM twice(21)']
    assert numbers(into, "t") == [1, 2]
    execute(into, "CREATE MACRO twice(n) AS TABLE SELECT n * 2 AS n")
    run = finished(place, into)
    assert run.changed
    assert not finished(place, into).changed


def test_foreign_keys_are_made_later_with_the_indexes_and_comments_of_their_table(pair: tuple[Place, Into]) -> None:
    place, into = pair
    execute(
        place.source,
        "CREATE TABLE parent (n INTEGER PRIMARY KEY)",
        "CREATE TABLE child (n INTEGER PRIMARY KEY, up INTEGER REFERENCES parent (n))",
        "CREATE INDEX by_up ON child (up)",
        "COMMENT ON TABLE child IS 'a child'",
        "INSERT INTO parent VALUES (1)",
        "INSERT INTO child VALUES (7, 1)",
    )
    place.export()
    run = into.run(place.store)
    run.begin()
    list(run.restore())
    execute(into, "INSERT INTO child VALUES (8, 2)")
    for _ in range(2):
        with pytest.raises(SchemaIncompleteError, match=r"1 schema step failed: foreign keys of main\.child could not"):
            run.finish()
        run = into.run(place.store)
    execute(into, "DELETE FROM child WHERE n = 8")
    run = finished(place, into)
    made = counts_by_kind(step.kind for step in run.current().steps.made())
    assert (made["table"], made["primary key"], made["foreign key"]) == (2, 2, 1)
    with closing(open_database(into.address)) as database:
        child = database.extract(Selection()).table(TableName("main", "child"))
    assert [key.columns for key in child.foreign_keys] == [("up",)]
    assert (child.primary_key.columns, [each.name for each in child.indexes]) == (("n",), ["by_up"])
    assert child.comment == "a child"
    assert numbers(into, "child") == [7]
