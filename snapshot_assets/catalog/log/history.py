"""The log for people: who did what and when, newest first; of a damaged log, everything that is readable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from snapshot_assets.catalog.log.checkpoints import named_location, read_own_checkpoint
from snapshot_assets.catalog.log.replay import FAULTS, bring_back, fault_remedy
from snapshot_assets.catalog.log.store import list_log, log_after, read_entry
from snapshot_assets.catalog.state.fold import State, foreign_location
from snapshot_assets.errors import ForeignLocationError, ForkError, MisnamedError, ObjectNotFoundError
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.bulk import in_parallel

_BATCH = 256
"""Transactions in memory at a time: those of large chunks are large."""


@dataclass(frozen=True)
class Revision:
    """One revision, as far as the location still records it.

    Attributes:
        committed_at: UTC; None if the transaction is unreadable.
        actions: Its actions; of a pruned revision, without those on files.
        checkpoint: The checkpoint that records a pruned revision; 0 if the transaction exists.
        error: Why it is unreadable; "" if it is readable.
    """

    revision: int
    committed_at: datetime | None = None
    writer_id: str = ""
    actions: tuple[act.Action, ...] = ()
    checkpoint: int = 0
    error: str = ""


class History:
    """A location's log; its transactions are not read yet.

    Attributes:
        head: The newest revision; 0 without a log.
        pruned: Number of revisions whose transactions pruning deleted.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        listing = list_log(store)
        self._transactions, self._checkpoints = listing.transactions, listing.checkpoints
        self._strays: list[Revision] = []
        # Objects above the head that are no evidence of a revision leave the listing.
        for number in sorted({*self._transactions, *self._checkpoints}, reverse=True):
            linked = {number, number - 1}.issubset(self._transactions)
            why = "" if linked else self._why_stray(number)
            if not why:
                break
            for numbers in (self._transactions, self._checkpoints):
                numbers[:] = [each for each in numbers if each != number]
            self._strays.append(Revision(number, error=why))
        self._there = listing.left()
        self._start = listing.start
        self._after = log_after(store, listing, listing.start)
        self.head = max((*self._after, *listing.checkpoints, *listing.transactions), default=0)
        self.pruned = self._start - sum(number <= self._start for number in self._there)

    def _why_stray(self, number: int) -> str:
        path, others = transaction_path(number), [each for each in self._transactions if each != number]
        try:
            if others == self._transactions:
                read_own_checkpoint(self._store, number, others)
                return ""
            entry, (location, named_by) = read_entry(self._store, number), named_location(self._store, others)
            if location not in ("", entry.transaction.location_id) and not entry.starts_log:
                return str(foreign_location(path, entry.transaction.location_id, location, named_by))
        except (ForeignLocationError, ForkError, MisnamedError) as error:
            return str(error)
        except (*FAULTS, ObjectNotFoundError):
            pass
        return ""

    def revisions(self, *, since: int = 1, limit: int | None = None) -> Iterator[Revision]:
        """Yield revisions, newest first; of pruned ones what a checkpoint records.

        Objects above the head that are no part of the log come first. Of several missing revisions in a row, only the
        last is yielded. Unreadable revisions below a rebuild are no part of the log, and are left out.
        """
        strays = [stray for stray in self._strays if stray.revision >= since][:limit]
        yield from strays
        limit = None if limit is None else limit - len(strays)
        last = max(since, self._start + 1)
        shown = {*self._after, *(number - 1 for number in self._after), self.head}
        numbers = sorted((number for number in shown if number >= last), reverse=True)[:limit]
        events: dict[int, Revision] = {}
        if limit is None or len(numbers) < limit:
            if self.pruned:  # the oldest readable checkpoint records the most of them
                state = next(self._states(self._checkpoints), State())
                events = {
                    each.revision: Revision(
                        each.revision, each.committed_at, each.writer_id, each.actions, state.revision
                    )
                    for each in state.events
                    if since <= each.revision <= self._start and each.revision not in self._there
                }
            kept = {number for number in self._there if since <= number <= self._start}
            numbers = [*numbers, *sorted(kept | events.keys(), reverse=True)][:limit]
        below = False
        for revision in self._read(numbers, events):
            if not below or revision.committed_at is not None:
                yield revision
            below = below or any(isinstance(action, act.Rebuilt) for action in revision.actions)

    def _read(self, numbers: Sequence[int], events: dict[int, Revision]) -> Iterator[Revision]:
        for first in range(0, len(numbers), _BATCH):
            some = numbers[first : first + _BATCH]
            yield from in_parallel(self._store, lambda number: events.get(number) or self._revision(number), some)

    def _revision(self, number: int) -> Revision:
        path = transaction_path(number)
        try:
            transaction = read_entry(self._store, number).transaction
        except FAULTS as fault:
            return Revision(number, error=f"{fault}{fault_remedy(self._store, path, fault)}")
        except ObjectNotFoundError:
            return Revision(number, error=f"{path} is missing. {bring_back(self._store)}")
        location = transaction.location_id
        if location != self._named_location and location != self._own_location:  # reads a checkpoint last
            return Revision(number, error=str(foreign_location(path, location, self._own_location)))
        return Revision(number, transaction.committed_at, transaction.writer_id, transaction.actions)

    @cached_property
    def _named_location(self) -> str:
        """The location that revision 1 names."""
        return named_location(self._store, self._transactions)[0]

    @cached_property
    def _own_location(self) -> str:
        """The location of the newest checkpoint: below a rebuild, revision 1 may belong to another location."""
        state = next(self._states(reversed(self._checkpoints)), None)
        return self._named_location if state is None else state.location_id

    def _states(self, checkpoints: Iterable[int]) -> Iterator[State]:
        for checkpoint in checkpoints:
            with suppress(*FAULTS, ObjectNotFoundError):
                yield read_own_checkpoint(self._store, checkpoint, self._transactions)
