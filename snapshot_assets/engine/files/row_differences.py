"""Names rows that a snapshot and its source do not have equally often, in bounded memory, by reading both twice.

The first pass adds the hashes of one side's rows, and subtracts those of the other, in a bucket for each hash of a key.
Equal rows cancel out, and both versions of a changed row are in one bucket. The second pass keeps the rows of a few
buckets with a difference. If columns are masked, a third pass tells whether the others differ at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import numpy as np
import pyarrow as pa

from snapshot_assets.engine.files.row_sums import grouped, hashing, plain, row_sums
from snapshot_assets.engine.files.text.json_lines import to_json

ReadRows = Callable[[], Iterable[pa.RecordBatch]]
"""Reads all rows of a table again, each time from the same state."""

MAX_ROWS = 20
"""Most differing rows that are named."""
_BUCKET_BITS = 20  # two arrays of 8 MiB; of 10⁹ rows, a bucket has a thousand
_KEPT_BYTES = 64 << 20
_ROW_BYTES = 1 << 10  # what a kept row takes besides its values, for each column
_LONGEST = 200

_Hashed = tuple[pa.RecordBatch, np.ndarray, np.ndarray]
"""Rows, and for each the hash of its key and its own hash."""


@dataclass(frozen=True)
class RowDifference:
    """A row that snapshot and source do not have equally often. Values are JSON texts; long ones are cut.

    Attributes:
        key: Values of the key, without masked columns.
        columns: Columns in which the two versions of the row differ; empty for a row that only one side has.
        snapshot: Values in the snapshot, without masked columns: of `columns`, or of all if only the snapshot has the
            row. None if only the source has it.
        source: The same of the source.
        times: How often the one side has the row more than the other.
    """

    key: Mapping[str, str]
    columns: tuple[str, ...] = ()
    snapshot: Mapping[str, str] | None = None
    source: Mapping[str, str] | None = None
    times: int = 1


@dataclass(frozen=True)
class RowDifferences:
    """Differing rows of a table.

    Attributes:
        rows: In the order of reading, first the snapshot's; fewer than asked for if rows are too large to keep.
        more: Whether other rows differ too.
        only_masked: Whether there are masked columns, and all values of the others are equal.
    """

    rows: tuple[RowDifference, ...] = ()
    more: bool = False
    only_masked: bool = False


@dataclass
class _Row:
    batch: pa.RecordBatch
    key: int
    order: int
    surplus: int = 0


def differing_rows(
    schema: pa.Schema,
    snapshot: ReadRows,
    source: ReadRows,
    *,
    key: Sequence[str] = (),
    masked: Collection[str] = (),
    limit: int = MAX_ROWS,
) -> RowDifferences:
    """Compare all rows of both sides, and name some that differ; see `hashing` for which rows are equal.

    Args:
        schema: The schema of all batches of both sides.
        snapshot: Reads the snapshot's rows.
        source: Reads the source's rows.
        key: Columns that tell rows apart, as of a primary key; by default all, so that no row has two versions.
        masked: Columns of which no value is shown.
        limit: Most rows to name.
    """
    names = tuple(key) or tuple(schema.names)
    sides = ((snapshot, 1), (source, -1))
    with _hashing_keys(schema, names) as hashed:
        buckets = _differing_buckets((hashed(read()), sign) for read, sign in sides)
        kept = _KeptRows(buckets[:limit])
        for read, sign in sides if len(buckets) else ():
            for rows in hashed(read()):
                kept.add(rows, sign)
    found = [each for versions in kept.by_key() for each in _differences(versions, names, frozenset(masked))]
    more = kept.dropped or len(buckets) > limit or len(found) > limit
    shown = pa.schema([field for field in schema if field.name not in masked])
    sums = [row_sums(shown, (batch.select(shown.names) for batch in read())) for read, _ in sides if masked]
    return RowDifferences(tuple(found[:limit]), more, bool(sums) and sums[0] == sums[1])


@contextmanager
def _hashing_keys(
    schema: pa.Schema, key: Sequence[str]
) -> Iterator[Callable[[Iterable[pa.RecordBatch]], Iterator[_Hashed]]]:
    keys = pa.schema([schema.field(name) for name in key])
    with hashing(schema) as hash_rows, hashing(keys) as hash_keys:

        def hashed(batches: Iterable[pa.RecordBatch]) -> Iterator[_Hashed]:
            for group in grouped(batches):
                hashes = hash_rows(group)
                every = hash_keys([batch.select(keys.names) for batch in group]) if keys != schema else hashes
                ends = np.cumsum([batch.num_rows for batch in group])[:-1]
                yield from zip(group, np.split(every, ends), np.split(hashes, ends), strict=False)

        yield hashed


def _buckets(keys: np.ndarray) -> np.ndarray:
    return (keys >> np.uint64(64 - _BUCKET_BITS)).astype(np.int64)


def _differing_buckets(sides: Iterable[tuple[Iterable[_Hashed], int]]) -> np.ndarray:
    """Return the buckets in which the two sides have other rows."""
    sums, counts = np.zeros(1 << _BUCKET_BITS, np.uint64), np.zeros(1 << _BUCKET_BITS, np.int64)
    for rows, sign in sides:
        for _, keys, hashes in rows:
            buckets = _buckets(keys)
            (np.add if sign > 0 else np.subtract).at(sums, buckets, hashes)
            np.add.at(counts, buckets, sign)
    return np.flatnonzero((sums != 0) | (counts != 0))


class _KeptRows:
    """The rows of some buckets, as far as the two sides do not have them equally often."""

    def __init__(self, buckets: np.ndarray) -> None:
        self._rows: dict[int, dict[int, _Row]] = {int(bucket): {} for bucket in buckets}
        self._bytes: dict[int, int] = defaultdict(int)
        self._order = count()
        self.dropped = False

    def add(self, rows: _Hashed, sign: int) -> None:
        """Add the rows of one side, or subtract those of the other."""
        batch, keys, hashes = rows
        places = np.flatnonzero(np.isin(_buckets(keys), list(self._rows)))
        # A table may have few different rows, so that each is there a million times.
        numbers, first, counts = np.unique(hashes[places], return_index=True, return_counts=True)
        some_rows = zip(places[first].tolist(), numbers.tolist(), counts.tolist(), strict=True)
        for place, number, times in sorted(some_rows):
            bucket = int(keys[place]) >> (64 - _BUCKET_BITS)
            if (some := self._rows.get(bucket)) is None:  # dropped meanwhile
                continue
            if number not in some:
                some[number] = _Row(_only(batch, place), int(keys[place]), next(self._order))
                self._count_bytes(bucket, some[number])
            some[number].surplus += sign * times

    def _count_bytes(self, bucket: int, row: _Row) -> None:
        self._bytes[bucket] += row.batch.nbytes + _ROW_BYTES * (row.batch.num_columns + 1)
        if sum(self._bytes.values()) > _KEPT_BYTES:
            largest = max(self._bytes, key=self._bytes.__getitem__)
            del self._rows[largest], self._bytes[largest]
            self.dropped = True

    def by_key(self) -> Iterable[list[_Row]]:
        """Return the differing rows of each key, in the order in which they were read."""
        found: dict[int, list[_Row]] = defaultdict(list)
        every = (row for some in self._rows.values() for row in some.values() if row.surplus)
        for row in sorted(every, key=lambda row: row.order):
            found[row.key].append(row)
        return found.values()


def _only(batch: pa.RecordBatch, place: int) -> pa.RecordBatch:
    """Return one row, without holding the others in memory."""
    return batch.take(pa.array([place])) if batch.num_columns else batch.slice(place, 1)


def _differences(versions: list[_Row], key: Sequence[str], masked: frozenset[str]) -> Iterator[RowDifference]:
    """Return the differences of the rows of one key: of one row if each side has one version of it."""
    if sorted(row.surplus for row in versions) == [-1, 1]:
        old, new = sorted(versions, key=lambda row: -row.surplus)
        columns = _differing_columns(old.batch, new.batch)
        before, after = (_values(row.batch, columns, masked) for row in (old, new))
        yield RowDifference(_values(old.batch, key, masked), columns, before, after)
        return
    for row in versions:
        values, shown = _values(row.batch, row.batch.schema.names, masked), _values(row.batch, key, masked)
        if row.surplus > 0:
            yield RowDifference(shown, snapshot=values, times=row.surplus)
        else:
            yield RowDifference(shown, source=values, times=-row.surplus)


def _differing_columns(one: pa.RecordBatch, other: pa.RecordBatch) -> tuple[str, ...]:
    return tuple(name for name in one.schema.names if not plain(one.column(name)).equals(plain(other.column(name))))


def _values(row: pa.RecordBatch, columns: Iterable[str], masked: frozenset[str]) -> dict[str, str]:
    return {name: _text(row.column(name)) for name in columns if name not in masked}


def _text(value: pa.Array) -> str:
    text: str = to_json(value)[0].as_py()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
