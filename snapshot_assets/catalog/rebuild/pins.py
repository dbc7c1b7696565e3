"""What a rebuild keeps of tags, savepoints and sealed revisions of which nothing says whether they are gone.

A pin is kept if its object is there, or can be made again, and its revision can be read. A revision that lacks files
which the head does not need, and that no pin keeps, is taken for expired: it is not damaged, and not brought back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from snapshot_assets.catalog.manifest import checksum_of, manifest_of, used_schema_files
from snapshot_assets.catalog.pins.objects import NO_OBJECT, pin_document, savepoint_document, tag_document
from snapshot_assets.catalog.rebuild.damaged_log import Proof
from snapshot_assets.catalog.rebuild.documents import UNUSABLE, FoundSavepoint, FoundTag
from snapshot_assets.catalog.state.fold import SealState, State
from snapshot_assets.catalog.state.pins import PinState, SavepointState, TagState
from snapshot_assets.catalog.state.retained_events import schema_lives
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import Event
from snapshot_assets.format.checksums import sha256_hex
from snapshot_assets.format.layout import new_attempt, savepoint_path, tag_path

_WRONG = "what is proved of it has not the checksum that was sealed"


@dataclass
class KeptPins:
    """Pins and readable revisions of a rebuilt state.

    Attributes:
        proof: What is proved.
        state: The state, at the revision of the new beginning; a savepoint may be put into its past.
        writer: Who writes the new beginning.
        actions: What is said of them there.
        objects: Objects to write, by path.
        lost: What is not proved of them, in words.
    """

    proof: Proof
    state: State
    writer: str
    actions: list[act.Action] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, proof: Proof, state: State, writer: str) -> KeptPins:
        """Decide on every pin, known or found, and on every sealed revision."""
        kept = cls(proof, state, writer)
        if proof.unsure or proof.silent or proof.unlinked or proof.undoing:
            kept._decide()
        return kept

    @property
    def changes(self) -> bool:
        """Whether a pin or a readable revision comes back or goes; numbers that are passed over are neither."""
        passed = (
            action
            for action in self.actions
            if isinstance(action, act.SavepointDeleted) and action.id not in self.state.pins.savepoints
        )
        return bool(self.objects) or len(self.actions) > len([*passed])

    def _decide(self) -> None:
        tags, savepoints = self._new_tags(), self._new_savepoints()
        dropped = [*self._without_objects(tags)]
        pinned = {known.pin.revision for known in self.state.pins if known not in dropped}
        for tag in tags:
            if self._can_be_kept(f"Tag {tag.name!r}", tag):
                self._tag(tag)
                pinned.add(tag.revision)
        created: list[act.Action] = []
        for savepoint in reversed(savepoints):
            if self._can_be_kept(f"Savepoint {savepoint.id}", savepoint) and self._savepoint(savepoint, created):
                pinned.add(savepoint.revision)
        self.actions += reversed(created)
        self._expire(pinned)
        self._reserve_numbers()

    # What lies there

    def _new_tags(self) -> list[FoundTag]:
        """Return the tags whose objects are there and which the log may have had, the newest of each name."""
        known = {(tag.name, tag.created_at) for tag in self._ever_tagged()}  # deleted ones too
        newest = {}
        for tag in sorted(self.proof.evidence.tags, key=lambda tag: tag.created_at):
            there = self.state.tags.get(tag.name)
            if (tag.name, tag.created_at) not in known and (there is None or not self._has_object(there)):
                newest[tag.name] = tag
        return list(newest.values())

    def _ever_tagged(self) -> Iterator[act.TagCreated]:
        for event in self.state.events:
            for action in event.actions:
                match action:
                    case act.TagCreated():
                        yield action
                    case act.TagRenamed() | act.TagReplaced():
                        yield action.tag

    def _new_savepoints(self) -> list[FoundSavepoint]:
        """Return the savepoints whose objects are there and which the log may have had, by id."""
        newest: dict[int, FoundSavepoint] = {}
        said = self._ever_said()
        for found in sorted(self.proof.evidence.savepoints, key=lambda each: (each.created_at, each.path)):
            other = newest.get(found.id)
            if other is not None and other.revision != found.revision:
                self.lost.append(
                    f"{found.path} and {other.path} are both savepoint {found.id}, and only one was committed; the "
                    "first was taken, which was made later."
                )
            if found.id not in said:
                newest[found.id] = found
        return [newest[number] for number in sorted(newest)]

    def _ever_said(self) -> set[int]:
        """Return the ids of all savepoints that are known, deleted ones too."""
        actions = [action for event in self.state.events for action in event.actions]
        entries = self.proof.evidence.entries.values()
        actions += [action for entry in entries for action in entry.transaction.actions]
        deleted = {action.id for action in actions if isinstance(action, act.SavepointDeleted)}
        return deleted | self.state.pins.savepoints.keys()

    def _has_object(self, known: PinState) -> bool:
        return known.pin.object.path in self.proof.evidence.objects

    def _can_be_kept(self, name: str, found: FoundTag | FoundSavepoint) -> bool:
        """Tell whether the revision that a found pin names is proved and can be read; else that is noted."""
        if all((seal.revision, seal.seal.checksum) != (found.revision, found.checksum) for seal in self.state.seals):
            self.lost.append(f"{name} ({found.path}) pins revision {found.revision}, of which nothing is proved.")
            return False
        lacking = self._lacking(found.revision)
        if lacking:
            self.lost.append(f"{name} ({found.path}) is not taken: of revision {found.revision}, {lacking}.")
        else:
            self.lost.append(f"{name} is taken from {found.path}; whether it was deleted is not proved.")
        return not lacking

    def _lacking(self, revision: int) -> str:
        """Return what a sealed revision lacks, but for files that the head needs too: these were not given up."""
        then = self.state.at(revision)
        seal = next(seal.seal for seal in self.state.seals if seal.revision == revision)
        needed = {known.file.path for known in then.live_files()} - self._live
        missing = self.proof.evidence.objects.missing(needed)
        if missing:
            return f"{min(missing)} is missing"
        return "" if checksum_of(then) == seal.checksum else "files were given up"

    @cached_property
    def _live(self) -> set[str]:
        return {known.file.path for known in self.state.live_files()}

    # Pins of the log whose objects are gone: they were deleted, renamed or replaced where the log has a hole

    def _without_objects(self, tags: list[FoundTag]) -> Iterator[PinState]:
        """Yield the pins that are dropped; the objects of the others are made again."""
        for known in list(self.state.pins):
            if known.pin.revision in self._wrong:
                self.lost.append(f"Not there any more is {known.pin}: of revision {known.pin.revision}, {_WRONG}.")
                yield self._deleted(known)
                continue
            if self._has_object(known):
                continue
            successor = next((tag for tag in tags if _supersedes(tag, known)), None)
            may_be_deleted = self.proof.lost_since(known.committed)
            data = None if successor else self._again(known)
            if data is not None:
                self.objects[known.pin.object.path] = data
                doubt = f"; whether {known.pin} was deleted is not proved" if may_be_deleted else ""
                self.lost.append(f"{known.pin.object.path} is missing and was made again{doubt}.")
                continue
            if successor is None and not may_be_deleted:
                continue
            why = f"{successor.path} took its place" if successor else f"{known.pin.object.path} is missing"
            self.lost.append(f"Not there any more is {known.pin}: {why}.")
            yield self._deleted(known)

    def _deleted(self, known: PinState) -> PinState:
        """Say that a pin is gone, and return it."""
        self.actions.append(
            act.TagDeleted(known.tag.name) if isinstance(known, TagState) else act.SavepointDeleted(known.savepoint.id)
        )
        return known

    @cached_property
    def _wrong(self) -> set[int]:
        """The revisions behind what the log proves that are not what was sealed; they must not be read as that."""
        head = self.state.newest_seal if self.state.sealed else None  # what verifying the head tells
        sealed = [seal for seal in self.state.readable() if seal.revision > self.proof.began and seal != head]
        return {seal.revision for seal in sealed if not self._is_as_sealed(seal)}

    def _is_as_sealed(self, sealed: SealState) -> bool:
        try:
            return checksum_of(self.state.at(sealed.revision)) == sealed.seal.checksum
        except UNUSABLE:
            return False

    def _again(self, known: PinState) -> bytes | None:
        """Return the bytes of a pin's object, None where they cannot be made, or its revision cannot be read."""
        try:
            data = pin_document(known, manifest_of(self.state.at(known.pin.revision)))
        except UNUSABLE:
            return None
        return data if sha256_hex(data) == known.pin.object.sha256 and not self._lacking(known.pin.revision) else None

    # What is said

    def _tag(self, found: FoundTag) -> None:
        """Keep a tag with an object of its own."""
        wanted = act.TagCreated(
            found.name, found.revision, NO_OBJECT, found.created_at, found.ttl, automatic=found.automatic
        )
        data = tag_document(wanted, self.writer, self.state.format_version, manifest_of(self.state.at(found.revision)))
        self.actions.append(replace(wanted, object=self._write(tag_path(found.name, new_attempt()), data)))

    def _savepoint(self, found: FoundSavepoint, created: list[act.Action]) -> bool:
        """Keep a savepoint under its id: at the new beginning, or in a lost revision before one of a greater id."""
        later = self._first_above(found.id)
        if later is None:
            created.append(self._written(found, self.writer, self.state.format_version))
            return True
        at = max((min(last, later - 1) for first, last in self.proof.silent if first < later), default=0)
        if at <= found.revision:
            why = "no revision was lost that can have made it"
            self.lost[-1] = f"Savepoint {found.id} ({found.path}) is not taken: {why}."
            return False
        version = self.state.at(at).format_version
        savepoint = self._written(found, found.created_by, version)
        before = [event for event in self.state.events if event.revision < at]
        event = Event(at, before[-1].committed_at, found.created_by, (savepoint,), changes_data=False)
        self.state.events.insert(len(before), event)
        pins = self.state.pins
        known = pins.savepoints | {found.id: SavepointState(savepoint, found.created_by, at, version)}
        pins.savepoints = dict(sorted(known.items()))
        return True

    def _first_above(self, number: int, *, created: bool = False) -> int | None:
        """Return the revision that first spoke of a savepoint of a greater id, or that first created one."""
        kinds = act.SavepointCreated if created else act.SavepointCreated | act.SavepointDeleted
        for event in self.state.events:
            if any(isinstance(action, kinds) and action.id > number for action in event.actions):
                return event.revision
        return None

    def _written(self, found: FoundSavepoint, writer: str, version: int) -> act.SavepointCreated:
        wanted = act.SavepointCreated(found.id, found.revision, NO_OBJECT, found.created_at, automatic=found.automatic)
        data = savepoint_document(wanted, writer, version, manifest_of(self.state.at(found.revision)))
        return replace(wanted, object=self._write(savepoint_path(found.id, new_attempt()), data))

    def _write(self, path: str, data: bytes) -> act.ObjectRef:
        self.objects[path] = data
        return act.ObjectRef(path, sha256_hex(data), len(data))

    def _expire(self, pinned: set[int]) -> None:
        """Give up the sealed revisions that cannot be read, and name those that may have been given up already."""
        unsure = [
            seal.revision
            for seal in self.state.seals[:-1]  # the newest never expires
            if seal.revision not in pinned | self.state.expired and self.proof.lost_since(seal.revision)
        ]
        missing = self.proof.evidence.objects.missing(self.state.files.paths() - self._live)
        gone = self._lacking_documents(unsure) | (self.state.files.having(missing, unsure) if missing else {})
        for revision, path in gone.items():
            self.lost.append(
                f"Revision {revision} cannot be read: {path} is missing. Whether the revision had expired is not known;"
                " it has now."
            )
        wrong = sorted(self._wrong - gone.keys() - self.state.expired)
        self.lost += (f"Revision {revision} cannot be read: {_WRONG}. It has expired now." for revision in wrong)
        gone |= dict.fromkeys(wrong, "")
        if gone:
            self.actions.insert(0, act.Expired(tuple(sorted(gone))))
        there = [str(revision) for revision in unsure if revision not in gone]
        if there:
            self.lost.append(
                f"Whether revision{'s' * (len(there) > 1)} {', '.join(there)} had expired is not known; the files are "
                "there, so what expired can be read again."
            )

    def _lacking_documents(self, revisions: Sequence[int]) -> dict[int, str]:
        """Return the revisions among some that lack a schema document which the head does not need, with its path."""
        ever = {ref.path for _, added, _ in schema_lives(self.state.events) for ref in added.files}
        missing = self.proof.evidence.objects.missing(ever - _documents(self.state))
        if not missing:
            return {}
        lacking = {each: _documents(self.state.at(each)) & missing for each in revisions}
        return {revision: min(paths) for revision, paths in lacking.items() if paths}

    def _reserve_numbers(self) -> None:
        """Take the numbers for used that a savepoint which was made and deleted in a lost revision may have had.

        No number is greater than the revision that took it: a savepoint takes one, and a rebuild those up to its own.
        """
        proof, pins = self.proof, self.state.pins
        said = [action for action in self.actions if isinstance(action, act.SavepointCreated)]
        last = max([pins.last_savepoint, *(each.id for each in said)])
        found = max([last, *(each.id for each in proof.evidence.savepoints)])
        since = self._first_above(found - 1, created=True) or 0  # a deletion does not tell when
        taken = max([found, *(after for _, after in proof.silent if after > since)])
        if proof.evidence.end_is_lost:
            taken = max(taken, proof.evidence.highest)
        if taken > last:
            self.actions.append(act.SavepointDeleted(taken))


def _documents(state: State) -> set[str]:
    return set(used_schema_files(state)) if state.schemas else set()


def _supersedes(found: FoundTag, known: PinState) -> bool:
    """Tell whether a tag is what a known one became: it was renamed or replaced."""
    if not isinstance(known, TagState):
        return False
    tag = known.tag
    same = (found.revision, found.created_at, found.ttl) == (tag.revision, tag.created_at, tag.ttl)
    renamed = same and found.automatic in (tag.automatic, False)  # by hand: no rule made that name
    return renamed or (found.name == tag.name and found.created_at > tag.created_at)
