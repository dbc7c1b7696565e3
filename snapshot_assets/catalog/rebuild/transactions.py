"""One transaction behind a hole, taken apart into what stands by itself and what does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from snapshot_assets.catalog.rebuild.transaction_pins import PinWords
from snapshot_assets.catalog.receipts.selection import Found, newest_by_table
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import PinAction
from snapshot_assets.format import actions as act
from snapshot_assets.format.checksums import chunk_checksum
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import chunk_of


def upgrades(state: State, version: int) -> list[act.Action]:
    """Return the upgrade that was lost, if one was."""
    return [act.Upgraded(version, state.format_version)] if version > state.format_version else []


@dataclass
class Entry:
    """One transaction, taken apart into what stands by itself and what does not.

    Attributes:
        whole: Whether nothing is missing before it, and it follows what is there.
        receipts: All that were found.
        returned: Files that a rollback brings back.
        seal: Its seal, which is judged when all else is folded.
    """

    state: State
    transaction: act.Transaction
    whole: bool
    receipts: Sequence[Found] = ()
    actions: list[act.Action] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    added: dict[str, DataFile] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    returned: list[DataFile] = field(default_factory=list)
    seal: act.Seal | None = None

    def judge(self) -> None:
        """Decide on every action."""
        said = self.transaction.actions
        self._rollback = next((action for action in said if isinstance(action, act.Rollback)), None)
        self._older: State | None = None
        self._kept: set[str] = set()
        pins = PinWords(self.state)
        if not any(isinstance(action, act.Upgraded) for action in said):
            self.actions += upgrades(self.state, self.transaction.version)
        self._begun = any(isinstance(action, act.Begin | act.Rollback) for action in said)
        for action in said:
            match action:
                case act.Chunk() if action.status is act.ChunkStatus.COMPLETED:
                    if self._rollback is None:
                        self._complete(action)
                    else:
                        self._bring_back(action, self._rollback)
                case act.AddFile() | act.RemoveFile() | act.ReturnedFiles():
                    pass  # with their chunk
                case act.Purged():
                    self._purge(action, pins)
                case _ if isinstance(action, PinAction):
                    pins.judge(action)
                case _:
                    self._judge_word(action)
        if self._rollback is None:
            self._rest()
        else:
            self.removed += sorted(self._live_paths() - self._kept)
        self.actions += pins.actions
        self.lost += pins.lost

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
            case act.Upgraded():
                self.actions += upgrades(state, action.version)
            case _:
                self.actions.append(action)

    # Rollbacks: everything that they bring back is said anew

    def _live_paths(self) -> set[str]:
        return {known.file.path for known in self.state.live_files()}

    def _bring_back(self, chunk: act.Chunk, rollback: act.Rollback) -> None:
        """A chunk's checksum tells which of the files that anything knows it has again."""
        live = self.state.files.chunk(chunk.id)
        for files in self._may_have_had(chunk, rollback):
            if chunk_checksum((file.path, file.sha256) for file in files) == chunk.checksum:
                self.actions.append(chunk)
                self.returned += [file for file in files if file.path not in live]
                self._kept.update(file.path for file in files if file.path in live)
                return
        self.doubts.append(f"it brings back chunk {chunk.id} with files that are not all known.")

    def _may_have_had(self, chunk: act.Chunk, rollback: act.Rollback) -> Iterator[list[DataFile]]:
        """Yield what a chunk may have had: at the older revision, as the actions on files say, as its receipts say."""
        yield [known.file for known in self._then(rollback).files.chunk(chunk.id).values()]
        live = {path: known.file for path, known in self.state.files.chunk(chunk.id).items()}
        both = live | {path: file for path, file in self._returning.items() if file.chunk == chunk.id}
        yield [file for path, file in both.items() if path not in self._leaving]
        named = [receipt for receipt, ref in self.receipts if ref in chunk.receipts]
        yield [file for files in newest_by_table(named).values() for file in files]
        yield []

    def _then(self, rollback: act.Rollback) -> State:
        if self._older is None:
            self._older = self.state.at(rollback.revision)
        return self._older

    @cached_property
    def _leaving(self) -> set[str]:
        return {action.path for action in self.transaction.actions if isinstance(action, act.RemoveFile)}

    @cached_property
    def _returning(self) -> dict[str, DataFile]:
        said = (action.paths for action in self.transaction.actions if isinstance(action, act.ReturnedFiles))
        return self.state.files.named(path for paths in said for path in paths)

    # Garbage that was given up

    def _purge(self, purged: act.Purged, pins: PinWords) -> None:
        """What was given up no readable revision had: one that has it expired, and its pins were deleted, in a hole."""
        state = self.state
        gone = state.files.having(purged.paths, [seal.revision for seal in state.readable()])
        state.files.purge(purged.paths)
        if not gone:
            return
        self.actions.append(act.Expired(tuple(sorted(gone))))
        given_up = [known for known in state.pins if known.pin.revision in gone]
        pins.give_up(given_up)
        for revision, path in sorted(gone.items()):
            names = "".join(f", {known.pin} was deleted" for known in given_up if known.pin.revision == revision)
            self.lost.append(f"Revision {revision} expired{names}: garbage collection gave up {path} of it later.")
