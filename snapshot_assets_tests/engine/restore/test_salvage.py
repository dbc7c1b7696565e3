"""Restores from a damaged location: damage of what a restore does not need keeps nothing from being restored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.catalog.replication.replicate import replicate
from snapshot_assets.engine.restore import loader
from snapshot_assets.engine.restore.files import FilePlan
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import DamageError, LostLogError, PartlyRestoredError, RestoreError
from snapshot_assets.format.layout import REPLICA
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.catalog.execute import delete_rows
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.continuous import FIRST, PLAN
from snapshot_assets_tests.engine.restore.imports import IN_RANGE, Into, Restored, execute, flip, only, unequal_rows
from snapshot_assets_tests.servers.postgresql import MakeDatabase

THIRD = "NOT ({0} >= '2025-01-03' AND {0} < '2025-01-04')"
"""Rows outside of the window of chunk 3."""


@pytest.fixture
def checkpointed(exported: Place) -> Place:
    """A location with a tag, and with a checkpoint that the log continues after."""
    catalog = Catalog.open_for_writing(exported.store)
    create_tag(catalog, "kept", read_state(exported.store).seals[-1].revision)
    catalog.checkpoint()
    create_tag(catalog, "later", read_state(exported.store).seals[-1].revision)
    return exported


UNNEEDED = ["SHA256SUMS", "manifest.json", "transactions/*.ckpt", "data/3/chunk-*.json", "tag/tag-kept-*"]


@pytest.mark.parametrize("pattern", UNNEEDED)
@pytest.mark.parametrize("damage", [flip, lambda path: path.write_bytes(path.read_bytes()[:-9])])
def test_damage_of_what_a_restore_does_not_need_is_a_warning(
    checkpointed: Place, duck: Into, pattern: str, damage: Callable[[Path], object]
) -> None:
    victim = only(checkpointed.folder, pattern)
    damage(victim)
    done = duck.restore(checkpointed.store)
    assert done.finished
    assert duck.differences(checkpointed.source, IN_RANGE) == {}
    [warning] = [each for each in done.plan.warnings if victim.name in each]
    assert "snapshots" in warning, "it names a command"


@pytest.mark.parametrize("data", [b"", b"{}", b"torn"])
def test_a_damaged_marker_of_a_replica_is_a_warning(
    exported: Place, duck: Into, tmp_path: Path, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    replica = Place(exported.source, tmp_path / "replica")
    replicate(exported.store, replica.store)
    replica.store.put(REPLICA, data)
    before = sorted(replica.folder.rglob("*"))
    done = duck.restore(replica.store)
    assert done.finished
    assert duck.differences(exported.source, IN_RANGE) == {}
    [warning] = [each for each in done.plan.warnings if REPLICA in each]
    assert "`snapshots replicate` writes it again" in warning
    assert "is not pinned" in caplog.text
    assert sorted(replica.folder.rglob("*")) == before


@pytest.mark.parametrize("version", [None, "newest"])
def test_only_a_restore_of_the_newest_version_needs_the_logs_end(
    exported: Place, duck: Into, version: str | None
) -> None:
    """A manifest of a later revision is all that shows whether the log has lost its end."""
    manifest, revision = exported.folder / "manifest.json", read_state(exported.store).revision
    before = sorted(exported.folder.rglob("*"))
    manifest.write_text(manifest.read_text().replace(f'"revision": {revision}', f'"revision": {revision + 1}', 1))
    if version is None:
        with pytest.raises(DamageError, match=r"the log's end was lost.*--at"):
            duck.restore(exported.store)
        return
    done = duck.restore(exported.store, version=f"rev:{revision}")
    assert done.finished
    assert any("the log's end was lost" in warning for warning in done.plan.warnings)
    assert sorted(exported.folder.rglob("*")) == before, "nothing is committed to a log that may have lost its end"
    with pytest.raises(LostLogError):
        Catalog.open_for_writing(exported.store)


def test_damaged_files_outside_of_the_selection_do_not_matter(exported: Place, duck: Into) -> None:
    only(exported.folder, "data/3/main.readings*.parquet").unlink()
    places = Filters(tables=(TableName("main", "events"), TableName("main", "places")))
    done = duck.restore(exported.store, filters=places)
    assert done.finished
    assert any("data/3/main.readings" in warning for warning in done.plan.warnings)
    with pytest.raises(DamageError, match=r"data/3/main\.readings.*--keep-going.*`snapshots export verify` names"):
        duck.restore(exported.store, filters=Filters(tables=(TableName("main", "readings"),)))
    assert set(duck.tables()) == {"events", "places"}


def test_a_file_that_was_loaded_before_it_was_damaged_is_not_needed(exported: Place, duck: Into) -> None:
    duck.restore(exported.store, [3], finish=False)
    only(exported.folder, "data/3/main.readings*.parquet").unlink()
    assert duck.restore(exported.store).finished
    assert duck.differences(exported.source, IN_RANGE) == {}
    assert duck.restore(exported.store).finished


def _partly(into: Into, place: Place) -> tuple[Restored, PartlyRestoredError]:
    done = into.restore(place.store, keep_going=True, finish=False)
    with pytest.raises(PartlyRestoredError) as caught:
        done.run.finish()
    return done, caught.value


@pytest.mark.parametrize(
    "damage", [flip, Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])], ids=["bit", "gone", "short"]
)
@pytest.mark.parametrize("most", [0, loader.HASHED_HERE], ids=["hashed by tasks", "hashed here"])
def test_keep_going_leaves_out_the_window_of_the_damaged_table_alone(
    exported: Place, duck: Into, damage: Callable[[Path], object], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "HASHED_HERE", most)
    victim = only(exported.folder, "data/3/main.readings*.parquet")
    good = victim.read_bytes()
    damage(victim)
    done, error = _partly(duck, exported)
    without = f"({IN_RANGE['readings']}) AND (t IS NULL OR {THIRD.format('t')})"
    assert duck.differences(exported.source, {**IN_RANGE, "readings": without}) == {}
    [left] = error.attributes["left_out"]
    assert (left["table"], left["window"]) == ("main.readings", "2025-01-03T00:00:00Z/2025-01-04T00:00:00Z")
    assert left["rows"] == sum(
        file["rows"]
        for chunk in exported.manifest()["chunks"]
        if chunk["id"] == 3
        for file in chunk["files"]
        if file["table"] == "readings"
    )
    assert victim.name in str(error)
    assert "damaged objects, which `snapshots export verify` names, back from a copy" in str(error)
    assert {chunk for chunk, outcome in done.outcomes.items() if outcome.status == "incomplete"} == {3}
    assert all(expected == found for expected, found in done.run.check_counts().values())
    assert not duck.imports()[0].finished
    again, _ = _partly(duck, exported)  # nothing changed meanwhile
    assert again.rows == 0

    victim.write_bytes(good)
    done = duck.restore(exported.store)
    assert done.finished
    assert done.rows == left["rows"]
    assert duck.differences(exported.source, IN_RANGE) == {}
    assert duck.imports()[0].finished
    assert read_state(exported.store).tags == {}


def test_a_dry_run_reads_no_damaged_file(exported: Place, make_postgresql_database: MakeDatabase) -> None:
    """PostgreSQL cannot hold all values of DuckDB, so a dry run reads them."""
    only(exported.folder, "data/3/main.readings*.parquet").unlink()
    into = Into(make_postgresql_database())
    plan = into.run(exported.store, keep_going=True).prepare(rehearse=True)
    assert [(file.file.chunk, file.file.table) for file in plan.left] == [(3, "readings")]
    with pytest.raises(DamageError, match=r"data/3/main\.readings.*--keep-going"):
        into.run(exported.store).prepare(rehearse=True)


def test_damage_in_windows_that_were_not_chosen_is_no_error(exported: Place, duck: Into) -> None:
    victim = only(exported.folder, "data/3/main.readings*.parquet")
    good = victim.read_bytes()
    victim.unlink()
    _partly(duck, exported)
    assert not duck.restore(exported.store, [1], keep_going=True).finished
    run = duck.run(exported.store, keep_going=True)
    plan = run.begin([3])
    run.check_rows(plan)  # what is left out is not missing
    with pytest.raises(PartlyRestoredError, match=victim.name):
        run.finish()
    assert not duck.imports()[0].finished
    victim.write_bytes(good)
    assert duck.restore(exported.store).finished


def test_keep_going_without_damage_is_a_restore_like_any_other(exported: Place, duck: Into) -> None:
    assert duck.restore(exported.store, keep_going=True).finished
    assert duck.differences(exported.source, IN_RANGE) == {}


def test_damaged_documents_of_an_older_schema_affect_the_files_written_with_them(place: Place, duck: Into) -> None:
    place.export(chunks=[0, 1, 2], seal=False)
    [first] = {path.parent for path in place.folder.glob("schema/*/*.json")}
    place.sql("ALTER TABLE readings ADD COLUMN extra INTEGER")
    place.export()
    delete_rows(Catalog.open_for_writing(place.store), TableName("main", "readings"), "sensor = 's0'")
    good = flip(first / "tables.json")
    with pytest.raises(DamageError, match=r"data/1/main\.readings.*tables\.json"):
        duck.restore(place.store)
    _, error = _partly(duck, place)
    windows = {(left["table"], left["chunk"]) for left in error.attributes["left_out"]}
    assert {chunk for _, chunk in windows} <= {0, 1, 2}
    assert ("main.readings", 1) in windows
    (first / "tables.json").write_bytes(good)
    done = duck.restore(place.store)
    assert done.finished
    assert all(expected == found for expected, found in done.run.check_counts().values())


def test_a_foreign_key_whose_rows_are_left_out_fails_by_itself_and_is_made_later(place: Place, into: Into) -> None:
    place.sql(
        "CREATE TABLE parents (id INTEGER PRIMARY KEY);"
        "CREATE TABLE children (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES parents (id));"
        "INSERT INTO parents FROM range(5); INSERT INTO children SELECT range, range FROM range(5)"
    )
    place.export()
    victim = only(place.folder, "data/0/main.parents*.parquet")
    good = flip(victim)
    done, error = _partly(into, place)
    assert [left["table"] for left in error.attributes["left_out"]] == ["main.parents"]
    [failed] = done.run.failed_steps()
    assert failed.object.startswith("foreign key")
    victim.write_bytes(good)
    done = into.restore(place.store)
    assert done.finished
    assert done.run.failed_steps() == []
    assert all(expected == found for expected, found in done.run.check_counts().values())


def test_replacing_keeps_the_rows_of_a_table_whose_new_files_are_damaged(exported: Place, duck: Into) -> None:
    """No other table of the window waits for them, and counts expect the rows that were kept."""
    duck.restore(exported.store)
    exported.sql("UPDATE readings SET value = value + 1; DELETE FROM readings WHERE sensor = 's0'")
    exported.sql("UPDATE events SET moment = moment + INTERVAL 1 SECOND")
    before = set(exported.folder.glob("data/3/*.parquet"))
    exported.export(chunks=[3], replace=True)
    [victim] = set(exported.folder.glob("data/3/main.readings*")) - before
    good = flip(victim)
    old = duck.tables()["readings"].num_rows
    run = duck.run(exported.store, replace=True, keep_going=True)
    run.begin()
    outcomes = {each.chunk: each.status for each in run.restore()}
    assert outcomes[3] == "incomplete"
    with pytest.raises(PartlyRestoredError):
        run.finish()
    assert duck.tables()["readings"].num_rows == old
    assert all(expected == found for expected, found in run.check_counts().values())
    assert run.current().incomplete == frozenset()
    victim.write_bytes(good)
    assert duck.restore(exported.store, replace=True).finished


def test_rows_that_a_tombstone_deletes_stay_if_their_file_is_damaged(exported: Place, duck: Into) -> None:
    """The ledger lists the file already: it was loaded with the rows."""
    duck.restore(exported.store)
    delete_rows(Catalog.open_for_writing(exported.store), TableName("main", "readings"), "sensor = 's0'")
    good = flip(victim := only(exported.folder, "data/3/main.readings*.parquet"))
    run = duck.run(exported.store, replace=True, keep_going=True)
    run.begin()
    assert {each.chunk for each in run.restore() if each.status == "incomplete"} == {3}
    with pytest.raises(PartlyRestoredError) as caught:
        run.finish()
    assert [(left["table"], left["chunk"]) for left in caught.value.attributes["left_out"]] == [("main.readings", 3)]
    assert all(expected == found for expected, found in run.check_counts().values())
    victim.write_bytes(good)
    assert duck.restore(exported.store, replace=True).finished


def _damage_newest(place: Place, document: str = "tables.json") -> tuple[Path, bytes]:
    """Flip a bit in a document of the newest schema; returns its path and what it held."""
    state = read_state(place.store)
    path = place.folder / state.schemas[state.schema_id].folder / document
    return path, flip(path)


def test_an_intact_older_schema_takes_the_place_of_the_damaged_newest_one(place: Place, duck: Into) -> None:
    """Tables whose files have the columns of the older schema are restored whole, the others as far as it has them."""
    place.export(chunks=[0, 1, 2], seal=False)
    place.sql("ALTER TABLE readings ADD COLUMN extra INTEGER")
    place.export()
    path, good = _damage_newest(place)
    with pytest.raises(DamageError, match=rf"{path.name} .*--keep-going .*schema 1\."):
        duck.restore(place.store)
    done, error = _partly(duck, place)
    before = "t IS NULL OR (t >= '2025-01-01 00:00:00Z' AND t < '2025-01-03 00:00:00Z')"
    rows = duck.tables()
    assert rows["readings"].column_names == ["t", "sensor", "value"]
    assert unequal_rows(place.source, {"events": rows["events"]}, IN_RANGE) == {}
    with duckdb.connect(place.source.removeprefix("duckdb://")) as source:
        source.execute("SET TimeZone = 'UTC'")
        [count] = source.sql(f"SELECT count(*) FROM readings WHERE {before}").fetchall()
    assert rows["readings"].num_rows == count[0]
    for text in (str(error), " ".join(done.plan.warnings)):
        assert "additional columns extra (int32)" in text
    assert {left["table"] for left in error.attributes["left_out"]} == {"main.readings"}

    path.write_bytes(good)
    with pytest.raises(RestoreError, match="extra"):
        duck.restore(place.store)
    execute(duck, "ALTER TABLE main.readings ADD COLUMN extra INTEGER")
    assert duck.restore(place.store).finished
    assert duck.tables()["readings"].column_names == ["t", "sensor", "value", "extra"]
    assert unequal_rows(place.source, duck.tables(), IN_RANGE) == {}


def test_a_table_that_only_the_damaged_schema_has_is_named_with_its_rows(place: Place, duck: Into) -> None:
    place.export(chunks=[0, 1], seal=False, **PLAN)
    place.sql("CREATE TABLE added AS SELECT range AS id, now()::TIMESTAMP - INTERVAL 2 DAY AS t FROM range(5)")
    place.export(**PLAN)
    _damage_newest(place)
    done, error = _partly(duck, place)
    assert set(duck.tables()) == {"events", "places", "readings"}
    named = "Table main.added is not in schema 1: 5 rows are left out."
    assert named in str(error)
    assert named in done.plan.warnings


def test_an_older_schema_ends_a_restore_as_partial_though_no_row_is_left_out(place: Place, duck: Into) -> None:
    place.export(chunks=[0, 1, 2], seal=False)
    place.sql("CREATE VIEW latest AS SELECT max(t) AS t FROM readings")
    place.export()
    path, good = _damage_newest(place, "views.json")
    done, error = _partly(duck, place)
    assert duck.differences(place.source, IN_RANGE) == {}
    assert error.attributes["left_out"] == []
    assert "Schema 2, the newest, is damaged: the import uses schema 1." in str(error)
    assert any(path.name in warning for warning in done.plan.warnings)
    assert not duck.imports()[0].finished
    path.write_bytes(good)
    assert duck.restore(place.store).finished


def test_text_files_of_a_damaged_schema_are_left_out(place: Place, duck: Into) -> None:
    place.export(chunks=[0, 1, 2], seal=False, format="csv")
    place.sql("CREATE VIEW latest AS SELECT max(t) AS t FROM readings")
    place.export(format="csv")
    _damage_newest(place)
    _, error = _partly(duck, place)
    assert {left["chunk"] for left in error.attributes["left_out"]} == {3, 5, 6}
    assert "text files" in str(error)


@pytest.mark.parametrize("schemas", [1, 2])
def test_keep_going_without_an_intact_schema_is_refused(place: Place, duck: Into, schemas: int) -> None:
    place.export(chunks=[0, 1, 2], seal=False)
    if schemas == 2:
        place.sql("ALTER TABLE readings ADD COLUMN extra INTEGER")
    place.export()
    for path in place.folder.glob("schema/*/tables.json"):
        flip(path)
    with pytest.raises(DamageError, match=r"tables\.json .*from a copy\..*No older schema of this version is intact"):
        duck.restore(place.store, keep_going=True)


def test_a_dropped_table_whose_only_schema_is_damaged_is_a_warning(place: Place, duck: Into) -> None:
    place.sql(f"CREATE TABLE gone AS SELECT TIMESTAMPTZ '{FIRST.isoformat()}' AS t")
    place.export(chunks=[0, 1], seal=False, **PLAN)
    [first] = {path.parent for path in place.folder.glob("schema/*/*.json")}
    place.sql("DROP TABLE gone")
    place.export(**PLAN)
    flip(first / "tables.json")
    done = duck.run(place.store, keep_going=True).prepare()
    assert "gone" not in {table.name for table in done.definition.tables}
    assert any("data/1/main.gone" in warning for warning in done.warnings)


def test_the_work_of_a_plan_grows_with_its_files_alone_if_every_window_lacks_one(
    exported: Place, duck: Into, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in exported.folder.glob("data/*/main.readings*"):
        path.unlink()
    plan = duck.run(exported.store, keep_going=True).prepare()
    files = [file for chunk in plan.chunks for file in chunk.files]
    assert len({file.file.chunk for file in plan.left}) > 3
    calls, key = list[FilePlan](), FilePlan.key.fget
    monkeypatch.setattr(FilePlan, "key", property(lambda file: (calls.append(file), key(file))[1]))
    assert plan.incomplete == {TableName("main", "events"), TableName("main", "places")}
    assert len(calls) <= 3 * len(files)
