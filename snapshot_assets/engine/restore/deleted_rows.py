"""Which rows tombstones delete of restored files: at the restored revision, and when earlier imports loaded them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from snapshot_assets.catalog.state.file_pruning import deletions, written_schemas
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format.actions import Tombstone
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.predicates import Predicate
from snapshot_assets.format.relations import DatabaseSchema, TableName


class TombstoneDeletions:
    """What tombstones delete of a revision's files. One that a file's statistics exclude deletes nothing of it.

    Args:
        state: The state at the restored revision.
        documents: Every schema that a file was written with, by id.
        before: By revision that was imported once, older or newer than this one, the tombstones that it had.
    """

    def __init__(
        self,
        state: State,
        documents: Mapping[int, DatabaseSchema],
        before: Mapping[int, Mapping[int, Tombstone]],
    ) -> None:
        every = {number: each for some in (*before.values(), state.tombstones) for number, each in some.items()}
        names = {TableName(each.schema, each.table) for each in every.values()}
        self._found = {name: deletions(state, name, written_schemas(documents, name), every) for name in names}
        self._now = frozenset(state.tombstones)
        self._before = {revision: frozenset(some) for revision, some in before.items()} | {state.revision: self._now}

    def predicates(self, file: DataFile) -> tuple[Predicate, ...]:
        """Return the predicates of which one is true for each row of a file that is not restored."""
        return tuple(predicate for number, predicate in self._of(file).items() if number in self._now)

    def differ(self, file: DataFile, revision: int | None) -> bool:
        """Tell whether other tombstones concern a file than when it was loaded.

        Args:
            file: A file of the restored revision.
            revision: The revision that the import restored which loaded it; None if nobody knows.
        """
        then = self._before.get(revision, frozenset()) if revision is not None else frozenset()
        concerned = self._of(file).keys()
        return concerned & then != concerned & self._now

    def _of(self, file: DataFile) -> Mapping[int, Predicate]:
        found = self._found.get(TableName(file.schema, file.table))
        return found.predicates.get(file.path, {}) if found else {}


def imported_tombstones(head: State, revisions: Iterable[int]) -> dict[int, Mapping[int, Tombstone]]:
    """Return the tombstones that imported revisions had, as the head's log tells; nothing where it has none at all."""
    if not any(isinstance(action, Tombstone) for event in head.events for action in event.actions):
        return {}
    return {revision: head.at(revision).tombstones for revision in set(revisions)}
