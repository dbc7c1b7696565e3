"""The data files of a location, live ones and ones that older states still need.

Files that came from a checkpoint stay in Arrow columns, so a million of them cost no object each; what was committed
since lies over them as plain values. A file's life is an interval `[added, removed)` of revisions; a file that was
removed and came back has several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, lru_cache
from heapq import merge
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from snapshot_assets.catalog.bounds import Bounds, bounds_of
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import check_data_path

COLUMNS = pa.schema(
    [
        ("path", pa.string()),
        ("schema", pa.dictionary(pa.int32(), pa.string())),
        ("table", pa.dictionary(pa.int32(), pa.string())),
        ("chunk", pa.int64()),
        ("attempt", pa.binary(4)),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("sha256", pa.binary(32)),
        ("schema_id", pa.int32()),
        ("tombstones_through", pa.int64()),
        ("added", pa.int64()),
        ("removed", pa.int64()),
        ("removed_at", pa.timestamp("us", "UTC")),
    ]
)
"""A row is a file and one interval of its life; `removed` is 0 and `removed_at` NULL while it is live.

Rows are sorted by chunk, path and `added`.
"""

_BATCH = 4096
_CHUNKS_AT_HAND = 16
_OF_A_LIFE = ("added", "removed", "removed_at")
_NEVER = np.iinfo(np.int64).max

Removal = tuple[int, datetime]
"""The revision that left something unneeded, and when it was committed."""


@dataclass(frozen=True)
class FileState:
    """A data file and an interval of its life.

    Attributes:
        added: Revision that added it.
        removed: Revision that removed it; 0 while it is live.
        removed_at: When that was committed.
    """

    file: DataFile
    added: int
    removed: int = 0
    removed_at: datetime | None = None

    def in_state(self, revision: int) -> bool:
        """Tell whether the state at a revision has the file."""
        return self.added <= revision and (not self.removed or revision < self.removed)


@dataclass(frozen=True)
class Base:
    """Files in columns.

    Attributes:
        table: Columns as `COLUMNS` has them.
        bounds: Statistics of the files by their row in the table.
    """

    table: pa.Table
    bounds: Bounds

    @cached_property
    def chunk(self) -> np.ndarray:
        """The chunk of each row, ascending."""
        return np.asarray(self.table["chunk"])

    @cached_property
    def live(self) -> np.ndarray:
        """Whether each row is live."""
        return np.asarray(np.asarray(self.table["removed"]) == 0)

    def column(self, name: str) -> np.ndarray:
        """Return the values of a column of numbers."""
        return np.asarray(self.table[name])

    @cached_property
    def live_rows(self) -> Callable[[int], dict[str, int]]:
        """Return the live rows of a chunk by path; a few chunks are kept at hand, since changes come by chunk."""

        @lru_cache(_CHUNKS_AT_HAND)
        def of(chunk: int) -> dict[str, int]:
            place = self.rows_of(chunk)
            rows = np.flatnonzero(self.live[place]) + place.start
            paths = self.table["path"].take(pa.array(rows)).to_pylist()
            return dict(zip(paths, rows.tolist(), strict=True))

        return of

    def picked(self, rows: np.ndarray) -> Iterator[FileState]:
        """Yield some rows as values, without their statistics, in the order given."""
        for start in range(0, len(rows), _BATCH):
            yield from map(_state_of, self.table.take(pa.array(rows[start : start + _BATCH])).to_pylist())

    def rows_of(self, chunk: int) -> slice:
        """Return the place of a chunk's rows."""
        return slice(int(np.searchsorted(self.chunk, chunk, "left")), int(np.searchsorted(self.chunk, chunk, "right")))

    def take(self, rows: np.ndarray) -> Base:
        """Return some rows, in the order given."""
        return Base(self.table.take(pa.array(rows)).combine_chunks(), self.bounds.take(rows, self.table.num_rows))

    def last_rows(self, paths: set[str]) -> dict[str, int]:
        """Return by path the last row of the files among these that are not live."""
        rows = np.flatnonzero(_among(self.table, paths).to_numpy(zero_copy_only=False))
        names = self.table["path"].take(pa.array(rows)).to_pylist()
        found = dict(zip(names, rows.tolist(), strict=True))
        return {path: row for path, row in found.items() if not self.live[row]}

    def with_interval(self, rows: Sequence[int], added: int) -> Base:
        """Return these rows, and some of them once more, live since a revision."""
        again = self.take(np.array(rows, dtype=np.int64))
        table = _never_removed(again.table)
        since = pa.repeat(pa.scalar(added, COLUMNS.field("added").type), table.num_rows)
        return self.concat(Base(_with_column(table, "added", since), again.bounds)).sorted()

    def sorted(self) -> Base:
        """Return the rows by chunk, path and `added`."""
        order = pc.sort_indices(self.table, [(name, "ascending") for name in ("chunk", "path", "added")])
        return self.take(order.to_numpy())

    def concat(self, other: Base) -> Base:
        """Return these rows and then the others."""
        table = pa.concat_tables([self.table, other.table]).unify_dictionaries()
        return Base(table.combine_chunks(), self.bounds.concat(other.bounds, self.table.num_rows))


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

    base: Base | None = None
    added: dict[int, dict[str, FileState]] = field(default_factory=dict)
    closed: list[FileState] = field(default_factory=list)
    removed: dict[int, tuple[int, datetime]] = field(default_factory=dict)
    purged: set[str] = field(default_factory=set)
    _live: np.ndarray | None = field(default=None, repr=False, compare=False)
    _over: tuple[Base, list[FileState]] | None = field(default=None, repr=False, compare=False)

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
                table = _with_column(table, name, pc.if_else(live, scalar, table[name].combine_chunks()))
            self.base, self.removed, self.purged, self._live = Base(table, base.bounds), {}, set(), None

    def purge(self, paths: Iterable[str]) -> set[str]:
        """Give up files that are not live, with all their intervals, and return the paths that are live or unknown."""
        asked = set(paths)
        gone = asked & {known.file.path for known in self.closed}
        live = {path for files in self.added.values() for path in files}
        if self.base is not None:
            table, found = self.base.table, _among(self.base.table, asked - self.purged)
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
            found.base = Base(_never_removed(base.table), base.bounds)
        return found

    def columns(self) -> Iterator[tuple[Base, np.ndarray, list[FileState] | None]]:
        """Yield the files in columns, which rows of them are live, and the files themselves where they are at hand.

        What lies over the base is not merged with it, which for a million files would take seconds. Each part is sorted
        by chunk and path.
        """
        if self.base is not None:
            yield self.base, self._live_rows(), None
        if self._over is None:
            added = self._added()
            self._over = _base_of(added), added
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
        rows = np.flatnonzero(_among(base.table, set(paths)).to_numpy(zero_copy_only=False))
        return {known.file.path: known.file for known in base.picked(rows)}

    def having(self, paths: Iterable[str], revisions: Iterable[int]) -> dict[int, str]:
        """Return the revisions among some whose states have one of these files, with the first such path."""
        table = self.merged().table
        some = table.filter(_among(table, set(paths)))
        names = np.asarray(some["path"].to_pylist(), dtype=object)
        added, removed = np.asarray(some["added"]), np.asarray(some["removed"])
        found = {each: names[(added <= each) & ((removed == 0) | (removed > each))] for each in revisions}
        return {revision: min(having) for revision, having in found.items() if len(having)}

    def unneeded(self, retained: Sequence[int], expired: Mapping[int, Removal] | None = None) -> dict[str, Removal]:
        """Return the paths of the files that no retained revision has, and what left each unneeded last.

        That is what removed it, or the expiry of a revision that has it.

        Args:
            retained: Revisions, ascending.
            expired: What expired of late, by revision.
        """
        expired = expired or {}
        rest = _rest(self.merged().table, retained)
        left = np.maximum(np.asarray(rest["removed"]), _newest_expiry(rest, expired))
        rest = _with_column(rest, "removed", pa.array(left, COLUMNS.field("removed").type))
        last = rest.group_by("path").aggregate([("removed", "max"), ("removed_at", "max")])
        columns = (last[name].to_pylist() for name in ("path", "removed_max", "removed_at_max"))
        times = dict(expired.values())
        return {path: (revision, times.get(revision, at)) for path, revision, at in zip(*columns, strict=True)}

    def freed(self, before: Sequence[int], after: Sequence[int]) -> dict[str, int]:
        """Return the bytes by path of the files that one of some revisions has, and none of others.

        Args:
            before: Revisions, ascending.
            after: The others, ascending.
        """
        table = self.merged().table
        rest = _rest(table, after)
        rest = rest.filter(pc.invert(pc.is_in(rest["path"], pc.unique(_rest(table, before)["path"]))))
        return dict(zip(rest["path"].to_pylist(), rest["bytes"].to_pylist(), strict=True))

    def back_to(self, revision: int) -> tuple[list[str], list[str]]:
        """Return the paths of live files that an older state lacks, and of those it has that are not live."""
        table = self.merged().table
        added, removed = (np.asarray(table[name]) for name in ("added", "removed"))
        live, then = removed == 0, (added <= revision) & ((removed == 0) | (removed > revision))
        now_paths, then_paths = (table.filter(pa.array(rows))["path"] for rows in (live & ~then, then & ~live))
        leaving, returning = set(now_paths.to_pylist()), set(then_paths.to_pylist())  # one that came back is in both
        return sorted(leaving - returning), sorted(returning - leaving)

    def merged(self) -> Base:
        """Return all intervals of all files in columns, sorted, with their statistics."""
        over = [*self.closed, *(known for files in self.added.values() for known in files.values())]
        new = _base_of(over)
        old = self._patched()
        return (new if old is None else old.concat(new)).sorted()

    def _patched(self) -> Base | None:
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
                table = _with_column(table, name, patched)
            base = Base(table, base.bounds)
        if self.purged:
            base = base.take(np.flatnonzero(~_among(base.table, self.purged).to_numpy(zero_copy_only=False)))
        return base


