"""Restores: every row comes back exactly once, and what could break that is refused first."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.databases.postgresql.target import PostgresqlTarget
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.protocol.target import RestoreRecord
from snapshot_assets.engine.restore.loader import ReplaceTask, replace_chunk
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.errors import (
    DamageError,
    IncompleteError,
    NoSnapshotError,
    OtherImportError,
    RestoreError,
    RestoreFailedError,
    StoreDeniedError,
    TargetNotEmptyError,
    TaskFailedError,
    UnknownRelationError,
    VersionNotFoundError,
)
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import IN_RANGE, Into, execute, flip, only
from snapshot_assets_tests.faults.source import CHUNKS, EMPTY_WINDOW, add_rows


def test_every_row_comes_back_and_a_second_run_has_nothing_to_do(exported, into):
    done = into.restore(exported.store)
    assert done.finished
    assert set(done.calls) == {"load_files"}, "so few bytes are hashed without tasks"
    assert {chunk: outcome.status for chunk, outcome in done.outcomes.items()} == {
        chunk: "empty" if chunk == EMPTY_WINDOW else "loaded" for chunk in CHUNKS
    }
    assert into.differences(exported.source, IN_RANGE) == {}
    assert all(expected == found for expected, found in done.run.check_counts().values())
    again = into.restore(exported.store)
    assert (again.rows, again.calls, again.finished) == (0, [], True)
    assert {chunk: outcome.status for chunk, outcome in again.outcomes.items()} == {
        chunk: "empty" if chunk == EMPTY_WINDOW else "present" for chunk in CHUNKS
    }
    assert into.differences(exported.source, IN_RANGE) == {}
    assert len(into.imports()) == 1


def test_windows_without_rows_and_those_left_out_on_purpose_have_their_own_words(exported, duck):
    events = Filters(tables=(TableName("main", "events"),))
    expected = dict.fromkeys((0, 1, 3, 6), "loaded") | {EMPTY_WINDOW: "empty", 2: "left_out", 5: "left_out"}
    done = duck.restore(exported.store, filters=events)
    assert {chunk: outcome.status for chunk, outcome in done.outcomes.items()} == expected
    again = duck.restore(exported.store, filters=events)
    present = {chunk: "present" if status == "loaded" else status for chunk, status in expected.items()}
    assert {chunk: outcome.status for chunk, outcome in again.outcomes.items()} == present


class RepeatingRunner(InlineRunner):
    """Runs every task twice, as Spark does if an executor is lost between a task's commit and its result."""

    def map(self, function: Any, items: Sequence[Any]) -> Iterable[Any]:
        for _ in super().map(function, items):
            pass
        return list(super().map(function, items))


def test_rows_of_a_task_that_died_after_its_commit_are_counted(exported, into):
    run = into.run(exported.store, RepeatingRunner())
    run.begin()
    rows = sum(outcome.rows for outcome in run.restore())
    run.finish()
    assert rows == sum(file.rows for file in run.current().ledger.loaded) > 0
    assert into.differences(exported.source, IN_RANGE) == {}


def test_an_interrupted_restore_resumes_with_the_pinned_revision(exported, duck):
    first = duck.restore(exported.store, [1, 2])
    assert not first.finished
    pinned = duck.imports()[0]
    assert pinned.tag in read_state(exported.store).tags
    add_rows(exported.source)
    exported.export(chunks=[2], replace=True)
    assert read_state(exported.store).seals[-1].revision > pinned.revision
    second = duck.restore(exported.store)
    assert second.finished
    assert second.plan.state.revision == pinned.revision
    late = "(sensor IS DISTINCT FROM 'late' OR t >= '2025-01-07')"
    assert duck.differences(exported.source, IN_RANGE | {"readings": f"({IN_RANGE['readings']}) AND {late}"}) == {}
    assert read_state(exported.store).tags == {}


