"""The base of a rebuild: the newest state that is proved whole.

The log proves states up to its first fault, from its start or from a whole checkpoint. A sealed manifest of a later
revision proves that revision. The transactions that follow it link by link prove the revisions after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from snapshot_assets.catalog.log.replay import FAULTS
from snapshot_assets.catalog.manifest import StoredManifest, checksum_of
from snapshot_assets.catalog.rebuild.inventory import Inventory
from snapshot_assets.catalog.receipt_selection import (
    ReceiptAt,
    by_chunk,
    compacted_tables,
    newest_header,
    receipts_behind,
    schema_checksums,
)
from snapshot_assets.catalog.rules import chunks
from snapshot_assets.catalog.schemas import schema_content
from snapshot_assets.catalog.state.fold import DATA_ACTIONS, LogEntry, State
from snapshot_assets.errors import SnapshotError
from snapshot_assets.format import actions as act
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.checkpoint import Event
from snapshot_assets.format.layout import MANIFEST, attempt_of, check_data_path, chunk_of, transaction_path
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import parse_duration, parse_time, time_text

MICROSECOND = timedelta(microseconds=1)
_ASSUMED: dict[str, Any] = {
    "name": "",
    "source": "",
    "catalog": "",
    "kind": "once",
    "format": "parquet",
    "schema_only": False,
    "time_zone": "UTC",
    "null_time": "chunk0",
    "untimed_tables": "export",
    "grace": timedelta(days=1) // MICROSECOND,
}


def fold(
    state: State,
    event: tuple[int, datetime, str],
    actions: Sequence[act.Action],
    removed: Iterable[str] = (),
    added: Iterable[DataFile] = (),
) -> None:
    """Fold one revision into a state.

    The actions are those that are not on files: these are the paths `removed`, and the files that it adds or returns.
    """
    revision, committed_at, writer = event
    gone, new = list(removed), {file.path: file for file in added}
    changes_data = bool(gone or new) or any(isinstance(action, DATA_ACTIONS) for action in actions)
    state.fold(Event(revision, committed_at, writer, tuple(actions), changes_data), transaction_path(revision))
    for path in gone:
        state.files.remove(chunk_of(path) or 0, path, revision, committed_at)
    for path in sorted(state.files.bring_back(new, revision)) if new else ():
        state.files.add(new[path], revision)


def completed_chunk(
    header: act.Header,
    number: int,
    files: Collection[DataFile],
    receipts: Sequence[ReceiptAt],
    fence: Mapping[str, str] | None = None,
) -> act.Chunk:
    """Return the action that completes a chunk with these files, and names the receipts that list them.

    Raises:
        PlanError: The plan has no such chunk.
    """
    named = receipts_behind(receipts, files)
    last = named[-1][0] if named else None
    if fence is None:
        fence = last.fence if last else {}
    refs, run = tuple(ref for _, ref in named), last.run if last else ""
    compacted = {name for each, _ in named if each.compaction for name in compacted_tables(each)}
    divided = named[0][0].ranges if named else ()
    ranges = tuple(each for each in divided if TableName(each.schema, each.table) not in compacted)
    facts = {"fence": fence, "receipts": refs, "run": run, "ranges": ranges}
    return chunks.completed_chunk(State(header=header), number, files, **facts)


def assumed_header(start: datetime | None, end: datetime | None, **known: Any) -> act.Header:
    """Return a header with defaults for all fields that are not given."""
    requested = {"requested_start": time_text(start) if start else "", "requested_end": time_text(end) if end else ""}
    return act.Header(start=start, end=end, **(_ASSUMED | requested | known))


@dataclass
class Base:
    """The newest state that is proved whole.

    Attributes:
        state: The state; empty if nothing proves one.
        bridged: Runs of lost transactions, and the object that has the state after each run: first, last, path.
    """

    state: State
    bridged: list[tuple[int, int, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def is_end(self, inventory: Inventory) -> bool:
        """Return whether the state is that of the log's last revision, whose transaction is readable."""
        return inventory.highest <= self.state.revision and inventory.highest in inventory.transactions


def find_base(inventory: Inventory) -> Base:
    """Return the newest state that the log, a checkpoint, `manifest.json` or a pin proves."""
    base = Base(_follow_log(inventory.start, inventory.transactions, inventory.unreadable))
    for manifest in inventory.manifests:
        if manifest.revision > base.state.revision and _is_usable(manifest, base, inventory):
            _bridge(base, manifest, inventory)
    return base


def _follow_log(start: State, transactions: Mapping[int, LogEntry], unreadable: dict[int, str]) -> State:
    """Return the state after the linked transactions that follow `start`; record why the link breaks."""
    state = start.copy()
    while (revision := state.revision + 1) in transactions:
        try:
            state.apply(transactions[revision], transaction_path(revision))
        except FAULTS as fault:  # the state is half changed
            unreadable.setdefault(revision, str(fault))
            others = {number: entry for number, entry in transactions.items() if number != revision}
            return _follow_log(start, others, unreadable)
    return state