def _rest(table: pa.Table, retained: Sequence[int]) -> pa.Table:
    """Return all intervals of the files that no retained revision, ascending, has."""
    marks = np.array([*retained, _NEVER], dtype=np.int64)
    added, removed = (np.asarray(table[name]) for name in ("added", "removed"))
    first = np.searchsorted(marks, added)
    needed = pa.array(marks[first] < np.where(removed == 0, _NEVER, removed))
    kept = pc.unique(table.filter(needed)["path"])
    return table.filter(pc.invert(pc.is_in(table["path"], kept)))


def _newest_expiry(table: pa.Table, expired: Mapping[int, Removal]) -> np.ndarray:
    """Return for each interval the newest revision that let one in it expire, 0 for none; of both there may be many.

    Level by level the greatest of 1, 2, 4, … neighbours is known, and two of those that overlap make up any interval.
    """
    marks = np.array(sorted(expired), dtype=np.int64)
    greatest = np.array([expired[int(each)][0] for each in marks], dtype=np.int64)
    added, removed = (np.asarray(table[name]) for name in ("added", "removed"))
    first, end = np.searchsorted(marks, added), np.searchsorted(marks, np.where(removed == 0, _NEVER, removed))
    found, width = np.zeros(len(added), dtype=np.int64), 1
    while width <= len(marks):
        rows = np.flatnonzero((end - first >= width) & (end - first < 2 * width))
        found[rows] = np.maximum(greatest[first[rows]], greatest[end[rows] - width])
        greatest = np.maximum(greatest[:-width], greatest[width:])
        width *= 2
    return found


