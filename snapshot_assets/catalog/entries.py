"""One transaction behind a hole, taken apart into what stands by itself and what does not."""

from __future__ import annotations

from dataclasses import dataclass, field

from snapshot_assets.catalog.state import State
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
            self.actions += upgrades(self.state, self.transaction.version)
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
                self.actions += upgrades(state, action.version)
            case _:
                self.actions.append(action)

    def _tag(self, action: act.TagCreated) -> None:
        if all(seal.revision != action.revision for seal in self.state.seals):
            self.lost.append(f"Tag {action.name!r} pins revision {action.revision}, of which nothing is proved.")
            return
        if action.name in self.state.tags:  # what deleted it was lost
            self.actions.append(act.TagDeleted(action.name))
        self.actions.append(action)
