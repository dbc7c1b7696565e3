"""Lends the connections that hold one state to the tasks of a run, because no other connection can join that state.

The broker listens on a Unix socket in the driver's process. A task sees a server of MySQL that
checks no password. The broker passes packets between the task and an idle connection until the task leaves.
"""

from __future__ import annotations

import logging
import secrets
import selectors
import socket
import socketserver
import struct
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pymysql
from pymysql.constants import CLIENT, COMMAND, SERVER_STATUS

from snapshot_assets.databases.mysql.session import SAVEPOINT, SOCKET, MysqlConnection
from snapshot_assets.errors import SnapshotError

PLANNING = 1
"""Connections that a run uses beside those of its tasks, and returns at its end."""

_LOG = logging.getLogger(__name__)
_BYTES = 1 << 18
_HEAD = 4  # bytes before a packet: its length in three, and its number
_EOF_PACKET = 9  # bytes; the last two are the server's status
_SECONDS = 60.0
"""Longest wait for a server to end a query that was killed."""
_LOST = 2013
_QUIT = bytes([COMMAND.COM_QUIT])
_CAPABILITIES = CLIENT.CAPABILITIES & ~(CLIENT.PLUGIN_AUTH | CLIENT.PLUGIN_AUTH_LENENC_CLIENT_DATA)
_OK = struct.pack("<BBBHH", 0, 0, 0, SERVER_STATUS.SERVER_STATUS_AUTOCOMMIT, 0)


