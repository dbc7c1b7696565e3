"""The data files of a location, live ones and ones that older states still need.

Files that came from a checkpoint stay in Arrow columns, so a million of them cost no object each; what was committed
since lies over them as plain values. A file's life is an interval `[added, removed)` of revisions; a file that was
removed and came back has several.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from heapq import merge

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.catalog.state.file_columns import (
    COLUMNS,
    FileColumns,
    FileState,
    Removal,
    among,
    columns_of,
    never_removed,
    newest_expiry,
    not_retained,
    with_column,
)
from snapshot_assets.format.files import DataFile


@dataclass
class FileSet:
    """Files in columns and what changed since.

    Attributes:
        base: What came from a checkpoint.
        added: Live files that are not in the base, by chunk and path.
        closed: Files that are not in the base and not live either.
        removed: Revision and time of removal of files that are live in the base, by row.
        purged: Paths of files of the base that were given up.
    """

    base: FileColumns | None = None
    added: dict[int, dict[str, FileState]] = field(default_factory=dict)
    closed: list[FileState] = field(default_factory=list)
    removed: dict[int, tuple[int, datetime]] = field(default_factory=dict)
    purged: set[str] = field(default_factory=set)
    _live: np.ndarray | None = field(default=None, repr=False, compare=False)
    _over: tuple[FileColumns, list[FileState]] | None = field(default=None, repr=False, compare=False)

    def __copy__(self) -> FileSet:
        """Return a set that changes apart from this one."""
        added = {chunk: dict(files) for chunk, files in self.added.items()}
        return FileSet(self.base, added, list(self.closed), dict(self.removed), set(self.purged))

    # Changes

    def add(self, file: DataFile, revision: int) -> bool:
        """Add a live file; False if it is live already."""
        if file.path in self.added.get(file.chunk, {}) or self._row(file.chunk, file.path) is not None:
            return False
        self._over = None
        self.added.setdefault(file.chunk, {})[file.path] = FileState(file, revision)
        return True

    def remove(self, chunk: int, path: str, revision: int, at: datetime) -> bool:
        """End a live file's interval; False if it is not live."""
        known = self.added.get(chunk, {}).pop(path, None)
        if known is not None:
            self._over = None
            self.closed.append(replace(known, removed=revision, removed_at=at))
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
        """Begin another interval of files that were removed, and return the paths that are live or unknown."""
        asked = set(paths)
        live = asked & {path for files in self.added.values() for path in files}
        closed = {known.file.path: known.file for known in self.closed if known.file.path in asked - live}
        rest = asked - live - closed.keys()
        base = self._patched() if rest else None
        if base is not None:
            rows = base.last_rows(rest)
            rest -= rows.keys()
            self._live = None
            self.base, self.removed, self.purged = base.with_interval(sorted(rows.values()), revision), {}, set()
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
            live = pa.array(base.live)
            table = base.table
            for name, value in (("removed", revision), ("removed_at", at)):
                scalar = pa.scalar(value, COLUMNS.field(name).type)
                table = with_column(table, name, pc.if_else(live, scalar, table[name].combine_chunks()))
            self.base, self.removed, self.purged, self._live = FileColumns(table, base.bounds), {}, set(), None

    def purge(self, paths: Iterable[str]) -> set[str]:
        """Give up files that are not live, with all their intervals, and return the paths that are live or unknown."""
        asked = set(paths)
        gone = asked & {known.file.path for known in self.closed}
        live = {path for files in self.added.values() for path in files}
        if self.base is not None:
            table, found = self.base.table, among(self.base.table, asked - self.purged)
            gone |= set(table.filter(found)["path"].to_pylist())
            live |= set(table.filter(pc.and_(found, pa.array(self._live_rows())))["path"].to_pylist())
        gone -= live
        self.closed = [known for known in self.closed if known.file.path not in gone]
        self.purged |= gone
        return asked - gone

    # Questions

    def chunk(self, number: int) -> dict[str, FileState]:
        """Return the live files of a chunk by path."""
        found: dict[str, FileState] = {}
        if self.base is not None:
            place = self.base.rows_of(number)
            rows = np.flatnonzero(self._live_rows()[place]) + place.start
            found = {known.file.path: known for known in self.base.picked(rows)}
        return found | self.added.get(number, {})

    def chunks(self) -> list[int]:
        """Return the chunks that have live files, ascending."""
        found = {number for number, files in self.added.items() if files}
        if self.base is not None:
            found |= set(np.unique(self.base.chunk[self._live_rows()]).tolist())
        return sorted(found)

    def __iter__(self) -> Iterator[FileState]:
        """Yield the live files by chunk and path."""
        base = iter(()) if self.base is None else self.base.picked(np.flatnonzero(self._live_rows()))
        added = self._added()
        yield from merge(base, added, key=lambda known: (known.file.chunk, known.file.path)) if added else base

    def _added(self) -> list[FileState]:
        return [files[path] for _, files in sorted(self.added.items()) for path in sorted(files)]

    def at(self, revision: int) -> FileSet:
        """Return the files of an older state, as far as this one still knows them."""
        found = FileSet()
        for known in (*self.closed, *(known for files in self.added.values() for known in files.values())):
            if known.in_state(revision):
                live = FileState(known.file, known.added)
                found.added.setdefault(known.file.chunk, {})[known.file.path] = live
        base = self._patched()
        if base is not None:
            first, end = base.table["added"].to_numpy(), base.table["removed"].to_numpy()
            base = base.take(np.flatnonzero((first <= revision) & ((end == 0) | (end > revision))))
            found.base = FileColumns(never_removed(base.table), base.bounds)
        return found

    def columns(self) -> Iterator[tuple[FileColumns, np.ndarray, list[FileState] | None]]:
        """Yield the files in columns, which rows of them are live, and the files themselves where they are at hand.

        What lies over the base is not merged with it, which for a million files would take seconds. Each part is sorted
        by chunk and path.
        """
        if self.base is not None:
            yield self.base, self._live_rows(), None
        if self._over is None:
            added = self._added()
            self._over = columns_of(added), added
        over, added = self._over
        if added:
            yield over, np.ones(len(added), dtype=bool), added

    def totals(self) -> tuple[int, int, int]:
        """Return how many live files there are, and their rows and bytes."""
        known = [each.file for files in self.added.values() for each in files.values()]
        count, rows, size = len(known), sum(file.rows for file in known), sum(file.bytes for file in known)
        if self.base is None:
            return count, rows, size
        live = self._live_rows()
        columns = (int(self.base.column(name)[live].sum()) for name in ("rows", "bytes"))
        return count + int(live.sum()), rows + next(columns), size + next(columns)

    def schema_ids(self) -> set[int]:
        """Return the ids of the schemas that live files were written with."""
        return {int(each) for part, live, _ in self.columns() for each in np.unique(part.column("schema_id")[live])}

    def paths(self) -> set[str]:
        """Return the paths of all files, whatever state they belong to."""
        over = {known.file.path for known in self.closed} | {path for files in self.added.values() for path in files}
        base = self._patched()
        return over if base is None else over | set(base.table["path"].to_pylist())

    def named(self, paths: Iterable[str]) -> dict[str, DataFile]:
        """Return files by path, live or not, without the statistics of those that came from a checkpoint."""
        base = self.merged()
        rows = np.flatnonzero(among(base.table, set(paths)).to_numpy(zero_copy_only=False))
        return {known.file.path: known.file for known in base.picked(rows)}

    def having(self, paths: Iterable[str], revisions: Iterable[int]) -> dict[int, str]:
        """Return the revisions among some whose states have one of these files, with the first such path."""
        table = self.merged().table
        some = table.filter(among(table, set(paths)))
        names = np.asarray(some["path"].to_pylist(), dtype=object)
        added, removed = np.asarray(some["added"]), np.asarray(some["removed"])
        found = {each: names[(added <= each) & ((removed == 0) | (removed > each))] for each in revisions}
        return {revision: min(having) for revision, having in found.items() if len(having)}

    def unreferenced(self, retained: Sequence[int], expired: Mapping[int, Removal] | None = None) -> dict[str, Removal]:
        """Return the paths of the files that no retained revision has, and what left each unneeded last.

        That is what removed it, or the expiry of a revision that has it.

        Args:
            retained: Revisions, ascending.
            expired: What expired of late, by revision.
        """
        expired = expired or {}
        rest = not_retained(self.merged().table, retained)
        left = np.maximum(np.asarray(rest["removed"]), newest_expiry(rest, expired))
        rest = with_column(rest, "removed", pa.array(left, COLUMNS.field("removed").type))
        last = rest.group_by("path").aggregate([("removed", "max"), ("removed_at", "max")])
        columns = (last[name].to_pylist() for name in ("path", "removed_max", "removed_at_max"))
        times = dict(expired.values())
        return {path: (revision, times.get(revision, at)) for path, revision, at in zip(*columns, strict=True)}

    def released(self, before: Sequence[int], after: Sequence[int]) -> dict[str, int]:
        """Return the bytes by path of the files that one of some revisions has, and none of others.

        Args:
            before: Revisions, ascending.
            after: The others, ascending.
        """
        table = self.merged().table
        rest = not_retained(table, after)
        rest = rest.filter(pc.invert(pc.is_in(rest["path"], pc.unique(not_retained(table, before)["path"]))))
        return dict(zip(rest["path"].to_pylist(), rest["bytes"].to_pylist(), strict=True))

    def back_to(self, revision: int) -> tuple[list[str], list[str]]:
        """Return the paths of live files that an older state lacks, and of those it has that are not live."""
        table = self.merged().table
        added, removed = (np.asarray(table[name]) for name in ("added", "removed"))
        live, then = removed == 0, (added <= revision) & ((removed == 0) | (removed > revision))
        now_paths, then_paths = (table.filter(pa.array(rows))["path"] for rows in (live & ~then, then & ~live))
        leaving, returning = set(now_paths.to_pylist()), set(then_paths.to_pylist())  # one that came back is in both
        return sorted(leaving - returning), sorted(returning - leaving)

    def merged(self) -> FileColumns:
        """Return all intervals of all files in columns, sorted, with their statistics."""
        over = [*self.closed, *(known for files in self.added.values() for known in files.values())]
        new = columns_of(over)
        old = self._patched()
        return (new if old is None else old.concat(new)).sorted()

    def _patched(self) -> FileColumns | None:
        """Return the base with what happened to its files since."""
        base = self.base
        if base is None:
            return None
        if self.removed:
            rows, table = sorted(self.removed), base.table
            hit = np.zeros(table.num_rows, dtype=bool)
            hit[rows] = True
            for place, name in enumerate(("removed", "removed_at")):
                values = pa.array([self.removed[row][place] for row in rows], COLUMNS.field(name).type)
                patched = pc.replace_with_mask(table[name].combine_chunks(), pa.array(hit), values)
                table = with_column(table, name, patched)
            base = FileColumns(table, base.bounds)
        if self.purged:
            base = base.take(np.flatnonzero(~among(base.table, self.purged).to_numpy(zero_copy_only=False)))
        return base
