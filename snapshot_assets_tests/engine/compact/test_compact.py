"""What a compaction leaves: the same rows in fewer files, sealed, and every older version as it was."""

import json
from collections import Counter
from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.receipts import read_receipt
from snapshot_assets.catalog.rules.chunks import CompactedMeanwhileError
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.engine.files import sorting
from snapshot_assets.engine.runner import InlineRunner, SparkRunner
from snapshot_assets.errors import (
    CompactionFailedError,
    DatabaseError,
    NoSnapshotError,
    PlanError,
    StoreUnavailableError,
    TaskLostError,
    UnknownRelationError,
)
from snapshot_assets.format.relations import Column, TableName
from snapshot_assets_tests.catalog.execute import collect_garbage
from snapshot_assets_tests.databases.duckdb.test_types import CASES
from snapshot_assets_tests.deleted_rows import deleting
from snapshot_assets_tests.e2e.format_reader import Reader
from snapshot_assets_tests.engine.compact.compactions import (
    Meanwhile,
    add_schema,
    append,
    compact,
    different_rows,
    planned,
    scatter,
)
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.test_tombstones import delete
from snapshot_assets_tests.faults.source import CHUNKS, EMPTY_WINDOW

FILLED = [chunk for chunk in CHUNKS if chunk != EMPTY_WINDOW]


def head(place):
    return read_state(place.store)


def paths(state):
    return {known.file.path for known in state.live_files()}


def faults(place, **options):
    return verify(place.store, **options).faults


def damage(place):
    return [fault.message for fault in faults(place) if fault.is_damage]


def stored(place, table):
    """Return a table's live rows, in the order of their files."""
    found = [known.file for known in head(place).live_files() if known.file.table == table]
    return [row for file in found for row in pq.read_table(place.folder / file.path).to_pylist()]


def orphans(place):
    return [fault.object for fault in faults(place) if fault.kind == "orphan"]


def test_many_files_become_one_of_each_table_with_the_same_rows_sorted_by_time_and_sealed(scattered):
    before = head(scattered).newest_seal
    outcomes = compact(scattered.store)
    assert sorted(outcomes) == FILLED
    state = head(scattered)
    assert len(paths(state)) == len({(known.file.chunk, known.file.table) for known in state.live_files()})
    assert scattered.differences() == {}
    for known in state.live_files():
        rows = pq.read_table(scattered.folder / known.file.path)
        if known.file.table != "places":
            times = rows.column(0).to_pylist()
            assert times == sorted(times, key=lambda time: (time is None, time or 0))
    assert {known.file.table for known in state.live_files(0)} == {"places", "readings", "events"}
    assert all(known.file.columns and known.file.row_groups for known in state.live_files())
    assert state.sealed
    assert state.newest_seal.revision == max(outcome.revision for outcome in outcomes.values())
    assert state.newest_seal.seal.rows_outside == before.seal.rows_outside
    assert state.newest_seal.seal.consistency == before.seal.consistency
    assert faults(scattered) == []
    assert scattered.manifest() == manifest_of(state)
    assert Reader(scattered.folder).faults == []


def test_an_unsealed_head_stays_unsealed(place):
    place.export(seal=False)
    scatter(place.store, sealed=False)
    compact(place.store)
    assert head(place).newest_seal is None
    assert faults(place) == []
    assert place.differences() == {}
    assert Reader(place.folder).faults == []


def test_an_older_version_is_read_from_its_own_files_which_garbage_collection_spares(scattered):
    before = head(scattered)
    compact(scattered.store)
    catalog = Catalog.open_for_writing(scattered.store)
    gone = {each.path for each in collect_garbage(catalog, grace=timedelta(0), unsafe=True).deleted}
    older = read_state(scattered.store, through=before.revision)
    assert paths(older) == paths(before)
    assert gone.isdisjoint(paths(before) | paths(head(scattered)))
    assert paths(before) - paths(head(scattered))
    assert manifest_of(older) == manifest_of(before)
    assert not [fault for fault in faults(scattered, at=lambda _: before.revision) if fault.is_damage]
    for table in ("readings", "events", "places"):
        assert different_rows(scattered.folder, before, head(scattered), table) == []


