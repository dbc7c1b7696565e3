"""The data files of a location: live ones, and those that older states still need.

Files from a checkpoint stay in Arrow columns, so a million of them cost no Python objects. Files committed since are
plain values on top of them. A file's life is an interval `[added, removed)` of revisions. A file that a rollback
returned has several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from heapq import merge

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.catalog.state.bounds import Bounds
from snapshot_assets.catalog.state.file_columns import FileColumns, FileState, Removal, columns_of, merge_columns
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.layout import chunk_of

MOST_PLAIN = 5_000
"""Files that may be plain values before all are moved to columns."""


@dataclass
class FileSet:
    """Files in columns, and the changes since.

    Attributes:
        base: Files from a checkpoint.
        added: Live files that are not in the base, by chunk and path.
        closed: Files that are neither in the base nor live.
        removed: Revision and time of removal of files that are live in the base, by row.
        purged: Paths of purged files of the base.
    """

    base: FileColumns | None = None
    added: dict[int, dict[str, FileState]] = field(default_factory=dict)
    closed: list[FileState] = field(default_factory=list)
    removed: dict[int, tuple[int, datetime]] = field(default_factory=dict)
    purged: set[str] = field(default_factory=set)
    _plain: int = field(default=0, repr=False, compare=False)
    _live: np.ndarray | None = field(default=None, repr=False, compare=False)
    _added_columns: tuple[FileColumns, list[FileState]] | None = field(default=None, repr=False, compare=False)

    def __copy__(self) -> FileSet:
        """Return an independent copy of this set."""
        added = {chunk: dict(files) for chunk, files in self.added.items()}
        return FileSet(self.base, added, list(self.closed), dict(self.removed), set(self.purged))

    # Changes

    def add(self, file: DataFile, revision: int) -> bool:
        """Add a live file; False if it is live already."""
        if file.path in self.added.get(file.chunk, {}) or self._row(file.chunk, file.path) is not None:
            return False
        self._added_columns = None
        self._plain += 1
        self.added.setdefault(file.chunk, {})[file.path] = FileState(file, revision)
        return True

    def remove(self, chunk: int, path: str, revision: int, at: datetime) -> bool:
        """End a live file's interval; False if it is not live."""
        state = self.added.get(chunk, {}).pop(path, None)
        if state is not None:
            self._added_columns = None
            self.closed.append(replace(state, removed=revision, removed_at=at))
            return True
        row = self._row(chunk, path)
        if row is None:
            return False
        self._live_rows()[row] = False
        self.removed[row] = revision, at
        return True

    def _row(self, chunk: int, path: str) -> int | None:
        """Return the row of a file of the base, None if it is not live."""
        row = self.base.live_rows(chunk).get(path) if self.base is not None else None
        return None if row in self.removed else row

    def _live_rows(self) -> np.ndarray:
        """Return whether each row of the base is live."""
        assert self.base is not None
        if self._live is None:
            self._live = self.base.live.copy()
            self._live[list(self.removed)] = False
        return self._live

    def bring_back(self, paths: Iterable[str], revision: int) -> set[str]:
        """Start another interval of removed files, and return the paths that are live or unknown."""
        asked = set(paths)
        live = asked & {path for files in self.added.values() for path in files}
        closed = {state.file.path: state.file for state in self.closed if state.file.path in asked - live}
        rest = asked - live - closed.keys()
        base = self._patched() if rest else None
        if base is not None:
            rows = base.last_rows(rest)
            rest -= rows.keys()
            returned = base.take(np.array(sorted(rows.values()), dtype=np.int64)).as_live(added=revision)
            self._replace_base(merge_columns([base, returned.sorted()]))
        for file in closed.values():
            self.add(file, revision)
        return live | rest

    def clear(self, revision: int, at: datetime) -> None:
        """End the intervals of all live files."""
        for chunk, files in list(self.added.items()):
            for path in list(files):
                self.remove(chunk, path, revision, at)
        base = self._patched()
        if base is not None:
            self._replace_base(base.with_values(base.live, removed=revision, removed_at=at))

    def settle(self) -> None:
        """Move files to columns if more than `MOST_PLAIN` are plain values, which take ten times the memory."""
        if self._plain > MOST_PLAIN:
            self.move_to_columns()

    def move_to_columns(self) -> None:
        """Move all files that are plain values to columns; `merged` would make columns beside those that are here."""
        if changed := [*self.closed, *self._added()]:
            parts = [base] if (base := self._patched()) is not None else []
            del base
            parts.append(columns_of(changed).sorted().packed())
            self.closed, self.added, self._added_columns, self._plain, self.base = [], {}, None, 0, None
            self._replace_base(merge_columns(parts))
            pa.default_memory_pool().release_unused()  # the columns before, which it keeps otherwise

    @contextmanager
    def packed(self) -> Iterator[None]:
        """Hold all files in columns that are compressed in memory, which can only be compared meanwhile."""
        self.move_to_columns()
        self._replace_base(self.merged().packed(rows=True))
        pa.default_memory_pool().release_unused()
        try:
            yield
        finally:
            assert self.base is not None
            self._replace_base(FileColumns(self.base.table.unpacked(), self.base.bounds))

    def take_bounds(self) -> Bounds:
        """Return the statistics of files in columns, and forget the files."""
        assert self.base is not None
        bounds, self.base = self.base.bounds, None
        pa.default_memory_pool().release_unused()
        return bounds

    def replace_bounds(self, bounds: Bounds) -> None:
        """Hold other statistics of files in columns."""
        assert self.base is not None
        self.base = replace(self.base, bounds=bounds)

    def _replace_base(self, base: FileColumns) -> None:
        self.base, self.removed, self.purged, self._live = base, {}, set(), None

    def purge(self, paths: Iterable[str]) -> set[str]:
        """Forget files that are not live, with all their intervals, and return the paths that are live or unknown."""
        asked = set(paths)
        gone = asked & {state.file.path for state in self.closed}
        live = {path for files in self.added.values() for path in files}
        if self.base is not None:
            rows = self.base.among(asked - self.purged)
            gone |= self.base.paths(rows)
            live |= self.base.paths(rows & self._live_rows())
        gone -= live
        self.closed = [state for state in self.closed if state.file.path not in gone]
        self.purged |= gone
        return asked - gone

    # Questions

    def chunk(self, number: int) -> dict[str, FileState]:
        """Return the live files of a chunk by path."""
        files: dict[str, FileState] = {}
        if self.base is not None:
            place = self.base.rows_of(number)
            rows = np.flatnonzero(self._live_rows()[place]) + place.start
            files = {state.file.path: state for state in self.base.picked(rows)}
        return files | self.added.get(number, {})

    def chunks(self) -> list[int]:
        """Return the chunks that have live files, ascending."""
        return sorted({int(each) for part, live, _ in self.columns() for each in np.unique(part.chunk[live])})

    def __iter__(self) -> Iterator[FileState]:
        """Yield the live files by chunk and path."""
        base = iter(()) if self.base is None else self.base.picked(np.flatnonzero(self._live_rows()))
        added = self._added()
        yield from merge(base, added, key=lambda state: (state.file.chunk, state.file.path)) if added else base

    def _added(self) -> list[FileState]:
        return [files[path] for _, files in sorted(self.added.items()) for path in sorted(files)]

    def at(self, revision: int) -> FileSet:
        """Return the files of an older state, as far as this set has them."""
        older = FileSet()
        for state in (*self.closed, *self._added()):
            if state.in_state(revision):
                live = FileState(state.file, state.added)
                older.added.setdefault(state.file.chunk, {})[state.file.path] = live
        base = self._patched()
        if base is not None:
            older.base = base.take(np.flatnonzero(base.in_state(revision))).as_live()
        return older

    def columns(self) -> Iterator[tuple[FileColumns, np.ndarray, list[FileState] | None]]:
        """Yield the files in columns, which rows are live, and the files themselves if they are plain values.

        Base and added files are not merged, which would take seconds for a million files. Each part is sorted by chunk
        and path.
        """
        if self.base is not None:
            yield self.base, self._live_rows(), None
        if any(self.added.values()):
            if self._added_columns is None:
                added = self._added()
                self._added_columns = columns_of(added), added
            columns, added = self._added_columns
            yield columns, np.ones(len(added), dtype=bool), added

    def totals(self) -> tuple[int, int, int]:
        """Return the number of live files, their rows, and their bytes."""
        parts = list(self.columns())
        rows, size = (sum(int(part.column(name)[live].sum()) for part, live, _ in parts) for name in ("rows", "bytes"))
        return sum(int(live.sum()) for _, live, _ in parts), rows, size

    def schema_ids(self) -> set[int]:
        """Return the ids of the schemas that live files were written with."""
        return {int(each) for part, live, _ in self.columns() for each in np.unique(part.column("schema_id")[live])}

    def paths(self) -> set[str]:
        """Return the paths of all files, live or not."""
        paths = {state.file.path for state in self.closed} | {path for files in self.added.values() for path in files}
        base = self._patched()
        return paths if base is None else paths | set(base.table["path"].to_pylist())

    def path_lookup(self) -> Callable[[str], bool]:
        """Return a function that tells whether a path is that of a file, live or not.

        It is fast for paths that come chunk by chunk, as they are listed; all paths together take much memory.
        """
        files = self.merged()

        @lru_cache(1)
        def of(chunk: int) -> set[str]:
            return set(files.table["path"][files.rows_of(chunk)].to_pylist())

        return lambda path: (chunk := chunk_of(path)) is not None and path in of(chunk)

    def having(self, paths: Iterable[str], revisions: Iterable[int]) -> dict[int, str]:
        """Return the revisions among some whose states have one of these files, with the first such path."""
        files = self.merged()
        some = files.take(np.flatnonzero(files.among(set(paths))))
        having = {revision: some.paths(some.in_state(revision)) for revision in revisions}
        return {revision: min(names) for revision, names in having.items() if names}

    def unreferenced(self, retained: Sequence[int], expired: Mapping[int, Removal] | None = None) -> dict[str, Removal]:
        """Return what last left each file unreferenced that no retained revision has, by path.

        That is its removal, or the expiry of a revision that has it, of those in `expired`. Retained revisions are
        ascending.
        """
        expired = expired or {}
        files = self.merged().not_retained(retained)
        last = np.maximum(files.column("removed"), files.newest_expiry(expired))
        table = files.with_values(np.ones(len(last), dtype=bool), removed=last.tolist()).table
        newest = table.group_by("path").aggregate([("removed", "max"), ("removed_at", "max")])
        columns = (newest[name].to_pylist() for name in ("path", "removed_max", "removed_at_max"))
        times = dict(expired.values())
        return {path: (revision, times.get(revision, at)) for path, revision, at in zip(*columns, strict=True)}

    def released(self, before: Sequence[int], after: Sequence[int]) -> dict[str, int]:
        """Return the bytes by path of the files that a revision in `before` has, and none in `after`; both ascend."""
        files = self.merged()
        rest, never_needed = files.not_retained(after).table, files.not_retained(before).table
        rest = rest.filter(pc.invert(pc.is_in(rest["path"], pc.unique(never_needed["path"]))))
        return dict(zip(rest["path"].to_pylist(), rest["bytes"].to_pylist(), strict=True))

    def back_to(self, revision: int) -> tuple[list[str], list[str]]:
        """Return the paths of live files that an older state lacks, and of its files that are not live."""
        files = self.merged()
        older = files.in_state(revision)
        leaving, returning = files.paths(files.live & ~older), files.paths(older & ~files.live)
        return sorted(leaving - returning), sorted(returning - leaving)  # a returned file has a row in both

    def merged(self) -> FileColumns:
        """Return all intervals of all files in columns, sorted, with their statistics."""
        base, changed = self._patched(), [*self.closed, *self._added()]
        if base is not None and not changed:
            return base  # which is sorted
        added = columns_of(changed).sorted()
        return added if base is None else merge_columns([base, added])

    def _patched(self) -> FileColumns | None:
        """Return the base with the changes of its files since."""
        base = self.base
        if base is None:
            return None
        if self.removed:
            rows = sorted(self.removed)
            mask = np.zeros(base.table.num_rows, dtype=bool)
            mask[rows] = True
            revisions, times = map(list, zip(*(self.removed[row] for row in rows), strict=True))
            base = base.with_values(mask, removed=revisions, removed_at=times)
        if self.purged:
            base = base.take(np.flatnonzero(~base.among(self.purged)))
        return base
