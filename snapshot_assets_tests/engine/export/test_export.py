"""What an export run commits, whatever its tasks, its plan and its source do."""

import logging
import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.engine import jobs as engine_jobs
from snapshot_assets.engine.export import chunks as engine_export
from snapshot_assets.engine.retry import RetryPolicy
from snapshot_assets.errors import (
    DatabaseDeniedError,
    DatabaseUnavailableError,
    ExportFailedError,
    IncompleteError,
    PlanError,
    SnapshotExistsError,
    TaskLostError,
)
from snapshot_assets_tests.catalog.execute import collect_garbage
from snapshot_assets_tests.catalog.tags import wait_for_clock
from snapshot_assets_tests.engine.exports import FailingRunner
from snapshot_assets_tests.faults.source import CHUNKS, EMPTY_WINDOW, OUTSIDE, PLAN, add_rows

GONE = DatabaseUnavailableError("The database went away: postgresql://user:hunter2@host/db.")
DENIED = DatabaseDeniedError("Denied for postgresql://user:hunter2@host/db.")


def damage(place):
    return [fault.message for fault in verify(place.store).faults if fault.is_damage]


def statuses(outcomes):
    return {chunk: outcome.status for chunk, outcome in outcomes.items()}


def test_every_row_is_exported_once_and_the_empty_window_is_completed(place):
    outcomes = place.export()
    assert statuses(outcomes) == dict.fromkeys(CHUNKS, "exported")
    assert outcomes[EMPTY_WINDOW].files == ()
    assert place.manifest()["empty_windows"] == [{"start": "2025-01-04T00:00:00Z", "end": "2025-01-05T00:00:00Z"}]
    assert place.differences() == {}
    assert damage(place) == []


def test_transient_errors_are_retried_alone_and_logged_without_secrets(place, caplog):
    runner = FailingRunner(errors={2: [GONE, GONE], 5: [GONE]})
    with caplog.at_level(logging.WARNING):
        assert statuses(place.export(runner)) == dict.fromkeys(CHUNKS, "exported")
    assert "Chunk 2 failed and is tried again" in caplog.text
    assert "hunter2" not in caplog.text
    assert runner.attempts == [list(CHUNKS), [2, 5], [2]]
    assert place.differences() == {}


def test_lost_tasks_are_retried(place):
    runner = FailingRunner(lost=[TaskLostError("An executor died."), TaskLostError("An executor died.")])
    assert statuses(place.export(runner)) == dict.fromkeys(CHUNKS, "exported")
    assert runner.attempts == [list(CHUNKS)] * 3


def test_a_transient_error_that_stays_fails_its_chunk_after_all_tries(place):
    runner = FailingRunner(errors={3: [GONE] * 9})
    with pytest.raises(ExportFailedError, match=r"chunk 3 .2025-01-03T00:00.: The database went away"):
        place.export(runner)
    assert runner.attempts == [list(CHUNKS), *[[3]] * (RetryPolicy().tries - 1)]


def test_the_waits_between_tries_are_those_of_the_policy(place, monkeypatch):
    waited = []

    class Fixed(RetryPolicy):
        def waits(self):
            return iter([3.0, 5.0, 7.0])

    class Event(threading.Event):
        def wait(self, timeout=None):
            waited.append(timeout)
            return False

    monkeypatch.setattr(engine_jobs, "threading", SimpleNamespace(Event=Event))
    place.export(FailingRunner(errors={1: [GONE] * 3}), settings={"retry": Fixed()})
    assert waited == [3.0, 5.0, 7.0]


def test_permanent_errors_are_not_retried_and_stop_no_other_chunk(place):
    runner = FailingRunner(errors={2: [DENIED], 4: [DENIED]})
    with pytest.raises(ExportFailedError) as raised:
        place.export(runner)
    assert runner.attempts == [list(CHUNKS)]
    assert sorted(raised.value.attributes["chunks"]) == [2, 4]
    assert "chunks 2 (2025-01-02T00:00), 4 (2025-01-04T00:00): " in str(raised.value)
    state = read_state(place.store)
    assert state.missing() == [2, 4]


