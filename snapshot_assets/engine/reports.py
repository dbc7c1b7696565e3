"""Reports of running tasks to the driver, and its answers: go on, or stop.

A task reports its rows, bytes and files every half second over a TCP connection, and each answer is `go` or `stop`. At
a `stop`, and when the driver is gone, the task cancels its database query and ends with an error, so that uploads are
aborted and transactions rolled back. A task that cannot reach the driver works on without reports.
"""

from __future__ import annotations

import json
import logging
import secrets
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from io import BufferedRWPair
from typing import TYPE_CHECKING, Self

from snapshot_assets.errors import InterruptedTaskError
from snapshot_assets.spans import spanned

if TYPE_CHECKING:
    import pyarrow as pa

_LOG = logging.getLogger(__name__)
INTERVAL = 0.5
"""Seconds between two reports."""
_CONNECT_SECONDS = 2.0
_ANSWER_SECONDS = 60.0
"""Longest wait for the other side, which may be busy; one that is gone closes the connection at once."""
_LONGEST_LINE = 4096


@dataclass(frozen=True)
class Report:
    """What a task has done so far of one piece of work.

    Attributes:
        work: Unique name of the piece of work.
        chunk: The chunk that it belongs to.
        rows: Rows read or loaded.
        bytes: Bytes of these rows in Arrow's memory.
        files: Files that are finished.
        done: Whether the work has ended.
    """

    work: str
    chunk: int
    rows: int = 0
    bytes: int = 0
    files: int = 0
    done: bool = False


@dataclass(frozen=True)
class Driver:
    """Where tasks report: a host and port, and the token that proves that they belong to the run."""

    host: str
    port: int
    token: str


class Reports:
    """Listens for the reports of a run's tasks; closed by `close`.

    Args:
        on_report: Called with every report, from the connections' threads.
        host: The address to listen on.
        reached: The address that executors reach the driver by.

    Raises:
        OSError: The address is not one of this machine.
    """

    def __init__(
        self, on_report: Callable[[Report], None], host: str = "127.0.0.1", reached: str = "127.0.0.1"
    ) -> None:
        token, stopping = secrets.token_hex(16), threading.Event()

        class Connection(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.connection.settimeout(_ANSWER_SECONDS)
                if not secrets.compare_digest(self.rfile.readline(_LONGEST_LINE).strip(), token.encode()):
                    return
                while line := self.rfile.readline(_LONGEST_LINE):
                    report = Report(**json.loads(line))
                    try:
                        on_report(report)
                    except Exception:  # what shows progress may fail; the task goes on
                        _LOG.exception("A report of chunk %s could not be shown.", report.chunk)
                    self.wfile.write(b"stop\n" if stopping.is_set() else b"go\n")

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = False

            def handle_error(self, request: object, client_address: object) -> None:
                _LOG.info("The connection of a task ended: %s", sys.exception())

        self._server = Server((host, 0), Connection)
        self._stopping = stopping
        self.driver = Driver(reached, self._server.server_address[1], token)
        threading.Thread(target=self._server.serve_forever, name="reports", daemon=True).start()

    def stop(self) -> None:
        """Let every task end at its next report, and every further task at its first."""
        self._stopping.set()

    def close(self) -> None:
        """Stop listening; running tasks end as at `stop`."""
        self.stop()
        self._server.shutdown()
        self._server.server_close()


class Reporter:
    """A task's side: counts what it does, and ends it when the driver wants that.

    Args:
        driver: Where to report; None for nowhere.
    """

    def __init__(self, driver: Driver | None) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._ended = threading.Event()
        self._report = Report("", 0)
        self._finished: list[Report] = []
        self._cancel: Callable[[], None] | None = None

    def check(self) -> None:
        """End the task if the driver wants that.

        Raises:
            InterruptedTaskError: It does.
        """
        if self._stopped.is_set():
            raise InterruptedTaskError("The run was interrupted.")

    @contextmanager
    def work(self, chunk: int, cancel: Callable[[], None] | None = None) -> Iterator[None]:
        """Report one piece of work at a chunk while the context is open.

        `cancel` ends a database query that runs meanwhile; called from another thread.

        Raises:
            InterruptedTaskError: The driver ended it; replaces whatever error that caused.
        """
        self.check()
        with self._lock:
            self._report, self._cancel = Report(secrets.token_hex(8), chunk), cancel
        try:
            yield
        except Exception as error:
            with self._lock:  # what failed counts no more
                self._report = Report(self._report.work, chunk)
            if self._stopped.is_set():
                raise InterruptedTaskError("The run was interrupted.") from error
            raise
        finally:
            with self._lock:
                self._finished.append(replace(self._report, done=True))
                self._report, self._cancel = Report("", 0), None

    def counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches and count them."""
        for batch in spanned("read", batches):
            self.check()
            self.add(rows=batch.num_rows, bytes=batch.nbytes)
            yield batch

    def add(self, **counts: int) -> None:
        """Count rows, bytes or files, by the names of a report's fields."""
        with self._lock:
            report = asdict(self._report)
            self._report = replace(self._report, **{name: report[name] + count for name, count in counts.items()})

    def __enter__(self) -> Self:
        if self._driver is not None:
            threading.Thread(target=self._talk, args=(self._driver,), name="reporter", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _talk(self, driver: Driver) -> None:
        try:
            connection = socket.create_connection((driver.host, driver.port), _CONNECT_SECONDS)
        except OSError as error:
            _LOG.info("This task reports no progress, because it cannot reach %s: %s", driver.host, error)
            return
        connection.settimeout(_ANSWER_SECONDS)
        with connection, connection.makefile("rwb") as stream:
            try:
                stream.write(f"{driver.token}\n".encode())
                ended = False
                while self._exchange(stream) and not ended:
                    ended = self._ended.wait(INTERVAL)  # what the task did last is reported too
            except TimeoutError:
                _LOG.info("This task reports no progress any more, because %s does not answer.", driver.host)
                return
            except OSError as error:  # the driver is gone
                _LOG.info("The connection to the driver at %s ended: %s", driver.host, error)
        while not self._ended.is_set():
            self._stop()
            self._ended.wait(INTERVAL)

    def _exchange(self, stream: BufferedRWPair) -> bool:
        """Send all reports, and return whether the task is to go on."""
        with self._lock:
            reports, self._finished = [*self._finished, self._report], []
        for report in reports:
            stream.write(json.dumps(asdict(report)).encode() + b"\n")
            stream.flush()
            if stream.readline(_LONGEST_LINE) != b"go\n":
                return False
        return True

    def _stop(self) -> None:
        """End the work; called repeatedly, because a query may begin just after its predecessor was cancelled."""
        self._stopped.set()
        with self._lock:
            cancel = self._cancel
        if cancel is not None:
            with suppress(Exception):  # the query may have ended meanwhile
                cancel()


_current: ContextVar[Reporter] = ContextVar("reporter")
_NOWHERE = Reporter(None)


def reporter() -> Reporter:
    """Return the reporter of the running task."""
    return _current.get(_NOWHERE)


@contextmanager
def reporting(driver: Driver | None) -> Iterator[None]:
    """Report what happens in the context to a driver."""
    with Reporter(driver) as own:
        before = _current.set(own)
        try:
            yield
        finally:
            _current.reset(before)
