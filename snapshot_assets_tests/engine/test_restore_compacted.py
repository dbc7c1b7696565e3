"""A second import after a compaction: rows that only lie in other files are not loaded again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NoReturn

import pyarrow.parquet as pq
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.checkpoints import write_checkpoint
from snapshot_assets.catalog.replay import read_state
from snapshot_assets.catalog.seal import seal
from snapshot_assets.databases.open import open_target
from snapshot_assets.databases.target import LoadedFile
from snapshot_assets.engine.restore_plan import Filters
from snapshot_assets.errors import ObjectNotFoundError, OtherImportError, RestoreError
from snapshot_assets.format.relations import DatabaseSchema, TableName
from snapshot_assets_tests.engine.compactions import add_schema, append, compact, scatter
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.imports import IN_RANGE, Into, Restored, execute
from snapshot_assets_tests.engine.test_tombstones import FIRST_DAYS, READINGS, delete, without
from snapshot_assets_tests.faults.source import add_rows

ITEMS = TableName("main", "items")


@pytest.fixture
def scattered(exported: Place) -> Place:
    scatter(exported.store)
    return exported


def head(place: Place) -> int:
    return read_state(place.store).revision


def ledger(into: Into, place: Place) -> set[LoadedFile]:
    target = open_target(into.address)
    try:
        return set(target.loaded(read_state(place.store).location_id))
    finally:
        target.close()


def live(place: Place, through: int | None = None) -> dict[str, int]:
    """Return the rows of the files of a state."""
    return {known.file.path: known.file.rows for known in read_state(place.store, through=through).live_files()}


def known(into: Into, place: Place) -> dict[str, int]:
    return {file.path: file.rows for file in ledger(into, place)}


def nothing_was_loaded(done: Restored) -> bool:
    return done.finished and not done.calls and {each.status for each in done.outcomes.values()} == {"skipped"}


def test_compacted_chunks_are_not_loaded_again_and_the_ledger_knows_their_new_files(
    scattered: Place, into: Into
) -> None:
    into.restore(scattered.store)
    before = known(into, scattered)
    compact(scattered.store)
    assert before != live(scattered)
    assert not into.restore(scattered.store, [1]).finished
    assert nothing_was_loaded(into.restore(scattered.store))
    assert known(into, scattered) == live(scattered)
    importers = {file.import_id for file in ledger(into, scattered) if file.path not in before}
    assert importers == {into.imports()[-1].id}
    assert into.differences(scattered.source, IN_RANGE) == {}
    assert nothing_was_loaded(into.restore(scattered.store))
    add_rows(scattered.source)
    scattered.export(chunks=[2], replace=True)
    assert into.restore(scattered.store, replace=True).outcomes[2].status == "replaced"
    assert into.differences(scattered.source, IN_RANGE) == {}


def test_several_compactions_are_followed_and_older_versions_too(scattered: Place, duck: Into) -> None:
    before = head(scattered)
    duck.restore(scattered.store)
    compact(scattered.store, tables=(READINGS,))
    write_checkpoint(scattered.store, read_state(scattered.store))
    compact(scattered.store)
    compact(scattered.store, chunks=(1, 2))
    for version in (None, f"rev:{before}", None):
        assert nothing_was_loaded(duck.restore(scattered.store, version=version, replace=True))
        assert known(duck, scattered) == live(scattered, before if version else None)
    assert duck.differences(scattered.source, IN_RANGE) == {}


def statuses(done: Restored) -> dict[int, str]:
    """Return what became of chunks that were not skipped."""
    return {chunk: each.status for chunk, each in done.outcomes.items() if each.status != "skipped"}


def gone(place: Place, chunk: int, since: int) -> int:
    """Return how many rows a chunk has less than at an older revision."""
    then, now = (read_state(place.store, through=revision) for revision in (since, None))
    rows = [sum(known.file.rows for known in state.live_files(chunk)) for state in (then, now)]
    return rows[0] - rows[1]


def test_rows_that_a_compaction_left_out_after_the_target_lost_them_are_no_change(scattered: Place, into: Into) -> None:
    into.restore(scattered.store)
    delete(scattered, FIRST_DAYS)
    assert statuses(into.restore(scattered.store, replace=True)) == {1: "replaced", 2: "replaced"}
    compact(scattered.store, tables=(TableName("main", "events"),))
    compact(scattered.store)
    assert nothing_was_loaded(into.restore(scattered.store))
    assert known(into, scattered) == live(scattered)
    assert into.differences(scattered.source, without(FIRST_DAYS)) == {}
    assert nothing_was_loaded(into.restore(scattered.store))


def test_rows_that_were_deleted_before_the_first_import_may_be_left_out_later(exported: Place, duck: Into) -> None:
    delete(exported, FIRST_DAYS)
    duck.restore(exported.store)
    compact(exported.store)
    delete(exported, "sensor = 's1' and t < '2025-01-04T12:00:00Z'")
    compact(exported.store)
    with pytest.raises(
        RestoreError, match=r"Chunk 2 .*compactions left out \d+ deleted rows of main.readings that the"
    ):
        duck.restore(exported.store)
    assert statuses(duck.restore(exported.store, replace=True)) == {2: "replaced", 3: "replaced"}
    compact(exported.store, tables=(READINGS,))
    assert nothing_was_loaded(duck.restore(exported.store))
    deleted = f"({FIRST_DAYS}) OR sensor = 's1' and t < '2025-01-04T12:00:00Z'"
    assert duck.differences(exported.source, without(deleted)) == {}


def test_a_chunk_that_was_compacted_and_lost_rows_is_loaded_again_only_when_asked(scattered: Place, into: Into) -> None:
    before = head(scattered)
    into.restore(scattered.store)
    delete(scattered, FIRST_DAYS)
    compact(scattered.store)
    less = gone(scattered, 1, before)
    found = (
        rf"other files \(compactions left out {less} deleted rows of main.readings that the target holds\).*--replace"
    )
    with pytest.raises(RestoreError, match=found):
        into.restore(scattered.store)
    assert known(into, scattered) == live(scattered, before)
    assert statuses(into.restore(scattered.store, replace=True)) == {1: "replaced", 2: "replaced"}
    assert known(into, scattered) == live(scattered)
    assert into.differences(scattered.source, without(FIRST_DAYS)) == {}
    older = f"rev:{before}"
    with pytest.raises(
        RestoreError, match=r"Chunk 2 .* deleted rows of main.readings that the target lacks.*--replace"
    ):
        into.restore(scattered.store, version=older)
    assert statuses(into.restore(scattered.store, version=older, replace=True)) == {1: "loaded", 2: "replaced"}
    assert into.differences(scattered.source, IN_RANGE) == {}


def test_rows_of_another_table_that_were_deleted_are_what_changed(scattered: Place, duck: Into) -> None:
    duck.restore(scattered.store)
    delete(scattered, FIRST_DAYS)
    compact(scattered.store, tables=(TableName("main", "events"),))
    with pytest.raises(RestoreError, match="Chunk 1 was loaded when other rows of its files were deleted"):
        duck.restore(scattered.store)
    assert statuses(duck.restore(scattered.store, replace=True)) == {1: "replaced", 2: "replaced"}
    assert duck.differences(scattered.source, without(FIRST_DAYS)) == {}


def test_what_an_import_loaded_that_never_finished_may_not_be_all_that_there_was(scattered: Place, duck: Into) -> None:
    """Else rows that it did not load could be taken for those that the compaction left out."""
    duck.restore(scattered.store)
    delete(scattered, FIRST_DAYS)
    second = duck.restore(scattered.store, replace=True).run.begin().record.id
    delete(scattered, "t > '2025-01-06T12:00:00Z'")
    duck.restore(scattered.store, replace=True)
    compact(scattered.store)
    execute(duck, f"UPDATE snapshot_assets_ledger.imports SET finished = false WHERE id = '{second}'")
    with pytest.raises(
        RestoreError, match=r"Chunk 1 .*they were compacted, and nothing proves that they hold the same"
    ):
        duck.restore(scattered.store)
    execute(duck, "UPDATE snapshot_assets_ledger.imports SET finished = true")
    assert nothing_was_loaded(duck.restore(scattered.store))


@pytest.fixture
def doubled(place: Place, duck: Into) -> Place:
    """A table with a primary key five rows of which are there twice, and imported so: the target's has no key."""
    place.sql("CREATE TABLE items (id INTEGER PRIMARY KEY, moment TIMESTAMPTZ)")
    place.sql("INSERT INTO items SELECT i, TIMESTAMPTZ '2025-01-01 00:00:00Z' + to_hours(i) FROM range(20) r(i)")
    place.export()
    [file] = [known.file for known in read_state(place.store).live_files() if known.file.table == "items"]
    rows = pq.read_table(place.folder / file.path).replace_schema_metadata(None)
    append(place.store, 1, ITEMS, rows.slice(0, 5))
    seal(Catalog.open_for_writing(place.store))
    execute(duck, "CREATE TABLE main.items (id INTEGER, moment TIMESTAMP WITH TIME ZONE)")
    duck.restore(place.store)
    return place