def test_only_files_below_half_the_target_size_are_merged_and_the_others_stay(scattered):
    scatter(scattered.store, parts=5)
    sizes = [known.file.bytes for known in head(scattered).live_files(1) if known.file.table == "readings"]
    compacted = compact(scattered.store, chunks=(), target_size=2 * max(sizes))[1]  # the largest file is not small
    [group] = [group for group in compacted.planned.groups if group.table.name == "readings"]
    assert len(group.kept) == sizes.count(max(sizes))
    assert len(group.files) == len(sizes) - len(group.kept) > 1
    assert group.kept < paths(head(scattered))
    assert faults(scattered) == []
    assert scattered.differences() == {}
    assert Reader(scattered.folder).faults == []


def test_files_are_closed_at_the_target_size(scattered):
    before = len(paths(head(scattered)))
    compact(scattered.store, chunks=(1, 2, 3, 5, 6, 0), target_size=1)
    assert len(paths(head(scattered))) <= before
    assert scattered.differences() == {}
    assert faults(scattered) == []


def test_a_plan_says_what_would_be_done_and_changes_nothing(scattered):
    before = {info.path: info.modified for info in scattered.store.list()}
    plan = planned(scattered.store)
    assert {info.path: info.modified for info in scattered.store.list()} == before
    assert {group.reasons for group in plan.groups} == {("small files",)}
    tables = Counter((known.file.chunk, known.file.table) for known in head(scattered).live_files())
    assert plan.files_before == sum(count for count in tables.values() if count > 1)
    assert plan.bytes_before == sum(file.bytes for group in plan.groups for file in group.files)
    assert plan.files_after == len(plan.groups)
    outcomes = compact(scattered.store)
    assert sum(len(each.files) for each in outcomes.values()) == plan.files_after
    assert sum(each.planned.files for each in outcomes.values()) == plan.files_before


def test_what_is_named_is_compacted_whole_and_nothing_else(scattered):
    before = paths(head(scattered))
    compact(scattered.store, chunks=(2,), tables=(TableName("main", "readings"),))
    gone = before - paths(head(scattered))
    assert {path.split("-")[0] for path in gone} == {"data/2/main.readings"}
    compact(scattered.store, tables=(TableName("main", "places"),))
    assert {path.split("-")[0] for path in before - gone - paths(head(scattered))} == {"data/0/main.places"}
    assert faults(scattered) == []
    assert scattered.differences() == {}
    assert Reader(scattered.folder).faults == []


def test_what_cannot_be_compacted_is_named(scattered, tmp_path):
    with pytest.raises(NoSnapshotError):
        planned(Place(scattered.source, tmp_path / "nothing").store)
    with pytest.raises(UnknownRelationError, match=r"no table main\.nothing"):
        planned(scattered.store, tables=(TableName("main", "nothing"),))
    with pytest.raises(PlanError, match="has no chunk 9; the last one is 6"):
        compact(scattered.store, chunks=(9,))
    with pytest.raises(PlanError, match=r"main\.readings has no primary key"):
        compact(scattered.store, tables=(TableName("main", "readings"),), dedupe="primary_key")
    assert compact(scattered.store, chunks=(EMPTY_WINDOW,)) == {}


def test_receipts_say_what_was_compacted_and_older_ones_stay_while_they_tell_more(scattered):
    merged = Counter(known.file.chunk for known in head(scattered).live_files() if known.file.table == "readings")
    compact(scattered.store, tables=(TableName("main", "readings"),))
    for known in head(scattered).chunks.values():
        receipts = [json.loads(scattered.store.get(ref.path)) for ref in known.chunk.receipts]
        if known.chunk.id == EMPTY_WINDOW:
            assert [receipt["compaction"] for receipt in receipts] == [None]
            continue
        newest = receipts[-1]
        table = {"schema": "main", "table": "readings", "rows_deleted": 0, "rows_duplicate": 0}
        assert newest["compaction"] == {"dedupe": "", "tables": [table]}
        assert {file["table"] for file in newest["files"]} == {"readings"}
        assert len(newest["supersedes"]) == merged[known.chunk.id]
        assert [bool(receipt["compaction"]) for receipt in receipts] == [False, True]
    compact(scattered.store)
    compact(scattered.store, chunks=tuple(FILLED))
    for chunk in FILLED:  # a later compaction replaces an earlier receipt; the export's stays
        refs = head(scattered).chunks[chunk].chunk.receipts
        assert [bool(json.loads(scattered.store.get(ref.path))["compaction"]) for ref in refs] == [False, True]


