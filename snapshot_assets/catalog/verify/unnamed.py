"""Objects that no transaction names: what a killed run finished or left, garbage, and other programs' objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta

from snapshot_assets.catalog.log.scan import LogScan
from snapshot_assets.catalog.receipt_selection import adoptable_receipts, newest_fitting
from snapshot_assets.catalog.receipts import Receipt
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.retained import documents_of
from snapshot_assets.catalog.state.totals import exporter_text
from snapshot_assets.catalog.verify.faults import Fault, FaultKind
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import in_layout
from snapshot_assets.format.units import counted, duration_text
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.listed import Listed

_COLLECTED = ("data/", "schema/", "tag/", "savepoint/")


def unnamed_objects(store: ObjectStore, scan: LogScan, objects: Listed) -> Iterator[Fault]:
    """Yield chunks that are finished and not committed, orphans, and objects that are not part of the format."""
    for path in objects:
        if not in_layout(path):
            yield Fault(FaultKind.FOREIGN, path, f"{path} is not part of the format; no command changes it.")
    if scan.faults:
        return
    named = _named(scan)
    orphans = [path for path in objects if path.startswith(_COLLECTED) and in_layout(path) and path not in named]
    receipts, kept = _adoptable(store, scan.state, orphans)
    for receipt in receipts.values():
        yield _uncommitted(receipt, scan.state)
    finished = {path for receipt in receipts.values() for path in _paths(receipt)}
    for path in (path for path in orphans if path not in finished):
        removed = f"garbage collection removes it {_when(scan.state, kept.get(path))}"
        if scan.state.deleted:
            removed = "`snapshots export delete` removes it"
        yield Fault(FaultKind.ORPHAN, path, f"{path} is named by no transaction; {removed}.")


def _named(scan: LogScan) -> set[str]:
    actions = [action for entry in scan.entries for action in entry.transaction.actions]
    actions += [action for event in scan.state.events for action in event.actions]
    return scan.state.files.paths() | {path for action in actions for path in named_by(action)}


def named_by(action: act.Action) -> list[str]:
    """Return the paths of the objects that an action names."""
    match action:
        case act.AddFile():
            return [action.file.path]
        case act.TagCreated() | act.SavepointCreated():
            return [action.object.path]
        case act.TagRenamed() | act.TagReplaced() | act.TagHeld() | act.TagReleased():
            return [action.tag.object.path]
    return [ref.path for ref in documents_of(action)]


def _adoptable(store: ObjectStore, state: State, orphans: list[str]) -> tuple[Mapping[int, Receipt], Mapping[str, int]]:
    """Return the receipts that the next run adopts, by chunk, and the chunk of what others keep from collection."""
    wanted = state.missing() if orphans and state.schemas and not state.deleted else []
    receipts = list(adoptable_receipts(store, state, wanted, orphans))
    adopted = newest_fitting(state, receipts, state.schemas[state.schema_id].sha256) if receipts else {}
    kept = {path: receipt.chunk for receipt, _ in receipts for path in _paths(receipt)}
    return {chunk: receipt for chunk, (receipt, _) in sorted(adopted.items())}, kept


def _paths(receipt: Receipt) -> list[str]:
    return [receipt.path, *(file.path for file in receipt.files)]


def _uncommitted(receipt: Receipt, state: State) -> Fault:
    rows = sum(file.rows for file in receipt.files)
    found = f"{counted(len(receipt.files), 'file')}, {counted(rows, 'row')}"
    message = (
        f"{receipt.path}: chunk {receipt.chunk} was finished and not committed ({found}). The next run of "
        f"{exporter_text(state)} adopts it without reading the source again, unless the source's tables changed;"
        " garbage collection keeps it until then."
    )
    return Fault(FaultKind.UNCOMMITTED, receipt.path, message, receipt.chunk)


def _when(state: State, chunk: int | None) -> str:
    """Return when an orphan is removed; `chunk` is that of a receipt which a run might still adopt."""
    if chunk is not None:
        return f"once chunk {chunk} is exported"
    assert state.header is not None
    return f"once it is older than the grace period of {duration_text(timedelta(microseconds=state.header.grace))}"
