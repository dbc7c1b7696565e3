"""A sealed manifest read backward: the actions that make a state into what it says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from snapshot_assets.catalog.rebuild.documents import Manifest, schema_content
from snapshot_assets.catalog.rebuild.headers import assumed_header, header_in_receipts, schema_numbers
from snapshot_assets.catalog.rebuild.objects import Evidence
from snapshot_assets.catalog.receipts.selection import Found, covering
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format import actions as act
from snapshot_assets.format.checksums import chunk_checksum
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import attempt_of, check_data_path
from snapshot_assets.format.predicates import parse_predicate_json, predicate_json
from snapshot_assets.format.units import parse_duration, parse_time
from snapshot_assets.format.windows import window_at

_MICROSECOND = timedelta(microseconds=1)


@dataclass
class Statement:
    """What a manifest says, as changes of a state.

    Attributes:
        version: Format version.
        created_at: When the snapshot began.
        created_by: Who began it.
        updated_at: When it was sealed.
        begin: Actions that begin the snapshot, none where the state has it.
        actions: The others, the seal last.
        removed: Paths that the state has and the manifest has not.
        added: Files the other way round.
        notes: What it does not say and had to be assumed.
        tombstones: By their revisions, those that it has and the state has not.
        rollback: The rollback that it tells of and the state does not know; chunks and schemas are all said again.
        rolled_back: The revision of that.
    """

    version: int
    created_at: datetime
    created_by: str
    updated_at: datetime
    begin: list[act.Action] = field(default_factory=list)
    actions: list[act.Action] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    added: list[DataFile] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tombstones: dict[int, act.Tombstone] = field(default_factory=dict)
    rollback: act.Rollback | None = None
    rolled_back: int = 0


def statement_of(found: Manifest, state: State, evidence: Evidence) -> Statement:
    """Return what makes a state into the one that a sealed manifest shows.

    Args:
        found: The manifest.
        state: The state before.
        evidence: Its receipts tell the plan and the files' statistics.

    Raises:
        ValueError: It cannot be carried out; other kinds where its members are not what they should be.
    """
    document = found.document
    statement = Statement(
        int(document["version"]),
        parse_time(document["created_at"]),
        str(document["created_by"]),
        parse_time(document["updated_at"]),
    )
    same = found.snapshot_id == state.snapshot_id
    header = _header(found, state.header if same else None, evidence, statement)
    statement.rolled_back = int(document.get("rolled_back", 0))
    if statement.rolled_back > state.rolled_back:
        return _rolled_back(statement, found, header, state, evidence)
    if not same:
        statement.begin.append(act.Begin(found.snapshot_id, header, force=state.header is not None))
    elif state.header is not None and header.end is not None and header.end != state.header.end:
        statement.actions.append(act.Extend(header.end))
    schemas = [added for added in _schemas(found, evidence) if not same or added.schema_id not in state.schemas]
    (statement.actions if same else statement.begin).extend(schemas)
    _chunks(found, state if same else State(), header, evidence, statement)
    statement.tombstones = tombstones_of(found, state.tombstones if same else {})
    if found.revision in statement.tombstones:  # deleted on a sealed base, and sealed again at once
        statement.actions.append(statement.tombstones.pop(found.revision))
    statement.actions.append(_seal(found))
    return statement


def _rolled_back(
    statement: Statement, found: Manifest, header: act.Header, state: State, evidence: Evidence
) -> Statement:
    """Say everything anew: of what the state has, a rollback may have given up anything."""
    entry = evidence.entries.get(found.revision)
    said = entry.transaction.actions if entry is not None else ()
    same = [seal.revision for seal in state.seals if seal.seal.checksum == found.document["checksum"]]
    told = tombstones_of(found, {})
    statement.tombstones = {number: each for number, each in told.items() if number > statement.rolled_back}
    statement.rollback = act.Rollback(
        revision=next((each.revision for each in said if isinstance(each, act.Rollback)), max(same, default=0)),
        snapshot_id=found.snapshot_id,
        header=header,
        created_at=statement.created_at,
        created_by=statement.created_by,
        tombstones={number: each for number, each in told.items() if number <= statement.rolled_back},
    )
    statement.actions += [action for action in said if isinstance(action, act.Expired)]
    statement.actions += _schemas(found, evidence)
    _chunks(found, State(), header, evidence, statement)
    named = {file.path: file for file in statement.added}
    live = {known.file.path for known in state.live_files()}
    statement.removed = sorted(live - named.keys())
    statement.added = [file for path, file in named.items() if path not in live]
    if found.revision in statement.tombstones:
        statement.actions.append(statement.tombstones.pop(found.revision))
    statement.actions.append(_seal(found))
    return statement


def tombstones_of(found: Manifest, known: Mapping[int, act.Tombstone]) -> dict[int, act.Tombstone]:
    """Return the pending tombstones of a manifest that are not known, by revision.

    Raises:
        ValueError: One is of a later revision, or not the one that is known of its revision.
        DocumentError: One has no sound predicate.
    """
    told: dict[int, act.Tombstone] = {}
    for item in found.document["tombstones"]:
        revision, name = int(item["revision"]), (str(item["schema"]), str(item["table"]))
        same = known.get(revision)
        if same and (same.schema, same.table, predicate_json(same.predicate)) == (*name, item["predicate"]):
            continue
        if same or revision in told or not 0 < revision <= found.revision:
            raise ValueError(f"its tombstone of revision {revision} contradicts what is known")
        told[revision] = act.Tombstone(*name, parse_predicate_json(item["predicate"]))
    return told


def _header(found: Manifest, known: act.Header | None, evidence: Evidence, statement: Statement) -> act.Header:
    document = found.document
    start, end = (document["time_range"].get(name) for name in ("start", "end"))
    said: dict[str, Any] = {
        "catalog": str(document["catalog"]),
        "schemas": tuple(map(str, document["schemas"])),
        "start": parse_time(start) if start else None,
        "end": parse_time(end) if end else None,
        "chunk_time_window": parse_duration(document["chunk_time_window"]) // _MICROSECOND,
        "format": str(document["format"]),
        "schema_only": bool(document["schema_only"]),
    }
    known = known or header_in_receipts(evidence, found.snapshot_id)
    if known is None:
        statement.notes.append(
            f"No receipt of snapshot {found.snapshot_id} tells its plan; {found.path} tells a part of it, and name, "
            "source, kind, time zone, rules for rows and tables without time, grace period and what was asked for are "
            "assumed."
        )
        known = assumed_header(**said)
    return replace(known, **said)


def _schemas(found: Manifest, evidence: Evidence) -> list[act.SchemaAdded]:
    """Return the schemas that a manifest and its snapshot's receipts number."""
    folders: dict[str, list[Mapping[str, Any]]] = {}
    for file in found.document["schema_files"]:
        folders.setdefault(str(file["path"]).rpartition("/")[0], []).append(file)
    numbered: dict[int, act.SchemaAdded] = {}
    for files in folders.values():
        content = schema_content(tuple(act.ObjectRef(file["path"], file["sha256"], file["bytes"]) for file in files))
        for number in {int(file["schema_id"]) for file in files}:
            numbered[number] = act.SchemaAdded(number, content.folder, content.sha256, content.files)
    contents = {added.sha256: added for added in numbered.values()}
    for number, sha256 in schema_numbers(evidence, found.snapshot_id).items():
        if number not in numbered and sha256 in contents:
            numbered[number] = replace(contents[sha256], schema_id=number)
    missing = {int(file["schema_id"]) for chunk in found.document["chunks"] for file in chunk["files"]} - set(numbered)
    if missing:
        raise ValueError(f"schema {min(missing)}, which its files have, is not known")
    return [numbered[number] for number in sorted(numbered)]


