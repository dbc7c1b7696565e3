"""Chunks whose files were compacted since they were loaded: the same rows in other files need not be loaded again.

That rows are the same is taken from facts only: every word of the log on the chunk since then is a compaction, its
receipt says that it left out no row, each file that was loaded is one that it kept or merged, and the numbers of rows
agree. What cannot be proved so counts as changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from snapshot_assets.catalog.receipts import Receipt, read_receipt
from snapshot_assets.databases.target import LoadedFile
from snapshot_assets.engine.restore_plan import FilePlan
from snapshot_assets.errors import DamageError, ObjectNotFoundError, UnsupportedVersionError
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import Event
from snapshot_assets.format.layout import attempt_of
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore

_OTHER_ROWS = (act.Begin, act.SchemaAdded, act.Rebuilt)
"""After these, files of one chunk may hold other rows or columns without a receipt that says so."""

_Files = Mapping[tuple[TableName, str], int]
"""Rows by table and path."""


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

    def same_rows(
        self, chunk: int, loaded: Iterable[LoadedFile], now: Iterable[FilePlan], revisions: Sequence[int], revision: int
    ) -> bool:
        """Tell whether it is proved that files of a chunk hold the rows that were loaded, and no others.

        Args:
            chunk: The chunk.
            loaded: What the ledger has of some tables.
            now: All files of these tables at the restored revision.
            revisions: Those that the imports restored which loaded the files.
            revision: The restored one; it may be older or newer.
        """
        plans = list(now)
        if not all(plan.whole for plan in plans):
            return False
        then = {(each.table, each.path): each.rows for each in loaded}
        wanted = {(plan.table.table_name, plan.file.path): plan.file.rows for plan in plans}
        if max(revisions) <= revision:
            return self._became(then, chunk, min(revisions), revision) == wanted
        return min(revisions) >= revision and self._became(wanted, chunk, revision, max(revisions)) == then

    def _became(self, files: _Files, chunk: int, first: int, last: int) -> _Files | None:
        """Return the files that hold the rows of others after some revisions; None where that is not known."""
        since = (event for event in self.events if first < event.revision <= last)
        if any(isinstance(action, _OTHER_ROWS) for event in since for action in event.actions):
            return None
        found: _Files | None = files
        for receipt in self._receipts(chunk, first, last):
            if found is None or receipt is None:
                return None
            found = _compacted(found, receipt)
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


def _compacted(files: _Files, receipt: Receipt) -> _Files | None:
    """Return the files that hold the rows of others after a compaction; None where these are not known to be all."""
    if receipt.compaction is None:
        return None
    found = dict(files)
    for each in receipt.compaction.tables:
        name = TableName(each.schema, each.table)
        old = {key: rows for key, rows in files.items() if key[0] == name}
        if not old:
            continue  # a table that is not restored
        new = {(name, file.path): file.rows for file in receipt.files if (file.schema, file.table) == name}
        merged = all(key in new or attempt_of(key[1]) in receipt.supersedes for key in old)
        if not merged or each.rows_deleted or each.rows_duplicate or sum(old.values()) != sum(new.values()):
            return None
        found = {key: rows for key, rows in found.items() if key not in old} | new
    return found
