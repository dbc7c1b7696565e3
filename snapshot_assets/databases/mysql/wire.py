"""Reads the rows of a query in MySQL's text protocol into Arrow arrays of bytes, a few MiB at a time.

The driver makes a Python object of each value, which takes several times as long. Here a loop finds where each row's
packet begins, and NumPy finds the values of a column in all rows at once. One array over the received bytes holds all
values and, between them, what frames them; Arrow takes a column's values out of it.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pymysql
from pymysql.connections import MySQLResult
from pymysql.constants import COMMAND
from pymysql.protocol import MysqlPacket

CHUNK_BYTES = 4 << 20
_HEAD = 4  # bytes before a packet: its length in three, and its number
_HEAD_OF = struct.Struct("<I")
_LONGEST = (1 << 24) - 1  # of a packet; a row with as many bytes or more has several
_NULL, _END, _ERROR = 0xFB, 0xFE, 0xFF
_LONGEST_END = 9
_WIDTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}  # bytes of a value's length, by the byte before them
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
        connection._execute_command(COMMAND.COM_QUERY, sql)
        result = MySQLResult(connection)
        result.init_unbuffered_query()
        result.unbuffered_active = False  # this object reads the rows
        self._width = int(result.field_count)

    def read(self) -> list[pa.Array] | None:
        """Return the columns of the next rows, of about `CHUNK_BYTES` or one row; None after the last one.

        Raises:
            pymysql.Error: The server ended the query, or the connection is lost.
        """
        while not self.ended:
            payload, starts = self._rows()
            if starts:
                return _columns(payload, starts, self._width)
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
                return self._long_row(), [0]
            at = self._scan(at, _HEAD + length, starts)
        payload = bytes(self._buffer[:at])
        del self._buffer[:at]
        if starts and self._ends(payload, starts[-1]):
            starts.pop()
        return payload, starts

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
        last = starts[-1]
        self.ended = buffer[last] == _ERROR or (buffer[last] == _END and at - last < _LONGEST_END)
        return at

    def _ends(self, payload: bytes, last: int) -> bool:
        """Return whether the last packet is no row; raise the error that it holds."""
        if self.ended and payload[last] == _ERROR:
            MysqlPacket(payload[last:], self._connection.encoding).raise_for_error()
        return self.ended

    def _long_row(self) -> bytes:
        """Return a row of several packets."""
        parts, length = [], _LONGEST
        while length == _LONGEST:
            length = int.from_bytes(self._peek(0, _HEAD)[:3], "little")
            self._peek(0, _HEAD + length)
            parts.append(bytes(self._buffer[_HEAD : _HEAD + length]))
            del self._buffer[: _HEAD + length]
        return b"".join(parts)

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


def _columns(payload: bytes, starts: list[int], width: int) -> list[pa.Array]:
    """Return the columns of rows that begin at some places of a payload."""
    data = np.frombuffer(payload, np.uint8)
    place = np.array(starts, np.int64)
    edges = np.empty((len(starts), 2 * width), np.int64)
    nulls = []
    for column in range(width):
        first = data[place]
        nulls.append(first == _NULL)
        head, length = _lengths(data, place, first)
        edges[:, 2 * column] = place + head
        place = place + head + length
        edges[:, 2 * column + 1] = place
    # Large offsets, because a row may have more than 2 GiB.
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(payload)]
    values = pa.Array.from_buffers(pa.large_binary(), edges.size - 1, buffers)
    rows = np.arange(len(starts), dtype=np.int64) * (2 * width)
    return [values.take(pa.array(rows + 2 * column, mask=null)) for column, null in enumerate(nulls)]


def _lengths(
    data: npt.NDArray[np.uint8], place: npt.NDArray[np.int64], first: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.int64] | int, npt.NDArray[np.int64]]:
    """Return how many bytes the length of each value takes, and the length, which is 0 for NULL."""
    length = first.astype(np.int64)
    if not (first >= _NULL).any():
        return 1, length
    head = np.ones(len(place), np.int64)
    length[first == _NULL] = 0
    for mark, width in _WIDTHS.items():
        long = first == mark
        if long.any():
            at = place[long] + 1
            length[long] = sum(data[at + byte].astype(np.int64) << (8 * byte) for byte in range(width))
            head[long] = 1 + width
    return head, length
