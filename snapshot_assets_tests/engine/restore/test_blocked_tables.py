"""A table that cannot be loaded leaves its own keys, and what needs it, undone; or it is left out of the restore."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import OtherImportError, PlanError, RestoreFailedError, UnknownRelationError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.postgresql.helpers import client
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into, execute, only_duckdb

TABLES = (
    "CREATE SCHEMA s",
    "CREATE TABLE s.good (t timestamptz, id integer PRIMARY KEY)",
    "CREATE TABLE s.bad (t timestamptz, id integer PRIMARY KEY, of integer REFERENCES s.good, note text)",
    "CREATE TABLE s.child (t timestamptz, id integer PRIMARY KEY, good integer REFERENCES s.good)",
    "CREATE TABLE s.second (t timestamptz, id integer PRIMARY KEY, bad integer REFERENCES s.bad)",
    "CREATE TABLE s.empty (id integer PRIMARY KEY)",
    "CREATE INDEX bad_note ON s.bad (note)",
    "CREATE INDEX child_t ON s.child (t)",
    "CREATE VIEW s.goods AS SELECT id FROM s.good",
    "CREATE VIEW s.bads AS SELECT id FROM s.bad",
    "CREATE VIEW s.of_bads AS SELECT id FROM s.bads",
)
ROWS = (
    "INSERT INTO s.good VALUES ('2025-01-02 00:00:00Z', 1), ('2025-01-03 00:00:00Z', 2)",
    "INSERT INTO s.bad VALUES ('2025-01-02 00:00:00Z', 1, 1, 'a'), ('2025-01-03 00:00:00Z', 2, 2, NULL)",
    "INSERT INTO s.child VALUES ('2025-01-02 00:00:00Z', 1, 1), ('2025-01-03 00:00:00Z', 2, 2)",
    "INSERT INTO s.second VALUES ('2025-01-02 00:00:00Z', 1, 1), ('2025-01-03 00:00:00Z', 2, 2)",
)
WITHOUT_BAD = Filters(exclude_tables=("s.bad",))
BLOCKED, MENDED = (f"ALTER TABLE s.bad ALTER COLUMN note {what} NOT NULL" for what in ("SET", "DROP"))
"""What another user does while the import runs, and takes back: one row of the table has no note."""


@pytest.fixture
def pair(pair: tuple[Place, Into]) -> tuple[Place, Into]:
    """A location with related tables, and an empty target of the source's kind."""
    place, into = pair
    execute(place.source, *TABLES, *ROWS)
    place.export()
    return place, into


def objects(uri: str) -> set[str]:
    """Return the keys, indexes and views of a database's schema `s`, as comparable texts."""
    if uri.startswith("duckdb"):
        with duckdb.connect(uri.removeprefix("duckdb://"), read_only=True) as connection:
            rows = connection.sql(
                "SELECT table_name || ': ' || constraint_text FROM duckdb_constraints() WHERE schema_name = 's'"
                " AND constraint_type IN ('PRIMARY KEY', 'FOREIGN KEY')"
                " UNION ALL SELECT 'index ' || index_name FROM duckdb_indexes() WHERE schema_name = 's'"
                " UNION ALL SELECT 'view ' || view_name FROM duckdb_views() WHERE schema_name = 's'"
            ).fetchall()
    else:
        with client(uri) as sql:
            rows = sql(
                "SELECT conrelid::regclass::text || ': ' || pg_get_constraintdef(oid) FROM pg_constraint"
                " WHERE connamespace = 's'::regnamespace AND contype IN ('p', 'f')"
                " UNION ALL SELECT 'index ' || relname FROM pg_class WHERE relkind = 'i' AND relname LIKE '%\\_%'"
                " AND relnamespace = 's'::regnamespace AND relname !~ 'pkey'"
                " UNION ALL SELECT 'view ' || relname FROM pg_class"
                " WHERE relkind = 'v' AND relnamespace = 's'::regnamespace"
            )
    return {row[0].replace("s.", "") for row in rows}


def without_bad(place: Place) -> set[str]:
    return {each for each in objects(place.source) if "bad" not in each}


def failed(place: Place, into: Into, meanwhile: str = "SELECT 1", **settings: Any) -> RestoreFailedError:
    """Restore, and return the error of the chunks that could not be loaded."""
    run = into.run(place.store, **settings)
    run.begin()
    execute(into, meanwhile)
    with pytest.raises(RestoreFailedError) as error:
        list(run.restore())
    assert not run.finish()
    return error.value


def rows(into: Into) -> dict[str, int]:
    return {name: table.num_rows for name, table in into.tables().items() if name != "empty"}


def test_a_table_that_cannot_be_loaded_leaves_only_what_needs_it_undone_until_it_can(pair: tuple[Place, Into]) -> None:
    place, into = pair
    for error in (failed(place, into, BLOCKED), failed(place, into)):
        assert error.attributes["tables"] == ["s.bad"]
        assert "Not all rows are there of s.bad: their keys" in str(error)
        assert "add --exclude-tables s.bad." in str(error)
        assert "--keep-going" not in str(error)  # it leaves out damage alone
        assert objects(into.uri) == without_bad(place)
        assert rows(into) == {"good": 2, "child": 2, "second": 2, "bad": 1}
        assert len(read_state(place.store).tags) == 1
    execute(into, MENDED)
    assert into.restore(place.store).finished
    assert objects(into.uri) == objects(place.source)
    assert rows(into) == {"good": 2, "child": 2, "second": 2, "bad": 2}
    assert read_state(place.store).tags == {}


