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

from snapshot_assets.catalog.evidence import Evidence
from snapshot_assets.catalog.from_manifest import Statement, statement_of
from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.state import DATA_ACTIONS, State
from snapshot_assets.errors import SnapshotError
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import Event
from snapshot_assets.format.checksums import chunk_checksum
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import chunk_of, transaction_path

UNUSABLE = (SnapshotError, KeyError, TypeError, ValueError, AttributeError)
"""What documents raise that somebody else wrote."""


@dataclass
class Proof:
    """A state under reconstruction.

    Attributes:
        state: As far as it is proved.
        began: The revision of the state that the log proved without a hole.
        proved: Up to this revision nothing that was lost can matter.
        since: When that was committed.
        lost: What is lost for good, in words.
        open: By revision, what its transaction says and nothing proves.
        stated: Revisions that spoke.
    """

    evidence: Evidence
    state: State
    began: int
    proved: int
    since: datetime
    lost: list[str] = field(default_factory=list)
    open: dict[int, list[str]] = field(default_factory=dict)
    stated: set[int] = field(default_factory=set)

    @property
    def silent(self) -> list[tuple[int, int]]:
        """Revisions that were committed and say nothing any more, first and last of each run of them."""
        marks = [self.began, *sorted(self.stated), self.evidence.highest + 1]
        return [(one + 1, other - 1) for one, other in pairwise(marks) if other - one > 1]

    @property
    def unsure(self) -> bool:
        """Whether something may have been committed that nothing here proves."""
        tail = self.evidence.highest not in self.evidence.log.transactions
        return tail or bool(self.open) or any(last > self.proved for _, last in self.silent)


@dataclass
class Changes:
    """Changes of a state: actions that are not about files, paths to remove, files to add."""

    actions: list[act.Action] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    added: list[DataFile] = field(default_factory=list)

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
        return Changes(begins + self.actions + actions, self.removed + removed, self.added + added)


Guess = Callable[[Proof, int], Changes]
"""Returns what receipts say that may have been committed before a revision."""


def prove(evidence: Evidence, guess: Guess) -> Proof:
    """Fold everything that stands by itself, in the order of revisions.

    Args:
        evidence: What was found.
        guess: Asked where a seal's checksum is not that of what is known; what it returns counts if that makes it so.
    """
    state = evidence.start
    state.location_id = evidence.location_id
    proof = Proof(evidence, state, state.revision, state.revision, state.committed_at)
    for revision in sorted({*evidence.entries, *evidence.manifests}):
        if revision <= proof.began:
            continue
        told = revision in evidence.manifests and _fold_manifest(proof, revision)
        if not told and revision in evidence.entries:
            _fold_entry(proof, revision, guess)
    for revision, sentences in sorted(proof.open.items()):
        proof.lost += [f"{transaction_path(revision)}: {sentence}" for sentence in sentences]
    return proof


def say(
    state: State,
    event: tuple[int, datetime, str],
    actions: Sequence[act.Action],
    removed: Iterable[str] = (),
    added: Iterable[DataFile] = (),
) -> None:
    """Fold what a revision said.

    Args:
        state: The state before it.
        event: Revision, time of its commit, and writer.
        actions: Those that are not about files.
        removed: Paths that it removed.
        added: Files that it added.
    """
    removed, added = list(removed), list(added)
    changes = bool(removed or added) or any(isinstance(action, DATA_ACTIONS) for action in actions)
    revision, committed_at, writer = event
    state.fold(Event(revision, committed_at, writer, tuple(actions), changes), transaction_path(revision))
    for path in removed:
        state.files.remove(chunk_of(path) or 0, path, revision, committed_at)
    for file in added:
        state.files.add(file, revision)


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
    state, begin = proof.state, list(statement.begin)
    before = min([revision, *statement.tombstones])  # a snapshot begins before rows of it are deleted
    lost = [min(last, before - 1) for first, last in proof.silent if first < before]
    if begin and lost:  # one of these began the snapshot
        say(state, (lost[-1], statement.created_at, statement.created_by), begin)
        state.events.sort(key=lambda event: event.revision)
        begin = []
    event = revision, statement.updated_at, statement.created_by
    upgraded = _upgrades(state, statement.version)
    say(state, event, [*upgraded, *begin, *statement.actions], statement.removed, statement.added)
    for number, tombstone in statement.tombstones.items():
        bury(state, number, tombstone)


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


def _upgrades(state: State, version: int) -> list[act.Action]:
    """Return the upgrade that was lost, if one was."""
    return [act.Upgraded(version, state.format_version)] if version > state.format_version else []