@pytest.mark.slow
def test_a_newer_revision_replaces_changed_chunks_only_when_asked_to(exported, duck):
    duck.restore(exported.store)
    add_rows(exported.source)
    exported.export(chunks=[2], replace=True)
    with pytest.raises(RestoreError, match=r"Chunk 2 was loaded from other files.*--replace"):
        duck.run(exported.store).prepare()
    with pytest.raises(RestoreError, match=r"Chunk 2 was loaded from other files.*--replace"):
        duck.restore(exported.store)
    assert (len(duck.imports()), read_state(exported.store).tags) == (1, {})
    done = duck.restore(exported.store, replace=True)
    assert done.finished
    assert done.outcomes[2].status == "replaced"
    assert [chunk for chunk, outcome in done.outcomes.items() if outcome.changed] == [2]
    assert duck.differences(exported.source, IN_RANGE) == {}
    assert [record.finished for record in duck.imports()] == [True, True]


@pytest.mark.slow
def test_a_window_and_chunk_0_with_its_untimed_tables_can_be_restored_again(exported, into):
    into.restore(exported.store)
    execute(into, "DELETE FROM main.readings WHERE t >= '2025-01-02 00:00:00Z' AND t < '2025-01-03 00:00:00Z'")
    execute(into, "DELETE FROM main.places")
    execute(into, "DELETE FROM main.readings WHERE t IS NULL")
    done = into.restore(exported.store, [0, 2], again=True)
    assert {chunk: each.status for chunk, each in done.outcomes.items()} == {0: "replaced", 2: "replaced"}
    assert into.differences(exported.source, IN_RANGE) == {}


def test_tables_with_rows_of_others_are_refused_and_cannot_be_replaced_later(exported, duck):
    create = "CREATE TABLE main.places (id integer, name varchar(10))"
    execute(duck, "CREATE SCHEMA IF NOT EXISTS main")
    execute(duck, create)
    execute(duck, "INSERT INTO main.places VALUES (9, 'theirs')")
    with pytest.raises(TargetNotEmptyError, match=r"main\.places.*--into-nonempty"):
        duck.restore(exported.store)
    assert duck.imports() == []
    assert set(duck.tables()) == {"places"}
    done = duck.restore(exported.store, into_nonempty=True)
    assert done.finished
    assert duck.tables()["places"].num_rows == 5
    with pytest.raises(
        RestoreError, match=r"Chunk 0 cannot be replaced in main\.\w+.*main\.places.*: tables held.*--into-nonempty"
    ):
        duck.restore(exported.store, [0], again=True)


def test_an_existing_empty_table_is_used_if_its_columns_fit(exported, duck):
    execute(duck, "CREATE SCHEMA IF NOT EXISTS main")
    execute(duck, "CREATE TABLE main.places (name varchar(10), id integer)")
    assert duck.restore(exported.store).finished
    assert sorted(duck.tables()["places"]["id"].to_pylist()) == [1, 1, 2, 3]


def test_other_filters_into_the_same_tables_are_refused(exported, duck):
    duck.restore(exported.store, filters=Filters(tables=(TableName("main", "places"),)))
    with pytest.raises(OtherImportError, match=r"with tables main\.places; asked for is everything"):
        duck.restore(exported.store)
    events = Filters(tables=(TableName("main", "events"),))
    assert duck.restore(exported.store, filters=events).finished  # other tables may have other filters
    assert set(duck.tables()) == {"places", "events"}


def test_another_location_into_the_same_tables_is_refused(imported, duck, tmp_path):
    other = Place(imported.source, tmp_path / "elsewhere")
    other.export()
    with pytest.raises(OtherImportError, match=r"were restored from file:.*--forget-ledger"):
        duck.restore(other.store)


def test_another_version_is_refused_while_an_import_is_unfinished(exported, duck):
    first = read_state(exported.store).revision
    duck.restore(exported.store, [1])
    add_rows(exported.source)
    exported.export(chunks=[2], replace=True)
    newest = read_state(exported.store).seals[-1].revision
    with pytest.raises(
        OtherImportError, match=f"unfinished import of revision {first}; asked for is revision {newest}"
    ):
        duck.restore(exported.store, version=f"rev:{newest}")
    assert duck.restore(exported.store, version=f"rev:{first}").finished


def test_a_time_range_reads_only_chunks_that_overlap_it_and_cuts_its_edges(exported, duck):
    start, end = datetime(2025, 1, 1, 6, tzinfo=UTC), datetime(2025, 1, 3, 12, tzinfo=UTC)
    for path in exported.folder.glob("data/5/*.parquet"):
        path.write_bytes(path.read_bytes()[::-1])  # only its size is checked, because it is not loaded
    done = duck.restore(exported.store, filters=Filters(start=start, end=end))
    assert sorted(done.outcomes) == [0, 1, 2, 3]
    inside = {
        "readings": "t >= '2025-01-01 06:00:00Z' AND t < '2025-01-03 12:00:00Z'",
        "events": "moment >= '2025-01-01 06:00:00' AND moment < '2025-01-03 12:00:00'",
    }
    assert duck.differences(exported.source, inside) == {}
    assert all(expected == found for expected, found in done.run.check_counts().values())