# Rows of every kind


def test_columns_of_every_type_are_the_same_afterwards(tmp_path, monkeypatch):
    """Nested ones among them; the rows go over the disk to be sorted."""
    monkeypatch.setattr(sorting, "PIECE_BYTES", 100)
    monkeypatch.setattr(sorting, "FAN_IN", 4)
    monkeypatch.setattr(sorting.sorted_batches, "__kwdefaults__", {"run_bytes": 200})
    place = Place(f"duckdb://{tmp_path}/types.duckdb", tmp_path / "location")
    kinds = list(CASES)
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(kinds))
    place.sql(f"CREATE TABLE t (moment TIMESTAMPTZ, {columns}); CREATE TABLE u ({columns})")
    for row in range(max(len(CASES[kind][2]) for kind in kinds)):
        values = ", ".join([(CASES[kind][2] + ["NULL"] * 9)[row] for kind in kinds])
        place.sql(f"INSERT INTO t VALUES ('2025-01-02 00:00:{row:02}Z', {values}); INSERT INTO u VALUES ({values})")
    place.sql("INSERT INTO t (moment) VALUES (NULL), (NULL), ('2025-01-01 12:00:00Z')")
    place.export(time_columns={"main.t": "moment", "main.u": None})
    scatter(place.store)
    before = head(place)
    outcomes = compact(place.store, chunks=tuple(before.files.chunks()))
    assert set(outcomes) == {0, 1, 2}
    assert faults(place) == []
    for table in ("t", "u"):
        assert different_rows(place.folder, before, head(place), table) == []


def test_files_of_several_schemas_become_files_of_the_newest(exported):
    def changed(schema):
        def altered(table):
            if table.name != "readings":
                return table
            wider = [column for column in table.columns if column.name != "sensor"]
            return table.model_copy(update={"columns": (*wider, Column(name="new", type="INT", arrow_type="int32"))})

        return schema.model_copy(update={"tables": tuple(map(altered, schema.tables))})

    add_schema(exported.store, changed)
    scatter(exported.store, table="readings", schema_ids=(1, 2))
    before = stored(exported, "readings")
    assert {known.file.schema_id for known in head(exported).live_files()} == {1, 2}
    compact(exported.store)
    assert {known.file.schema_id for known in head(exported).live_files() if known.file.table == "readings"} == {2}
    after = stored(exported, "readings")
    assert {tuple(row) for row in after} == {("t", "value", "new")}
    assert sorted(str((row["t"], row["value"])) for row in after) == sorted(
        str((row["t"], row["value"])) for row in before
    )
    assert {row["new"] for row in after} == {None}
    assert faults(exported) == []
    assert Reader(exported.folder).faults == []


# Rows that go


def test_of_rows_with_one_primary_key_that_of_the_file_added_last_stays_and_only_when_asked(place):
    place.sql("CREATE TABLE items (id INTEGER PRIMARY KEY, moment TIMESTAMPTZ, version INTEGER)")
    place.sql("INSERT INTO items SELECT i, TIMESTAMPTZ '2025-01-01 00:00:00Z' + to_hours(i), 0 FROM range(20) r(i)")
    place.export()
    [file] = [known.file for known in head(place).live_files() if known.file.table == "items"]
    rows = pq.read_table(place.folder / file.path).replace_schema_metadata(None)
    for version, ids in enumerate((15, 10, 10), start=1):  # the first rows, each time of another version
        values = [rows["id"][:ids], rows["moment"][:ids], pa.array([version] * ids, pa.int32())]
        append(place.store, 1, TableName("main", "items"), pa.table(values, schema=rows.schema))
    append(place.store, 1, TableName("main", "items"), pa.table([[None], [None], [9]], schema=rows.schema))
    append(place.store, 1, TableName("main", "items"), pa.table([[None], [None], [9]], schema=rows.schema))
    compact(place.store, chunks=(1,), tables=(TableName("main", "readings"),))
    outcomes = compact(place.store, dedupe="primary_key")
    assert outcomes[1].rows_duplicate == 15 + 10 + 10
    assert sorted((row["id"] or -1, row["version"]) for row in stored(place, "items") if row["id"] != 0) == sorted(
        [(-1, 9)] * 2
        + [(key, 3) for key in range(1, 10)]
        + [(key, 1) for key in range(10, 15)]
        + [(key, 0) for key in range(15, 20)]
    )
    assert [row["version"] for row in stored(place, "items") if row["id"] == 0] == [3]
    receipts = [json.loads(place.store.get(ref.path)) for ref in head(place).chunks[1].chunk.receipts]
    newest = receipts[-1]["compaction"]
    assert newest["dedupe"] == "primary_key"
    assert {"schema": "main", "table": "items", "rows_deleted": 0, "rows_duplicate": 35} in newest["tables"]
    assert damage(place) == []
    assert compact(place.store, dedupe="primary_key") == {}