def _base_of(files: Sequence[FileState]) -> Base:
    values: dict[str, list[object]] = {
        name: [getattr(known if name in _OF_A_LIFE else known.file, name) for known in files] for name in COLUMNS.names
    }
    values |= {name: [bytes.fromhex(getattr(known.file, name)) for known in files] for name in ("attempt", "sha256")}
    rows = pa.table([pa.array(values[each.name], each.type) for each in COLUMNS], COLUMNS)
    return Base(rows, bounds_of([known.file for known in files]))


def _among(table: pa.Table, paths: set[str]) -> pa.Array:
    return pc.is_in(table["path"], pa.array(sorted(paths), pa.string())).combine_chunks()


def _with_column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), COLUMNS.field(name), values)


def _never_removed(table: pa.Table) -> pa.Table:
    live = _with_column(table, "removed", pa.repeat(pa.scalar(0, COLUMNS.field("removed").type), table.num_rows))
    return _with_column(live, "removed_at", pa.nulls(table.num_rows, COLUMNS.field("removed_at").type))


def _state_of(row: dict[str, Any]) -> FileState:
    added, removed, removed_at = row.pop("added"), row.pop("removed"), row.pop("removed_at")
    check_data_path(row["path"], row["chunk"])
    file = DataFile(**(row | {"attempt": row["attempt"].hex(), "sha256": row["sha256"].hex()}))
    return FileState(file, added, removed, removed_at)