def test_duplicates_that_a_compaction_removed_are_a_change(doubled: Place, duck: Into) -> None:
    before = known(duck, doubled)
    compact(doubled.store, dedupe="primary_key")
    with pytest.raises(
        RestoreError, match=r"left out 5 duplicates of a primary key of main.items that the target holds"
    ):
        duck.restore(doubled.store)
    assert known(duck, doubled) == before
    assert statuses(duck.restore(doubled.store, replace=True)) == {1: "replaced"}
    assert duck.tables()["items"].num_rows == 20


def test_duplicates_are_told_from_deleted_rows_that_the_target_has_lost_already(doubled: Place, duck: Into) -> None:
    delete(doubled, "id < 2", ITEMS)
    duck.restore(doubled.store, replace=True)
    delete(doubled, "id >= 17", ITEMS)
    compact(doubled.store, dedupe="primary_key")
    with pytest.raises(RestoreError, match=r"left out 3 deleted rows and 3 duplicates of a primary key of main.items"):
        duck.restore(doubled.store)
    duck.restore(doubled.store, replace=True)
    assert sorted(duck.tables()["items"]["id"].to_pylist()) == list(range(2, 17))


def test_rows_that_came_and_went_between_two_imports_are_a_change(place: Place, duck: Into) -> None:
    """As many rows were added as a compaction left out."""
    place.sql("CREATE TABLE items (id INTEGER, moment TIMESTAMPTZ)")
    place.sql("INSERT INTO items SELECT i, TIMESTAMPTZ '2025-01-01 00:00:00Z' + to_hours(i) FROM range(20) r(i)")
    place.export()
    duck.restore(place.store)
    [file] = [known.file for known in read_state(place.store).live_files() if known.file.table == "items"]
    rows = pq.read_table(place.folder / file.path).replace_schema_metadata(None)
    delete(place, "id < 5", ITEMS)
    append(place.store, 1, ITEMS, rows.slice(10, 5))
    compact(place.store)
    seal(Catalog.open_for_writing(place.store))
    with pytest.raises(RestoreError, match=r"Chunk 1 .*nothing proves that they hold the same rows"):
        duck.restore(place.store)