def _is_usable(manifest: StoredManifest, base: Base, inventory: Inventory) -> bool:
    """Return whether a manifest can be the base: sealed, not contradicted by the log, and a pin's files are there."""
    entry = inventory.transactions.get(manifest.revision)
    if manifest.checksum and entry is not None and not entry.starts_log:
        seals = [action.checksum for action in entry.transaction.actions if isinstance(action, act.Seal)]
        if manifest.checksum not in seals:
            path = transaction_path(manifest.revision)
            base.notes.append(f"{manifest.path} is not used: {path} does not seal what it shows.")
            return False
    return bool(manifest.checksum) and (manifest.path == MANIFEST or not manifest.lacking(inventory.sizes))


def _bridge(base: Base, manifest: StoredManifest, inventory: Inventory) -> None:
    """Advance the base to a manifest's state, then along the transactions after it."""
    state = base.state.copy()
    try:
        base.notes += _fold_manifest(state, manifest, inventory)
    except (SnapshotError, KeyError, TypeError, ValueError, AttributeError) as error:  # the document is damaged
        base.notes.append(f"{manifest.path} cannot be used: {error}")
        return
    own, following = (inventory.transactions.get(revision) for revision in (manifest.revision, manifest.revision + 1))
    if own is not None and not own.starts_log:
        state.uuid, state.sha256 = own.transaction.uuid, own.sha256
    elif own is None and following is not None:  # only one transaction ever was this revision
        state.uuid, state.sha256 = following.transaction.previous_uuid, following.transaction.previous_sha256
    base.bridged.append((base.state.revision + 1, manifest.revision, manifest.path))
    base.state = _follow_log(state, inventory.transactions, inventory.unreadable)


def _fold_manifest(state: State, manifest: StoredManifest, inventory: Inventory) -> list[str]:
    """Advance a state to that of a later sealed manifest, and return what had to be assumed, in sentences."""
    before = state.revision
    state.location_id = state.location_id or manifest.location_id
    state.format_version = state.format_version or int(manifest.document["version"])
    header, notes = _header(state, manifest, inventory)
    rollback, at = None, manifest.rolled_back
    if at < state.rolled_back or state.rolled_back < at <= before:
        raise ValueError(f"it shows a rollback at revision {at}; the newest is at {state.rolled_back}")
    if at > state.rolled_back:  # the revision that it went back to is unknown
        tombstones = {revision: each for revision, each in manifest.tombstones.items() if revision <= at}
        rollback = act.Rollback(0, manifest.snapshot_id, header, *_creation(manifest), tombstones=tombstones)
    if rollback is not None and at < manifest.revision:
        fold(state, (at, state.committed_at, ""), [rollback])
        rollback = None
    elif rollback is None and manifest.snapshot_id != state.snapshot_id:
        begin = act.Begin(manifest.snapshot_id, header, force=state.header is not None)
        fold(state, (before + 1, *_creation(manifest)), [begin])
    # Lost revisions may have deleted rows; a later manifest may show tombstones that are not pending in this one.
    tombstones = {}
    for other in inventory.manifests:
        if other.checksum and (other.snapshot_id, other.rolled_back) == (manifest.snapshot_id, at):
            tombstones |= other.tombstones
    for revision in sorted(tombstones):
        if max(state.revision, at) < revision < manifest.revision:
            fold(state, (revision, state.committed_at, ""), [tombstones[revision]])
    _seal(state, manifest, header, rollback, inventory)
    if state.missing() or checksum_of(state) != manifest.checksum:
        raise ValueError(f"it does not follow revision {before}: the result has another checksum")
    return notes


def _creation(manifest: StoredManifest) -> tuple[datetime, str]:
    """Return when and by whom a manifest was made; no checksum covers them, so they may be damaged alone."""
    return parse_time(manifest.document["created_at"]), str(manifest.document["created_by"])


def _header(state: State, manifest: StoredManifest, inventory: Inventory) -> tuple[act.Header, list[str]]:
    document = manifest.document
    start, end = (document["time_range"].get(name) for name in ("start", "end"))
    shown: dict[str, Any] = {
        "catalog": str(document["catalog"]),
        "schemas": tuple(map(str, document["schemas"])),
        "start": parse_time(start) if start else None,
        "end": parse_time(end) if end else None,
        "chunk_time_window": parse_duration(document["chunk_time_window"]) // MICROSECOND,
        "format": str(document["format"]),
        "schema_only": bool(document["schema_only"]),
        "query": str(document.get("query", "")),
        "partition_by": tuple(map(str, document.get("partition_by", ()))),
        "single_file": bool(document.get("single_file", False)),
        "manifest": tuple(map(str, document.get("manifest", ()))),
    }
    known = state.header if state.snapshot_id == manifest.snapshot_id else None
    known = known or newest_header(inventory.receipts, manifest.snapshot_id)
    if known is not None:
        return replace(known, **shown), []
    return assumed_header(**shown), [
        f"No receipt of snapshot {manifest.snapshot_id} has its plan; {manifest.path} has a part of it. Name, source, "
        "kind, time zone, rules for rows and tables without time, grace period and the requested range are assumed."
    ]


