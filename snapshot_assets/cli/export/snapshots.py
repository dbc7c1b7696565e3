"""`snapshots export list | verify | delete | diff`: work on snapshots that exist."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import reduce
from operator import attrgetter
from pathlib import Path

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.listing import SnapshotSummary, list_snapshots, summarize
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.log.store import has_log
from snapshot_assets.catalog.log.truncation import refuse_lost_log
from snapshot_assets.catalog.operations.delete import delete_snapshot
from snapshot_assets.catalog.operations.sign import sign_location
from snapshot_assets.catalog.rules.begin import refuse_pinned
from snapshot_assets.catalog.seals.attestation import attestation
from snapshot_assets.catalog.seals.ssh import Signing
from snapshot_assets.catalog.state.diff import Change, DiffRow, Kind, difference
from snapshot_assets.catalog.state.pins import refuse_held
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.catalog.verify.altered import altered_faults
from snapshot_assets.catalog.verify.objects import Depth, Report, Rotation
from snapshot_assets.catalog.verify.records import record_verification
from snapshot_assets.catalog.verify.retained import some_of
from snapshot_assets.catalog.verify.verify import verify as verify_location
from snapshot_assets.cli.confirm import confirmed
from snapshot_assets.cli.exit_status import ExitStatus
from snapshot_assets.cli.location import open_catalog, open_log, place_of, signing_of
from snapshot_assets.cli.output import plain, show, show_json, show_message, show_table
from snapshot_assets.cli.progress import object_progress
from snapshot_assets.cli.unreferenced import RETAINED
from snapshot_assets.errors import NoSnapshotError, PlanError
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import counted, human_bytes, noun, number_text, parse_share, time_text
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import Location
from snapshot_assets.storage.options import open_store


def list_(options: argparse.Namespace) -> int:
    """List snapshots; exit status 3 if one of them cannot be read."""
    place = place_of(options, allow_root=True)
    store = place.store()

    def open_below(*names: str) -> ObjectStore:
        return open_store(reduce(Location.child, names, place.location), place.storage)

    found = list_snapshots(store, open_below)
    if options.json:
        show_json([plain(asdict(summary)) for summary in found])
    elif found:
        rows = [
            (
                each.uri,
                each.name,
                time_text(each.created_at) if each.created_at else "",
                _chunks(each),
                each.rows,
                human_bytes(each.bytes),
                each.status,
            )
            for each in found
        ]
        show_table(("Location", "Name", "Created", "Chunks", "Rows", "Size", "Status"), rows)
    else:
        show_message(f"No snapshots at {store.uri}.")
    for summary in found:
        if summary.error:
            named = summary.uri in summary.error
            show_message(summary.error if named else f"{summary.uri}: {summary.error}")
    unreadable = any(summary.status == "unreadable" for summary in found)
    return ExitStatus.DAMAGED if unreadable else ExitStatus.DONE


def _chunks(summary: SnapshotSummary) -> str:
    return f"{summary.chunks_done:,}/{summary.chunks:,}"


def verify(options: argparse.Namespace) -> int:
    """Verify a snapshot; exit status 3 if it is damaged or not sealed."""
    now = datetime.now(UTC)
    rotation = None if options.sample is None else Rotation.of_share(parse_share(options.sample), now)
    place = place_of(options)
    store = place.store()
    if has_log(store) or not any(fault.is_damage for fault in altered_faults(scan_log(store))):  # else it is hidden
        open_log(options, store)
    at = (lambda state: resolve_version(options.at, state)) if options.at is not None else None
    depth: Depth = "sample" if rotation else options.depth
    with object_progress("verifying", options.progress) as watch:
        report = verify_location(
            store,
            depth=depth,
            at=at,
            rotation=rotation,
            progress=lambda file: watch.finish(file.bytes),
            signing=signing_of(options, place.signing),
        )
    record_verification(store, report, datetime.now(UTC))
    if options.json:
        facts = attrgetter("kind", "object", "message", "chunk", "revisions", "is_damage")
        names = ("kind", "object", "message", "chunk", "revisions", "damage")
        faults = [dict(zip(names, facts(fault), strict=True)) for fault in report.faults]
        shown = {name: value for name, value in asdict(report).items() if name != "paths"}
        show_json(shown | {"faults": faults, "damaged": report.damaged})
    else:
        _show_report(report)
    return ExitStatus.DONE if report.sealed and not report.damaged else ExitStatus.DAMAGED


def sign(options: argparse.Namespace) -> int:
    """Sign the newest seal, or all, and records."""
    place = place_of(options)
    signing = place.signing or Signing()
    signing = signing if options.key is None else replace(signing, key=options.key)
    if signing.key is None:
        raise PlanError("no key is given; give --key KEY, or write signing.key in the configuration.")
    file = Path(options.attestation or "attestation")
    if options.attestation and (file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK)):
        raise PlanError(f"--attestation {file} cannot be written; name a file in a folder that you may write to.")
    store = open_log(options, place.store())
    signed = sign_location(store, signing, all_seals=options.all, records=options.records, again=options.again)
    if options.attestation:
        file.write_bytes(attestation(store, Catalog.open(store).require_snapshot(), signing))
    if options.json:
        show_json({"uri": store.uri, "signed": signed})
    else:
        show("\n".join(signed) or f"{store.uri}: nothing to sign, all is signed")
    return ExitStatus.DONE


def _show_report(report: Report) -> None:
    for fault in report.faults:
        show(f"{'DAMAGE ' if fault.is_damage else 'warning'}  {fault.kind}: {fault.message}")
    if (remedy := report.remedy) is not None:
        needing = some_of(remedy.revisions) + (f" ({', '.join(remedy.pins)})" if remedy.pins else "")
        show(f"The newest state, revision {remedy.newest}, is whole; what is damaged is needed only by {needing}.")
        first = "seal the newest state (run the export to its end), then " if remedy.seal_first else ""
        too = f"; {some_of(remedy.expire_too)}, undamaged, will expire too" if remedy.expire_too else ""
        show(f"Restore the damaged objects from a copy. Or {first}expire and delete what needs them{too}:")
        for command in remedy.commands:
            show(f"  {command}")
    if report.temporary_files:
        files = f"{counted(report.temporary_files, 'temporary file')}, {human_bytes(report.temporary_bytes)}"
        show(f"{files}, of writers at work or killed: `snapshots catalog gc` deletes those older than the grace period")
    if report.signed:
        show(f"signed: {report.signed}")
    read = "no data read" if report.depth == "quick" else f"{human_bytes(report.bytes)} read"
    if report.days:
        show(
            f"sample: {report.hashed:,} of {counted(report.files, 'data file')} read, others each day; "
            f"daily runs read all within {counted(report.days, 'day')}"
        )
    verdict = "DAMAGED" if report.damaged else "OK" if report.sealed else "INCOMPLETE"
    if not report.sealed and not report.damaged:
        all_exported = f"all chunks are exported, but no seal verified revision {report.revision}"
        why = f"{counted(report.missing, 'chunk')} not exported" if report.missing else all_exported
        show(f"not sealed: {why}; {report.unfinished}")
    show(f"{verdict}: {report.uri} at revision {report.revision}, {counted(report.files, 'data file')}, {read}")


def delete(options: argparse.Namespace) -> int:
    """Delete a snapshot after the confirmation `yes`; exit status 1 without it."""
    store = place_of(options).store()
    if not has_log(store):
        refuse_lost_log(store)
        raise NoSnapshotError(f"There is no snapshot at {store.uri}; nothing was deleted.", uri=store.uri)
    summary = summarize(store)
    if summary.status == "unreadable":
        read_state(store)  # raises why
    show_message(
        f"{summary.uri}: {summary.name or '(no name)'}, {summary.status}, "
        f"{_chunks(summary)} {noun(summary.chunks, 'chunk')}, {counted(summary.rows, 'row')},"
        f" {human_bytes(summary.bytes)}"
    )
    if any(tag.held_since for tag in summary.tags):
        refuse_held(read_state(store).tags.values())
    if not options.with_tags:
        # before the confirmation; the deletion checks again
        refuse_pinned(sorted(tag.tag_name for tag in summary.tags), (each.savepoint_id for each in summary.savepoints))
    if not options.yes and not confirmed("Everything the snapshot wrote will be removed."):
        show_message("Nothing was deleted.")
        if options.json:
            show_json({"uri": store.uri, "deleted": False, "objects": 0, "temporary": 0, "foreign": []})
        return 1
    single_writer = options.single_writer or place_of(options).single_writer
    with object_progress("deleting", options.progress) as watch:
        deletion = delete_snapshot(
            store, with_tags=options.with_tags, single_writer=single_writer, progress=lambda _: watch.finish()
        )
    for path in deletion.foreign:
        show_message(f"left alone: {path} is not part of the format")
    if options.json:
        show_json({"uri": store.uri, "deleted": True} | asdict(deletion))
    else:
        left = f" and {counted(deletion.temporary, 'temporary file')}" if deletion.temporary else ""
        show(f"Deleted {counted(deletion.objects, 'object')}{left} of {store.uri}.")
        if deletion.retained:
            show(f"{counted(len(deletion.retained), 'object')}, and the log, {RETAINED}")
    return 0


def diff(options: argparse.Namespace) -> int:
    """Show the changes from one version to another."""
    catalog = open_catalog(options, writing=False)
    first, second = (resolve_version(version, catalog.state) for version in (options.first, options.second))
    changes = difference(catalog.state, first, second)
    if options.json:
        rows = [plain(asdict(row)) for row in changes]
        show_json({"uri": catalog.store.uri, "from": first, "to": second, "changes": rows})
    else:
        _show_changes(changes, f"from revision {first} to revision {second}")
    return 0


def _show_changes(changes: list[DiffRow], between: str) -> None:
    if not changes:
        show(f"nothing changed {between}")
        return
    for row in changes:
        match row.kind:
            case Kind.HEADER:
                show(str(row.detail))
            case Kind.SCHEMA:
                show(f"schema {row.detail} {row.change.value}")
            case Kind.TOMBSTONE:
                show(f"tombstone {row.change.value}: {_table(row)}, {row.detail}")
    chunks = [row for row in changes if row.kind is Kind.CHUNK]
    if chunks:
        rows = [
            (
                row.chunk,
                _table(row),
                row.detail or row.change.value,
                f"+{row.files_added} -{row.files_removed}",
                f"+{_number(row.rows_added)} -{_number(row.rows_removed)}",
                f"+{human_bytes(row.bytes_added or 0)} -{human_bytes(row.bytes_removed or 0)}",
            )
            for row in chunks
        ]
        show_table(("Chunk", "Table", "Change", "Files", "Rows", "Size"), rows)
    added, removed = ([getattr(row, f"rows_{each}") for row in chunks] for each in (Change.ADDED, Change.REMOVED))
    known = f"+{counted(sum(filter(None, added)), 'row')}, -{counted(sum(filter(None, removed)), 'row')}"
    unknown = [f"deleted by tombstones in {counted(removed.count(None), 'chunk')}"] * (None in removed)
    unknown += [f"brought back in {counted(added.count(None), 'chunk')}"] * (None in added)
    files = counted(sum(row.kind is Kind.FILE for row in changes), "file")
    more = f", and unknown numbers {' and '.join(unknown)}" if unknown else ""
    show(f"{files} changed {between}: {known}{more}")


def _table(row: DiffRow) -> str:
    return "" if row.schema is None or row.table is None else table_text(TableName(row.schema, row.table))


def _number(rows: int | None) -> str:
    return "?" if rows is None else number_text(rows)
