"""Tombstones in the log: what they delete, what seals them, and what races with them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.operations.delete import execute_row_deletion, plan_row_deletion
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.state.file_pruning import pending_tombstones
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import ConflictError, DocumentError, PlanError, UnknownRelationError
from snapshot_assets.format.actions import ColumnStatistics, RowsOutside, Tombstone
from snapshot_assets.format.codec import to_micros
from snapshot_assets.format.documents import canonical_json, sha256_hex
from snapshot_assets.format.predicates import Comparison, IsNull, Literal, Operator
from snapshot_assets.format.relations import Carrier, Column, TableName
from snapshot_assets_tests.catalog.conftest import DAY, HEADER, SCHEMA, START, Writer
from snapshot_assets_tests.catalog.execute import delete_rows
from snapshot_assets_tests.deleted_rows import deleting

M = TableName("main", "m")
OLD = "t < '2025-01-02T00:00:00Z'"


def timed(writer: Writer, chunk: int, *days: float):
    """Write a file with the statistics of a time column."""
    low, high = (to_micros(START + day * DAY) for day in (min(days), max(days)))
    return replace(writer.file(chunk), columns=(ColumnStatistics("t", 0, low, high),))


@pytest.fixture
def sealed(writer: Writer) -> Writer:
    """Chunk 1 holds the first day, chunk 3 the third."""
    writer.complete(1, timed(writer, 1, 0, 0.9))
    writer.complete(2)
    writer.complete(3, timed(writer, 3, 2, 2.9))
    seal(writer.catalog, rows_outside=[RowsOutside("main", "m", 7)])
    return writer


def test_a_plan_names_the_files_and_commits_nothing(sealed: Writer) -> None:
    before = sealed.catalog.state.revision
    reader = Catalog.open(sealed.store)
    found = plan_row_deletion(reader, M, "t < '2025-01-03T12:00:00Z'")
    assert (found.files, found.rows, found.whole_files, found.whole_rows, found.revision) == (2, 4, 1, 2, None)
    assert [(match.file.chunk, match.certain) for match in found.matches] == [(1, True), (3, False)]
    assert read_state(sealed.store).revision == before


@pytest.mark.parametrize("when", ["before", "during"])
def test_rows_of_files_that_were_not_planned_are_not_deleted(
    sealed: Writer, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    plan = plan_row_deletion(sealed.catalog, M, OLD)
    other = Writer(sealed.store)

    def late() -> None:
        other.complete(2, timed(other, 2, 0.5), replaces=())

    if when == "before":
        late()
    else:
        commit = sealed.catalog.commit
        monkeypatch.setattr(sealed.catalog, "commit", lambda prepare: (late(), commit(prepare))[1])
    with pytest.raises(ConflictError, match=r"data/2/.* which may hold such rows of main\.m, was committed after"):
        execute_row_deletion(sealed.catalog, plan)
    assert not read_state(sealed.store).tombstones
    monkeypatch.undo()
    again = plan_row_deletion(sealed.catalog, M, OLD)
    assert (plan.files, again.files) == (1, 2)
    assert execute_row_deletion(sealed.catalog, again).revision


def test_where_no_file_may_hold_such_a_row_nothing_is_committed(sealed: Writer) -> None:
    before = sealed.catalog.state.revision
    assert delete_rows(sealed.catalog, M, "t is null").revision is None
    assert read_state(sealed.store).revision == before


def test_an_equal_deletion_is_committed_once_until_there_are_files_that_it_does_not_filter(sealed: Writer) -> None:
    first = delete_rows(sealed.catalog, M, OLD).revision
    assert delete_rows(Catalog.open_for_writing(sealed.store), M, OLD).revision is None
    [old] = sealed.catalog.refresh().live_files(1)
    sealed.complete(1, timed(sealed, 1, 0, 0.9), replaces=(old.file.path,))
    again = delete_rows(sealed.catalog, M, OLD).revision
    assert (first, again) == (6, 8)
    assert [*deleting(sealed.catalog.state, next(sealed.catalog.state.live_files(1)).file)] == [again]
    assert not verify(sealed.store).damaged


def test_on_a_sealed_base_a_tombstone_seals_itself_and_is_what_the_manifest_shows(sealed: Writer) -> None:
    before = sealed.catalog.state
    base, newest = before.revision, before.newest_seal
    assert newest is not None
    found = delete_rows(sealed.catalog, M, OLD)
    assert found.revision == base + 1
    state = read_state(sealed.store)
    assert (state.sealed, state.newest_seal.revision) == (True, base + 1)
    assert state.newest_seal.seal.verified_revision == base
    assert state.newest_seal.seal.rows_outside == newest.seal.rows_outside
    entry = {
        "revision": base + 1,
        "schema": "main",
        "table": "m",
        "predicate": {
            "column": "t",
            "operator": "<",
            "type": "timestamp[us, tz=UTC]",
            "value": 1_735_776_000_000_000,
        },
    }
    manifest = json.loads(sealed.store.get("manifest.json"))
    assert (manifest["revision"], manifest["tombstones"]) == (base + 1, [entry])
    assert (manifest["rows"], manifest["rows_visible"]) == (4, None)
    header = {
        key: manifest[key]
        for key in ("catalog", "schemas", "time_range", "chunk_time_window", "empty_windows", "format", "schema_only")
    }
    lines = [
        *(f"{file['sha256']}  {file['path']}\n" for file in manifest["schema_files"]),
        *(f"{chunk['checksum']}  data/{chunk['id']}\n" for chunk in manifest["chunks"]),
        f"{sha256_hex(canonical_json(entry))}  tombstone/{base + 1}\n",
        f"{sha256_hex(canonical_json(header))}  header\n",
    ]
    assert manifest["checksum"] == sha256_hex("".join(lines).encode())
    assert not verify(sealed.store).faults


def test_on_an_unsealed_base_a_tombstone_is_sealed_later(writer: Writer) -> None:
    writer.complete(1, timed(writer, 1, 0, 0.9))
    deleted = delete_rows(writer.catalog, M, OLD)
    assert not writer.catalog.state.sealed
    writer.complete(2)
    writer.complete(3)
    newest = seal(writer.catalog).seal
    assert list(pending_tombstones(writer.catalog.state)) == [deleted.revision]
    assert manifest_of(writer.catalog.state)["checksum"] == newest.seal.checksum
    assert not verify(writer.store).faults


def test_a_checkpoint_keeps_tombstones_and_the_states_before_and_after_them(sealed: Writer) -> None:
    base = sealed.catalog.state.revision
    first = delete_rows(sealed.catalog, M, OLD).revision
    second = delete_rows(sealed.catalog, M, "not t < '2025-01-03T12:00:00Z'").revision
    wanted = {number: manifest_of(read_state(sealed.store, through=number)) for number in (base, first, second)}
    assert [len(each["tombstones"]) for each in wanted.values()] == [0, 1, 2]
    write_checkpoint(sealed.store, sealed.catalog.state)
    state = read_state(sealed.store)
    assert state.checkpointed == second
    assert {number: manifest_of(state.at(number)) for number in wanted} == wanted
    assert not verify(sealed.store).faults
    third = delete_rows(Catalog.open_for_writing(sealed.store), M, "t is not null")
    assert (third.files, third.whole_files) == (2, 2)
    assert list(pending_tombstones(read_state(sealed.store))) == [first, second, third.revision]
    assert not verify(sealed.store).faults


def test_rows_exported_again_are_not_deleted_and_nothing_is_pending_then(sealed: Writer) -> None:
    delete_rows(sealed.catalog, M, OLD)
    [old] = sealed.catalog.state.live_files(1)
    assert [*deleting(sealed.catalog.state, old.file)] == [6]
    sealed.complete(1, timed(sealed, 1, 0, 0.9), replaces=(old.file.path,))
    [new] = sealed.catalog.state.live_files(1)
    assert not deleting(sealed.catalog.state, new.file)
    [other] = sealed.catalog.state.live_files(3)
    sealed.complete(3, timed(sealed, 3, 2, 2.9), replaces=(other.file.path,))
    seal(sealed.catalog)
    manifest = manifest_of(sealed.catalog.state)
    assert (manifest["tombstones"], manifest["rows_visible"]) == ([], 4)
    assert not verify(sealed.store).faults


def test_what_was_read_before_a_tombstone_and_committed_after_it_is_filtered(sealed: Writer) -> None:
    """FORMAT.md, section 6: files carry `tombstones_through`, of an export its base revision."""
    [old] = sealed.catalog.state.live_files(1)
    token, file = sealed.catalog.token(), timed(sealed, 1, 0, 0.5)
    finished = sealed.finished(1, file, replaces=(old.file.path,))
    deleted = delete_rows(Catalog.open_for_writing(sealed.store), M, OLD)
    assert sealed.catalog.commit(rules.complete_chunks(token, [finished], sealed.catalog.now)) == deleted.revision + 1
    assert list(deleting(sealed.catalog.state, file)) == [deleted.revision]


def test_a_seal_does_not_pass_over_a_tombstone_that_came_between(sealed: Writer) -> None:
    token, prepared = sealed.catalog.token(), sealed.catalog.state.newest_seal.seal
    delete_rows(Catalog.open_for_writing(sealed.store), M, OLD)
    with pytest.raises(rules.StaleVerificationError):
        sealed.catalog.commit(rules.seal(token, replace(prepared, verified_revision=token.revision, rows_outside=())))


def test_a_forced_begin_leaves_no_tombstone(sealed: Writer) -> None:
    delete_rows(sealed.catalog, M, OLD)
    sealed.begin(replace(HEADER, name="other"), force=True)
    assert not read_state(sealed.store).tombstones
    assert read_state(sealed.store).at(6).tombstones


def test_predicates_that_do_not_fit_the_table_are_refused(sealed: Writer) -> None:
    with pytest.raises(UnknownRelationError, match=r"no table main\.n; it has main\.m"):
        delete_rows(sealed.catalog, TableName("main", "n"), "t is null")
    with pytest.raises(PlanError, match="no column 'x'"):
        delete_rows(sealed.catalog, M, "x is null")
    with pytest.raises(PlanError, match=r"timestamp\[us, tz=UTC\], and the predicate compares it with int64"):
        delete_rows(sealed.catalog, M, Comparison("t", Operator.LESS, Literal("int64", 3)))
    with pytest.raises(PlanError, match="is not a value of type int8"):
        delete_rows(sealed.catalog, M, Comparison("t", Operator.LESS, Literal("int8", 300)))


def test_texts_that_stand_for_other_values_are_not_ordered(store) -> None:
    [table] = SCHEMA.tables
    column = Column(name="n", type="numeric", arrow_type="string", carrier=Carrier.TEXT)
    wider = table.model_copy(update={"columns": (*table.columns, column)})
    writer = Writer(store)
    writer.begin(schema=SCHEMA.model_copy(update={"tables": (wider,)}))
    writer.complete(1, writer.file(1))
    with pytest.raises(PlanError, match="n is numeric, whose values are stored as text"):
        delete_rows(writer.catalog, M, "n < '5'")
    assert delete_rows(writer.catalog, M, "n = '5'").files == 1


def test_two_tombstones_in_one_transaction_are_damage(sealed: Writer) -> None:
    wanted = Tombstone("main", "m", IsNull("t"))
    with pytest.raises(DocumentError, match="several tombstones"):
        sealed.catalog.commit(lambda _: [wanted, wanted])
