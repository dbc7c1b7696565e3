"""The new log: its checkpoint, its first transaction, and what fences off writers that slept since before the loss."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from snapshot_assets.catalog.catalog import writer_name
from snapshot_assets.catalog.log.checkpoints import checkpoint_bytes
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.store import Won, append
from snapshot_assets.catalog.manifest import write_hints
from snapshot_assets.catalog.rebuild.base import Base
from snapshot_assets.catalog.rebuild.changes import fold
from snapshot_assets.catalog.rebuild.inventory import Inventory
from snapshot_assets.catalog.rebuild.losses import last_lost
from snapshot_assets.catalog.rebuild.pins import KeptPins, keep_pins
from snapshot_assets.catalog.rebuild.recovered import Recovered
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.retained_events import needed_events
from snapshot_assets.errors import ConflictError, ObjectExistsError
from snapshot_assets.format import actions as act
from snapshot_assets.format.documents import FORMAT_VERSION
from snapshot_assets.format.layout import checkpoint_path
from snapshot_assets.format.transactions import encode_transaction, trailing_sha256
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.create import create_own

_LEAST_STEP = timedelta(milliseconds=1)


@dataclass
class NewLog:
    """A rebuilt log, to be written.

    Attributes:
        state: The state of its checkpoint.
        transaction: Its first transaction.
        lost: What that says is lost, in sentences.
        fences: The free revisions below it that a sleeping writer could still win.
        pins: The objects of pins to create, and to write again.
    """

    state: State
    transaction: act.Transaction
    lost: tuple[str, ...]
    fences: list[int]
    pins: KeptPins

    def write(self, store: ObjectStore) -> None:
        """Write the objects of pins, then the fences, then the checkpoint, and last the transaction.

        Raises:
            ConflictError: Another writer was quicker; the checkpoint is deleted again.
        """
        for path, data in self.pins.created.items():
            create_own(store, path, data)
        for path, data in self.pins.restored.items():
            store.put(path, data)
        for revision in self.fences:
            actions = (act.Rebuilt("", ()),)
            fence = replace(self.transaction, revision=revision, uuid=uuid.uuid4().hex, actions=actions)
            if append(store, fence)[0] is Won.NO:
                raise _conflict(store, revision)
        revision = self.transaction.revision
        path = checkpoint_path(revision)
        try:
            create_own(store, path, checkpoint_bytes(self.state))
        except ObjectExistsError:
            raise _conflict(store, revision) from None
        if append(store, self.transaction)[0] is Won.NO:
            store.delete(path)
            raise _conflict(store, revision)
        state = read_state(store)
        seal = state.newest_seal
        write_hints(store, state.at(seal.revision) if seal and not state.sealed else state, lambda: read_state(store))


def _conflict(store: ObjectStore, revision: int) -> ConflictError:
    return ConflictError(
        f"Another writer of {store.uri} took revision {revision} while it was rebuilt; nothing of the rebuild counts. "
        "Look at the location, and run again if it still needs it.",
        revision=revision,
    )


def make_new_log(base: Base, inventory: Inventory, recovered: Recovered, lost: Iterable[str], now: datetime) -> NewLog:
    """Put a base, and what was recovered beside it, at the beginning of a new log.

    Args:
        base: The base; its state becomes that of the new log.
        inventory: What lies at the location.
        recovered: What is taken without proof.
        lost: What is lost, in sentences; those on pins and receipts are added.
        now: The present.
    """
    state, writer, revision = base.state, writer_name(), inventory.next_free
    state.location_id = state.location_id or inventory.location_id or uuid.uuid4().hex
    state.format_version = state.format_version or FORMAT_VERSION
    missing = _forget_receipts(state, {ref for _, ref in inventory.receipts})
    live = {known.file.path for known in state.live_files()} - {*recovered.removed}
    kept = keep_pins(base, inventory, live, writer, last_lost(base, inventory))
    rebuilt = act.Rebuilt(recovered.snapshot_id, (*lost, *missing, *kept.lost))
    at = max(now.replace(microsecond=now.microsecond // 1000 * 1000), state.committed_at + _LEAST_STEP)
    actions = [rebuilt, *recovered.actions, *kept.actions]
    fold(state, (revision, at, writer), actions, recovered.removed, recovered.added)
    state.files.purge(state.files.unreferenced(state.retained()).keys() - inventory.objects.keys())
    transaction = act.Transaction(
        location_id=state.location_id,
        revision=revision,
        uuid=uuid.uuid4().hex,
        previous_uuid="",
        previous_sha256="",
        writer_id=writer,
        committed_at=at,
        actions=(rebuilt,),
        version=state.format_version,
    )
    state.uuid, state.sha256 = transaction.uuid, trailing_sha256(encode_transaction(transaction))
    return NewLog(state, transaction, rebuilt.lost, _free_revisions(inventory, revision), kept)


def _free_revisions(inventory: Inventory, end: int) -> list[int]:
    """Return the first free revision behind each run of transactions and checkpoints, and revision 1 if it is free."""
    taken = set(inventory.log.transactions)
    runs = {0, *taken, *inventory.log.checkpoints}
    return [revision + 1 for revision in sorted(runs) if revision + 1 < end and revision + 1 not in taken]


def _forget_receipts(state: State, there: set[act.ObjectRef]) -> list[str]:
    """Take receipts that are missing or damaged out of a state; the checksums of their chunks prove the files."""
    actions = (action for event in needed_events(state, recent_expiries=False) for action in event.actions)
    lacking = {ref for action in actions if isinstance(action, act.Chunk) for ref in action.receipts} - there

    def without(action: act.Action) -> act.Action:
        if isinstance(action, act.Chunk):
            return replace(action, receipts=tuple(ref for ref in action.receipts if ref in there))
        return action

    state.events = [replace(event, actions=tuple(map(without, event.actions))) for event in state.events]
    for number, known in state.chunks.items():
        refs = tuple(ref for ref in known.chunk.receipts if ref in there)
        state.chunks[number] = replace(known, chunk=replace(known.chunk, receipts=refs))
    paths = ", ".join(sorted(ref.path for ref in lacking))
    return [f"Receipts that are missing or damaged are not named any more: {paths}."] if lacking else []
