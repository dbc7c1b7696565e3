"""Tasks report what they do, and end when the driver wants that or is gone."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pytest

from snapshot_assets.engine import reports
from snapshot_assets.engine.reports import Driver, Report, Reports, reporter, reporting
from snapshot_assets.errors import InterruptedTaskError
from snapshot_assets_tests.waiting import until

BATCH = pa.RecordBatch.from_pydict({"n": pa.array(range(10), pa.int64())})


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "INTERVAL", 0.01)


@pytest.fixture
def received() -> list[Report]:
    return []


@pytest.fixture
def listener(received: list[Report]) -> Iterator[Reports]:
    listening = Reports(received.append)
    yield listening
    listening.close()


def work(chunk: int, batches: Iterable[pa.RecordBatch], cancel: Callable[[], None] | None = None) -> None:
    with reporter().work(chunk, cancel):
        for _ in reporter().counted(batches):
            pass


def test_rows_bytes_and_files_are_reported_while_the_work_runs(listener: Reports, received: list[Report]) -> None:
    with reporting(listener.driver), reporter().work(7):
        for _ in reporter().counted([BATCH, BATCH]):
            pass
        reporter().add(files=1)
        until(lambda: any(each.files for each in received))
        newest = received[-1]
    assert (newest.chunk, newest.rows, newest.bytes, newest.files, newest.done) == (7, 20, 160, 1, False)
    until(lambda: received[-1].done or any(each.done and each.work == newest.work for each in received))


def test_work_that_ended_between_two_reports_is_reported(listener: Reports, received: list[Report]) -> None:
    with reporting(listener.driver):
        for chunk in range(20):
            with reporter().work(chunk):
                list(reporter().counted([BATCH]))
    until(lambda: len({each.chunk for each in received if each.done}) == 20)
    assert {each.rows for each in received if each.done} == {10}


def test_work_that_failed_counts_no_rows(listener: Reports, received: list[Report]) -> None:
    def damaged() -> Iterator[pa.RecordBatch]:
        yield BATCH
        raise ValueError("damaged")

    with reporting(listener.driver), pytest.raises(ValueError, match="damaged"):
        work(1, damaged())
    until(lambda: any(each.done for each in received))
    assert [each.rows for each in received if each.done] == [0]


def test_a_stop_cancels_the_query_until_the_work_ends(listener: Reports) -> None:
    cancelled = threading.Semaphore(0)

    def query() -> Iterator[pa.RecordBatch]:
        listener.stop()
        for _ in range(3):  # a query may begin just after its predecessor was cancelled
            assert cancelled.acquire(timeout=60)
        raise RuntimeError("canceling statement due to user request")
        yield BATCH

    with reporting(listener.driver):
        with pytest.raises(InterruptedTaskError) as raised:
            work(1, query(), cancelled.release)
        with pytest.raises(InterruptedTaskError):
            work(2, [BATCH])
    assert isinstance(raised.value.__cause__, RuntimeError)


def test_batches_end_after_a_stop(listener: Reports) -> None:
    def endless() -> Iterator[pa.RecordBatch]:
        listener.stop()
        while True:
            time.sleep(0.001)
            yield BATCH

    with reporting(listener.driver), pytest.raises(InterruptedTaskError):
        work(1, endless())


def test_work_ends_when_the_driver_is_gone() -> None:
    """As a driver that was killed: its connections close without an answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        driver = Driver("127.0.0.1", server.getsockname()[1], "token")
        cancelled = threading.Event()

        def query() -> Iterator[pa.RecordBatch]:
            connection, _ = server.accept()
            connection.close()
            assert cancelled.wait(60)
            yield BATCH

        with reporting(driver), pytest.raises(InterruptedTaskError):
            work(1, query(), cancelled.set)


def test_a_driver_out_of_reach_does_not_stop_the_work(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with caplog.at_level("INFO"), reporting(Driver("127.0.0.1", port, "token")), reporter().work(1):
        until(lambda: "cannot reach" in caplog.text)
        assert list(reporter().counted([BATCH])) == [BATCH]


def test_a_driver_that_does_not_answer_does_not_stop_the_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reports, "_ANSWER_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server, caplog.at_level("INFO"):
        driver = Driver("127.0.0.1", server.getsockname()[1], "token")
        with reporting(driver), reporter().work(1):
            until(lambda: "does not answer" in caplog.text)
            assert list(reporter().counted([BATCH])) == [BATCH]


def test_strangers_are_not_heard(listener: Reports, received: list[Report]) -> None:
    with socket.create_connection((listener.driver.host, listener.driver.port)) as stranger:
        stranger.sendall(b'not the token\n{"work": "w", "chunk": 1}\n')
        assert stranger.recv(10) == b""
    assert received == []


def test_a_damaged_report_ends_only_its_connection(listener: Reports, received: list[Report]) -> None:
    with socket.create_connection((listener.driver.host, listener.driver.port)) as stranger:
        stranger.sendall(f"{listener.driver.token}\n[]\n".encode())
        assert stranger.recv(10) == b""
    with reporting(listener.driver), reporter().work(3):
        until(lambda: any(each.chunk == 3 for each in received))