def test_a_flipped_byte_loads_no_row_of_its_chunk_and_names_the_file(exported, duck):
    good = flip(victim := only(exported.folder, "data/3/main.readings*.parquet"))
    message = (
        r"1 of 7 chunks.*data/3/main.readings.*SHA-256 .*expected.* The other chunks are loaded\. Correct what the"
        r".*--keep-going .*restores everything but the windows.*`snapshots export verify` names these files\."
        r".* \(in Dagster by exclude_tables\), the next one with them loads them from the newest revision, which may"
        r" have other rows\. To finish without these tables as a whole, add"
        r" --exclude-tables main\.events,main\.readings\."
    )
    with pytest.raises(RestoreFailedError, match=message):
        duck.restore(exported.store)
    outside = "NOT ({0} >= '2025-01-03' AND {0} < '2025-01-04')"
    expected = {
        "readings": f"({IN_RANGE['readings']}) AND (t IS NULL OR {outside.format('t')})",
        "events": f"({IN_RANGE['events']}) AND (moment IS NULL OR {outside.format('moment')})",
    }
    assert duck.differences(exported.source, expected) == {}
    assert not duck.imports()[0].finished
    victim.write_bytes(good)
    assert duck.restore(exported.store).finished
    assert duck.differences(exported.source, IN_RANGE) == {}


def test_a_damaged_log_or_newest_schema_is_refused_before_the_target_is_touched(exported, duck):
    last = max(exported.folder.glob("transactions/*.txn"))
    good = flip(last)
    with pytest.raises(DamageError, match=last.name):
        duck.restore(exported.store)
    last.write_bytes(good)
    [schema] = exported.folder.glob("schema/*/tables.json")
    schema.write_bytes(schema.read_bytes().replace(b"sensor", b"sens0r"))
    with pytest.raises(DamageError, match=r"tables\.json"):
        duck.restore(exported.store)
    assert duck.imports() == []


def test_an_unsealed_snapshot_cannot_be_restored(place, duck):
    with pytest.raises(NoSnapshotError):
        duck.restore(place.store)
    place.export(chunks=[1], seal=False)
    with pytest.raises(IncompleteError, match=r"no sealed snapshot .*: 6 of 7 chunks are not exported"):
        duck.restore(place.store)
    place.export()
    with pytest.raises(VersionNotFoundError):
        duck.restore(place.store, version="rev:2")
    with pytest.raises(UnknownRelationError, match=r"Did you mean 'readings'"):
        duck.restore(place.store, filters=Filters(tables=(TableName("main", "reading"),)))


def test_a_read_only_location_is_restored_with_a_warning(exported, duck, monkeypatch, caplog):
    def refuse(*_: object, **__: object) -> None:
        raise StoreDeniedError("read-only")

    monkeypatch.setattr("snapshot_assets.engine.restore.pin.create_tag", refuse)
    with caplog.at_level(logging.WARNING):
        assert duck.restore(exported.store).finished
    assert "is not pinned" in caplog.text


