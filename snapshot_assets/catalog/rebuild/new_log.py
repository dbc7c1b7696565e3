"""The new beginning of a log: what was found becomes a checkpoint, and a transaction that says what was lost."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from snapshot_assets.catalog.catalog import writer_name
from snapshot_assets.catalog.log.checkpoints import checkpoint_bytes
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.store import Won, append
from snapshot_assets.catalog.manifest import write_hints
from snapshot_assets.catalog.rebuild.damaged_log import Proof, bury, prove, say
from snapshot_assets.catalog.rebuild.data_files import found_files, take_files
from snapshot_assets.catalog.rebuild.documents import UNUSABLE
from snapshot_assets.catalog.rebuild.manifests import tombstones_of
from snapshot_assets.catalog.rebuild.named_receipts import name_only
from snapshot_assets.catalog.rebuild.objects import Evidence
from snapshot_assets.catalog.rebuild.pins import KeptPins
from snapshot_assets.catalog.rebuild.receipts import Remains, guesses, take_receipts
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import ConflictError, ObjectExistsError
from snapshot_assets.format import actions as act
from snapshot_assets.format import documents
from snapshot_assets.format.layout import checkpoint_path
from snapshot_assets.format.predicates import predicate_json
from snapshot_assets.format.transactions import encode_transaction, trailing_sha256
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.create import create_own


@dataclass
class Beginning:
    """A rebuilt state, and what is to be written.

    Attributes:
        state: The state at the new beginning.
        transaction: The one that begins the log anew.
        lost: What was lost, in words.
        undeleted: Which rows are there again that were deleted, in words; it is among `lost` too.
        objects: Those of tags and savepoints, by path.
        differs: Whether it takes or gives up anything that the log does not say.
    """

    proof: Proof
    remains: Remains
    state: State
    transaction: act.Transaction
    lost: tuple[str, ...]
    undeleted: tuple[str, ...]
    objects: dict[str, bytes]
    differs: bool

    @classmethod
    def of(cls, store: ObjectStore, evidence: Evidence, from_files: bool, now: datetime) -> Beginning:
        """Fold what is proved, take what is not, and prepare what says so."""
        proof = prove(evidence, guesses)
        remains = take_receipts(proof)
        found = found_files(store, proof, remains, read=from_files)
        if from_files:
            take_files(store, proof, remains, found)
        else:
            remains.lost += found.unproved()
        state, writer, revision = proof.state, writer_name(), evidence.highest + 1
        at = max(
            now.replace(microsecond=now.microsecond // 1000 * 1000), state.committed_at + timedelta(milliseconds=1)
        )
        state.location_id = state.location_id or found.location_id or uuid.uuid4().hex
        state.format_version = state.format_version or documents.FORMAT_VERSION
        lost = [*_silence(proof), *evidence.notes, *proof.lost, *_doubts(remains), *remains.lost]
        tombstones = _tombstones(proof, remains, lost)
        say(state, (revision, at, writer), remains.actions, remains.removed, remains.added)
        undeleted = _undeleted(state, tombstones)
        lost += undeleted
        lost += name_only(state, [ref for _, ref in evidence.receipts])
        kept = KeptPins.of(proof, state, writer)
        lost += kept.lost
        differs = bool(remains.taken or kept.changes)
        rebuilt = act.Rebuilt(state.snapshot_id, tuple(lost))
        _say_rebuilt(state, rebuilt, (revision, at, writer), kept.actions)
        state.files.purge(evidence.objects.missing(state.files.unneeded(state.retained())))
        state.uuid = uuid.uuid4().hex
        transaction = rebuilt_transaction(state, rebuilt)
        state.sha256 = trailing_sha256(encode_transaction(transaction))
        return cls(proof, remains, state, transaction, tuple(lost), tuple(undeleted), kept.objects, differs)

    def write(self, store: ObjectStore) -> None:
        """Write the objects of pins, then close the holes, then the checkpoint, and at last the transaction.

        Raises:
            ConflictError: Another writer was quicker; the checkpoint is taken back.
        """
        for path, data in self.objects.items():
            create_own(store, path, data)
        close_holes(store, self.proof.evidence, self.transaction)
        path = checkpoint_path(self.transaction.revision)
        try:
            create_own(store, path, checkpoint_bytes(self.state))
        except ObjectExistsError:
            raise conflict(store, self.transaction.revision) from None
        if append(store, self.transaction)[0] is Won.NO:
            store.delete(path)
            raise conflict(store, self.transaction.revision)
        write_hints_of(store, self.state)


def rebuilt_transaction(state: State, rebuilt: act.Rebuilt) -> act.Transaction:
    """Return the transaction that begins a log anew; it follows nothing.

    Args:
        state: The state at the new beginning, as its checkpoint has it.
        rebuilt: What is said of the rebuild.
    """
    return act.Transaction(
        location_id=state.location_id,
        revision=state.revision,
        uuid=state.uuid,
        previous_uuid="",
        previous_sha256="",
        writer_id=state.events[-1].writer_id,
        committed_at=state.committed_at,
        actions=(rebuilt,),
        version=state.format_version,
    )


def conflict(store: ObjectStore, revision: int) -> ConflictError:
    """Return what says that another writer was quicker."""
    return ConflictError(
        f"Another writer of {store.uri} took revision {revision} while it was rebuilt; nothing of the rebuild counts. "
        "Look at the location, and run again if it still needs it.",
        revision=revision,
    )


def _silence(proof: Proof) -> list[str]:
    """Say which revisions are gone, whether something later proves what they led to, and where knowledge ends."""
    sentences, broken = [], {number: text.rstrip(".") for number, text in sorted(proof.evidence.broken.items())}
    for first, last in proof.silent:
        which = f"Revision {first} is" if first == last else f"Revisions {first} to {last} are"
        why = "; ".join(text for number, text in broken.items() if first <= number <= last)
        led = _led(proof, last, "it" if first == last else "they")
        sentences.append(f"{which} lost{f' ({why})' if why else ''}; {led}.")
    sentences += [
        f"Revision {number} is lost ({why}); a manifest proves what it led to."
        for number, why in broken.items()
        if number in proof.stated and number not in proof.evidence.entries
    ]
    for number, why in sorted(proof.unlinked.items()):
        led = _led(proof, number - 1, "that")
        sentences.append(f"Revision {number} does not follow what is there before it ({why.rstrip('.')}); {led}.")
    if sentences or proof.lost_since(0):  # the end of a log that lost something may be gone without a trace
        sentences.append(f"Whether anything was committed after revision {proof.evidence.highest} is not known.")
    return sentences


def _led(proof: Proof, last: int, what: str) -> str:
    if last < proof.proved:
        return f"revision {proof.proved} proves what {what} led to"
    return "what was removed, deleted, replaced, sealed, pinned, expired or undone is not known"


def _doubts(remains: Remains) -> list[str]:
    if not remains.taken:
        return []
    chunks = ", ".join(map(str, sorted(remains.taken)))
    return [
        f"Chunk{'s' * (len(remains.taken) > 1)} {chunks} rest on receipts or files; that they were committed, and "
        "not replaced or removed later, nor rows of them deleted, is not proved."
    ]


def _tombstones(proof: Proof, remains: Remains, lost: list[str]) -> dict[int, act.Tombstone]:
    """Return the snapshot's known tombstones by revision; those of work in progress go into the state if they fit."""
    state, found = proof.state, proof.evidence.unsealed
    same = remains.snapshot_id == state.snapshot_id
    known = {revision: each for revision, each in state.tombstones.items() if same or not _is_older(proof, revision)}
    if found is None or found.snapshot_id != remains.snapshot_id:
        return known
    try:
        told = tombstones_of(found, known if same else {})
    except UNUSABLE as error:
        lost.append(f"The tombstones in {found.path} cannot be used: {error!r}.")
        return known
    for revision, tombstone in told.items() if same else ():
        bury(state, revision, tombstone)
    return known | told


