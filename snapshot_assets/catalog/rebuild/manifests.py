"""Moves a state on to the one that a sealed manifest shows, across revisions that are lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from snapshot_assets.catalog.manifest import StoredManifest, checksum_of
from snapshot_assets.catalog.rebuild.changes import MICROSECOND, assumed_header, completed_chunk, fold
from snapshot_assets.catalog.receipts.selection import ReceiptAt, by_chunk, newest_header, schema_checksums
from snapshot_assets.catalog.schemas import schema_content
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format import actions as act
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import attempt_of, check_data_path
from snapshot_assets.format.units import parse_duration, parse_time


def fold_manifest(
    state: State, manifest: StoredManifest, sealed: Sequence[StoredManifest], receipts: Sequence[ReceiptAt]
) -> list[str]:
    """Move a state on to the one that a sealed manifest of a later revision shows.

    Args:
        state: The state to change; it is of no use after an error.
        manifest: The manifest.
        sealed: All sealed manifests: a later one may show tombstones that are not pending in this one.
        receipts: They have the plan, and the statistics of files.

    Returns:
        What had to be assumed, in sentences.

    Raises:
        ValueError: It contradicts the state; other kinds where its members are not what they should be.
    """
    before = state.revision
    state.location_id = state.location_id or manifest.location_id
    state.format_version = state.format_version or int(manifest.document["version"])
    header, notes = _header(state, manifest, receipts)
    rollback = _rollback(state, manifest, header)
    if rollback is not None and manifest.rolled_back < manifest.revision:
        fold(state, (manifest.rolled_back, state.committed_at, ""), [rollback])
        rollback = None
    elif rollback is None and manifest.snapshot_id != state.snapshot_id:
        begun = parse_time(manifest.document["created_at"]), str(manifest.document["created_by"])
        begin = act.Begin(manifest.snapshot_id, header, force=state.header is not None)
        fold(state, (before + 1, *begun), [begin])
    _delete_rows(state, manifest, sealed)
    _seal(state, manifest, header, rollback, receipts)
    if state.missing() or checksum_of(state) != manifest.checksum:
        raise ValueError(f"it does not follow revision {before}: the result has another checksum")
    return notes


def _header(state: State, manifest: StoredManifest, receipts: Sequence[ReceiptAt]) -> tuple[act.Header, list[str]]:
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
    }
    known = state.header if state.snapshot_id == manifest.snapshot_id else None
    known = known or newest_header(receipts, manifest.snapshot_id)
    if known is not None:
        return replace(known, **shown), []
    return assumed_header(**shown), [
        f"No receipt of snapshot {manifest.snapshot_id} has its plan; {manifest.path} has a part of it. Name, source, "
        "kind, time zone, rules for rows and tables without time, grace period and the requested range are assumed."
    ]


def _rollback(state: State, manifest: StoredManifest, header: act.Header) -> act.Rollback | None:
    """Return the rollback that a manifest shows and a state does not know; to which revision it went is not known."""
    at = manifest.rolled_back
    if at < state.rolled_back or state.rolled_back < at <= state.revision:
        raise ValueError(f"it shows a rollback at revision {at}; the newest is at {state.rolled_back}")
    if at == state.rolled_back:
        return None
    return act.Rollback(
        revision=0,
        snapshot_id=manifest.snapshot_id,
        header=header,
        created_at=parse_time(manifest.document["created_at"]),
        created_by=str(manifest.document["created_by"]),
        tombstones={revision: each for revision, each in manifest.tombstones.items() if revision <= at},
    )


def _delete_rows(state: State, manifest: StoredManifest, sealed: Sequence[StoredManifest]) -> None:
    """Fold the tombstones of lost revisions, each at its own."""
    tombstones: dict[int, act.Tombstone] = {}
    for other in sealed:
        if (other.snapshot_id, other.rolled_back) == (manifest.snapshot_id, manifest.rolled_back):
            tombstones |= other.tombstones
    for revision in sorted(tombstones):
        if max(state.revision, manifest.rolled_back) < revision < manifest.revision:
            fold(state, (revision, state.committed_at, ""), [tombstones[revision]])


def _seal(
    state: State,
    manifest: StoredManifest,
    header: act.Header,
    rollback: act.Rollback | None,
    receipts: Sequence[ReceiptAt],
) -> None:
    """Fold everything else at the manifest's own revision; with a rollback there, nothing stays as it was."""
    if manifest.revision <= state.revision:
        raise ValueError(f"its revision {manifest.revision} leaves no room for what it shows")
    actions: list[act.Action] = [rollback] if rollback else []
    version = int(manifest.document["version"])
    if version > state.format_version:
        actions.append(act.Upgraded(version, state.format_version))
    if not rollback and state.header and header.end and state.header.end != header.end:
        actions.append(act.Extend(header.end))
    base = State() if rollback else state
    actions += _schemas(base, manifest, receipts)
    chunks, files = _chunks(base, manifest, header, receipts)
    actions += chunks
    if manifest.revision in manifest.tombstones and not rollback:
        actions.append(manifest.tombstones[manifest.revision])  # rows deleted from a sealed state, sealed again at once
    tables = [table for table in manifest.document["tables"] if table["rows_outside"]]
    outside = tuple(act.RowsOutside(table["schema"], table["table"], table["rows_outside"]) for table in tables)
    # Verified is the revision before, so that the next seal reads all files.
    actions.append(act.Seal(manifest.revision - 1, manifest.checksum, str(manifest.document["consistency"]), outside))
    live = {known.file.path for known in state.live_files()}
    added = [file for path, file in files.items() if path not in live]
    event = manifest.revision, parse_time(manifest.document["updated_at"]), ""
    fold(state, event, actions, sorted(live - files.keys()), added)


