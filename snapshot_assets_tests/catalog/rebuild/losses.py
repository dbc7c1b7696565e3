"""What a location can lose of its log, and what a rebuild promises of the rest (FORMAT.md, "Rebuilt logs")."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from snapshot_assets.catalog.log.checkpoints import read_checkpoint
from snapshot_assets.catalog.log.store import read_entry
from snapshot_assets.catalog.manifest import manifest_of, read_manifest
from snapshot_assets.catalog.pins.objects import read_pin
from snapshot_assets.catalog.rebuild.rebuild import Rebuild
from snapshot_assets.catalog.receipts import read_receipt
from snapshot_assets.catalog.state.file_pruning import pending_tombstones
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import PinState
from snapshot_assets.errors import DamageError, ObjectNotFoundError
from snapshot_assets.format.actions import TagCreated
from snapshot_assets.format.documents import pretty_json
from snapshot_assets.format.layout import is_receipt, log_revision, transaction_path
from snapshot_assets.storage.base import ObjectStore

HINTS = ("manifest.json", "SHA256SUMS")
LOSSES = ("transactions", "log", "end", "hole", "some", "checkpoints", "damaged")
OTHERS = ("", "", "hints", "pins", "a pin")

_LOST = re.compile(r"(?:Revision|Transaction)s? (\d+)(?: to (\d+))? (?:is|are) lost")


def lose(store: ObjectStore, kind: str, other: str, number: int, length: int) -> dict[str, bytes]:
    """Lose a part of the log, and perhaps something else that shows what it led to.

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


def shows_nothing(store: ObjectStore) -> bool:
    """Return whether nothing that can be read shows a snapshot; what a rebuild put into holes does not."""
    return not any(_shows(store, info.path) for info in store.list())


def _shows(store: ObjectStore, path: str) -> bool:
    with suppress(DamageError, ValueError, KeyError):
        if path.endswith(".txn"):
            return not read_entry(store, log_revision(path)).starts_log
        if path.endswith(".ckpt"):
            return read_checkpoint(store, log_revision(path)).header is not None
        if is_receipt(path):
            return bool(read_receipt(store, path))
        if path.startswith(("tag/", "savepoint/")):
            return bool(read_pin(store, path))
        if path == "manifest.json":
            return bool(read_manifest(store, path).checksum)
    return False


def highest_named(store: ObjectStore) -> int:
    """Return the highest revision that anything there names."""
    named = [0]
    for info in store.list():
        named.append(log_revision(info.path))
        with suppress(DamageError, ValueError, KeyError, ObjectNotFoundError):
            if is_receipt(info.path):
                named.append(read_receipt(store, info.path)[0].base_revision)
            if info.path.startswith(("tag/", "savepoint/")):
                named.append(json.loads(store.get(info.path))["manifest"]["revision"])
            if info.path == "manifest.json":
                named.append(json.loads(store.get(info.path))["revision"])
    return max(named)


@dataclass
class Rebuilt:
    """A location before it lost something, and after it was rebuilt.

    Attributes:
        before: The state before.
        history: Manifests of all revisions that were ever sealed before, by revision.
        spoiled: What was lost or damaged, by path.
        accepted: Whether it was accepted that deleted data may come back.
    """

    before: State
    history: Mapping[int, bytes]
    spoiled: Mapping[str, bytes]
    after: State
    done: Rebuild
    accepted: bool

    def check(self) -> None:
        """Assert what a rebuild promises."""
        self._pins_are_kept_or_named()
        self._sealed_revisions_are_as_they_were_or_named()
        self._head_is_the_base_or_what_differs_is_named()
        self._deleted_rows_stay_deleted_or_are_named()
        self._savepoint_numbers_are_not_used_again()

    def _savepoint_numbers_are_not_used_again(self) -> None:
        before, last = self.before.pins, self.after.pins.last_savepoint
        left = [number for number, known in before.savepoints.items() if known.pin.object.path not in self.spoiled]
        assert last >= max(left, default=0)
        assert last >= before.last_savepoint or self._unnamed_end or self._is_lost(self.before.revision)

    @property
    def _unnamed_end(self) -> bool:
        """Whether the log's end is lost, and nothing names it."""
        return self.done.revision <= self.before.revision

    def _is_lost(self, revision: int) -> bool:
        """Return whether a revision was named as lost, or belongs to an end that nothing names."""
        runs = (_LOST.match(line) for line in self.done.lost)
        spans = [(int(run[1]), int(run[2] or run[1])) for run in runs if run]
        return revision >= self.done.revision or any(first <= revision <= last for first, last in spans)

    def _naming(self, *names: str) -> list[str]:
        """Return the sentences that have one of some names."""
        words = re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in names))
        return [line for line in self.done.lost if words.search(line)]

    def _pins_are_kept_or_named(self) -> None:
        was, now = ({str(known.pin): known for known in state.pins} for state in (self.before, self.after))
        for name, known in was.items():
            kept = name in now and _terms(now[name]) == _terms(known)
            path = known.pin.object.path
            assert kept or self._naming(name, path) or self._is_lost(known.committed), name
            if path not in self.spoiled and not self._unnamed_end:
                assert kept or self._naming(name), name
        for name, known in now.items():
            assert name in was or self._naming(name), name
            assert known.pin.revision in self.history

    def _sealed_revisions_are_as_they_were_or_named(self) -> None:
        was, now = ({seal.revision for seal in state.readable()} for state in (self.before, self.after))
        for revision in now:
            assert pretty_json(manifest_of(self.after.at(revision))) == self.history[revision], revision
        for revision in was - now:
            assert self._is_lost(revision) or self._naming(f"Revision {revision} cannot be read"), revision

    def _head_is_the_base_or_what_differs_is_named(self) -> None:
        before, after, proved = self.before, self.after, self.done.proved
        if proved == before.revision:
            assert not self.done.taken
            assert after.snapshot_id == before.snapshot_id
            assert pending_tombstones(after) == pending_tombstones(before)  # a manifest has no others
            assert _files(after) == _files(before)
            return
        assert self._is_lost(before.revision)
        if proved and after.snapshot_id == before.snapshot_id:
            for chunk, known in before.chunks.items():
                same = _files(after, chunk) == _files(before, chunk)
                if known.exported > proved and before.completed(chunk) and not self._unnamed_end and not same:
                    assert chunk in self.done.missing or self._naming(f"Chunk {chunk}"), chunk
                assert same or known.revision > proved or before.rolled_back > proved, chunk

    def _deleted_rows_stay_deleted_or_are_named(self) -> None:
        if self.accepted or self.after.snapshot_id != self.before.snapshot_id:
            return
        for revision, tombstone in pending_tombstones(self.before).items():
            gone = transaction_path(revision) in self.spoiled or not self.done.proved
            assert self.after.tombstones.get(revision) == tombstone or (gone and self._is_lost(revision)), revision


def _terms(known: PinState) -> tuple[object, ...]:
    """Return what a rebuild keeps of a pin: everything but its object."""
    pin = known.pin
    kept = (pin.revision, pin.created_at, pin.automatic)
    return (*kept, pin.ttl) if isinstance(known.pin, TagCreated) else kept


def _files(state: State, chunk: int | None = None) -> dict[str, str]:
    return {known.file.path: known.file.sha256 for known in state.live_files(chunk)}
