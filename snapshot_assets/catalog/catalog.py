"""The catalog of one location: the newest state, and the one way to change it.

Every change is a function from the head's state to actions (`rules.py`). `Catalog.commit` runs it, tries the next
revision, and on a lost race reloads and runs it again on the newer head: so every rule is re-checked against the
state it is committed on (InfluxDB IOx, "Linearity").
"""

from __future__ import annotations

import getpass
import logging
import socket
import threading
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

from snapshot_assets import __version__
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import list_log, read_state, warn_once
from snapshot_assets.catalog.log.store import Won, append, read_entry
from snapshot_assets.catalog.log.truncation import contradictions, newest_state
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.state import Token as Token  # what writers get from `Catalog.token`
from snapshot_assets.errors import (
    ClockError,
    ConflictError,
    DamageError,
    LimitExceededError,
    LocationDeletedError,
    NoSnapshotError,
    ObjectNotFoundError,
    SnapshotError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format import documents
from snapshot_assets.format.layout import MANIFEST, transaction_path
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.create import SingleWriterStore
from snapshot_assets.storage.probe import probe

MAX_CLOCK_SKEW = timedelta(minutes=5)
"""How far this machine's clock may be from the store's, or behind the last commit, without a word."""

CHECKPOINT_INTERVAL = 100
"""Revisions after which the writer of one adds a checkpoint."""

_LEAST_STEP = timedelta(milliseconds=1)
_MAX_RACES = 1000
_LOG = logging.getLogger(__name__)

Prepare = Callable[[State], Sequence[act.Action] | None]
"""Decides on a state: the actions to commit, or None where nothing is left to do. Raises to refuse."""


def writer_name() -> str:
    """Return a name for this process in the log: package version, user, host, and 8 random hex digits."""
    return f"snapshot_assets/{__version__} {getpass.getuser()}@{socket.gethostname()} {uuid.uuid4().hex[:8]}"


def writable(store: ObjectStore, *, single_writer: bool, clock: Callable[[], datetime]) -> ObjectStore:
    """Return a store through which a location may be written, after proving it; see `Catalog.open_for_writing`."""
    seen = probe(store, single_writer=single_writer)
    ahead = clock() - seen.store_time
    if abs(ahead) > MAX_CLOCK_SKEW:  # one behind would make what it seals and tags look old to retention
        off = f"{ahead} ahead of" if ahead > timedelta(0) else f"{-ahead} behind"
        raise ClockError(
            f"This machine's clock is {off} the clock of {store.uri}; at most {MAX_CLOCK_SKEW} is accepted. Set the "
            "clock (NTP) and run again.",
            ahead=ahead,
        )
    return store if seen.conditional_create else cast(ObjectStore, SingleWriterStore(store))


class Catalog:
    """One location's log, opened; safe to share between threads.

    Args:
        store: The location's objects.
        state: The state read from its log.
        writer_id: Who commits.
        clock: The present, aware UTC.
    """

    def __init__(
        self,
        store: ObjectStore,
        state: State,
        *,
        writer_id: str | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.store = store
        self.state = state
        self.writer_id = writer_id or writer_name()
        self._clock = clock
        self._lock = threading.RLock()

    @classmethod
    def open(cls, store: ObjectStore) -> Catalog:
        """Open a location for reading; it may be empty. A manifest that contradicts its log is warned of.

        Raises:
            DamageError: The log has a fault.
        """
        state = read_state(store)
        for error in contradictions(store, state, [MANIFEST] if state.revision else []):
            warn_once(store, str(error))
        return cls(store, state)

    @classmethod
    def open_for_writing(
        cls,
        store: ObjectStore,
        *,
        single_writer: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> Catalog:
        """Open a location after proving that it may be written: rights, conditional creates, clocks.

        Args:
            store: The location's objects.
            single_writer: Accept a store without conditional creates; the caller promises to be alone.
            clock: The present, aware UTC.

        Raises:
            StoreDeniedError: Some right is missing.
            ConditionalCreateUnsupportedError: Two creates of one object both succeeded.
            ClockError: This machine's clock is more than 5 minutes ahead of the store's, or behind it.
            DamageError: The log has a fault, or it or its end is lost.
        """
        store = writable(store, single_writer=single_writer, clock=clock)
        return cls(store, newest_state(store), clock=clock)

    def refresh(self) -> State:
        """Fold what others committed since, and return the state."""
        with self._lock:
            while True:
                try:
                    entry = read_entry(self.store, self.state.revision + 1)
                except ObjectNotFoundError:
                    return self.state
                if entry.starts_log:
                    self.state = read_state(self.store)
                else:
                    self.state.apply(entry, transaction_path(self.state.revision + 1))

    def require_snapshot(self) -> State:
        """Return the state of a location that holds a snapshot.

        Raises:
            NoSnapshotError: It is empty.
            LocationDeletedError: The snapshot was deleted.
        """
        if self.state.deleted:
            raise LocationDeletedError(f"The snapshot at {self.store.uri} was deleted; choose another location.")
        if self.state.header is None:
            raise NoSnapshotError(f"There is no snapshot at {self.store.uri}.", uri=self.store.uri)
        return self.state

    def token(self) -> Token:
        """Return what a writer has to remember of the snapshot it plans for."""
        state = self.require_snapshot()
        return Token(state.snapshot_id, state.revision, state.schema_id)

    def now(self) -> datetime:
        """Return this machine's present in whole milliseconds, as the log counts time."""
        now = self._clock()
        return now.replace(microsecond=now.microsecond // 1000 * 1000)

    def commit(self, prepare: Prepare) -> int | None:
        """Commit what `prepare` decides, on the newest head.

        Args:
            prepare: Runs again on every newer head.

        Returns:
            The committed revision, or None where `prepare` found nothing left to do.

        Raises:
            ConflictError: `prepare` refused, or others won a thousand races in a row.
            LimitExceededError: The transaction would be larger than readers take; nothing was written.
            OutcomeUnknownError: The store does not say whether the commit took effect.
        """
        with self._lock:
            for _ in range(_MAX_RACES):
                actions = prepare(self.state)
                if actions is None:
                    return None
                transaction = self._transaction(actions)
                won, entry = append(self.store, transaction)
                if won is Won.YES:
                    self.state.apply(entry, transaction_path(transaction.revision))
                    self._checkpoint()
                    return transaction.revision
                self.refresh()
        raise ConflictError(f"Other writers of {self.store.uri} won {_MAX_RACES} revisions in a row; run again.")

    def checkpoint(self) -> str:
        """Write the checkpoint of the state, unless there is one, and return its path.

        Where the checkpoint that statistics are read from was pruned or damaged since, the head is read anew from one
        that has them.
        """
        with self._lock:
            try:
                return write_checkpoint(self.store, self.state)
            except LimitExceededError:
                raise
            except (DamageError, ObjectNotFoundError) as error:
                _LOG.warning("The state of %s is read anew for its checkpoint: %s", self.store.uri, error)
                self.state = read_state(self.store, statistics=True)
                return write_checkpoint(self.store, self.state)

    def _checkpoint(self) -> None:
        """Add a checkpoint where the last one is long ago; that it could not be written is no failure of a commit."""
        state = self.state
        try:
            if self._is_due() and not state.deleted:
                state.checkpointed = max(list_log(self.store).checkpoints, default=0)  # others write them too
                if self._is_due():
                    self.checkpoint()
        except SnapshotError as error:
            _LOG.warning("The checkpoint of revision %d was not written: %s", state.revision, error)

    def _is_due(self) -> bool:
        return self.state.revision - self.state.checkpointed >= CHECKPOINT_INTERVAL

    def _transaction(self, actions: Sequence[act.Action]) -> act.Transaction:
        state, now = self.state, self.now()
        upgraded = [action.version for action in actions if isinstance(action, act.Upgraded)]
        if state.committed_at - now > MAX_CLOCK_SKEW:
            _LOG.warning(
                "The last commit of %s is %s ahead of this machine's clock; is it set back?",
                self.store.uri,
                state.committed_at - now,
            )
        return act.Transaction(
            location_id=state.location_id or uuid.uuid4().hex,
            revision=state.revision + 1,
            uuid=uuid.uuid4().hex,
            previous_uuid=state.uuid,
            previous_sha256=state.sha256,
            writer_id=self.writer_id,
            committed_at=max(now, state.committed_at + _LEAST_STEP),
            actions=tuple(actions),
            version=max([state.format_version or documents.FORMAT_VERSION, *upgraded]),
        )
