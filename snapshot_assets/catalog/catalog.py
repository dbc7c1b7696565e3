"""The catalog of one location: the newest state, and the one way to change it.

Every change is a function from the head's state to actions (`rules`). `Catalog.commit` calls it and tries to write the
next revision. After a lost race it calls the function again with the newer head. So every rule is checked against the
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
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

from snapshot_assets import __version__
from snapshot_assets.catalog.log.checkpoints import same_states, write_checkpoint
from snapshot_assets.catalog.log.replay import list_log, naming_location, read_state
from snapshot_assets.catalog.log.store import append, read_entry
from snapshot_assets.catalog.log.truncation import contradictions, newest_state
from snapshot_assets.catalog.replica import refuse_replica
from snapshot_assets.catalog.seals.ssh import Signing, sign
from snapshot_assets.catalog.seals.statement import refuse_altered, sign_seal
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import refuse_changes
from snapshot_assets.catalog.state.state import Token as Token  # what writers get from `Catalog.token`
from snapshot_assets.errors import (
    ClockError,
    ConflictError,
    DamageError,
    ForkError,
    LimitExceededError,
    LocationDeletedError,
    NoSnapshotError,
    NotAFileError,
    ObjectNotFoundError,
    SignatureError,
    SigningError,
    SnapshotError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format import documents
from snapshot_assets.format.layout import MANIFEST, transaction_path
from snapshot_assets.spans import span
from snapshot_assets.storage.base import ObjectStore, warn_once
from snapshot_assets.storage.create import SingleWriterStore, probe, refuse_unlockable

MAX_CLOCK_SKEW = timedelta(minutes=5)
"""How far this machine's clock may be from the store's, or behind the last commit, without an error or warning."""

CHECKPOINT_INTERVAL = 100
"""A writer adds a checkpoint after this number of revisions."""

_MAX_RACES = 1000
_LOG = logging.getLogger(__name__)

Actions = Sequence[act.Action] | None
"""The actions to commit, or None if nothing is left to do."""

Prepare = Callable[[State], Actions]
"""Returns the actions to commit on a state. Raises to refuse."""

_Arguments = ParamSpec("_Arguments")
_T = TypeVar("_T")


def rule(decide: Callable[Concatenate[State, _Arguments], Actions]) -> Callable[_Arguments, Prepare]:
    """Turn a function of the head and other arguments into one of these arguments that returns a `Prepare`."""

    @wraps(decide)
    def bind(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> Prepare:
        return lambda state: decide(state, *args, **kwargs)

    return bind


def writer_name() -> str:
    """Return a name for this process in the log: package version, user, host, and 8 random hex digits."""
    return f"snapshot_assets/{__version__} {getpass.getuser()}@{socket.gethostname()} {uuid.uuid4().hex[:8]}"


def writable(store: ObjectStore, *, single_writer: bool, clock: Callable[[], datetime]) -> ObjectStore:
    """Return a store for writing a location, after a probe of the store; see `Catalog.open_for_writing`."""
    refuse_replica(store)
    return proved(store, single_writer=single_writer, clock=clock)


def proved(store: ObjectStore, *, single_writer: bool, clock: Callable[[], datetime]) -> ObjectStore:
    """Return a store for commits after a probe of rights, conditional creates and clocks."""
    refuse_unlockable(store)
    probed = probe(store, single_writer=single_writer)
    ahead = clock() - probed.store_time
    if abs(ahead) > MAX_CLOCK_SKEW:  # with a late clock, retention would take new seals and tags for old ones
        off = f"{ahead} ahead of" if ahead > timedelta(0) else f"{-ahead} behind"
        raise ClockError(
            f"This machine's clock is {off} the clock of {store.uri}; at most {MAX_CLOCK_SKEW} is accepted. Set the "
            "clock (NTP) and run again.",
            ahead=ahead,
        )
    return store if probed.conditional_create else cast(ObjectStore, SingleWriterStore(store))


class Catalog:
    """One location's log, opened; safe to share between threads.

    Args:
        store: The location's objects.
        state: The state read from its log.
        writer_id: The name of this writer in the log; None for a new name.
        clock: Returns the current time, aware UTC.
        signing: How seals are signed; None not to sign them.
    """

    def __init__(
        self,
        store: ObjectStore,
        state: State,
        *,
        writer_id: str | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        signing: Signing | None = None,
    ) -> None:
        self.store = store
        self.state = state
        self.writer_id = writer_id or writer_name()
        self._clock, self._signing = clock, signing
        self._lock = threading.RLock()
        self._followed = True  # whether the state has transactions of others: a writer that slept may have made one

    @classmethod
    def open(cls, store: ObjectStore) -> Catalog:
        """Open a location, which may be empty, for reading. Warn if its manifest contradicts the log.

        Raises:
            DamageError: The log has a fault.
        """
        with span("read log"):
            state = read_state(store)
        for error in contradictions(store, state, [MANIFEST] if state.revision else []):
            warn_once(store.uri, str(error))
        return cls(store, state)

    @classmethod
    def open_for_writing(
        cls,
        store: ObjectStore,
        *,
        single_writer: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        signing: Signing | None = None,
    ) -> Catalog:
        """Open a location for writing, after a probe of rights, conditional creates, clocks and the key of seals.

        `single_writer` accepts a store without conditional creates: the caller promises to be the only writer.

        Raises:
            SigningError: The key that signs seals does not work.
            StoreDeniedError: A right is missing.
            ConditionalCreateUnsupportedError: Two creates of one object both succeeded.
            ClockError: This machine's clock and the store's differ by more than 5 minutes.
            ReplicaError: The location is a replica.
            DamageError: The log has a fault, or the log or its end is lost, or what was signed contradicts it.
        """
        if signing is not None and signing.key is not None:
            sign(signing, b"a probe\n", clock())
        with span("probe store"):
            store = writable(store, single_writer=single_writer, clock=clock)
        catalog = cls(store, newest_state(store), clock=clock, signing=signing)
        catalog._with_statistics(lambda state: refuse_altered(store, state, signing))
        return catalog

    def refresh(self) -> State:
        """Fold the transactions that others committed since, and return the state."""
        with self._lock, naming_location(self.store):
            while True:
                try:
                    entry = read_entry(self.store, self.state.revision + 1)
                except NotAFileError:  # the log does not end here
                    raise
                except ObjectNotFoundError:
                    return self.state
                if entry.starts_log or self.state.partial:
                    self.state = read_state(self.store)
                else:
                    self.state.apply(entry, transaction_path(self.state.revision + 1))
                    self._followed = True

    def require_snapshot(self) -> State:
        """Return the state of a location that holds a snapshot that is not deleted; else raise an error."""
        if self.state.deleted:
            raise LocationDeletedError(f"The snapshot at {self.store.uri} was deleted; choose another location.")
        if self.state.header is None:
            raise NoSnapshotError(f"There is no snapshot at {self.store.uri}.", uri=self.store.uri)
        return self.state

    def token(self) -> Token:
        """Return the token of the snapshot that a writer plans for."""
        state = self.require_snapshot()
        return Token(state.snapshot_id, state.revision, state.schema_id)

    def now(self) -> datetime:
        """Return this machine's current time in whole milliseconds, the log's unit."""
        now = self._clock()
        return now.replace(microsecond=now.microsecond // 1000 * 1000)

    def commit(self, prepare: Prepare) -> int | None:
        """Commit the actions that `prepare` returns for the newest head; it is called again with every newer head.

        Returns the committed revision, or None if `prepare` had nothing left to do.

        Raises:
            TagHeldError: An action would delete or change a tag that is held, or delete the location of one.
            ConflictError: `prepare` refused, or other writers won a thousand races in a row.
            LimitExceededError: The transaction is larger than readers accept; nothing was written.
            OutcomeUnknownError: The store did not report whether the commit took effect.
            SigningError: A seal was committed, and could not be signed.
        """
        with span("commit"), self._lock:
            for _ in range(_MAX_RACES):
                actions = prepare(self.state)
                if actions is None:
                    return None
                refuse_changes(self.state.pins, actions)
                transaction = self._transaction(actions)
                won, entry = append(self.store, transaction, followed=self._followed)
                if won:
                    self._followed = False
                    self.state.apply(entry, transaction_path(transaction.revision))
                    self._checkpoint()
                    if any(isinstance(action, act.Seal) for action in actions):
                        self.sign_newest_seal()
                    return transaction.revision
                self.refresh()
        raise ConflictError(f"Other writers of {self.store.uri} won {_MAX_RACES} revisions in a row; run again.")

    def sign_newest_seal(self) -> None:
        """Write the statement about the newest seal, unless it exists, and sign it, unless it is signed.

        Raises:
            SigningError: It could not be signed; without a key, that is only a warning.
        """
        revision, uri = self.state.seals[-1].revision, self.store.uri
        try:
            self._with_statistics(lambda state: sign_seal(self.store, state, revision, self._signing))
        except SnapshotError as error:
            if self._signing is None or self._signing.key is None:
                _LOG.warning("The statement about seal %d of %s was not written: %s", revision, uri, error)
                return
            raise SigningError(
                f"Revision {revision} of {uri} is sealed, and not signed: {error} `snapshots sign` signs it.",
                revision=revision,
            ) from error

    def checkpoint(self) -> str:
        """Write the checkpoint of the state, unless it exists, and return its path."""
        return self._with_statistics(lambda state: write_checkpoint(self.store, state))

    def _with_statistics(self, use: Callable[[State], _T]) -> _T:
        """Use the state with the statistics of its files.

        If the checkpoint that they are read from was pruned or is damaged, reread the state from another one,
        which must be what it was. If the state's revision was pruned, too, raise the error.
        """
        with self._lock:
            try:
                return use(self.state)
            except (LimitExceededError, SignatureError):
                raise
            except (DamageError, ObjectNotFoundError) as error:
                _LOG.warning("The state of %s is read again for its statistics: %s", self.store.uri, error)
                state = read_state(self.store, through=self.state.revision, statistics=True)
                if not state.uuid:  # the revision was pruned, too: a later one gives it without files of older ones
                    raise
                if not same_states(state, self.state, statistics=False):
                    message = f"The log of {self.store.uri} has another revision {state.revision} now"
                    raise ForkError(f"{message}; `snapshots export verify` names its faults.") from error
                self.state = state
                return use(state)

    def _checkpoint(self) -> None:
        """Add a checkpoint if one is due. A failure does not fail the commit before it."""
        state = self.state
        try:
            if state.deleted or state.revision - state.checkpointed < CHECKPOINT_INTERVAL:
                return
            state.checkpointed = max(list_log(self.store).checkpoints, default=0)  # other writers write them too
            if state.revision - state.checkpointed >= CHECKPOINT_INTERVAL:
                self.checkpoint()
        except SnapshotError as error:
            _LOG.warning("The checkpoint of revision %d was not written: %s", state.revision, error)

    def _transaction(self, actions: Sequence[act.Action]) -> act.Transaction:
        state, now = self.state, self.now()
        upgraded = [action.version for action in actions if isinstance(action, act.Upgraded)]
        ahead, uri = state.committed_at - now, self.store.uri
        if ahead > MAX_CLOCK_SKEW:
            _LOG.warning("The last commit of %s is %s ahead of this machine's clock; is it set back?", uri, ahead)
        return act.Transaction(
            location_id=state.location_id or uuid.uuid4().hex,
            revision=state.revision + 1,
            uuid=uuid.uuid4().hex,
            previous_uuid=state.uuid,
            previous_sha256=state.sha256,
            writer_id=self.writer_id,
            committed_at=max(now, state.committed_at + timedelta(milliseconds=1)),
            actions=tuple(actions),
            version=max([state.format_version or documents.FORMAT_VERSION, *upgraded]),
        )
