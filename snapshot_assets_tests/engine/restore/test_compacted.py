"""A second restore after a compaction: rows that only lie in other files are not loaded again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.databases.open import open_target
from snapshot_assets.databases.protocol.target import LoadedFile
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import OtherImportError, RestoreError
from snapshot_assets.format.relations import DatabaseSchema
from snapshot_assets_tests.engine.compact.compactions import add_schema, compact, scatter
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import IN_RANGE, Into, Restored
from snapshot_assets_tests.engine.test_tombstones import READINGS
from snapshot_assets_tests.faults.source import add_rows


def head(place: Place) -> int:
    """Return the newest sealed revision."""
    return read_state(place.store).newest_seal.revision


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
    return done.finished and not done.calls and not any(each.changed for each in done.outcomes.values())


@pytest.mark.slow
def test_compacted_chunks_are_not_loaded_again_and_the_ledger_knows_their_new_files(
    scattered: Place, duck: Into
) -> None:
    duck.restore(scattered.store)
    before = known(duck, scattered)
    compact(scattered.store)
    assert before != live(scattered)
    assert not duck.restore(scattered.store, [1]).finished
    assert nothing_was_loaded(duck.restore(scattered.store))
    assert known(duck, scattered) == live(scattered)
    importers = {file.import_id for file in ledger(duck, scattered) if file.path not in before}
    assert importers == {duck.imports()[-1].id}
    assert duck.differences(scattered.source, IN_RANGE) == {}
    assert nothing_was_loaded(duck.restore(scattered.store))
    add_rows(scattered.source)
    scattered.export(chunks=[2], replace=True)
    assert duck.restore(scattered.store, replace=True).outcomes[2].status == "replaced"
    assert duck.differences(scattered.source, IN_RANGE) == {}


def test_several_compactions_are_followed_to_newer_versions_only(imported: Place, duck: Into) -> None:
    before = head(imported)
    compact(imported.store, tables=(READINGS,))
    write_checkpoint(imported.store, read_state(imported.store))
    compact(imported.store)
    compact(imported.store, chunks=(1, 2))
    assert nothing_was_loaded(duck.restore(imported.store, replace=True))
    assert known(duck, imported) == live(imported)
    assert duck.differences(imported.source, IN_RANGE) == {}
    with pytest.raises(RestoreError, match="Chunk 0 was loaded from other files"):
        duck.restore(imported.store, version=f"rev:{before}")


@pytest.mark.parametrize("doubtful", ["history", "schema"])
@pytest.mark.slow
def test_rows_count_as_changed_without_proof(imported: Place, duck: Into, doubtful: str) -> None:
    if doubtful == "history":  # a checkpoint drops the transactions of chunks that no sealed state has
        scatter(imported.store, sealed=False)
    if doubtful == "schema":
        add_schema(imported.store, _commented)
    compact(imported.store)
    seal(Catalog.open_for_writing(imported.store))
    write_checkpoint(imported.store, read_state(imported.store))
    with pytest.raises(RestoreError, match="loaded from other files"):
        duck.restore(imported.store)
    assert duck.restore(imported.store, replace=True).finished
    assert duck.differences(imported.source, IN_RANGE) == {}


def _commented(schema: DatabaseSchema) -> DatabaseSchema:
    first, *others = schema.tables
    column = first.columns[0].model_copy(update={"comment": "changed"})
    changed = first.model_copy(update={"columns": (column, *first.columns[1:])})
    return schema.model_copy(update={"tables": (changed, *others)})


def test_rows_of_a_time_range_in_a_compacted_file_count_as_changed(scattered: Place, duck: Into) -> None:
    """The ledger does not record how many of a new file's rows lie in the range."""
    filters = Filters(start=datetime(2025, 1, 2, 12, tzinfo=UTC), end=datetime(2025, 1, 7, tzinfo=UTC))
    duck.restore(scattered.store, filters=filters)
    compact(scattered.store)
    with pytest.raises(RestoreError, match=r"Chunk 2 was loaded from other files of main\.readings"):
        duck.restore(scattered.store, filters=filters)
    done = duck.restore(scattered.store, filters=filters, replace=True)
    assert {chunk for chunk, each in done.outcomes.items() if each.status == "replaced"} == {2}
    assert done.finished


@pytest.mark.slow
def test_the_ledger_is_renewed_at_once_and_only_by_the_newest_restore(scattered: Place, into: Into) -> None:
    first = into.restore(scattered.store).plan
    compact(scattered.store)
    run = into.run(scattered.store)
    prepared = run.begin()
    [*renewals] = [load.renewal for load in prepared.loads if load.renewal]
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