class Broker:
    """Lends connections until it is closed; closes them too.

    Args:
        folder: A private folder, in which it makes its socket.
        connections: Connections in a transaction that has the savepoint `SAVEPOINT`.

    Raises:
        OSError: The socket cannot be made.
    """

    def __init__(self, folder: Path, connections: Iterable[MysqlConnection]) -> None:
        self._idle = deque(connections)
        self._held = set(self._idle)
        self._changed = threading.Condition()
        broker = self

        class Borrower(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                broker._serve(self.request)

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: object, client_address: object) -> None:
                """Log the error: a task reports its own."""
                _LOG.debug("A connection of MySQL was lent in vain.", exc_info=True)

        self._server = Server(str(folder / SOCKET), Borrower)
        serve = partial(self._server.serve_forever, poll_interval=0.05)  # closing waits for it
        threading.Thread(target=serve, name="mysql-broker", daemon=True).start()

    def is_alive(self) -> bool:
        """Return whether a connection still holds the state; asks the server over one that no one uses."""
        while True:
            with self._changed:
                if not self._idle:  # whoever uses one sees how it is
                    return bool(self._held)
                connection = self._idle.popleft()
            if _settled(connection):
                self._give(connection)
                return True
            self._drop(connection)

    def close(self) -> None:
        """Stop lending, and close all connections."""
        self._server.shutdown()
        self._server.server_close()
        with self._changed:
            held, self._held = self._held, set()
            self._idle.clear()
            self._changed.notify_all()
        for connection in held:
            _close(connection)

    def _take(self) -> MysqlConnection | None:
        """Wait for a connection that no one uses and that still holds the state; None once those of tasks are lost."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._idle or len(self._held) <= PLANNING)
                if not self._idle:
                    return None
                connection = self._idle.popleft()
            if _settled(connection):
                return connection
            self._drop(connection)

    def _give(self, connection: MysqlConnection) -> None:
        with self._changed:
            if connection in self._held:
                self._idle.append(connection)
                self._changed.notify_all()

    def _drop(self, connection: MysqlConnection) -> None:
        with self._changed:
            self._held.discard(connection)
            self._changed.notify_all()
        _close(connection)

    def _serve(self, task: socket.socket) -> None:
        """Lend a connection to a task until it leaves."""
        if (connection := self._take()) is None:
            message = b"#HY000no connection holds the state any more"
            task.sendall(_packet(0, struct.pack("<BH", 0xFF, _LOST) + message))
            return
        settled = False
        try:
            left = False
            with suppress(OSError):  # the task has died
                left = _lend(task, connection)
            if not left:  # a query may run
                with suppress(pymysql.Error, OSError):  # then it is waited for
                    connection.kill_query()
            settled = _settled(connection)
        finally:
            if settled:
                self._give(connection)
            else:
                self._drop(connection)


def _lend(task: socket.socket, connection: MysqlConnection) -> bool:
    """Pass packets on between a task and a server; return whether the task said that it leaves.

    Raises:
        OSError: The task or the server is gone.
    """
    task.sendall(_packet(0, _greeting(connection)))
    received, greeted = bytearray(), False
    with selectors.DefaultSelector() as ready:
        ready.register(task, selectors.EVENT_READ)
        ready.register(connection.channel, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is connection.channel:
                    task.sendall(_received(connection.channel))
                    continue
                received += _received(task)
                for packet in _packets(received):  # whole ones only: the task may die while it sends one
                    if not greeted:  # its user and password, of which it has none
                        task.sendall(_packet(2, _OK))
                        greeted = True
                    elif packet[_HEAD:] == _QUIT:
                        return True
                    else:
                        connection.channel.sendall(packet)


def _received(stream: socket.socket) -> bytes:
    """Return what arrived, with all that TLS has decrypted."""
    data = stream.recv(_BYTES)
    while data and (pending := getattr(stream, "pending", int)()):
        data += stream.recv(pending)
    if not data:
        raise ConnectionError("the other side is gone")
    return data


def _packets(received: bytearray) -> Iterable[bytes]:
    """Yield the whole packets at the begin, and remove them."""
    while len(received) >= _HEAD:
        size = _HEAD + int.from_bytes(received[:3], "little")
        if len(received) < size:
            return
        packet = bytes(received[:size])
        del received[:size]
        yield packet


def _packet(number: int, payload: bytes) -> bytes:
    return struct.pack("<I", len(payload))[:3] + bytes([number]) + payload


def _greeting(connection: MysqlConnection) -> bytes:
    """Return what a server sends first: its version, and the connection's number, by which a query is killed."""
    version, low, high = connection.version.encode(), _CAPABILITIES & 0xFFFF, _CAPABILITIES >> 16
    salt = secrets.token_hex(10).encode()  # no password is checked: the folder is private
    head = b"\x0a" + version + b"\0" + struct.pack("<I", connection.thread_id & 0xFFFFFFFF) + salt[:8] + b"\0"
    status = struct.pack("<HBHH", low, 0xFF, SERVER_STATUS.SERVER_STATUS_AUTOCOMMIT, high)
    return head + status + bytes([21]) + bytes(10) + salt[8:] + b"\0"


def _settled(connection: MysqlConnection) -> bool:
    """Read what the server still sends of earlier queries; return whether it then is in its transaction.

    That also releases the locks on tables that the transaction has read.
    """
    end = secrets.token_hex(16)
    # A late KILL hits the first statement.
    statements = ("DO 0", f"ROLLBACK TO SAVEPOINT {SAVEPOINT}", f"SELECT '{end}' AS ended")
    tail = b""
    with suppress(OSError, SnapshotError):
        connection.channel.settimeout(_SECONDS)
        for statement in statements:
            connection.channel.sendall(_packet(0, bytes([COMMAND.COM_QUERY]) + statement.encode()))
        while not tail.startswith(end.encode()):
            tail = (tail + _received(connection.channel))[-len(end) - _EOF_PACKET :]
        connection.channel.settimeout(None)
        return bool(tail[-2] & SERVER_STATUS.SERVER_STATUS_IN_TRANS)
    return False


def _close(connection: MysqlConnection) -> None:
    """Close a connection, also while another thread waits for what it sends."""
    with suppress(OSError, AttributeError):  # it was closed
        connection.channel.shutdown(socket.SHUT_RDWR)
    connection.close()
