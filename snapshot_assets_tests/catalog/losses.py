"""What a location can lose of its log, and what a rebuild promises of the rest (FORMAT.md, "Rebuilt logs")."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from snapshot_assets.catalog.log.checkpoints import read_checkpoint
from snapshot_assets.catalog.log.store import read_entry
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.rebuild.documents import read_manifest, read_savepoint, read_tag
from snapshot_assets.catalog.rebuild.rebuild import Rebuild
from snapshot_assets.catalog.receipts.receipts import read_receipt
from snapshot_assets.catalog.state.file_pruning import pending_tombstones
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import PinState, TagState
from snapshot_assets.errors import DamageError, ObjectNotFoundError
from snapshot_assets.format import actions as act
from snapshot_assets.format.documents import pretty_json
from snapshot_assets.format.layout import is_receipt, log_revision, transaction_path
from snapshot_assets.storage.base import ObjectStore

HINTS = ("manifest.json", "SHA256SUMS")
LOSSES = ("transactions", "log", "end", "hole", "some", "checkpoints", "damaged")
OTHERS = ("", "", "hints", "pins", "a pin")

_LOST = re.compile(r"Revisions? (\d+)(?: to (\d+))? (?:is|are) lost")
_UNPROVED = "is not known."


def lose(store: ObjectStore, kind: str, other: str, number: int, length: int) -> dict[str, bytes]:
    """Lose a part of the log, and perhaps something else that tells of it.

    Args:
        store: The location.
        kind: One of `LOSSES`.
        other: One of `OTHERS`.
        number: Where.
        length: How much.

    Returns:
        What was there, by path.
    """
    before: dict[str, bytes] = {}

    def spoil(path: str, *, damaged: bool = False) -> None:
        before[path] = data = store.get(path)
        if damaged:
            place = number * 7919 % len(data)
            flipped = bytes([data[place] ^ 1]) + data[place + 1 :]
            store.put(path, data[:place] + (flipped if log_revision(path) else b""))  # documents have no own checksum
        else:
            store.delete(path)

    paths = [info.path for info in sorted(store.list(), key=lambda info: info.modified)]  # names are not the same twice
    log = sorted((path for path in paths if path.startswith("transactions/")), key=log_revision)
    for path in _lost_of_log(log, kind, number, length):
        spoil(path, damaged=kind == "damaged")
    pins = [path for path in paths if path.startswith(("tag/", "savepoint/"))]
    match other:
        case "hints" | "pins":
            for path in {"hints": HINTS, "pins": pins}[other]:
                if path in paths:
                    spoil(path)
        case "a pin":
            for path in pins[number % len(pins) :][:1] if pins else []:
                spoil(path, damaged=length % 2 == 0)
    return before


def shown_revision(store: ObjectStore) -> int:
    """Return the revision that manifest.json shows, 0 for none."""
    with suppress(ObjectNotFoundError):
        return json.loads(store.get("manifest.json"))["revision"]
    return 0


def tells_nothing(store: ObjectStore) -> bool:
    """Return whether nothing that can be read tells of a snapshot; what a rebuild put into holes does not."""
    return not any(_tells(store, info.path) for info in store.list())


def _tells(store: ObjectStore, path: str) -> bool:
    with suppress(DamageError, ValueError, KeyError):
        if path.endswith(".txn"):
            return not read_entry(store, log_revision(path)).begins_anew
        if path.endswith(".ckpt"):
            return read_checkpoint(store, log_revision(path)).header is not None
        if is_receipt(path):
            return bool(read_receipt(store, path))
        if path.startswith("tag/"):
            return bool(read_tag(store, path))
        if path.startswith("savepoint/"):
            return bool(read_savepoint(store, path))
        if path == "manifest.json":
            return read_manifest(store, path).sealed
    return False


def highest_named(store: ObjectStore) -> int:
    """Return the highest revision that anything there names."""
    named = [shown_revision(store)]
    for info in store.list():
        named.append(log_revision(info.path))
        with suppress(DamageError, ValueError, KeyError):
            if is_receipt(info.path):
                named.append(read_receipt(store, info.path)[0].base_revision)
            if info.path.startswith(("tag/", "savepoint/")):
                named.append(json.loads(store.get(info.path))["manifest"]["revision"])
    return max(named)


def end_of_log(store: ObjectStore) -> int:
    """Return the highest revision that anything names if its transaction can be read and says something, else 0."""
    highest = highest_named(store)
    with suppress(DamageError, ObjectNotFoundError):
        return 0 if read_entry(store, highest).begins_anew else highest
    return 0


def _lost_of_log(log: list[str], kind: str, number: int, length: int) -> list[str]:
    transactions = [path for path in log if path.endswith(".txn")]
    checkpoints = [path for path in log if path.endswith(".ckpt")]
    first = log_revision(transactions[-1 - number % len(transactions)])
    match kind:
        case "transactions":
            return transactions
        case "log":
            return log
        case "checkpoints":
            return checkpoints
        case "end":
            return [path for path in log if log_revision(path) >= first]
        case "hole":
            return [path for path in transactions if first <= log_revision(path) < first + length] + [
                path for path in checkpoints if log_revision(path) >= first
            ]
        case "some":
            return log[number % 5 :: length + 1]
    return log[-1 - number % len(log) :][:1]


@dataclass
class Told:
    """What a rebuild said is lost.

    Attributes:
        revisions: That are lost.
        unproved: Those among them of which nothing proves what they led to.
    """

    done: Rebuild
    revisions: set[int] = field(default_factory=set)
    unproved: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        for line in self.done.lost:
            if found := _LOST.match(line):
                lost = range(int(found[1]), int(found[2] or found[1]) + 1)
                self.revisions.update(lost)
                if line.endswith(_UNPROVED):
                    self.unproved.update(lost)

    def lost(self, revision: int) -> bool:
        """Tell whether a revision was said to be lost, or is of an end that nothing named."""
        return revision in self.revisions or revision >= self.done.revision

    def unknown(self, revision: int) -> bool:
        """Tell whether it was said that what a revision led to is not proved."""
        return (
            revision in self.unproved or revision >= self.done.revision or bool(self.naming(transaction_path(revision)))
        )

    def naming(self, *names: str) -> list[str]:
        """Return what was said with one of some names."""
        words = re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in names), re.IGNORECASE)
        return [line for line in self.done.lost if not _LOST.match(line) and words.search(line)]

    def of_revision(self, revision: int) -> bool:
        """Tell whether a revision was named as one that expired, or may have expired."""
        return any(str(revision) in re.findall(r"\d+", line.partition(":")[0]) for line in self._of_revisions())

    def _of_revisions(self) -> Iterator[str]:
        return (line for line in self.done.lost if line.startswith(("Revision", "Whether revision")))


@dataclass
class Rebuilt:
    """A location before it lost something, and after it was rebuilt.

    Attributes:
        before: The state before.
        history: Manifests of all revisions that were ever sealed before, by revision.
        spoiled: What was lost or damaged, by path.
        uncommitted: Receipts that nobody committed.
        shown: The revision that manifest.json showed before the rebuild, 0 for none.
        ends_at: The last revision that the log has, if that is the highest that anything names; else 0. Then nothing
            tells that there were later ones, as nothing does where no more was lost, and a tag of then is an orphan.
        accepted: Whether it was accepted that deleted data may come back.
    """

    before: State
    history: Mapping[int, bytes]
    spoiled: Mapping[str, bytes]
    uncommitted: set[str]
    after: State
    done: Rebuild
    shown: int
    ends_at: int
    accepted: bool

    def __post_init__(self) -> None:
        self.told = Told(self.done)

    def check(self) -> None:
        """Assert what a rebuild promises."""
        self._pins_are_there_or_told()
        self._sealed_revisions_are_as_they_were_or_told()
        self._head_is_as_it_was_or_told()
        self._deleted_rows_stay_deleted_or_told()
        last = self.before.pins.last_savepoint
        assert self.after.pins.last_savepoint >= last or self.done.revision <= self.before.revision

    def _pins_are_there_or_told(self) -> None:
        was, now = ({str(known.pin): known for known in state.pins} for state in (self.before, self.after))
        for name, known in was.items():
            there = now.get(name)
            if known.pin.object.path in self.spoiled and (there is None or _terms(there) != _terms(known)):
                assert self.told.naming(name, known.pin.object.path) or self.told.lost(known.committed), name
            elif there is not None or not 0 < self.ends_at < known.committed:
                assert there is not None, name
                assert _terms(there) == _terms(known), name
        for name, known in now.items():
            if name not in was:
                assert self.told.naming(name), name
            assert known.pin.revision in self.history

    def _sealed_revisions_are_as_they_were_or_told(self) -> None:
        was, now = ({seal.revision for seal in state.readable()} for state in (self.before, self.after))
        for revision in now:
            manifest = manifest_of(self.after.at(revision))
            if revision in self._exact():
                assert pretty_json(manifest) == self.history[revision]
            else:
                assert _proved(json.loads(pretty_json(manifest))) == _proved(json.loads(self.history[revision]))
        for revision in was - now:
            unsealed = self.told.naming(transaction_path(revision))
            assert unsealed or self.told.lost(revision) or self.told.of_revision(revision), revision
        expired_untold = self.told.lost(self.before.revision)  # in an end that nothing named
        for revision in now - was - self.after.pins.revisions():
            assert expired_untold or self.told.of_revision(revision), revision

    def _exact(self) -> set[int]:
        """Return the revisions of which a whole manifest is left."""
        found = {known.pin.revision for known in self.before.pins if known.pin.object.path not in self.spoiled}
        if self._hinted:
            found.add(self.before.seals[-1].revision)
        return found

    @property
    def _hinted(self) -> bool:
        """Whether manifest.json shows the newest seal."""
        return bool(self.before.seals) and self.shown == self.before.seals[-1].revision

    def _head_is_as_it_was_or_told(self) -> None:
        before, after, told = self.before, self.after, self.told
        if after.snapshot_id != before.snapshot_id:
            said = [(event.revision, action) for event in before.events for action in event.actions]
            begun = max(revision for revision, action in said if isinstance(action, act.Begin | act.Rollback))
            assert told.unknown(begun)
            return
        changed = {
            chunk
            for chunk in {*before.chunks, *after.chunks}
            if _files(before, chunk) != _files(after, chunk) or before.completed(chunk) != after.completed(chunk)
        }
        for chunk in changed - self.done.taken.keys():
            assert not (before.sealed and self._hinted), chunk
            assert told.unknown(before.spoken_of(chunk)) or told.naming(f"chunk {chunk}"), chunk
        if before.sealed and self._hinted:
            for receipts in self.done.taken.values():
                assert not self.uncommitted.isdisjoint(receipts.split(", "))
        if not self.done.taken and (before.sealed and self._hinted):
            assert after.sealed
            assert manifest_of(after.at(after.seals[-1].revision)) == json.loads(
                self.history[before.seals[-1].revision]
            )

    def _deleted_rows_stay_deleted_or_told(self) -> None:
        if self.accepted or self.after.snapshot_id != self.before.snapshot_id:
            return
        for revision, tombstone in pending_tombstones(self.before).items():
            assert self.after.tombstones.get(revision) == tombstone or self.told.unknown(revision), revision


def _terms(known: PinState) -> tuple[object, ...]:
    """Return what a rebuild keeps of a pin: everything but its object."""
    pin = known.pin
    kept = (pin.revision, pin.created_at, pin.automatic)
    return (*kept, pin.ttl) if isinstance(known, TagState) else kept


def _proved(manifest: dict) -> dict:
    """Return what is left of a manifest where the times and names of lost revisions are not known."""
    return {name: said for name, said in manifest.items() if name not in ("created_at", "created_by", "rolled_back")}


def _files(state: State, chunk: int) -> dict[str, str]:
    return {path: known.file.sha256 for path, known in state.files.chunk(chunk).items()}
