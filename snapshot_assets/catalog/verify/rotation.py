"""Which data files are hashed today, where not all are.

A seal and the asset checks hash files again within a budget (`due_files`), `export verify --sample` hashes a share of
them (`Rotation`). Both choose by the date, so that nothing has to be recorded.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from itertools import accumulate

from snapshot_assets.format.actions import DataFile

_GOLDEN = (5**0.5 - 1) / 2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _day(now: datetime) -> int:
    return (now - _EPOCH).days


@dataclass(frozen=True)
class Rotation:
    """A share of all data files that is hashed each day, and that is another one on each day of a round.

    Attributes:
        days: The number of shares, and of the days of a round.
        now: The present.
    """

    days: int
    now: datetime

    @property
    def within(self) -> int:
        """In how many daily runs every file is hashed that exists in all of them, wherever in a round they begin."""
        return 2 * self.days - 1

    @classmethod
    def of_share(cls, share: Fraction, now: datetime) -> Rotation:
        """Return the rotation that hashes a share of the bytes, from 0 (excluded) to 1, each day."""
        return cls(math.ceil(1 / share), now)

    def due(self, files: Iterable[DataFile]) -> set[str]:
        """Return the paths of the files that are due today; at least one, if there is any.

        The share of a file depends on its path alone, so it stays the same whatever files are added and removed. Each
        round begins one share later: otherwise weekly runs with seven shares would hash the same one for ever. The
        bytes of a day are the share of all bytes on average.
        """
        rounds, day = divmod(_day(self.now), self.days)
        turn, known = day + rounds, sorted({file.path for file in files})
        due = {path for path in known if self._part_of(path) == turn % self.days}
        return due or {known[turn % len(known)]} if known else set()

    def _part_of(self, path: str) -> int:
        return int.from_bytes(hashlib.sha256(path.encode()).digest()[:8]) % self.days


def due_files(files: Sequence[DataFile], now: datetime, most: int) -> set[str]:
    """Return the paths of the files that are due to be hashed again: all of them if they are small enough.

    Otherwise this is a run of files in the order of their paths, which continues from the last file to the first. Each
    day the run starts a golden section of all bytes later. These starts spread evenly, whatever the interval between
    two calls. So every file is due at some time, though nothing records what was hashed: in a snapshot of `n * most`
    bytes after `2 * n` daily calls, or `5 * n` calls at other regular intervals.

    Args:
        files: All files.
        now: The present.
        most: Most bytes; a single file may be larger.
    """
    files = sorted(files, key=lambda file: file.path)
    ends = list(accumulate(file.bytes for file in files))
    if not ends or most <= 0:
        return set()
    if ends[-1] <= most:
        return {file.path for file in files}
    start = int(ends[-1] * (_day(now) * _GOLDEN % 1))
    first = bisect_right(ends, start)
    due = {files[first].path}
    left = most - files[first].bytes
    for file in [*files[first + 1 :], *files[:first]]:
        left -= file.bytes
        if left < 0:
            break
        due.add(file.path)
    return due
