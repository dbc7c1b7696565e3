"""Which rows tombstones delete of restored files: at the restored revision, and when earlier restores loaded them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from snapshot_assets.catalog.state.file_pruning import deletions, written_schemas
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format.actions import Tombstone
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.predicates import Predicate
from snapshot_assets.format.relations import DatabaseSchema, TableName


class TombstoneDeletions:
    """What tombstones delete of a revision's files. A tombstone that a file's statistics exclude deletes nothing of it.

    Args:
        state: The state at the restored revision.
        documents: Every schema that a file was written with, by id.
        before: Tombstones by number, for each revision that the target's ledger names; older or newer than this one.
    """

    def __init__(
        self,
        state: State,
        documents: Mapping[int, DatabaseSchema],
        before: Mapping[int, Mapping[int, Tombstone]],
    ) -> None:
        every = {number: each for some in (*before.values(), state.tombstones) for number, each in some.items()}
        names = {TableName(each.schema, each.table) for each in every.values()}
        self._deletions = {name: deletions(state, name, written_schemas(documents, name), every) for name in names}
        self._now = frozenset(state.tombstones)
        self._before = {revision: frozenset(some) for revision, some in before.items()} | {state.revision: self._now}

    def predicates(self, file: DataFile) -> tuple[Predicate, ...]:
        """Return the predicates of a file's deleted rows: a row of which one is true is not restored."""
        return tuple(predicate for number, predicate in self._of(file).items() if number in self._now)

    def differ(self, file: DataFile, revision: int | None) -> bool:
        """Return whether other tombstones apply to a file now than when it was loaded.

        Args:
            file: A file of the restored revision.
            revision: The revision from which the file was loaded; None if the ledger lost that restore.
        """
        then = self._before.get(revision, frozenset()) if revision is not None else frozenset()
        applying = self._of(file).keys()
        return applying & then != applying & self._now

    def _of(self, file: DataFile) -> Mapping[int, Predicate]:
        found = self._deletions.get(TableName(file.schema, file.table))
        return found.predicates.get(file.path, {}) if found else {}


def tombstones_at(head: State, revisions: Iterable[int]) -> dict[int, Mapping[int, Tombstone]]:
    """Return the tombstones of older revisions, as the head's log has them; nothing where the log has no tombstone."""
    if not any(isinstance(action, Tombstone) for event in head.events for action in event.actions):
        return {}
    return {revision: head.without_files_at(revision).tombstones for revision in set(revisions)}