@pytest.mark.parametrize("doubtful", ["receipts", "history", "schema"])
def test_what_is_not_proved_counts_as_changed(
    scattered: Place, duck: Into, doubtful: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    duck.restore(scattered.store)
    if doubtful == "history":  # a checkpoint keeps no word on a chunk that no sealed state has
        scatter(scattered.store, sealed=False)
    if doubtful == "schema":
        add_schema(scattered.store, _commented)
    compact(scattered.store)
    if doubtful == "receipts":
        monkeypatch.setattr("snapshot_assets.engine.restore_compacted.read_receipt", _collected)
    else:
        seal(Catalog.open_for_writing(scattered.store))
        write_checkpoint(scattered.store, read_state(scattered.store))
    with pytest.raises(RestoreError, match="loaded from other files"):
        duck.restore(scattered.store)
    assert duck.restore(scattered.store, replace=True).finished
    assert duck.differences(scattered.source, IN_RANGE) == {}


def _commented(schema: DatabaseSchema) -> DatabaseSchema:
    first, *others = schema.tables
    column = first.columns[0].model_copy(update={"comment": "changed"})
    changed = first.model_copy(update={"columns": (column, *first.columns[1:])})
    return schema.model_copy(update={"tables": (changed, *others)})


def _collected(_: object, path: str) -> NoReturn:
    raise ObjectNotFoundError(f"{path} is not there.")


def test_rows_of_a_range_in_a_compacted_file_are_not_counted_on(scattered: Place, duck: Into) -> None:
    """The ledger would have to say how many of a new file's rows lie in the range."""
    filters = Filters(start=datetime(2025, 1, 2, 12, tzinfo=UTC), end=datetime(2025, 1, 7, tzinfo=UTC))
    duck.restore(scattered.store, filters=filters)
    compact(scattered.store)
    with pytest.raises(RestoreError, match="Chunk 2 was loaded from other files"):
        duck.restore(scattered.store, filters=filters)
    done = duck.restore(scattered.store, filters=filters, replace=True)
    assert {chunk for chunk, each in done.outcomes.items() if each.status == "replaced"} == {2}
    assert done.finished


def test_the_ledger_is_changed_whole_once_and_only_by_the_newest_import(scattered: Place, into: Into) -> None:
    first = into.restore(scattered.store).run.begin()
    compact(scattered.store)
    run = into.run(scattered.store)
    prepared = run.begin([])
    [*renewals] = [load.renewal for load in prepared.loads() if load.renewal]
    old = [entry for each in renewals for entry in each.old]
    new = [entry for each in renewals for entry in each.new]
    target, before = open_target(into.address), ledger(into, scattered)
    try:
        with pytest.raises(OtherImportError):
            target.renew(first.record, old, new)
        with pytest.raises(RestoreError, match="by another run meanwhile"):
            target.renew(prepared.record, [*old, new[0]], new)
        assert set(target.loaded(prepared.record.location_id)) == before
        for _ in range(2):
            target.renew(prepared.record, old, new)
            assert set(target.loaded(prepared.record.location_id)) == (before - set(old)) | set(new)
    finally:
        target.close()
    assert run.finish()