def _seal(
    state: State, manifest: StoredManifest, header: act.Header, rollback: act.Rollback | None, inventory: Inventory
) -> None:
    """Fold everything else at the manifest's own revision; a rollback at that revision replaces the whole state."""
    if manifest.revision <= state.revision:
        raise ValueError(f"its revision {manifest.revision} leaves no room for what it shows")
    actions: list[act.Action] = [rollback] if rollback else []
    version = int(manifest.document["version"])
    if version > state.format_version:
        actions.append(act.Upgraded(version, state.format_version))
    if not rollback and state.header and header.end and state.header.end != header.end:
        actions.append(act.Extend(header.end))
    base = State() if rollback else state
    actions += _schemas(base, manifest, inventory)
    chunks, files = _chunks(base, manifest, header, inventory)
    actions += chunks
    if manifest.revision in manifest.tombstones and not rollback:
        actions.append(manifest.tombstones[manifest.revision])  # deleted from a sealed state
    tables = [table for table in manifest.document["tables"] if table["rows_outside"]]
    outside = tuple(act.RowsOutside(table["schema"], table["table"], table["rows_outside"]) for table in tables)
    # The revision before counts as verified, so the next seal reads all files.
    actions.append(act.Seal(manifest.revision - 1, manifest.checksum, str(manifest.document["consistency"]), outside))
    live = {known.file.path for known in state.live_files()}
    added = [file for path, file in files.items() if path not in live]
    event = manifest.revision, parse_time(manifest.document["updated_at"]), ""
    fold(state, event, actions, sorted(live - files.keys()), added)


def _schemas(base: State, manifest: StoredManifest, inventory: Inventory) -> list[act.SchemaAdded]:
    """Return the schemas that a state lacks; if ids share documents, the manifest shows only the greatest."""
    folders: dict[tuple[int, str], dict[str, tuple[str, int]]] = {}
    for file in manifest.document["schema_files"]:
        folder, _, name = str(file["path"]).rpartition("/")
        folders.setdefault((int(file["schema_id"]), folder), {})[name] = file["sha256"], file["bytes"]
    contents = {number: schema_content(files) for (number, _), files in folders.items()}
    known = {content.sha256: content for content in contents.values()}
    for number, sha256 in schema_checksums(inventory.receipts, manifest.snapshot_id).items():
        if number < max(contents) and sha256 in known:
            contents.setdefault(number, known[sha256])
    used = {int(file["schema_id"]) for chunk in manifest.document["chunks"] for file in chunk["files"]}
    if unknown := used - contents.keys() - base.schemas.keys():
        raise ValueError(f"nothing shows schema {min(unknown)}, which its files have")
    lacking = {number: contents[number] for number in sorted(contents.keys() - base.schemas.keys())}
    return [act.SchemaAdded(number, each.folder, each.sha256, each.files) for number, each in lacking.items()]


def _chunks(
    base: State, manifest: StoredManifest, header: act.Header, inventory: Inventory
) -> tuple[list[act.Chunk], dict[str, DataFile]]:
    """Return the actions for chunks that differ from a state's chunks, and all files of the manifest by path."""
    shown = {int(chunk["id"]): chunk for chunk in manifest.document["chunks"]}
    actions: list[act.Chunk] = []
    all_files: dict[str, DataFile] = {}
    receipts_of = by_chunk(inventory.receipts, manifest.snapshot_id)
    for number in sorted({*State(header=header).expected_chunks(), *shown}):  # the manifest leaves out empty chunks
        own = receipts_of.get(number, [])
        recorded = {file.path: file for receipt, _ in own for file in receipt.files}
        items = shown[number]["files"] if number in shown else []
        files = {item["path"]: _file(item, number, recorded) for item in items}
        all_files |= files
        if not (base.completed(number) and base.files.chunk(number).keys() == files.keys()):
            fence = dict(shown[number]["fence"]) if files else None
            actions.append(completed_chunk(header, number, files.values(), own, fence))
    return actions, all_files


def _file(item: Mapping[str, Any], chunk: int, recorded: Mapping[str, DataFile]) -> DataFile:
    """Return a file, with statistics if a receipt recorded them."""
    known = recorded.get(item["path"])
    if known is not None and known.sha256 == item["sha256"]:
        return known
    check_data_path(item["path"], chunk)
    facts = ("path", "schema", "table", "rows", "bytes", "sha256", "schema_id", "tombstones_through")
    return DataFile(chunk=chunk, attempt=attempt_of(item["path"]), **{name: item[name] for name in facts})
