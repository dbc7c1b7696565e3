"""Sorts rows by a time in bounded memory: merges sorted runs from local disk.

Sorting keeps one run in memory, about three times; merging keeps one piece of each run. If all rows fit into one run,
nothing is written to disk.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from snapshot_assets.engine.files.batches import pieces
from snapshot_assets.scratch_folders import process_folder

RUN_BYTES = 64 << 20
"""Most bytes of rows in one run, in Arrow's memory; a single larger row is a run."""
PIECE_BYTES = 1 << 20
"""Most bytes of rows read from a run at a time."""
FAN_IN = 64
"""Most runs on disk; before another one is written, they are merged into one."""

_LAST = np.iinfo(np.int64).max


def sorted_batches(
    batches: Iterable[pa.RecordBatch], column: str, *, run_bytes: int = RUN_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield rows in ascending order of a time, NULLs last; rows of one time keep their order within a run.

    All are of one schema, and the column is of times; see `is_time`.
    """
    runs = _runs(batches, column, run_bytes)
    first = next(runs, None)
    second = next(runs, None)
    if first is None or second is None:
        yield from (first,) if first is not None else ()
        return
    with tempfile.TemporaryDirectory(prefix="sort-", dir=process_folder()) as folder:
        place = Path(folder)
        paths = [_spill([first], place / "0"), _spill([second], place / "1")]
        del first, second
        for number, run in enumerate(runs, start=2):
            if len(paths) == FAN_IN:
                joined = _spill(_merged(paths, column), place / f"joined-{number}")
                for path in paths:
                    path.unlink()
                paths = [joined]
            paths.append(_spill([run], place / f"{number}"))
        yield from _merged(paths, column)


def _runs(batches: Iterable[pa.RecordBatch], column: str, limit: int) -> Iterator[pa.RecordBatch]:
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        for piece in pieces(batch, limit):
            if not piece.num_rows:
                continue  # a run has rows
            if pending and size + piece.nbytes > limit:
                yield _sorted(pending, column)
                pending, size = [], 0
            pending.append(piece)
            size += piece.nbytes
    if pending:
        yield _sorted(pending, column)


def _sorted(batches: list[pa.RecordBatch], column: str) -> pa.RecordBatch:
    batch = pa.concat_batches(batches)
    keys = _keys(batch, column)
    return batch if (keys[1:] >= keys[:-1]).all() else batch.take(pa.array(np.argsort(keys, kind="stable")))


def _keys(batch: pa.RecordBatch, column: str) -> np.ndarray:
    """Return a column's values as numbers of the same order; NULL is the greatest."""
    times = batch.column(column)
    numbers = times.cast(pa.int32()) if pa.types.is_date32(times.type) else times
    return np.asarray(numbers.cast(pa.int64()).fill_null(_LAST))


def _spill(batches: Iterable[pa.RecordBatch], path: Path) -> Path:
    stream = None
    with ExitStack() as opened:
        for batch in batches:
            if stream is None:
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                stream = opened.enter_context(pa.ipc.new_stream(str(path), batch.schema, options=options))
            for piece in pieces(batch, PIECE_BYTES):
                stream.write_batch(piece)
    return path


@dataclass
class _Run:
    """A run that is read back: the rest of its current piece, and its times."""

    reader: Iterator[pa.RecordBatch]
    piece: pa.RecordBatch
    keys: np.ndarray

    def take(self, bound: int) -> pa.RecordBatch:
        """Take the rows up to a time from the current piece."""
        end = int(np.searchsorted(self.keys, bound, "right"))
        taken = self.piece.slice(0, end)
        self.piece, self.keys = self.piece.slice(end), self.keys[end:]
        return taken


def _merged(paths: Iterable[Path], column: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of several runs in order: in each step, those up to the earliest last time of a piece."""
    with ExitStack() as opened:
        files = [opened.enter_context(pa.OSFile(str(path))) for path in paths]
        readers = [iter(opened.enter_context(pa.ipc.open_stream(file))) for file in files]
        runs = [_Run(reader, piece, _keys(piece, column)) for reader in readers for piece in [next(reader)]]
        while runs:
            bound = min(run.keys[-1] for run in runs)
            taken = [run.take(bound) for run in runs]
            yield _sorted([batch for batch in taken if batch.num_rows], column)
            for run in runs:
                if not run.piece.num_rows and (piece := next(run.reader, None)) is not None:
                    run.piece, run.keys = piece, _keys(piece, column)
            runs = [run for run in runs if run.piece.num_rows]
