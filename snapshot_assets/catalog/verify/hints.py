"""Verification of the hints: `manifest.json` and `SHA256SUMS` against what the log gives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from snapshot_assets.catalog.log.replay import despite_pruning
from snapshot_assets.catalog.log.scan import LogScan, scan_log
from snapshot_assets.catalog.log.store import is_there
from snapshot_assets.catalog.manifest import hints_of, load_manifests_of, manifest_of, shown_state, sums_of
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.faults import Fault, FaultKind, faults_by_object, missing
from snapshot_assets.catalog.verify.retained import sealed_states
from snapshot_assets.errors import DamageError, ObjectNotFoundError, UnsupportedVersionError
from snapshot_assets.format.actions import ObjectRef
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES, parse_json, pretty_json, sha256_hex, sums_line
from snapshot_assets.format.layout import CHECKSUMS, MANIFEST, attempt_of, is_schema_document, transaction_path
from snapshot_assets.storage.base import ObjectStore

_LINE = re.compile(rb"([0-9a-f]{64})  ([!-~]+)\n")
"""A line of SHA256SUMS; paths of this format are ASCII without spaces."""


def hint_faults(scan: LogScan, *, replica: bool) -> Iterator[Fault]:
    """Compare the hints with what the log gives at the manifest's own revision.

    Only replication writes to a replica. If the log is pruned meanwhile, it is read again.
    """
    again = " `snapshots replicate` writes it again." if replica else ""
    scans = chain([scan], iter(lambda: scan_log(scan.store), None))
    for fault in despite_pruning(lambda: [*_hint_faults(next(scans))]):
        yield replace(fault, finding=f"{fault.finding}{again}", repairable=not replica)


def _hint_faults(scan: LogScan) -> Iterator[Fault]:
    shown, store = shown_state(scan.state), scan.store
    try:
        manifest = store.get(MANIFEST, limit=MAX_DOCUMENT_BYTES)
        revision = parse_json(manifest, MANIFEST).get("revision")
    except ObjectNotFoundError:
        yield Fault(FaultKind.STALE, MANIFEST, missing(store, MANIFEST).message)
    except UnsupportedVersionError as error:
        if not scan.faults:  # a newer program may be able to read the log
            found, own = error.attributes["found"], scan.state.format_version
            message = f"{MANIFEST} has format version {found}; the log, which decides, has {own}."
            yield Fault(FaultKind.DOCUMENT, MANIFEST, message)
    except DamageError as error:
        yield Fault(FaultKind.DOCUMENT, MANIFEST, str(error))
    else:
        if not any(path == MANIFEST for path, _ in scan.faults):  # it may belong to another location
            state = _state_at(scan, revision)
            if state is None:
                yield from _unknown_revision(scan, shown, revision)
                return
            if manifest != pretty_json(manifest_of(state)):
                message = f"{MANIFEST} is not what the log gives for revision {state.revision}."
                yield Fault(FaultKind.DOCUMENT, MANIFEST, message)
            elif scan.state.sealed and state.revision != scan.state.seals[-1].revision:
                message = f"{MANIFEST} shows revision {state.revision}, not the newest seal."
                yield Fault(FaultKind.STALE, MANIFEST, message)
            shown = state
    yield from _sums_faults(scan, shown)
    yield from _load_manifest_faults(store, shown)


def _unknown_revision(scan: LogScan, shown: State, revision: object) -> Iterator[Fault]:
    """Yield the fault of a manifest whose revision the log lacks, unless the log has a fault itself."""
    if scan.faults:
        return
    if isinstance(revision, int) and revision > scan.state.revision:
        return  # committed since the log was read
    if isinstance(revision, int) and 0 < revision < scan.first:
        yield Fault(FaultKind.STALE, MANIFEST, f"{MANIFEST} is of revision {revision}, which was pruned.")
    else:
        named = "no revision" if revision is None else f"revision {revision!r}, which is unknown"
        yield Fault(FaultKind.DOCUMENT, MANIFEST, f"{MANIFEST} names {named}.")
        yield from _sums_faults(scan, shown)


def _sums_faults(scan: LogScan, state: State) -> Iterator[Fault]:
    """Yield the fault of SHA256SUMS; a writer that died, or two at once, leave one of another revision."""
    store = scan.store
    try:
        found = store.get(CHECKSUMS, limit=MAX_DOCUMENT_BYTES)
    except ObjectNotFoundError:
        yield Fault(FaultKind.STALE, CHECKSUMS, missing(store, CHECKSUMS).message)
        return
    except DamageError as error:
        yield Fault(FaultKind.DOCUMENT, CHECKSUMS, str(error))
        return
    if found == sums_of(state):
        return
    retained = (then for _, then in sealed_states(scan.state))  # of some, the log may be pruned
    if any(found == sums_of(other) for other in chain(scan.states(), retained)):
        yield Fault(FaultKind.STALE, CHECKSUMS, f"{CHECKSUMS} is of another revision than {MANIFEST}.")
    elif scan.start and _contradicts_nothing(scan.state, found):
        yield Fault(FaultKind.STALE, CHECKSUMS, f"{CHECKSUMS} is of a version whose log was pruned.")
    elif not is_there(store, transaction_path(scan.state.revision + 1)):  # else others committed since
        yield Fault(FaultKind.DOCUMENT, CHECKSUMS, f"{CHECKSUMS} is not what the log gives.")


def _contradicts_nothing(state: State, sums: bytes) -> bool:
    """Return whether checksums may be of a version that the log no longer has: files that it has are as it has them."""
    known = {live.file.path: live.file.sha256 for live in state.live_files()}
    known |= {ref.path: ref.sha256 for added in state.schemas.values() for ref in added.files}
    lines = map(_LINE.fullmatch, sums.splitlines(keepends=True))
    shown = {line[2].decode(): line[1].decode() for line in lines if line}
    if sums != "".join(sums_line(sha256, path) for path, sha256 in sorted(shown.items())).encode():
        return False
    named = all(attempt_of(path) or is_schema_document(path) for path in shown)
    return named and all(known.get(path, sha256) == sha256 for path, sha256 in shown.items())


def _load_manifest_faults(store: ObjectStore, state: State) -> Iterator[Fault]:
    """Yield the faults of load manifests; a location that was copied elsewhere has URLs of its origin."""
    for path, expected in load_manifests_of(state, store.uri).items():
        try:
            found = store.get(path, limit=MAX_DOCUMENT_BYTES)
        except ObjectNotFoundError:
            if expected is not None:
                yield Fault(FaultKind.STALE, path, missing(store, path).finding)
        else:
            if found != expected:
                message = f"{path} does not list the files of revision {state.revision}, which {MANIFEST} shows."
                yield Fault(FaultKind.STALE, path, f"{message} Load nothing by it until then.")


def _state_at(scan: LogScan, revision: object) -> State | None:
    """Return the state at a revision that the scan read or that is retained; None for others."""
    if revision == scan.state.revision:
        return scan.state
    if any(seal.revision == revision for seal in scan.state.readable()):
        return scan.state.at(int(str(revision)))
    return next((state for state in scan.states() if state.revision == revision), None)


def damaged_documents(store: ObjectStore, state: State) -> list[Fault]:
    """Return the faults of a sealed head's hints and newest schema's documents; the next export writes them again."""
    hints = (ObjectRef(path, sha256_hex(data), len(data)) for path, data in hints_of(state).items())
    refs = [*hints, *state.schemas[state.schema_id].files]
    return [fault for _, fault in faults_by_object(store, refs, {ref.path for ref in refs})]