def test_a_failed_chunk_stands_in_the_manifest_without_secrets_and_the_next_run_heals_it(place):
    with pytest.raises(ExportFailedError) as raised:
        place.export(FailingRunner(errors={2: [DENIED]}))
    [chunk] = [chunk for chunk in place.manifest()["chunks"] if chunk["status"] == "Failed"]
    assert chunk["id"] == 2
    assert "Denied for" in chunk["error"]
    assert "hunter2" not in chunk["error"] + str(raised.value)
    with pytest.raises(IncompleteError, match="Denied for"):
        place.run().seal()
    runner = FailingRunner()
    outcomes = place.export(runner)
    assert runner.attempts == [[2]]
    assert statuses(outcomes) == dict.fromkeys(CHUNKS, "present") | {2: "exported"}
    assert {chunk["status"] for chunk in place.manifest()["chunks"]} == {"Completed"}
    assert place.differences() == {}


def test_a_receipt_that_was_never_committed_is_adopted_however_old_it_is(place, monkeypatch):
    kill_before_the_first_commit(place, monkeypatch)
    _age_receipts(place, timedelta(days=30))
    runner = FailingRunner()
    outcomes = place.export(runner)
    assert statuses(outcomes) == dict.fromkeys(CHUNKS, "adopted")
    assert not any(outcome.hashed for outcome in outcomes.values())  # so no check says that this run hashed their files
    assert runner.attempts == []
    assert place.differences() == {}
    assert damage(place) == []


def kill_before_the_first_commit(place, monkeypatch):
    """Leave receipts that were never committed."""

    def killed(*_):
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(engine_export, "_commit", killed)
        with pytest.raises(SystemExit):
            place.export()


def _age_receipts(place, age):
    old = (datetime.now(UTC) - age).strftime("%Y-%m-%dT%H:%M:%SZ")
    for path in place.folder.glob("data/*/chunk-*.json"):
        lines = path.read_text().splitlines()
        changed = [f'  "opened_at": "{old}",' if '"opened_at"' in line else line for line in lines]
        assert changed != lines
        path.write_text("\n".join(changed) + "\n")


def test_receipts_that_are_collected_while_they_are_looked_at_are_not_adopted_but_exported_anew(place, monkeypatch):
    find = engine_export.find_adoptable
    kill_before_the_first_commit(place, monkeypatch)

    def find_and_let_another_fail(*arguments):
        found = find(*arguments)
        other = Catalog.open_for_writing(place.store)
        other.commit(rules.fail_chunk(other.token(), 2, "no", "other"))
        wait_for_clock(other.store, other.state.committed_at)
        assert collect_garbage(other, grace=timedelta(0), unsafe=True).deleted
        return found

    monkeypatch.setattr(engine_export, "find_adoptable", find_and_let_another_fail)
    runner = FailingRunner()
    assert statuses(place.export(runner)) == dict.fromkeys(CHUNKS, "adopted") | {2: "exported"}
    assert runner.attempts == [[2]]
    assert place.differences() == {}
    assert damage(place) == []


def test_a_receipt_of_another_schema_is_not_adopted(place, monkeypatch):
    kill_before_the_first_commit(place, monkeypatch)
    place.sql("ALTER TABLE places ADD COLUMN country VARCHAR DEFAULT 'CH'")
    assert statuses(place.export()) == dict.fromkeys(CHUNKS, "exported")
    assert place.differences() == {}


def test_replace_swaps_the_files_of_a_chunk_in_one_transaction(place):
    before = place.export()
    add_rows(place.source)
    after = place.export(chunks=[2], replace=True)
    assert statuses(after) == {2: "replaced"}
    assert not {file.path for file in before[2].files} & {file.path for file in after[2].files}
    assert place.differences() == {}
    removing = [entry for entry in _transactions(place) if "RemoveFile" in entry]
    assert removing == [["RemoveFile"] * len(before[2].files) + ["Chunk"] + ["AddFile"] * len(after[2].files)]
    assert damage(place) == []


