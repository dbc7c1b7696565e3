"""Reads the rows of a query in MySQL's binary protocol into Arrow arrays, a few MiB at a time.

The driver has the text protocol only, and makes a Python object of each value, which takes several times as long. Here
the server need not print numbers and times, a loop finds where each row's packet begins, and `binary_rows` reads all
values of a column at once.
"""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.connections import MySQLResult
from pymysql.constants import COMMAND
from pymysql.protocol import MysqlPacket

from snapshot_assets.databases.mysql.binary_rows import SPARE, Rows

CHUNK_BYTES = 4 << 20
_HEAD = 4  # bytes before a packet: its length in three, and its number
_HEAD_OF = struct.Struct("<I")
_PREPARED = struct.Struct("<xIHH")  # number of the statement, columns, parameters
_EXECUTE = struct.Struct("<IBI")
_LONGEST = (1 << 24) - 1  # of a packet; a row with as many bytes or more has several
_ROW, _ERROR = 0x00, 0xFF  # first bytes of packets
_READ = 1 << 20


class RowStream:
    """The rows of a query that has been sent; the connection takes no other statement before they are read.

    Attributes:
        ended: Whether the server has sent all rows, or an error.

    Raises:
        pymysql.Error: The server refuses the query.
    """

    def __init__(self, connection: Any, sql: str) -> None:
        self._connection = connection
        self._buffer = bytearray()  # from the beginning of a packet
        self.ended = False
        connection._execute_command(COMMAND.COM_STMT_PREPARE, sql)
        self._statement, *described = _PREPARED.unpack_from(connection._read_packet().get_all_data())
        for count in described:
            for _ in range(count + 1 if count else 0):  # each one, and the end
                connection._read_packet()
        connection._execute_command(COMMAND.COM_STMT_EXECUTE, _EXECUTE.pack(self._statement, 0, 1))
        result = MySQLResult(connection)
        try:
            result.init_unbuffered_query()
        except pymysql.Error:
            if connection.open:
                self._end_statement()
            raise
        result.unbuffered_active = False  # this object reads the rows
        self._fields = result.fields

    def read(self) -> list[pa.Array] | None:
        """Return the columns of the next rows, of about `CHUNK_BYTES` or one row; None after the last one.

        Raises:
            NoDateError: A date is none.
            pymysql.Error: The server ended the query, or the connection is lost.
        """
        while not self.ended:
            payload, starts = self._rows()
            if starts:
                return Rows(payload, starts, self._fields).columns()
        return None

    def drain(self) -> None:
        """Read the remaining rows and drop them; see `read`."""
        while not self.ended:
            self._rows()

    def _rows(self) -> tuple[bytes, list[int]]:
        """Receive whole packets, and return them with the place where each row begins in them."""
        starts: list[int] = []
        at = 0
        while at < CHUNK_BYTES and not self.ended:
            length = int.from_bytes(self._peek(at, _HEAD)[:3], "little")
            if length == _LONGEST:
                if at:
                    break
                return self._long_row(), [len(SPARE)]
            at = self._scan(at, _HEAD + length, starts)
        with memoryview(self._buffer) as received, received[:at] as rows:
            payload = b"".join((rows, SPARE))
        del self._buffer[:at]
        if self.ended:
            self._end_statement()
            last = payload[starts.pop() : at]
            if last[0] == _ERROR:
                MysqlPacket(last, self._connection.encoding).raise_for_error()
        return payload, starts

    def _end_statement(self) -> None:
        self._connection._execute_command(COMMAND.COM_STMT_CLOSE, struct.pack("<I", self._statement))

    def _scan(self, at: int, size: int, starts: list[int]) -> int:
        """Note where the packets begin that have been received, at least the one at a place; return where they end."""
        self._peek(at, size)
        buffer = self._buffer
        end = len(buffer)
        head, begins = _HEAD_OF.unpack_from, starts.append  # this loop takes a fourth of the time of a scan
        while at + _HEAD <= end:
            length = head(buffer, at)[0] & _LONGEST
            following = at + _HEAD + length
            if following > end or length == _LONGEST:
                break
            begins(at + _HEAD)
            at = following
        self.ended = buffer[starts[-1]] != _ROW
        return at

    def _long_row(self) -> bytes:
        """Return a row of several packets."""
        parts, length = [], _LONGEST
        while length == _LONGEST:
            length = int.from_bytes(self._peek(0, _HEAD)[:3], "little")
            self._peek(0, _HEAD + length)
            parts.append(bytes(self._buffer[_HEAD : _HEAD + length]))
            del self._buffer[: _HEAD + length]
        return b"".join((SPARE, *parts, SPARE))

    def _peek(self, at: int, size: int) -> bytearray:
        """Receive until the buffer has some bytes at a place, and return the first few of them."""
        while len(self._buffer) < at + size:
            try:
                received = self._connection._rfile.read1(_READ)
            except (OSError, ValueError) as error:  # a file that was closed raises the second
                received, reason = b"", f" ({error})"
            else:
                reason = ""
            if not received:
                self.ended = True
                raise pymysql.OperationalError(2013, f"Lost connection to MySQL server during query{reason}")
            self._buffer += received
        return self._buffer[at : at + _HEAD]
