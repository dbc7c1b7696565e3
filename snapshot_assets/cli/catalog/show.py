"""`snapshots catalog show | table`: a state, and the metadata tables that Spark shows as `$tags` and so on."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from snapshot_assets.catalog.listing import METADATA_TABLES, TableRequest
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.pins.listing import list_savepoints, list_tags
from snapshot_assets.catalog.state.file_pruning import pending_tombstones
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.totals import chunk_statuses, live_table, table_sizes
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.cli.location import open_catalog
from snapshot_assets.cli.output import plain, show, show_json, show_table
from snapshot_assets.errors import PlanError
from snapshot_assets.format.layout import TRANSACTIONS, checkpointed_revision, revision_of, transaction_path
from snapshot_assets.format.names import table_text
from snapshot_assets.format.predicate_text import predicate_text
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import counted, human_bytes
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.bulk import Listed

_SHOWN_SEALS = 5


def show_state(options: argparse.Namespace) -> int:
    """Show the newest state, or that of `--at`."""
    catalog = open_catalog(options, writing=False)
    state = catalog.state
    if options.at is not None:
        state = read_state(catalog.store, through=resolve_version(options.at, state))
    facts = _facts(catalog.store, state, with_files=options.files)
    if options.json:
        show_json(facts)
    else:
        _show(facts)
    return 0


def _facts(store: ObjectStore, state: State, *, with_files: bool) -> dict[str, Any]:
    assert state.header is not None
    windows = {name: timedelta(microseconds=getattr(state.header, name)) for name in ("chunk_time_window", "grace")}
    facts: dict[str, Any] = {
        "uri": store.uri,
        "location_id": state.location_id,
        "format_version": state.format_version,
        "revision": state.revision,
        "committed_at": state.committed_at,
        "snapshot_id": state.snapshot_id,
        "created_at": state.created_at,
        "created_by": state.created_by,
        "sealed": state.sealed,
        "header": asdict(state.header) | windows,
        "hidden": list(state.header.hidden),
        "schema_id": state.schema_id,
        "chunks": chunk_statuses(state),
        "tables": table_sizes(state),
        "tombstones": _tombstones(state),
        "tags": [asdict(tag) for tag in list_tags(state)],
        "savepoints": [asdict(savepoint) for savepoint in list_savepoints(state)],
        "seals": [
            {
                "revision": each.revision,
                "committed_at": each.committed_at,
                "snapshot_id": each.snapshot_id,
                "checksum": each.seal.checksum,
                "consistency": each.seal.consistency,
            }
            for each in state.readable()
        ],
        "log": _log(store),
    }
    if with_files:
        columns = ["path", "chunk", "schema", "table", "rows", "bytes", "sha256", "schema_id", "added"]
        files = live_table(state, columns).sort_by([("chunk", "ascending"), ("path", "ascending")]).to_pylist()
        facts["files"] = [file | {"sha256": file["sha256"].hex()} for file in files]
    document: dict[str, Any] = plain(facts)
    return document


def _log(store: ObjectStore) -> dict[str, Any]:
    """Return the number and sizes of a log's objects, and the revision from which on all transactions exist."""
    objects = Listed(store, TRANSACTIONS)
    oldest = max((revision_of(path) or 0 for path in objects), default=0)
    while oldest > 1 and transaction_path(oldest - 1) in objects:
        oldest -= 1
    sizes = [info.size for info in objects.values() if revision_of(info.path)]
    checkpoints = [
        {"revision": checkpointed_revision(info.path), "bytes": info.size, "modified": info.modified}
        for info in objects.values()
        if checkpointed_revision(info.path)
    ]
    return {"transactions": len(sizes), "bytes": sum(sizes), "oldest": oldest, "checkpoints": checkpoints}


def _tombstones(state: State) -> list[dict[str, Any]]:
    pending = pending_tombstones(state)
    return [
        {
            "revision": revision,
            "table": table_text(TableName(tombstone.schema, tombstone.table)),
            "where": predicate_text(tombstone.predicate),
            "pending": revision in pending,
        }
        for revision, tombstone in state.tombstones.items()
    ]