def test_a_table_that_cannot_be_loaded_is_left_out_later_and_still_later_is_not(pair: tuple[Place, Into]) -> None:
    place, into = pair
    failed(place, into, BLOCKED)
    left_out = into.restore(place.store, filters=WITHOUT_BAD)
    assert (left_out.finished, left_out.rows, read_state(place.store).tags) == (True, 0, {})
    assert objects(into.uri) == without_bad(place)
    assert into.restore(place.store, filters=WITHOUT_BAD).rows == 0
    execute(into, MENDED)
    assert (into.restore(place.store).rows, len(into.imports())) == (1, 1)
    assert objects(into.uri) == objects(place.source)
    assert rows(into) == {"good": 2, "child": 2, "second": 2, "bad": 2}
    assert into.restore(place.store).rows == 0


@only_duckdb
def test_a_table_that_was_left_out_before_it_was_made_is_restored_later(pair: tuple[Place, Into]) -> None:
    place, into = pair
    run = into.run(place.store)
    with run.target() as target:  # as a run does that is killed before it makes a table
        target.begin(run.prepare().record, "")
    without = Filters(exclude_tables=("s.bad", "s.e*"))
    assert into.restore(place.store, filters=without).finished
    assert rows(into) == {"good": 2, "child": 2, "second": 2}
    assert "empty" not in into.tables()
    assert into.restore(place.store).finished
    assert objects(into.uri) == objects(place.source)
    assert rows(into) == {"good": 2, "child": 2, "second": 2, "bad": 2}


@only_duckdb
def test_tables_that_patterns_match_are_left_out_with_what_needs_them(pair: tuple[Place, Into]) -> None:
    place, into = pair
    done = into.restore(place.store, filters=Filters(exclude_tables=("s.b?d", "*.sec*")))
    assert objects(into.uri) == without_bad(place) - {"second: PRIMARY KEY(id)"}
    assert rows(into) == {"good": 2, "child": 2}
    assert "View s.bads is left out: it reads s.bad, which is not restored." in done.plan.lost
    assert into.restore(place.store, filters=Filters(tables=(TableName("s", "bad"),))).rows == 2


@only_duckdb
def test_tables_that_were_left_out_from_the_start_are_restored_without_the_option(pair: tuple[Place, Into]) -> None:
    """Once the first import has finished: its keys are made by it."""
    place, into = pair
    without = Filters(exclude_tables=("s.b?d", "*.sec*"))
    into.restore(place.store, [0, 1], filters=without, finish=False)
    with pytest.raises(OtherImportError, match=r"has not finished.*Finish it first by the same command"):
        into.restore(place.store)
    assert into.restore(place.store, filters=without).finished
    done = into.restore(place.store)
    assert done.finished
    assert objects(into.uri) == objects(place.source)
    assert rows(into) == {"good": 2, "child": 2, "second": 2, "bad": 2}
    assert (into.restore(place.store).rows, into.restore(place.store, filters=without).rows) == (0, 0)
    assert all(expected == found for expected, found in done.run.check_counts().values())


@only_duckdb
def test_the_option_excuses_no_other_filter(pair: tuple[Place, Into]) -> None:
    place, into = pair
    into.restore(place.store, filters=Filters(exclude_tables=("s.bad",)))
    later = Filters(start=datetime(2025, 1, 3, tzinfo=UTC))
    with pytest.raises(OtherImportError, match=r"no s\.bad; asked for is times from 2025-01-03"):
        into.restore(place.store, filters=later)


@only_duckdb
def test_patterns_that_name_nothing_or_leave_nothing_are_refused(pair: tuple[Place, Into]) -> None:
    place, into = pair
    for patterns, kind, message in (
        (["s.bat"], UnknownRelationError, r"exclude_tables names s\.bat, .* Did you mean 's\.bad'"),
        (["*.*"], PlanError, "selects no table or view"),
    ):
        with pytest.raises(kind, match=message):
            into.run(place.store, filters=Filters(exclude_tables=tuple(patterns))).prepare()
    both = Filters(tables=(TableName("s", "bad"),), exclude_tables=("s.bad",))
    with pytest.raises(PlanError, match="is named, and exclude_tables leaves it out"):
        into.run(place.store, filters=both).prepare()


@only_duckdb
def test_patterns_of_a_duckdb_snapshot_match_in_any_case(pair: tuple[Place, Into]) -> None:
    place, into = pair
    assert into.restore(place.store, filters=Filters(exclude_tables=("S.Bad", "s.SEC*"))).finished
    assert into.restore(place.store, filters=Filters(exclude_tables=("s.bad", "S.sec*"))).rows == 0
    assert rows(into) == {"good": 2, "child": 2}


def test_a_schema_of_which_all_tables_are_left_out_is_not_made_and_an_empty_one_is(
    pair: tuple[Place, Into], tmp_path: Path
) -> None:
    place, into = pair
    execute(place.source, "CREATE SCHEMA r", "CREATE TABLE r.t (id integer)", "CREATE SCHEMA hollow")
    place = Place(place.source, tmp_path / "other")
    place.export(time_columns={"r.t": None, "s.empty": None})
    into.restore(place.store, filters=Filters(exclude_tables=("s.*",)))
    with closing(open_database(into.address)) as database:
        schemas = {each.name for each in database.extract(Selection()).schemas}
    assert schemas - {"main", "public"} == {"hollow", "r"}
