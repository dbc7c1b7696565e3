"""Verification of tags and savepoints: their objects byte for byte, and that all is there that their revisions need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from snapshot_assets.catalog.log.scan import LogScan, scan_log
from snapshot_assets.catalog.manifest import manifest_of, used_schema_files
from snapshot_assets.catalog.pins.objects import pin_document
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import PinState
from snapshot_assets.catalog.verify.faults import Fault, FaultKind, read_object
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.listed import Listed


def pin_faults(
    store: ObjectStore,
    scan: LogScan,
    verified: State,
    objects: Listed,
    *,
    only: int | None,
    contents: bool,
) -> Iterator[Fault]:
    """Yield the faults of the tags and savepoints at the head.

    A pin's object is read. The files of the revision it pins are at most looked for with their sizes, not read:
    verifying that revision reads them.

    Args:
        store: The location.
        scan: Its log.
        verified: The state whose own files are checked already.
        objects: The location's objects by path.
        only: The revision whose pins are checked; None for all.
        contents: Whether to look for the files of the pinned revisions, as nothing else verifies these.
    """
    pins = defaultdict(list)
    for known in scan.state.pins:
        if only in (None, known.pin.revision):
            pins[known.pin.revision].append(known)
    checked = {path for path, _, _ in _needed(verified)}
    checked.update(ref.path for added in verified.schemas.values() for ref in added.files)
    for revision, pinning in sorted(pins.items()):
        state = scan.state.at(revision)
        for known in pinning:
            yield from _pin_faults(store, scan, state, known, objects)
        if contents:
            yield from _file_faults(state, pinning[0], checked, objects)


def _pin_faults(store: ObjectStore, scan: LogScan, state: State, known: PinState, objects: Listed) -> Iterator[Fault]:
    pin, path = known.pin, known.pin.object.path
    found = read_object(store, pin.object, path in objects)
    if isinstance(found, Fault):
        if found.kind is not FaultKind.MISSING or _still_there(store, scan, known):
            yield found
    elif found != pin_document(pin, known.created_by, known.version, manifest_of(state)):
        message = f"{path} is not what the log gives for {pin} at revision {pin.revision}."
        yield Fault(FaultKind.DOCUMENT, path, message)


def _still_there(store: ObjectStore, scan: LogScan, known: PinState) -> bool:
    """Whether a pin whose object is missing still exists: it may have been deleted after the log was read."""
    if scan.faults:
        return False  # or by a transaction that cannot be read; the log's own fault is known
    return known in scan_log(store).state.pins


def _needed(state: State) -> Iterator[tuple[str, int, int | None]]:
    """Yield path, size and chunk of every file that a state's snapshot consists of."""
    for file in state.live_files():
        yield file.file.path, file.file.bytes, file.file.chunk
    for path, (ref, _) in used_schema_files(state).items():
        yield path, ref.bytes, None


def _file_faults(state: State, known: PinState, checked: set[str], objects: Listed) -> Iterator[Fault]:
    needs = f"which {known.pin} needs,"
    for path, size, chunk in _needed(state):
        if path in checked:
            continue
        checked.add(path)
        info = objects.get(path)
        if info is None:
            yield Fault(FaultKind.MISSING, path, f"{path}, {needs} is missing.", chunk)
        elif info.size != size:
            yield Fault(FaultKind.SIZE, path, f"{path}, {needs} has {info.size} bytes; expected {size}.", chunk)