def _transactions(place):
    return [[type(action).__name__ for action in each.transaction.actions] for each in scan_log(place.store).entries]


def test_a_replace_that_fails_leaves_the_chunk_as_it_was_and_the_snapshot_sealed(place):
    place.export()
    manifest = place.manifest()
    with pytest.raises(ExportFailedError):
        place.export(FailingRunner(errors={2: [DENIED]}), [2], replace=True)
    assert place.manifest() == manifest
    assert read_state(place.store).sealed
    assert [fault.message for fault in verify(place.store).faults if fault.kind != "orphan"] == []


def test_rows_outside_the_range_are_counted_in_the_manifest(place):
    place.export()
    outside = {table["table"]: table["rows_outside"] for table in place.manifest()["tables"]}
    assert outside == OUTSIDE | {"places": 0}


def test_consistency_is_that_of_the_run_only_if_one_run_read_everything(place):
    place.export(chunks=CHUNKS)
    assert place.manifest()["consistency"] == "run"
    place.export(chunks=[2], replace=True, settings={"run_id": "another run"})
    assert place.manifest()["consistency"] == "chunk"


def test_null_time_fail_names_the_table(place):
    with pytest.raises(ExportFailedError, match=r"main\.(readings|events) holds rows whose (t|moment) is NULL"):
        place.export(null_time="fail")
    assert read_state(place.store).missing() == [0]


def test_untimed_tables_are_skipped_or_refused_before_anything_is_written(place):
    with pytest.raises(PlanError, match=r"main\.places"):
        place.export(untimed_tables="fail")
    assert not place.folder.exists()
    place.export(untimed_tables="skip")
    assert {table["table"] for table in place.manifest()["tables"]} == {"readings", "events"}


def test_a_schema_that_changes_between_runs_gets_the_next_id_and_one_that_returns_another(place):
    place.export(chunks=[0, 1, 2], seal=False)
    place.sql("ALTER TABLE events ADD COLUMN who VARCHAR")
    place.export(chunks=[3], seal=False)
    place.sql("ALTER TABLE events DROP COLUMN who")
    place.export(chunks=[4, 5, 6])
    ids = {known.file.chunk: known.file.schema_id for known in read_state(place.store).live_files()}
    assert ids == {0: 1, 1: 1, 2: 1, 3: 2, 5: 3, 6: 3}
    assert damage(place) == []


def test_an_extended_range_is_not_sealed_until_its_windows_are(place):
    """A run that is killed after it moved the end forward leaves no damage."""
    plan = {"kind": "continuous", "end_time": None, "chunk_time_window": "150d", "start_time": PLAN["start_time"]}
    with place.run(**plan).open() as export:
        chunks = export.catalog.state.expected_chunks()
    place.export(chunks=chunks, **plan)
    catalog = Catalog.open_for_writing(place.store)
    assert catalog.state.sealed
    catalog.commit(rules.extend(catalog.token(), catalog.state.header.end + timedelta(days=150)))
    assert not read_state(place.store).sealed
    assert damage(place) == []
    with pytest.raises(IncompleteError):
        seal(catalog)


def test_another_plan_is_refused_before_anything_is_written(place):
    place.export()
    before = sorted(path for path in place.folder.rglob("*"))
    with pytest.raises(SnapshotExistsError, match="chunk_time_window is 1d there and 12h here"):
        place.export(chunk_time_window="12h")
    assert sorted(path for path in place.folder.rglob("*")) == before


def test_sums_of_an_older_revision_beside_a_newer_manifest_are_stale_and_repaired(place):
    """As when a writer dies between writing the two, while another one seals."""
    place.export(chunks=[0, 1], seal=False)
    older = place.store.get("SHA256SUMS")
    place.export()
    newest = place.store.get("SHA256SUMS")
    place.store.put("SHA256SUMS", older)
    assert [(fault.kind, fault.object) for fault in verify(place.store).faults] == [("stale", "SHA256SUMS")]
    place.run().seal()
    assert place.store.get("SHA256SUMS") == newest
