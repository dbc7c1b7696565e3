"""A chunk is committed only if its tasks read as many rows as the database counts in the same state."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.databases.postgresql.session import PostgresqlSession
from snapshot_assets.databases.postgresql.time_predicates import PostgresqlTimeColumn
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.export import planning
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.retry import RetryPolicy
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.errors import ExportFailedError
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.databases.postgresql.helpers import execute

CREATE = """
CREATE TABLE t (id int, at timestamptz, pad text);
INSERT INTO t SELECT i, '2025-01-01Z'::timestamptz + i * interval '1 minute', repeat('x', 200)
    FROM generate_series(0, 14399) i;
INSERT INTO t SELECT -i, NULL FROM generate_series(1, 7) i;
CREATE TABLE kinds AS SELECT i AS id, repeat('y', 500) AS pad FROM generate_series(1, 3000) i;
"""
DAY = 24 * 60
CHUNKS = list(range(11))


@pytest.fixture
def uri(postgresql_server: Any, postgresql_database: str) -> str:
    """Ten days of a row each minute, seven rows without a time, and an untimed table."""
    postgresql_server.psql_script(postgresql_database, CREATE)
    execute(postgresql_database, "CREATE INDEX t_at ON t (at)", "VACUUM ANALYZE t", "ANALYZE kinds")
    return postgresql_database


def run_of(uri: str, folder: Path, runner: InlineRunner | None = None, **fields: Any) -> ExportRun:
    times = {"public.t": "at", "public.kinds": None}
    plan = Plan(
        **{
            "name": "counted",
            "source": uri,
            "to": f"file://{folder}/to",
            "start_time": "2025-01-01T00:00:00Z",
            "end_time": "2025-01-11T00:00:00Z",
            "chunk_time_window": "1d",
            "tables": list(times),
            "time_columns": times,
            **fields,
        }
    )
    address, store = DatabaseAddress("shop", uri), open_store(parse_location(plan.to))
    return ExportRun(plan, address, store, runner or InlineRunner(), "run", retry=RetryPolicy(base=0))


def export(run: ExportRun, chunks: Sequence[int] = CHUNKS) -> dict[int, int]:
    """Export and seal; return each chunk's rows."""
    with run.open() as opened:
        rows = {each.chunk: sum(file.rows for file in each.files) for each in opened.export(chunks)}
        opened.seal()
    return rows


def refused(run: ExportRun, chunks: Sequence[int] = CHUNKS) -> str:
    """Export; return the error."""
    with pytest.raises(ExportFailedError) as failure:
        export(run, chunks)
    return str(failure.value)


def completed(run: ExportRun) -> list[int]:
    state = read_state(run.store)
    return [chunk for chunk in CHUNKS if state.completed(chunk)]


def lose_rows_of_the_index(uri: str) -> None:
    """Add 100 rows to the third day that the index lacks, as after a crash of a damaged server."""
    ready = "UPDATE pg_index SET indisready = {} WHERE indexrelid = 't_at'::regclass"
    added = "SELECT i, '2025-01-03 10:00Z'::timestamptz + i * interval '1 second' FROM generate_series(1, 100) i"
    execute(uri, ready.format(False), f"INSERT INTO t {added}", ready.format(True))


def test_rows_that_an_index_lacks_fail_their_window_until_it_is_rebuilt(uri: str, tmp_path: Path) -> None:
    lose_rows_of_the_index(uri)
    run = run_of(uri, tmp_path)
    for _ in range(2):  # what the first run wrote is not adopted by the second
        text = refused(run)
        assert re.search(r"public\.t: the database counts 1,540 rows in window 3 \[2025-01-03T00:00:00Z", text)
        assert "and the tasks read 1,440 of the same state, so nothing of this chunk is committed" in text
        assert 'REINDEX TABLE "public"."t"' in text
        assert completed(run) == [chunk for chunk in CHUNKS if chunk != 3]
    execute(uri, "REINDEX TABLE t")
    assert export(run)[3] == DAY + 100


