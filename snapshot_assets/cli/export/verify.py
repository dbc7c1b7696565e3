"""`snapshots export verify`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.catalog.verify.objects import Report
from snapshot_assets.catalog.verify.remedy import Remedy
from snapshot_assets.catalog.verify.retained import some_of
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.cli.location import open_log
from snapshot_assets.cli.output import counted, human_bytes, show, show_json


def run(options: argparse.Namespace) -> int:
    """Verify a snapshot; exit status 1 if it is damaged or not sealed."""
    store = open_log(options)
    at = (lambda state: resolve_version(options.at, state)) if options.at is not None else None
    report = verify(store, depth=options.depth, at=at)
    if options.json:
        show_json(_as_json(report))
    else:
        _show(report)
    return 0 if report.sealed and not report.damaged else 1


def _as_json(report: Report) -> dict[str, object]:
    faults = [asdict(fault) | {"damage": fault.is_damage} for fault in report.faults]
    return asdict(report) | {"faults": faults, "damaged": report.damaged}


def _show(report: Report) -> None:
    for fault in report.faults:
        show(f"{'DAMAGE ' if fault.is_damage else 'warning'}  {fault.kind}: {fault.message}")
    if report.remedy is not None:
        _show_remedy(report.remedy)
    if report.temporary_files:
        files = f"{counted(report.temporary_files, 'temporary file')}, {human_bytes(report.temporary_bytes)}"
        show(f"{files}, of writers at work or killed: `snapshots catalog gc` deletes those older than the grace period")
    read = f"{human_bytes(report.bytes)} read" if report.depth == "full" else "no data read"
    verdict = "DAMAGED" if report.damaged else "OK" if report.sealed else "INCOMPLETE"
    if not report.sealed and not report.damaged:
        all_exported = f"all chunks are exported, but no seal verified revision {report.revision}"
        why = f"{counted(report.missing, 'chunk')} not exported" if report.missing else all_exported
        show(f"not sealed: {why}; run `snapshots export create`")
    show(f"{verdict}: {report.uri} at revision {report.revision}, {report.files} data files, {read}")


def _show_remedy(remedy: Remedy) -> None:
    pinned = f" ({', '.join(remedy.pins)})" if remedy.pins else ""
    needing = some_of(remedy.revisions) + pinned
    show(f"The newest state, revision {remedy.newest}, is whole; what is damaged is needed only by {needing}.")
    first = "seal the newest state (run the export to its end), then " if remedy.seal_first else ""
    too = f"; {some_of(remedy.expire_too)}, undamaged, will expire too" if remedy.expire_too else ""
    show(f"Restore the damaged objects from a copy. Or {first}expire and delete what needs them{too}:")
    for command in remedy.commands:
        show(f"  {command}")