def _is_older(proof: Proof, revision: int) -> bool:
    """Tell whether a revision is of the snapshot that is known, where another began after it in a hole."""
    holes = [*(first for first, _ in proof.silent), *proof.unlinked]
    return bool(proof.state.snapshot_id) and revision < min(holes, default=proof.evidence.highest)


def _undeleted(state: State, tombstones: Mapping[int, act.Tombstone]) -> list[str]:
    """Name the tombstones that a rebuilt state has not: receipts begin its snapshot after them."""
    return [
        f"Rows of {tombstone.schema}.{tombstone.table} were deleted at revision {revision}, those where "
        f"{json.dumps(predicate_json(tombstone.predicate))}; some may be there again. Delete them once more."
        for revision, tombstone in sorted(tombstones.items())
        if revision not in state.tombstones
    ]


def _say_rebuilt(
    state: State, rebuilt: act.Rebuilt, event: tuple[int, datetime, str], others: list[act.Action]
) -> None:
    """Put the rebuild before what its revision says already, and expiry and pins behind it."""
    said = state.events.pop() if state.events and state.events[-1].revision == event[0] else None
    say(state, event, [rebuilt, *others])
    last = state.events.pop()
    actions = (rebuilt, *(said.actions if said else ()), *others)
    state.events.append(replace(last, actions=actions, changes_data=bool(said and said.changes_data)))


def close_holes(store: ObjectStore, evidence: Evidence, transaction: act.Transaction) -> None:
    """Fill the first free revisions before the transaction that begins the log anew.

    Raises:
        ConflictError: Another writer was quicker.
    """
    for revision in _first_holes(evidence, transaction.revision):
        plug = replace(transaction, revision=revision, uuid=uuid.uuid4().hex, actions=(act.Rebuilt("", ()),))
        if append(store, plug)[0] is Won.NO:
            raise conflict(store, revision)


def _first_holes(evidence: Evidence, end: int) -> list[int]:
    """Return the free revisions before one that a writer which slept since before the loss could still win."""
    there, known = set(evidence.log.transactions), {0, *evidence.log.transactions, *evidence.log.checkpoints}
    return [number + 1 for number in sorted(known) if number + 1 < end and number + 1 not in there]


def write_hints_of(store: ObjectStore, state: State) -> None:
    """Write the hints of a rebuilt state, or of its newest seal."""
    if state.newest_seal is not None and not state.sealed:
        state = state.at(state.newest_seal.revision)
    write_hints(store, state, lambda: read_state(store))