def _chunks(found: Manifest, state: State, header: act.Header, evidence: Evidence, statement: Statement) -> None:
    """Add what completes the manifest's chunks; expected ones that it does not list are empty."""
    shown = {int(chunk["id"]): chunk for chunk in found.document["chunks"]}
    receipts: defaultdict[int, list[Found]] = defaultdict(list)
    for each in evidence.receipts:
        if each[0].snapshot_id == found.snapshot_id:
            receipts[each[0].chunk].append(each)
    for number in sorted({*State(header=header).expected_chunks(), *shown}):
        chunk = shown.get(number, {"files": [], "rows": 0, "fence": {}})
        of_receipts = {file.path: file for receipt, _ in receipts[number] for file in receipt.files}
        files = {each.path: each for each in (_file(item, number, of_receipts) for item in chunk["files"])}
        live = state.files.chunk(number)
        if state.completed(number) and live.keys() == files.keys():
            continue
        statement.removed += sorted(live.keys() - files.keys())
        statement.added += [files[path] for path in sorted(files.keys() - live.keys())]
        resting = covering(receipts[number], files.values())
        statement.actions.append(completed_chunk(header, number, files, resting, dict(chunk["fence"])))


def completed_chunk(
    header: act.Header,
    number: int,
    files: Mapping[str, DataFile],
    receipts: Sequence[Found],
    fence: Mapping[str, str],
) -> act.Chunk:
    """Return the action that completes a chunk with these files.

    Args:
        header: The snapshot's.
        number: The chunk's id.
        files: All its files, by path.
        receipts: Those that it rests on, oldest first.
        fence: What it read, {} to take the newest receipt's word.

    Raises:
        PlanError: The plan has no such chunk.
    """
    window = None
    if number and header.start is not None:
        window = window_at(header.start, header.chunk_time_window * _MICROSECOND, number, end=header.end)
    newest = receipts[-1][0] if receipts else None
    return act.Chunk(
        id=number,
        start=window.start if window else None,
        end=window.end if window else None,
        status=act.ChunkStatus.COMPLETED,
        checksum=chunk_checksum((file.path, file.sha256) for file in files.values()),
        rows=sum(file.rows for file in files.values()),
        fence=fence or (newest.fence if newest else {}),
        receipts=tuple(ref for _, ref in receipts),
        run=newest.run if newest else "",
    )


def _file(item: Mapping[str, Any], chunk: int, of_receipts: Mapping[str, DataFile]) -> DataFile:
    known = of_receipts.get(item["path"])
    if known is not None and known.sha256 == item["sha256"]:
        return known
    facts = {name: item[name] for name in ("path", "schema", "table", "rows", "bytes", "sha256", "schema_id")}
    check_data_path(item["path"], chunk)
    return DataFile(
        chunk=chunk,
        attempt=attempt_of(item["path"]),
        tombstones_through=int(item["tombstones_through"]),
        **facts,
    )


def _seal(found: Manifest) -> act.Seal:
    document = found.document
    outside = tuple(
        act.RowsOutside(table["schema"], table["table"], table["rows_outside"])
        for table in document["tables"]
        if table["rows_outside"]
    )
    # The revision before, so that the next seal reads all files anew.
    return act.Seal(found.revision - 1, document["checksum"], document["consistency"], outside)