def test_duplicates_stay_unless_asked(place):
    place.sql("CREATE TABLE items (id INTEGER PRIMARY KEY, moment TIMESTAMPTZ)")
    place.sql("INSERT INTO items VALUES (1, '2025-01-01 00:00:00Z')")
    place.export()
    [file] = [known.file for known in head(place).live_files() if known.file.table == "items"]
    rows = pq.read_table(place.folder / file.path).replace_schema_metadata(None)
    append(place.store, 1, TableName("main", "items"), rows)
    compact(place.store)
    assert len(stored(place, "items")) == 2
    assert {known.file.table for known in head(place).live_files(1)} == {"items", "readings", "events"}


def test_a_table_of_which_all_rows_of_a_chunk_were_deleted_has_no_file_there(exported):
    delete(exported, "not (value is null) or value is null")
    compact(exported.store)
    assert stored(exported, "readings") == []
    assert stored(exported, "events")
    assert damage(exported) == []
    assert exported.manifest()["chunks"]


def test_a_tombstone_that_came_meanwhile_still_filters_the_output(scattered):
    buried = []
    compact(scattered.store, Meanwhile(lambda: buried or buried.append(delete(scattered, "sensor = 's1'"))))
    state = head(scattered)
    readings = [known.file for known in state.live_files() if known.file.table == "readings"]
    assert all(deleting(state, file) for file in readings)
    assert any(row["sensor"] == "s1" for row in stored(scattered, "readings"))
    compact(scattered.store)
    assert not any(row["sensor"] == "s1" for row in stored(scattered, "readings"))
    assert damage(scattered) == []


# Failures and races