def _fold_entry(proof: Proof, revision: int, guess: Guess) -> None:
    """Fold what of a transaction stands by itself."""
    transaction, state = proof.evidence.entries[revision].transaction, proof.state
    if any(isinstance(action, act.Rebuilt) for action in transaction.actions):
        return  # its checkpoint cannot be read, so it says nothing
    state.format_version = state.format_version or transaction.version
    folding = _Entry(state, transaction, revision == proof.proved + 1)
    folding.judge()
    event = revision, transaction.committed_at, transaction.writer_id
    changes = Changes(folding.actions, folding.removed, list(folding.added.values()))
    sealing = folding.seal
    if sealing is not None and not (folding.whole or _is_sealed(state, event, changes, sealing)):
        guessed = changes.with_chunks_of(guess(proof, revision))
        if _is_sealed(state, event, guessed, sealing):
            changes = guessed
        else:
            folding.doubts.append("it seals a state whose checksum is not that of what is known.")
            sealing = None
    say(state, event, [*changes.actions, *([sealing] if sealing else [])], changes.removed, changes.added)
    if sealing is not None:
        proof.proved, proof.open = revision, {}
    elif folding.doubts:
        proof.open[revision] = folding.doubts
    elif revision == proof.proved + 1:
        proof.proved = revision
    proof.lost += folding.lost
    proof.stated.add(revision)


def _is_sealed(state: State, event: tuple[int, datetime, str], changes: Changes, seal: act.Seal) -> bool:
    """Tell whether changes make a state into the one that a seal declares."""
    trial = state.at(state.revision)
    try:
        say(trial, event, changes.actions, changes.removed, changes.added)
        return not trial.missing() and checksum_of(trial) == seal.checksum
    except UNUSABLE:
        return False


@dataclass
class _Entry:
    """One transaction, taken apart into what stands by itself and what does not.

    Attributes:
        whole: Whether nothing is missing before it.
        seal: Its seal, which is judged when all else is folded.
    """

    state: State
    transaction: act.Transaction
    whole: bool
    actions: list[act.Action] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    added: dict[str, DataFile] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    seal: act.Seal | None = None

    def judge(self) -> None:
        """Decide on every action."""
        said = self.transaction.actions
        if not any(isinstance(action, act.Upgraded) for action in said):
            self.actions += _upgrades(self.state, self.transaction.version)
        self._begun = any(isinstance(action, act.Begin) for action in said)
        for action in said:
            match action:
                case act.Chunk() if action.status is act.ChunkStatus.COMPLETED:
                    self._complete(action)
                case act.AddFile() | act.RemoveFile():
                    pass  # with their chunk
                case act.Purged():
                    self.state.files.purge(action.paths)
                case _:
                    self._judge_word(action)
        self._rest()

    def _complete(self, chunk: act.Chunk) -> None:
        """A completed chunk's checksum tells which files it has."""
        live = {} if self._begun else dict(self.state.files.chunk(chunk.id))
        adds = self._adds(chunk.id)
        gone = {action.path for action in self.transaction.actions if isinstance(action, act.RemoveFile)}
        kept = {path: known.file for path, known in live.items() if path not in gone}
        for files in (kept | adds, adds):
            if chunk_checksum((file.path, file.sha256) for file in files.values()) == chunk.checksum:
                self.actions.append(chunk)
                self.removed += [path for path in live if path not in files]
                self.added |= {path: file for path, file in files.items() if path not in live}
                return
        self.doubts.append(f"it completes chunk {chunk.id} with files that it does not name all.")

    def _adds(self, chunk: int) -> dict[str, DataFile]:
        said = (action.file for action in self.transaction.actions if isinstance(action, act.AddFile))
        return {file.path: file for file in said if file.chunk == chunk}

    def _rest(self) -> None:
        """Files that change without a word on their chunk: only if every one that goes is there."""
        spoken = {action.id for action in self.transaction.actions if isinstance(action, act.Chunk)}
        for action in self.transaction.actions:
            match action:
                case act.AddFile() if action.file.chunk not in spoken:
                    self.added[action.file.path] = action.file
                case act.RemoveFile() if (chunk := chunk_of(action.path)) not in spoken:
                    if action.path in self.state.files.chunk(chunk or 0):
                        self.removed.append(action.path)
                    else:
                        self.doubts.append(f"it removes {action.path}, which nothing added.")

    def _judge_word(self, action: act.Action) -> None:
        state = self.state
        match action:
            case act.Extend():
                header = state.header
                if header is None:
                    self.doubts.append("it moves the end of a range that is not known.")
                elif header.end is None or action.end > header.end:
                    self.actions.append(action)
            case act.SchemaAdded():
                self.actions.append(action)
            case act.Chunk():
                if self._begun or not state.completed(action.id):
                    self.actions.append(action)
            case act.Seal():
                self.seal = action
            case act.TagCreated():
                self._tag(action)
            case act.TagDeleted():
                if action.name in state.tags:
                    self.actions.append(action)
            case act.Upgraded():
                self.actions += _upgrades(state, action.version)
            case _:
                self.actions.append(action)

    def _tag(self, action: act.TagCreated) -> None:
        if all(seal.revision != action.revision for seal in self.state.seals):
            self.lost.append(f"Tag {action.name!r} pins revision {action.revision}, of which nothing is proved.")
            return
        if action.name in self.state.tags:  # what deleted it was lost
            self.actions.append(act.TagDeleted(action.name))
        self.actions.append(action)
