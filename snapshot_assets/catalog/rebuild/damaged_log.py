"""What evidence proves of a log that has holes: a state, folded from what stands by itself, and what stays open.

A chunk action whose checksum is that of its files, a seal whose checksum is that of the state, and a sealed manifest
prove what they say, whatever was lost before them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise

from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.rebuild.begins import LostBegin, lost_begins
from snapshot_assets.catalog.rebuild.documents import UNUSABLE
from snapshot_assets.catalog.rebuild.manifests import Statement, statement_of
from snapshot_assets.catalog.rebuild.objects import Evidence
from snapshot_assets.catalog.rebuild.transactions import Entry, upgrades
from snapshot_assets.catalog.state.fold import DATA_ACTIONS, State
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import Event
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import chunk_of, transaction_path


@dataclass
class Proof:
    """A state under reconstruction.

    Attributes:
        state: As far as it is proved.
        began: The revision of the state that the log proved without a hole.
        proved: Up to this revision nothing that was lost can matter.
        lost: What is lost for good, in words.
        open: By revision, what its transaction says and nothing proves.
        stated: Revisions that spoke.
        unsealed: Revisions that seal what nothing proves: they cannot be read, whatever later ones prove.
        linked: Revisions whose transactions follow the one that is there before them.
        unlinked: By revision, why its transaction does not: what it follows was lost, and another took its place.
    """

    evidence: Evidence
    state: State
    began: int
    proved: int
    lost: list[str] = field(default_factory=list)
    open: dict[int, list[str]] = field(default_factory=dict)
    stated: set[int] = field(default_factory=set)
    unsealed: list[int] = field(default_factory=list)
    linked: set[int] = field(default_factory=set)
    unlinked: dict[int, str] = field(default_factory=dict)

    @property
    def silent(self) -> list[tuple[int, int]]:
        """Revisions that were committed and say nothing any more, first and last of each run of them."""
        marks = [self.began, *sorted(self.stated), self.evidence.highest + 1]
        return [(one + 1, other - 1) for one, other in pairwise(marks) if other - one > 1]

    @property
    def unsure(self) -> bool:
        """Whether something may have been committed that nothing here proves."""
        lost = [*(last for _, last in self.silent), *self.unlinked]
        return self.evidence.end_is_lost or bool(self.open) or any(revision > self.proved for revision in lost)

    @property
    def undoing(self) -> list[int]:
        """Revisions that were lost and of which a manifest says that they rolled back, not what expired with it."""
        return [
            revision
            for revision, manifest in self.evidence.manifests.items()
            if revision > self.began
            and revision not in self.evidence.entries
            and manifest.document.get("rolled_back") == revision
        ]

    def lost_since(self, revision: int) -> bool:
        """Tell whether a revision after one was lost, so that what it did to pins and readable revisions is too."""
        lost = [*(last for _, last in self.silent), *self.unlinked, *self.undoing]
        return self.evidence.end_is_lost or any(each > revision for each in lost)


@dataclass
class Changes:
    """Changes of a state: actions that are not about files, paths to remove, files to add and to bring back."""

    actions: list[act.Action] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    added: list[DataFile] = field(default_factory=list)
    returned: list[DataFile] = field(default_factory=list)

    def with_chunks_of(self, other: Changes) -> Changes:
        """Return these and, of chunks on which these say nothing, what others say; a begin comes first."""
        said = {action.id for action in self.actions if isinstance(action, act.Chunk)}
        begins = [each for each in other.actions if isinstance(each, act.Begin)]
        actions = [
            each
            for each in other.actions
            if each not in begins and not (isinstance(each, act.Chunk) and each.id in said)
        ]
        removed = [path for path in other.removed if chunk_of(path) not in said]
        added = [file for file in other.added if file.chunk not in said]
        return Changes(begins + self.actions + actions, self.removed + removed, self.added + added, self.returned)


Guesses = Callable[[Proof, int], Iterable[Changes]]
"""Returns what receipts say that may have been committed before a revision, the likeliest first."""


def prove(evidence: Evidence, guesses: Guesses) -> Proof:
    """Fold everything that stands by itself, in the order of revisions.

    Args:
        evidence: What was found.
        guesses: Asked where a seal's checksum is not that of what is known; the first counts that makes it so.
    """
    state = evidence.start
    state.location_id = evidence.location_id
    proof = Proof(evidence, state, state.revision, state.revision)
    _look_at_links(proof)
    begins = lost_begins(evidence)
    for revision in sorted({*evidence.entries, *evidence.manifests, *begins}):
        if revision <= proof.began:
            continue
        if revision in begins:
            _fold_begin(proof, revision, begins[revision])
        told = revision in evidence.manifests and _fold_manifest(proof, revision)
        if not told and revision in evidence.entries:
            _fold_entry(proof, revision, guesses)
    for revision, sentences in sorted(proof.open.items()):
        proof.lost += [f"{transaction_path(revision)}: {sentence}" for sentence in sentences]
    proof.lost += [
        f"Revision {revision} cannot be read: {transaction_path(revision)} seals what is not known any more."
        for revision in proof.unsealed
        if revision not in proof.open
    ]
    return proof


def _look_at_links(proof: Proof) -> None:
    """Tell which transactions follow what is there before them, as `State.apply` does for those without a hole."""
    state, entries = proof.state, proof.evidence.entries
    before = {proof.began: (state.uuid, state.sha256)}
    before |= {number: (entry.transaction.uuid, entry.sha256) for number, entry in entries.items()}
    for revision, entry in entries.items():
        follows = entry.transaction.previous_uuid, entry.transaction.previous_sha256
        if revision - 1 not in before or entry.begins_anew:
            continue
        if follows == before[revision - 1] and revision not in proof.evidence.broken:
            proof.linked.add(revision)
            continue
        proof.unlinked[revision] = proof.evidence.broken.get(revision) or (
            f"it follows transaction {follows[0] or 'none'}; revision {revision - 1} is "
            f"{before[revision - 1][0] or 'none'}"
        )


def say(
    state: State,
    event: tuple[int, datetime, str],
    actions: Sequence[act.Action],
    removed: Iterable[str] = (),
    added: Iterable[DataFile] = (),
    returned: Iterable[DataFile] = (),
) -> None:
    """Fold what a revision said.

    Args:
        state: The state before it.
        event: Revision, time of its commit, and writer.
        actions: Those that are not about files.
        removed: Paths that it removed.
        added: Files that it added.
        returned: Files that it brought back; one that the state does not know is added.
    """
    removed, added, returned = list(removed), list(added), list(returned)
    changes = bool(removed or added or returned) or any(isinstance(action, DATA_ACTIONS) for action in actions)
    revision, committed_at, writer = event
    state.fold(Event(revision, committed_at, writer, tuple(actions), changes), transaction_path(revision))
    for path in removed:
        state.files.remove(chunk_of(path) or 0, path, revision, committed_at)
    unknown = state.files.bring_back([file.path for file in returned], revision) if returned else set()
    for file in (*added, *(file for file in returned if file.path in unknown)):
        state.files.add(file, revision)


def _fold_begin(proof: Proof, revision: int, begin: LostBegin) -> None:
    """Begin the snapshot of what lies behind a hole; that its transaction is lost stays said."""
    state = proof.state
    proof.lost += begin.notes
    say(state, (revision, max(begin.created_at, state.committed_at), begin.created_by), begin.after(state))


def _fold_manifest(proof: Proof, revision: int) -> bool:
    """Make the state what a sealed manifest says; False, and noted, if it cannot be used."""
    found, state = proof.evidence.manifests[revision], proof.state
    try:
        statement = statement_of(found, state, proof.evidence)
    except UNUSABLE as error:
        proof.lost.append(f"{found.path} cannot be used: {error!r}.")
        return False
    proof.lost += statement.notes
    state.format_version = state.format_version or statement.version
    _say_statement(proof, statement, revision)
    proof.proved, proof.open = revision, {}
    proof.stated.add(revision)
    return True


def _say_statement(proof: Proof, statement: Statement, revision: int) -> None:
    state = proof.state
    _say_rollback(proof, statement, revision)
    event = revision, statement.updated_at, statement.created_by
    upgraded = upgrades(state, statement.version)
    say(state, event, [*upgraded, *statement.begin, *statement.actions], statement.removed, statement.added)
    for number, tombstone in statement.tombstones.items():
        bury(state, number, tombstone)


def _say_rollback(proof: Proof, statement: Statement, revision: int) -> None:
    """Say the rollback that a manifest tells of: at its own revision, or with the manifest if others spoke since."""
    rollback, state, at = statement.rollback, proof.state, statement.rolled_back
    if rollback is None:
        return
    if max([proof.began, *proof.stated]) < at < revision:
        say(state, (at, state.committed_at, statement.created_by), [rollback])
        return
    if proof.began < at < revision and _put_into_past(state, at, rollback):
        return
    told = {**rollback.tombstones, **statement.tombstones}
    statement.tombstones = {}
    statement.actions.insert(0, replace(rollback, tombstones=told))


def _put_into_past(state: State, revision: int, rollback: act.Rollback) -> bool:
    """Say a rollback before what is known of later revisions; False if it does not fit them."""
    place = bisect_left(state.events, revision, key=lambda event: event.revision)
    sealed = next((seal.revision for seal in state.seals if seal.revision >= revision), None)
    words: list[act.Action] = [rollback]
    if sealed is not None:  # what was sealed since rests on what it brought back
        then = state.at(sealed)
        words += then.schemas.values()
        words += [known.chunk for known in then.chunks.values() if known.revision < revision]
    at = state.events[place - 1].committed_at if place else rollback.created_at
    event = Event(revision, at, rollback.created_by, tuple(words), True)
    events = [*state.events[:place], event, *state.events[place:]]
    try:
        folded = replace(state, events=events).at(state.revision)
    except UNUSABLE:
        return False
    state.events = events
    for name in ("snapshot_id", "header", "created_at", "created_by", "schemas", "chunks", "in_progress", "tombstones"):
        setattr(state, name, getattr(folded, name))
    state.plans_since, state.rolled_back = folded.plans_since, folded.rolled_back
    return True


def bury(state: State, revision: int, tombstone: act.Tombstone) -> None:
    """Add a tombstone that a later revision tells of, at its own, so that older states have it too."""
    place = bisect_left(state.events, revision, key=lambda event: event.revision)
    at = state.events[place - 1].committed_at if place else state.created_at  # the latest that is known to be before it
    event = Event(revision, at, "", (tombstone,), True)
    if place < len(state.events) and state.events[place].revision == revision:
        said = state.events.pop(place)
        others = (action for action in said.actions if not isinstance(action, act.Tombstone))
        event = replace(said, actions=(*others, tombstone), changes_data=True)
    state.events.insert(place, event)
    state.tombstones = dict(sorted((state.tombstones | {revision: tombstone}).items()))


def _fold_entry(proof: Proof, revision: int, guesses: Guesses) -> None:
    """Fold what of a transaction stands by itself."""
    transaction, state = proof.evidence.entries[revision].transaction, proof.state
    if proof.evidence.entries[revision].begins_anew:
        return  # its checkpoint cannot be read, so it says nothing
    state.format_version = state.format_version or transaction.version
    whole = revision == proof.proved + 1 and revision in proof.linked
    folding = Entry(state, transaction, whole, proof.evidence.receipts)
    folding.judge()
    event = revision, transaction.committed_at, transaction.writer_id
    changes = Changes(folding.actions, folding.removed, list(folding.added.values()), folding.returned)
    sealing = folding.seal
    if sealing is not None and not (folding.whole or _is_sealed(state, event, changes, sealing)):
        guessed = (changes.with_chunks_of(guess) for guess in guesses(proof, revision))
        found = next((each for each in guessed if _is_sealed(state, event, each, sealing)), None)
        changes = found or changes
        if found is None:
            proof.unsealed.append(revision)
            folding.doubts.append("it seals a state whose checksum is not that of what is known.")
            sealing = None
    actions = [*changes.actions, *([sealing] if sealing else [])]
    say(state, event, actions, changes.removed, changes.added, changes.returned)
    if sealing is not None:
        proof.proved, proof.open = revision, {}
    elif folding.doubts:
        proof.open[revision] = folding.doubts
    elif revision == proof.proved + 1 and revision not in proof.unlinked:
        proof.proved = revision
    proof.lost += folding.lost
    proof.stated.add(revision)


def _is_sealed(state: State, event: tuple[int, datetime, str], changes: Changes, seal: act.Seal) -> bool:
    """Tell whether changes make a state into the one that a seal declares."""
    trial = state.at(state.revision)
    try:
        say(trial, event, changes.actions, changes.removed, changes.added, changes.returned)
        return not trial.missing() and checksum_of(trial) == seal.checksum
    except UNUSABLE:
        return False
