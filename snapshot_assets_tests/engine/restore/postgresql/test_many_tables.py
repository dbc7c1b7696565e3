"""A restore of many small tables asks the target about many at once, and reports how far it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from snapshot_assets.databases.postgresql.session import PostgresqlConnection
from snapshot_assets.databases.postgresql.target import PostgresqlTarget
from snapshot_assets.engine.restore.run import RestoreRun
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into, execute

TABLES = 60
NAMES = [f"t{number:02}" for number in range(TABLES)]
SOURCE = [
    *(f"CREATE TABLE {name} (id integer PRIMARY KEY, n integer REFERENCES {NAMES[0]})" for name in NAMES),
    *(f"CREATE INDEX {name}_n ON {name} (n)" for name in NAMES),
    *(f"INSERT INTO {name} SELECT i, 1 FROM generate_series(1, 3) i" for name in NAMES),
]
STEPS_AFTER = 3 * TABLES  # keys, indexes and foreign keys


@pytest.fixture
def place(place: Place) -> Place:
    """An export of a database of many tables, of one file each."""
    execute(place.source, *SOURCE)
    place.export()
    return place


def test_the_seal_reports_how_many_files_it_has_verified(place: Place) -> None:
    stages: list[tuple[str, int, int]] = []
    replace(place.run(), stage=lambda *stage: stages.append(stage)).seal()
    assert stages == [("verifying files", done, TABLES) for done in range(1, TABLES + 1)]


@contextmanager
def recording(run: RestoreRun) -> Iterator[list[tuple[str, int, int]]]:
    """Record the stages of a run."""
    stages: list[tuple[str, int, int]] = []
    run.stage = lambda *stage: stages.append(stage)
    yield stages


@contextmanager
def statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the statements of all connections by what they are for."""
    counts: Counter[str] = Counter()
    executed = PostgresqlConnection._translating

    def count(self: PostgresqlConnection, doing: str, *args: Any, **options: Any) -> AbstractContextManager[None]:
        counts[doing.partition(" public.")[0]] += 1
        return executed(self, doing, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(PostgresqlConnection, "_translating", count)
        yield counts


def test_many_tables_are_counted_by_few_statements_and_each_stage_reports_how_far_it_is(
    place: Place, into: Into, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = into.run(place.store)
    with recording(run) as stages, statements(monkeypatch) as counts:
        run.begin()
        assert {outcome.status for outcome in run.restore()} <= {"loaded", "empty"}
        run.finish()
        assert set(run.check_counts().values()) == {(3, 3)}
    assert counts["counting"] == 2  # of 50 tables, and of the others
    assert stages[-2:] == [("counting rows", 50, TABLES), ("counting rows", TABLES, TABLES)]
    made = [stage for stage in stages if stage[0] == "making keys, indexes and views"]
    assert len(made) > 1
    assert made[-1] == ("making keys, indexes and views", STEPS_AFTER, STEPS_AFTER)
    tables = [done for doing, done, total in stages if doing == "making tables" and total >= TABLES]
    assert tables == sorted(tables)
    assert tables[-1] >= TABLES

    again = into.run(place.store)
    with statements(monkeypatch) as counts:
        again.check_rows(again.prepare(), added=True)
    assert counts["counting"] == 2
    assert counts["looking into"] == 2  # whether the tables have rows
    execute(into.uri, f"DELETE FROM {NAMES[55]} WHERE id = 3", f"DELETE FROM {NAMES[7]}")
    with pytest.raises(RestoreError, match=r"t07: 3 were loaded, 0 are there; public\.t55: 3 were loaded, 2 are there"):
        again.check_rows(again.prepare(), added=True)
    assert again.check_counts()[TableName("public", NAMES[55])] == (3, 2)


def test_the_tables_of_imports_are_read_once_for_all_files(
    place: Place, into: Into, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are as long as the snapshot has tables: read with each file, they cost the square of that."""
    run = into.run(place.store)
    run.begin()
    queries: list[str] = []
    rows = PostgresqlConnection.rows

    def record(self: PostgresqlConnection, sql: str, doing: str) -> object:
        queries.append(sql)
        return rows(self, sql, doing)

    monkeypatch.setattr(PostgresqlTarget, "_rows", record)
    assert {outcome.status for outcome in run.restore()} <= {"loaded", "empty"}
    assert sum(query.startswith("SELECT * FROM") and '."imports"' in query for query in queries) <= 2
    assert sum('."imports"' in query for query in queries) >= TABLES  # which import is the newest, with each file
