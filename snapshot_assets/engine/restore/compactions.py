"""Chunks whose files were compacted since they were loaded: the same rows in other files need not be loaded again.

That rows are the same is taken from facts only: every word of the log on the chunk since then is a compaction, each
file that was loaded is one that it kept or merged, and the numbers of rows agree. A compaction and a tombstone only
take rows away, and a tombstone stays: so what the target has lost by tombstones already, the files of now lack too, and
these hold the same rows if they hold as many. What cannot be proved so counts as changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from snapshot_assets.catalog.receipts.receipts import Receipt, read_receipt
from snapshot_assets.databases.target import LoadedFile
from snapshot_assets.engine.restore.plan import FilePlan
from snapshot_assets.errors import DamageError, ObjectNotFoundError, UnsupportedVersionError
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import Event
from snapshot_assets.format.layout import attempt_of
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore

_OTHER_ROWS = (act.Begin, act.SchemaAdded, act.Rebuilt)
"""After these, files of one chunk may hold other rows or columns without a receipt that says so."""

_Files = Mapping[str, int]
"""Rows by path, of one table and chunk."""


@dataclass(frozen=True)
class Renewal:
    """Files that a chunk's rows in the target are known by, and those that hold exactly these rows now.

    Attributes:
        old: Rows of the ledger.
        new: What takes their place.
    """

    old: tuple[LoadedFile, ...]
    new: tuple[LoadedFile, ...]


@dataclass(frozen=True)
class Held:
    """What a target has of a table in a chunk.

    Attributes:
        files: What the ledger has of it.
        revisions: For each of the files, the revision that the import restored which loaded it, as far as it is known.
        complete: Whether these were all files of the table and chunk at the newest of the revisions.
    """

    chunk: int
    table: TableName
    files: tuple[LoadedFile, ...]
    revisions: tuple[int, ...]
    complete: bool


@dataclass(frozen=True)
class LeftOut:
    """Rows that compactions left out, and that only one of a target and a revision has.

    Attributes:
        in_target: Whether it is the target.
        deleted: Rows that tombstones had deleted.
        duplicate: Rows whose primary key a newer row has.
    """

    table: TableName
    in_target: bool
    deleted: int
    duplicate: int

    def __bool__(self) -> bool:
        """Tell whether there is such a row: the rows are the same if not."""
        return bool(self.deleted or self.duplicate)

    def __str__(self) -> str:
        """Return it for a message."""
        kinds = {"deleted row": self.deleted, "duplicate": self.duplicate}
        rows = " and ".join(f"{count} {what}{'s' * (count != 1)}" for what, count in kinds.items() if count)
        rows += " of a primary key" if self.duplicate else ""
        return f"{rows} in {self.table} that the target {'holds' if self.in_target else 'lacks'}"


@dataclass(frozen=True)
class _Followed:
    """What became of a table's files.

    Attributes:
        paths: The files that hold their rows now.
        deleted: Rows of tombstones that were left out on the way.
        duplicate: Rows that were left out as duplicates.
    """

    paths: frozenset[str]
    deleted: int = 0
    duplicate: int = 0


@dataclass(frozen=True)
class Compactions:
    """What a location's log says of compactions.

    Attributes:
        store: The location.
        events: What was said, ascending, to the head.
    """

    store: ObjectStore
    events: Sequence[Event]
    _read: dict[str, Receipt | None] = field(default_factory=dict)

    def compacted(self, chunk: int, first: int, last: int) -> bool:
        """Tell whether a chunk was compacted after one revision and not after another one, whatever else happened."""
        return any(receipt is not None and receipt.compaction for receipt in self._receipts(chunk, first, last))

    def left_out(self, held: Held, now: Iterable[FilePlan], revision: int) -> LeftOut | None:
        """Return which rows only the target or a revision has, where compactions are all that lies between them.

        Args:
            held: What the target has of a table in a chunk.
            now: All files of the table and chunk at the restored revision.
            revision: That revision; it may be older or newer.

        Returns:
            None where it is not proved that files of the one hold the others' rows but for what was left out.
        """
        plans = list(now)
        if not all(plan.whole for plan in plans) or len(held.revisions) < len(held.files):
            return None
        then = {each.path: each.rows for each in held.files}
        wanted = {plan.file.path: plan.file.rows for plan in plans}
        first, last = min(held.revisions), max(held.revisions)
        if last <= revision:
            found = self._became(held, then, first, revision)
            return _left_out(held, found, then, wanted, in_target=True)
        found = self._became(held, wanted, revision, last) if first >= revision else None
        return _left_out(held, found, wanted, then, in_target=False)

    def _became(self, held: Held, files: _Files, first: int, last: int) -> _Followed | None:
        """Return what became of a table's files after some revisions; None where that is not known."""
        since = (event for event in self.events if first < event.revision <= last)
        if any(isinstance(action, _OTHER_ROWS) for event in since for action in event.actions):
            return None
        found: _Followed | None = _Followed(frozenset(files))
        for receipt in self._receipts(held.chunk, first, last):
            if found is None or receipt is None:
                return None
            found = _compacted(found, receipt, held.table)
        return found

    def _receipts(self, chunk: int, first: int, last: int) -> list[Receipt | None]:
        """Return the receipt of every word on a chunk in `(first, last]`; None for one that cannot be read."""
        return [
            self._receipt(action.receipts[-1]) if action.receipts else None
            for event in self.events
            if first < event.revision <= last
            for action in event.actions
            if isinstance(action, act.Chunk) and action.id == chunk
        ]

    def _receipt(self, ref: act.ObjectRef) -> Receipt | None:
        if ref.path not in self._read:
            try:
                receipt, found = read_receipt(self.store, ref.path)
            except (DamageError, ObjectNotFoundError, UnsupportedVersionError):  # collected since, or of no use
                self._read[ref.path] = None
            else:
                self._read[ref.path] = receipt if found == ref else None
        return self._read[ref.path]


def _compacted(files: _Followed, receipt: Receipt, table: TableName) -> _Followed | None:
    """Return what became of a table's files in a compaction; None where these are not known to be all."""
    if receipt.compaction is None:
        return None
    new = frozenset(file.path for file in receipt.files if (file.schema, file.table) == table)
    told = next((each for each in receipt.compaction.tables if (each.schema, each.table) == table), None)
    if told is None or files.paths == new:  # it did not concern the table, or was over when they were loaded
        return files
    if not all(path in new or attempt_of(path) in receipt.supersedes for path in files.paths):
        return None
    return _Followed(new, files.deleted + told.rows_deleted, files.duplicate + told.rows_duplicate)


def _left_out(held: Held, became: _Followed | None, old: _Files, new: _Files, *, in_target: bool) -> LeftOut | None:
    """Return which rows of old files new ones lack; None where they are not known to be what became of those.

    Args:
        held: What the target has.
        became: What became of the old files; None if that is not known.
        old: The files that were there first.
        new: The others.
        in_target: Whether the target has the old files' rows.
    """
    if became is None or became.paths != new.keys():
        return None
    if in_target and not held.complete and (became.deleted or became.duplicate):
        return None  # rows that the target never had would be taken for such as it lost
    deleted = sum(old.values()) - sum(new.values()) - became.duplicate
    return LeftOut(held.table, in_target, deleted, became.duplicate) if 0 <= deleted <= became.deleted else None