def test_damage_fails_its_chunk_and_is_not_written_anew(scattered):
    victim = next(known.file for known in head(scattered).live_files(2))
    data = bytearray(scattered.store.get(victim.path))
    data[len(data) // 2] ^= 1
    scattered.store.put(victim.path, bytes(data))
    message = r"1 of 6 chunks was not compacted: chunk 2: .*SHA-256.* The other chunks are compacted\. Correct what"
    with pytest.raises(CompactionFailedError, match=message) as raised:
        compact(scattered.store)
    assert list(raised.value.attributes["chunks"]) == [2]
    state = head(scattered)
    assert victim.path in paths(state)
    assert len(list(state.live_files(1))) == 2
    assert [fault.object for fault in faults(scattered) if fault.is_damage] == [victim.path]


def test_a_large_row_is_sorted_after_a_batch_whose_rows_are_all_deleted():
    batch = pa.record_batch({"moment": pa.array([1], pa.timestamp("us")), "text": ["x" * 2000]})
    assert list(sorting.sorted_batches([batch.slice(1), batch], "moment", run_bytes=1000)) == [batch]


def test_a_row_that_is_lost_on_the_way_is_never_committed(scattered, monkeypatch):
    def lossy(batches, column, **_):
        for batch in batches:
            yield batch.slice(1)

    before = paths(head(scattered))
    monkeypatch.setattr("snapshot_assets.engine.compact.run.sorted_batches", lossy)
    with pytest.raises(CompactionFailedError, match=r"wrote .* of .* rows; nothing of it was committed"):
        compact(scattered.store, tables=(TableName("main", "readings"),))
    assert paths(head(scattered)) == before


class Failing(InlineRunner):
    """A runner whose first calls are lost."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.inner = Meanwhile(lambda: None)

    def map(self, function, items):
        if self.errors:
            raise self.errors.pop(0)
        return self.inner.map(function, items)


def test_lost_tasks_are_run_again_and_others_are_not(scattered):
    assert len(compact(scattered.store, Failing(*[TaskLostError("An executor died.")] * 2))) == len(FILLED)
    scatter(scattered.store)
    with pytest.raises(CompactionFailedError, match="6 of 6 chunks"):
        compact(scattered.store, Failing(DatabaseError("No.")))
    assert len(compact(scattered.store)) == len(FILLED)


def test_a_missing_result_is_not_taken_for_no_rows(scattered):
    class Forgetful(Meanwhile):
        def map(self, function, items):
            return super().map(function, items)[1:]

    before = paths(head(scattered))
    with pytest.raises(CompactionFailedError, match=r"chunk 1: .* gave 1 results"):
        compact(scattered.store, Forgetful(lambda: None), chunks=(1,))
    assert paths(head(scattered)) == before


def test_a_compaction_of_a_chunk_that_is_replaced_meanwhile_gives_it_up_and_goes_on(scattered):
    done = []
    replace = Meanwhile(lambda: done or done.append(scattered.export(chunks=[2], replace=True)))
    with pytest.raises(CompactionFailedError, match="chunk 2: Chunk 2 was changed by another writer") as raised:
        compact(scattered.store, replace)
    assert list(raised.value.attributes["chunks"]) == [2]
    assert head(scattered).chunks[2].chunk.run == "run"
    assert damage(scattered) == []
    assert {path.split("/")[1] for path in orphans(scattered)} == {"2"}
    assert scattered.differences() == {}
    assert len(list(head(scattered).live_files(3))) == 2


def test_a_replace_of_a_chunk_that_is_compacted_meanwhile_replaces_what_was_compacted(scattered):
    with scattered.run().open() as export:
        compact(scattered.store)
        merged = {file for file in paths(head(scattered)) if file.startswith("data/2/")}
        assert [outcome.status for outcome in export.export([2], replace_completed=True)] == ["replaced"]
        export.seal()
    assert merged.isdisjoint(paths(head(scattered)))
    newest = head(scattered).chunks[2].chunk
    superseded = {path.rsplit("-", 2)[1] for path in merged}
    assert set(read_receipt(scattered.store, newest.receipts[-1].path)[0].supersedes) == superseded
    assert damage(scattered) == []
    assert scattered.differences() == {}


def test_a_transient_error_after_a_compaction_meanwhile_fails_one_attempt_at_the_chunk(scattered, monkeypatch):
    refresh, init, compacted = Catalog.refresh, CompactedMeanwhileError.__init__, []

    def note(self, *arguments, **attributes):
        compacted.append(True)
        init(self, *arguments, **attributes)

    def refresh_or_fail(self):
        if compacted == [True]:
            compacted.append(False)
            raise StoreUnavailableError("The store is busy.")
        return refresh(self)

    monkeypatch.setattr(CompactedMeanwhileError, "__init__", note)
    monkeypatch.setattr(Catalog, "refresh", refresh_or_fail)
    done = []
    runner = Meanwhile(lambda: done or done.append(compact(scattered.store)))
    with scattered.run(runner).open() as export:
        assert [outcome.status for outcome in export.export([2], replace_completed=True)] == ["replaced"]
        export.seal()
    assert compacted[:2] == [True, False]
    assert damage(scattered) == []
    assert scattered.differences() == {}


def test_of_two_compactions_of_a_chunk_one_gives_it_up(scattered):
    done = []
    other = Meanwhile(lambda: done or done.append(compact(scattered.store)))
    with pytest.raises(CompactionFailedError) as raised:
        compact(scattered.store, other)
    assert sorted(raised.value.attributes["chunks"]) == sorted(done[0]) == FILLED
    assert damage(scattered) == []
    assert scattered.differences() == {}
    assert head(scattered).sealed


def test_two_compactions_of_different_tables_of_a_chunk_both_succeed(scattered):
    done = []
    other = Meanwhile(lambda: done or done.append(compact(scattered.store, tables=(TableName("main", "readings"),))))
    compact(scattered.store, other, tables=(TableName("main", "events"), TableName("main", "places")))
    assert compact(scattered.store) == {}
    assert faults(scattered) == []
    assert scattered.differences() == {}
    assert Reader(scattered.folder).faults == []


@pytest.mark.slow
def test_several_jobs_at_once_in_spark(scattered, spark):
    assert len(compact(scattered.store, SparkRunner(lambda: spark), parallelism=3)) == len(FILLED)
    assert faults(scattered) == []
    assert scattered.differences() == {}