Lossy = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def lose(monkeypatch: pytest.MonkeyPatch, lossy: Lossy) -> None:
    """Let the driver lose batches."""
    stream = PostgresqlSession.stream

    @contextmanager
    def streamed(self: PostgresqlSession, query: str, doing: str) -> Iterator[Iterator[pa.RecordBatch]]:
        with stream(self, query, doing) as batches:
            yield lossy(batches)

    monkeypatch.setattr(PostgresqlSession, "stream", streamed)


def without_last_row(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (batch.slice(0, batch.num_rows - 1) for batch in batches)


def twice(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (each for batch in batches for each in (batch, batch))


@pytest.mark.parametrize(("lossy", "found"), [(without_last_row, "1,439"), (twice, "2,880")])
def test_rows_that_the_driver_loses_or_repeats_fail_the_chunk(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lossy: Lossy, found: str
) -> None:
    lose(monkeypatch, lossy)
    run = run_of(uri, tmp_path)
    assert re.search(rf"public\.t: the database counts 1,440 rows in window 2 .* tasks read {found}", refused(run, [2]))
    assert "11 of 11 chunks failed" in refused(run)
    assert completed(run) == []


def test_the_parts_of_a_table_that_several_tasks_read_are_counted_together(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SMALL_CHUNK", "SLICE_BYTES"):
        monkeypatch.setattr(planning, name, 1000)
    run = replace(run_of(uri, tmp_path), most_parts=3)
    lose(monkeypatch, without_last_row)
    assert "public.kinds: the database counts 3,000 rows in chunk 0, and the tasks read 2,997" in refused(run, [0])
    assert completed(run) == []
    monkeypatch.undo()
    assert export(run)[0] == 3007


def test_rows_at_the_edges_between_windows_are_counted(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    between = PostgresqlTimeColumn._between
    monkeypatch.setattr(PostgresqlTimeColumn, "_between", lambda *args: between(*args).replace(">=", ">"))
    assert "10 of 11 chunks failed" in refused(run_of(uri, tmp_path))


def test_rows_without_a_time_that_their_predicate_leaves_out_are_counted(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresqlTimeColumn, "timeless", "false")
    run = run_of(uri, tmp_path)
    assert "public.t: the database counts 7 rows in chunk 0, and the tasks read 0" in refused(run)
    assert completed(run) == CHUNKS[1:]


class Writers(InlineRunner):
    """Changes the source before each task."""

    def __init__(self, uri: str, *statements: str) -> None:
        self._uri, self._statements = uri, statements

    def map(self, function: Any, items: Sequence[Any]) -> Iterable[Any]:
        for item in items:
            execute(self._uri, *self._statements)
            yield from super().map(function, [item])


def test_writers_do_not_fail_an_export(uri: str, tmp_path: Path) -> None:
    changes = (
        "DELETE FROM t WHERE id % 10 = 0",
        "INSERT INTO t SELECT i, '2025-01-05Z' FROM generate_series(1, 50) i",
        "INSERT INTO kinds VALUES (1, 'new')",
        "UPDATE t SET at = at + interval '1 day' WHERE id % 10 = 1",
        "VACUUM ANALYZE t",
    )
    rows = export(run_of(uri, tmp_path, Writers(uri, *changes)))
    assert rows == {0: 3007} | dict.fromkeys(range(1, 11), DAY)


def test_views_whose_rows_differ_at_each_reading_are_not_counted(uri: str, tmp_path: Path) -> None:
    execute(uri, "CREATE VIEW v AS SELECT id, at FROM t WHERE random() < 0.5")
    rows = export(run_of(uri, tmp_path, tables=["public.v"], time_columns={"public.v": "at"}))
    assert all(rows[chunk] < DAY for chunk in CHUNKS[1:])


def test_a_count_that_fails_is_a_warning(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(PostgresqlTimeColumn, "number", lambda *_: "1 / 0")
    assert export(run_of(uri, tmp_path))[1] == DAY
    assert re.search(r"Rows of public\.t are read without being counted: .*division by zero", caplog.text)