def _show(facts: dict[str, Any]) -> None:
    header, log = facts["header"], facts["log"]
    begin, end = header["start"] or "…", header["end"] or "…"
    sealed = "sealed" if facts["sealed"] else "not sealed"
    show(f"{facts['uri']}: revision {facts['revision']} of {facts['committed_at']}, {sealed}")
    created = f"created {facts['created_at']} by {facts['created_by']}"
    show(f"  snapshot {facts['snapshot_id']} of {header['name']!r}, {created}")
    show(f"  location {facts['location_id']}, format version {facts['format_version']}, schema {facts['schema_id']}")
    show(
        f"  {header['kind']} from {header['source']}, [{begin}, {end}), windows of {header['chunk_time_window']}, "
        f"{header['format']}, grace {header['grace']}"
    )
    if facts["hidden"]:
        show(f"  hidden by the plan: {', '.join(facts['hidden'])}")
    chunks = ", ".join(f"{count:,} {status}" for status, count in facts["chunks"].items())
    show(f"  chunks: {chunks or 'none'}")
    for seal in facts["seals"][-_SHOWN_SEALS:]:
        show(f"  seal: revision {seal['revision']} of {seal['committed_at']}, checksum {seal['checksum']}")
    if len(facts["seals"]) > _SHOWN_SEALS:
        show(f"  and {counted(len(facts['seals']) - _SHOWN_SEALS, 'older seal')}")
    for tag in facts["tags"]:
        kept = f"for {tag['time_retained']}" if tag["time_retained"] else "for ever"
        held = f", held by {tag['held_by']}: {tag['hold_reason']}" if tag["held_since"] else ""
        show(f"  tag: {tag['tag_name']}, revision {tag['tagged_snapshot_id']}, since {tag['create_time']} {kept}{held}")
    for each in facts["savepoints"]:
        show(f"  savepoint: {each['savepoint_id']}, revision {each['saved_snapshot_id']}, since {each['create_time']}")
    for tombstone in facts["tombstones"]:
        done = "" if tombstone["pending"] else ", in no file any more"
        show(f"  tombstone: revision {tombstone['revision']}, {tombstone['table']} where {tombstone['where']}{done}")
    show(f"  log: {counted(log['transactions'], 'transaction')}, {human_bytes(log['bytes'])}")
    for checkpoint in log["checkpoints"]:
        show(f"  checkpoint: revision {checkpoint['revision']}, {human_bytes(checkpoint['bytes'])}")
    if facts["tables"]:
        show("")
        rows = [
            (f"{each['schema']}.{each['table']}", each["files"], each["rows"], human_bytes(each["bytes"]))
            for each in facts["tables"]
        ]
        show_table(("Table", "Files", "Rows", "Size"), rows)
    if facts.get("files"):
        show("")
        listed = [
            (each["path"], each["rows"], human_bytes(each["bytes"]), each["added"], each["sha256"])
            for each in facts["files"]
        ]
        show_table(("File", "Rows", "Size", "Added in", "SHA-256"), listed)


def table(options: argparse.Namespace) -> int:
    """Show a metadata table."""
    name = f"${options.table}"
    metadata = METADATA_TABLES[name]
    if options.at is not None and not metadata.versioned:
        raise PlanError(f"{name} shows the whole location: leave --at out.")
    if options.since is not None and name != "$diff":
        raise PlanError(f"{name} shows no changes: leave --since out, or show the table diff.")
    if name == "$diff" and options.since is None:
        raise PlanError(
            "$diff shows what changed since a version: name it, such as --since rev:12 or --since tag:friday."
        )
    catalog = open_catalog(options, writing=False)
    head = state = catalog.state
    if options.at is not None:
        state = read_state(catalog.store, through=resolve_version(options.at, head))
    since = 0 if options.since is None else resolve_version(options.since, head)
    read = metadata.read(TableRequest(head, state, since))
    rows = plain(read.to_pylist())
    if options.json:
        show_json(rows)
    else:
        show_table(read.schema.names, [["" if value is None else value for value in row.values()] for row in rows])
    return 0