def _schemas(base: State, manifest: StoredManifest, receipts: Sequence[ReceiptAt]) -> list[act.SchemaAdded]:
    """Return the schemas that a state lacks; of ids that share documents the manifest shows only the greatest."""
    folders: dict[tuple[int, str], dict[str, tuple[str, int]]] = {}
    for file in manifest.document["schema_files"]:
        folder, _, name = str(file["path"]).rpartition("/")
        folders.setdefault((int(file["schema_id"]), folder), {})[name] = file["sha256"], file["bytes"]
    contents = {number: schema_content(files) for (number, _), files in folders.items()}
    known = {content.sha256: content for content in contents.values()}
    for number, sha256 in schema_checksums(receipts, manifest.snapshot_id).items():
        if number < max(contents) and sha256 in known:
            contents.setdefault(number, known[sha256])
    used = {int(file["schema_id"]) for chunk in manifest.document["chunks"] for file in chunk["files"]}
    if unknown := used - contents.keys() - base.schemas.keys():
        raise ValueError(f"nothing shows schema {min(unknown)}, which its files have")
    lacking = {number: contents[number] for number in sorted(contents.keys() - base.schemas.keys())}
    return [act.SchemaAdded(number, each.folder, each.sha256, each.files) for number, each in lacking.items()]


def _chunks(
    base: State, manifest: StoredManifest, header: act.Header, receipts: Sequence[ReceiptAt]
) -> tuple[list[act.Chunk], dict[str, DataFile]]:
    """Return the actions on chunks that differ from a state's, and all files of the manifest by path."""
    shown = {int(chunk["id"]): chunk for chunk in manifest.document["chunks"]}
    actions: list[act.Chunk] = []
    all_files: dict[str, DataFile] = {}
    receipts_of = by_chunk(receipts, manifest.snapshot_id)
    for number in sorted({*State(header=header).expected_chunks(), *shown}):  # those not shown are empty
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
    """Return a file, with the statistics that a receipt recorded of it."""
    known = recorded.get(item["path"])
    if known is not None and known.sha256 == item["sha256"]:
        return known
    check_data_path(item["path"], chunk)
    facts = ("path", "schema", "table", "rows", "bytes", "sha256", "schema_id", "tombstones_through")
    return DataFile(chunk=chunk, attempt=attempt_of(item["path"]), **{name: item[name] for name in facts})