def test_two_imports_at_once_double_no_row(exported, postgresql_database):
    into = Into(postgresql_database)
    results: list[object] = []

    def restore() -> None:
        try:
            results.append(into.restore(exported.store).finished)
        except RestoreError as error:
            results.append(error)

    threads = [threading.Thread(target=restore) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert results == [True, True, True]
    assert len(into.imports()) == 1
    assert into.differences(exported.source, IN_RANGE) == {}


def test_an_import_that_began_while_the_target_was_read_is_resumed(exported, postgresql_database, monkeypatch):
    into, read = Into(postgresql_database), PostgresqlTarget.other_types

    def read_then_start_another(target, tables):
        monkeypatch.setattr(PostgresqlTarget, "other_types", read)
        found = read(target, tables)
        assert into.restore(exported.store).finished
        return found

    monkeypatch.setattr(PostgresqlTarget, "other_types", read_then_start_another)
    assert into.restore(exported.store).finished
    assert len(into.imports()) == 1


def test_columns_that_came_went_and_widened_between_chunks(place, duck):
    place.export(chunks=[1], seal=False)
    place.sql("ALTER TABLE events ADD COLUMN who VARCHAR DEFAULT 'nobody'")
    place.sql("ALTER TABLE places ALTER COLUMN id TYPE BIGINT")
    place.export(chunks=[2], seal=False)
    place.export()
    assert duck.restore(place.store).finished
    events = duck.tables()["events"].sort_by([("moment", "ascending")]).to_pylist()
    assert [row["who"] for row in events if row["what"] == "first"] == [None]
    assert {row["who"] for row in events if row["what"] != "first"} == {"nobody"}


def test_each_file_is_read_with_the_carriers_that_it_was_written_with(place, duck, postgresql_database):
    place.export(chunks=[1, 2], seal=False)
    place.export(carriers={"main.readings.value": "text"})
    assert duck.restore(place.store).finished
    assert duck.differences(place.source, IN_RANGE) == {}
    into = Into(postgresql_database)
    with pytest.raises(RestoreError, match=r"value of main\.readings.*only a duckdb database"):
        into.restore(place.store)
    assert into.imports() == []


@pytest.mark.slow
def test_a_continuous_plans_next_windows_go_into_tables_that_have_keys(place, into):
    place.sql("CREATE TABLE owners (id INTEGER PRIMARY KEY); INSERT INTO owners VALUES (1), (2)")
    place.sql("CREATE TABLE visits (t TIMESTAMPTZ, owner INTEGER REFERENCES owners (id))")
    place.sql("INSERT INTO visits VALUES ('2025-01-01 01:00:00Z', 1), ('2025-01-05 01:00:00Z', 2)")
    place.export()
    first = into.restore(place.store, finish=True)
    assert first.finished
    place.sql("INSERT INTO visits VALUES ('2025-01-05 02:00:00Z', 1)")
    place.export(chunks=[5], replace=True)
    assert into.restore(place.store, replace=True).finished
    visits = into.tables()["visits"]
    assert sorted(visits["owner"].to_pylist()) == [1, 1, 2]


def test_a_time_column_that_was_given_a_zone_between_chunks_keeps_its_instants(place, duck):
    place.export(chunks=[3], seal=False, time_zone="Europe/Paris")
    place.sql("ALTER TABLE events ALTER COLUMN moment TYPE TIMESTAMPTZ USING timezone('Europe/Paris', moment)")
    place.export(time_zone="Europe/Paris")
    assert duck.restore(place.store).finished
    [middle] = [row["moment"] for row in duck.tables()["events"].to_pylist() if row["what"] == "middle"]
    assert middle == datetime(2025, 1, 3, 11, tzinfo=UTC)


@pytest.mark.slow
def test_a_stalled_run_loads_no_row_after_a_newer_restore_started(exported, into):
    stalled = into.run(exported.store)
    stalled.begin()
    assert into.restore(exported.store).finished
    add_rows(exported.source)
    exported.export(chunks=[2], replace=True)
    assert into.restore(exported.store, replace=True).finished
    with pytest.raises(RestoreFailedError, match=r"nothing more into main\.\w+: import \w+ was started into it since"):
        list(stalled.restore())
    stalled.begin([2], [2])
    with pytest.raises(RestoreFailedError, match=r"loads nothing more.*Run again to continue the newest import"):
        list(stalled.restore())
    assert into.differences(exported.source, IN_RANGE) == {}


def test_a_run_whose_ledger_was_forgotten_meanwhile_is_not_told_to_run_again(exported, duck):
    running = duck.run(exported.store)
    running.begin()
    execute(duck, "DELETE FROM snapshot_assets_ledger.imports")
    message = r"nothing more into main\.\w+: the ledger was forgotten meanwhile.*Drop the tables.*--forget-ledger"
    with pytest.raises(RestoreFailedError, match=message) as raised:
        list(running.restore())
    assert "un again" not in str(raised.value)


def test_failed_chunks_are_named_though_the_keys_of_other_tables_cannot_be_made(place, duck):
    place.sql("CREATE TABLE towns (id INTEGER PRIMARY KEY); INSERT INTO towns VALUES (1)")
    place.export()
    [victim] = place.folder.glob("data/2/main.readings*.parquet")
    victim.write_bytes(victim.read_bytes()[::-1])
    run = duck.run(place.store)
    run.begin()
    outcomes = run.restore()
    next(outcomes)
    execute(duck, "ALTER TABLE snapshot_assets_ledger.steps RENAME TO hidden")
    execute(duck, "CREATE VIEW snapshot_assets_ledger.steps AS FROM snapshot_assets_ledger.hidden")
    with pytest.raises(RestoreFailedError, match=r"data/2/main\.readings.* could not be made: .*ledger") as raised:
        list(outcomes)
    assert set(raised.value.attributes["chunks"]) == {2}


def test_a_chunk_whose_rows_cannot_be_deleted_names_no_table_to_leave_out(families, duck):
    chosen = Filters(tables=(*FAMILIES.tables, TableName("main", "places")))
    duck.restore(families.store, filters=chosen)
    families.sql("DELETE FROM visits")
    families.sql("DELETE FROM owners WHERE id = 1")
    families.export(chunks=[1], replace=True)
    with pytest.raises(RestoreFailedError, match="refers to rows of") as raised:
        duck.restore(families.store, filters=chosen, replace=True)
    assert set(raised.value.attributes["chunks"]) == {1}
    assert "--exclude-tables" not in str(raised.value)


@pytest.fixture
def families(place: Place) -> Place:
    """A snapshot of owners and visits in windows 1 and 2, of which one visit refers to the other window's owner."""
    place.sql("CREATE TABLE owners (t TIMESTAMPTZ, id INTEGER PRIMARY KEY)")
    place.sql("CREATE TABLE visits (t TIMESTAMPTZ, owner INTEGER REFERENCES owners (id))")
    place.sql("INSERT INTO owners VALUES ('2025-01-01 01:00:00Z', 1), ('2025-01-02 01:00:00Z', 2)")
    place.sql("INSERT INTO visits VALUES ('2025-01-02 02:00:00Z', 1), ('2025-01-02 02:00:00Z', 2)")
    place.export()
    return place


FAMILIES = Filters(tables=(TableName("main", "owners"), TableName("main", "visits")))


@pytest.mark.slow
def test_a_chunk_with_parents_and_their_children_is_replaced_where_the_database_can(families, into):
    assert into.restore(families.store, filters=FAMILIES).finished
    if into.uri.startswith("duckdb"):
        with pytest.raises(RestoreFailedError, match=r"main\.visits refers to rows of main\.owners.*into a new file"):
            into.restore(families.store, [2], again=True, filters=FAMILIES)
    else:
        assert into.restore(families.store, [2], again=True, filters=FAMILIES).rows == 3
    assert sorted(into.tables()["visits"]["owner"].to_pylist()) == [1, 2]
    assert sorted(into.tables()["owners"]["id"].to_pylist()) == [1, 2]


@pytest.mark.slow
def test_a_chunk_with_parents_of_another_chunks_children_is_not_replaced(families, into):
    into.restore(families.store, filters=FAMILIES)
    with pytest.raises(RestoreFailedError, match=r"Chunk 1 cannot be replaced: foreign key \w+ of main\.visits"):
        into.restore(families.store, [1], again=True, filters=FAMILIES)
    assert sorted(into.tables()["visits"]["owner"].to_pylist()) == [1, 2]


class Broken:
    """A target whose driver raises errors of its own."""

    closed = False

    def replace(self, *_: Any) -> int:
        raise ValueError("not of this package")

    def interrupt(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        self.closed = True


def test_an_error_of_a_driver_fails_only_the_chunk_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Broken()
    record = RestoreRecord("a" * 32, "0" * 32, "file:///x", 1, "c" * 64, "{}", ())
    monkeypatch.setattr("snapshot_assets.engine.restore.loader.open_target", lambda _: target)
    task = ReplaceTask(DatabaseAddress("target", "duckdb:///x"), cast(ObjectStore, None), (), 3, record, ())
    [result] = replace_chunk(task)
    assert (result.chunk, result.rows, type(result.error)) == (3, None, TaskFailedError)
    assert "chunk 3: ValueError: not of this package (in replace, restore/test_restore.py:" in str(result.error)
    assert target.closed
