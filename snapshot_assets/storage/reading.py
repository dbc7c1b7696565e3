"""Reading on every store: size limits, and random access by ranges."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from snapshot_assets.errors import LimitExceededError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

READ_AHEAD = 4 * 1024 * 1024
"""Bytes of one request: at 50 ms each, a sequential read still makes 80 MB/s, and four readers need 16 MiB."""


def range_reader(get_range: Callable[[int, int], bytes], size: int) -> io.BufferedReader:
    """Return a file over `size` bytes that come from `get_range(start, length)`, buffered by `READ_AHEAD`."""
    return io.BufferedReader(_Ranges(get_range, size), READ_AHEAD)


def check_size(uri: str, size: int, limit: int | None) -> None:
    """Refuse an object that is larger than any that this package writes, before it is read.

    Raises:
        LimitExceededError: It has more than `limit` bytes.
    """
    if limit is not None and size > limit:
        raise LimitExceededError(
            f"{uri} has {size} bytes; at most {limit} were expected. Something else replaced the object; verify the "
            "location.",
            size=size,
            limit=limit,
        )


class _Ranges(io.RawIOBase):
    def __init__(self, get_range: Callable[[int, int], bytes], size: int) -> None:
        self._get_range = get_range
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}, before the start of the object")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        target = memoryview(buffer).cast("B")
        length = min(len(target), self._size - self._position)
        if length <= 0:
            return 0
        data = self._get_range(self._position, length)
        target[: len(data)] = data
        self._position += len(data)
        return len(data)
