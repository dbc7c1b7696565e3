"""The statement about a seal, which is signed: one signature covers the log before it, and older versions by checksum.

It is a pure function of the log, and written beside every seal, so that somebody else can sign it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import Any

from snapshot_assets.catalog.log.store import is_there, read_entry
from snapshot_assets.catalog.manifest import manifest_parts
from snapshot_assets.catalog.seals.ssh import Signing, check_signature, sign
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import DamageError, ObjectExistsError, ObjectNotFoundError, PlanError, SignatureError
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES, parse_json, pretty_json
from snapshot_assets.format.layout import COMPARISONS, SEALS, SIGNATURE, VERIFICATIONS, seal_path, sealed_revision
from snapshot_assets.format.units import parse_time, time_text
from snapshot_assets.storage.base import ObjectStore

_CONTRADICTIONS = {
    "location_id": "it was copied from another location",
    "revision": "it is of another seal",
    "transaction": "the log was replaced after that seal",
}
_ALTERED = (
    "the snapshot was altered or replaced after that seal. After a rebuild of yours, check what the log has now by "
    "`snapshots export verify` and `snapshots compare`; then `snapshots sign --again` signs it"
)
_CONTENT = ("location_id", "snapshot_id", "revision", "checksum", "sealed_at", "manifest", "versions", "files")
"""Members that the log gives without the seal's transaction."""
_BY_VERSION = {"versions": "checksum", "files": "digest of the data files"}
"""Members that have a value for each version."""
_MAX_SIGNATURE = 64 * 1024
"""Bytes; ssh-keygen takes minutes for a large one."""
_TIMES = {SEALS: "sealed_at", VERIFICATIONS: "verified_at", COMPARISONS: "compared_at"}
"""The member of a folder's documents that says when they were written; no document of another folder has it."""


def _statement(store: ObjectStore, state: State, revision: int, *, files: bool = True) -> dict[str, Any]:
    """Return what the log gives about a sealed revision; `transaction` is null if that was pruned.

    Without `files`, no statistics are read.
    """
    seals = {each.revision: each for each in state.readable() if each.revision <= revision}
    sealed, transaction = seals[revision], state.sha256 if state.revision == revision else None
    with suppress(ObjectNotFoundError, DamageError):  # damage is reported as that of the log
        if transaction is None and revision >= state.rebuilt_at:
            transaction = read_entry(store, revision).sha256
    manifest, own = hashlib.sha256(), state.sealed and state.newest_seal == sealed
    for part in manifest_parts(state if own else state.at(revision)):
        manifest.update(part)
    return {
        "version": sealed.version,
        "location_id": state.location_id,
        "snapshot_id": sealed.snapshot_id,
        "revision": revision,
        "transaction": transaction,
        "checksum": sealed.seal.checksum,
        "verified_revision": sealed.seal.verified_revision,
        "exported_at": time_text(sealed.exported_at),
        "sealed_at": time_text(sealed.committed_at),
        "sealed_by": next(each.writer_id for each in state.events if each.revision == revision),
        "manifest": manifest.hexdigest(),
        "versions": {str(number): each.seal.checksum for number, each in seals.items()},
    } | ({"files": {str(each): of for each, of in state.files.merged().digests(seals).items()}} if files else {})


def compare_statement(
    store: ObjectStore, state: State, revision: int, found: dict[str, Any], *, files: bool = True
) -> None:
    """Compare a statement with the log. It may have versions that have expired since; `files` as for a statement.

    Raises:
        SignatureError: It is of another location, of another log, or of another seal.
        DamageError, ObjectNotFoundError: Statistics, which are read late, are damaged or pruned.
    """
    path, expected = seal_path(revision), _statement(store, state, revision, files=files)
    if None in (found.get("transaction"), expected["transaction"]):  # pruned, or lost before a rebuild
        expected = {name: own for name, own in expected.items() if name in _CONTENT}
    pairs: dict[str, tuple[object, object]] = {}
    for name, own in expected.items():
        stated = found.get(name)
        if name in _BY_VERSION:
            listed = stated if isinstance(stated, dict) else {}
            pairs |= {f"the {_BY_VERSION[name]} of revision {each}": (listed.get(each), own[each]) for each in own}
        else:
            pairs[name] = stated, own
    for name, (stated, own) in pairs.items():
        if stated != own:
            why = _CONTRADICTIONS.get(name, _ALTERED)
            raise SignatureError(f"{path} states {name} {stated}; the log has {own}: {why}.", object=path)


def statements_that_count(
    store: ObjectStore, state: State, signing: Signing, after: int = 0
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the location's own statements after a revision whose signatures count, the newest first."""
    signed = {sealed_revision(each.path) or 0 for each in store.list(SEALS) if each.path.endswith(SIGNATURE)}
    for revision in sorted((each for each in signed if each > after), reverse=True):
        with suppress(SignatureError):
            found = read_signed(store, seal_path(revision), signing)
            if found and (found[0].get("location_id"), found[0].get("revision")) == (state.location_id, revision):
                yield revision, found[0]


def refuse_altered(store: ObjectStore, state: State, signing: Signing | None) -> None:
    """Compare a log with what was last signed of it, before more is signed; without a list of signers, nothing counts.

    Raises:
        SignatureError: They contradict each other.
    """
    if signing is None or signing.key is None or signing.allowed_signers is None:
        return
    readable = {each.revision for each in state.readable()}
    signed = (each for each in statements_that_count(store, state, signing) if each[0] in readable)
    if newest := next(signed, None):
        compare_statement(store, state, *newest)


def sign_seal(store: ObjectStore, state: State, revision: int, signing: Signing | None, *, again: bool = False) -> bool:
    """Write the statement about a sealed revision and, with a key, its signature; return whether it was unsigned.

    With `again`, also replace a signature that counts, of another statement than the log gives.
    """
    path, data = seal_path(revision), cache(lambda: pretty_json(_statement(store, state, revision)))
    checksum = next(each.seal.checksum for each in state.readable() if each.revision == revision)
    own = {"location_id": state.location_id, "revision": revision, "checksum": checksum}
    if again:
        own = parse_json(data(), path)
    if not is_there(store, path):  # it takes all statistics to make
        with suppress(ObjectExistsError):
            store.create(path, data())
    return signing is not None and signing.key is not None and sign_object(store, signing, path, own, data)


def sign_object(
    store: ObjectStore, signing: Signing, path: str, own: Mapping[str, object], expected: Callable[[], bytes] | None
) -> bool:
    """Sign an object, unless it has a signature that counts, or is genuine if nothing tells which count.

    Others may have written it: a signature of a document without the members `own` is replaced, and with `expected`,
    nothing else is signed. Returns whether it was unsigned.
    """
    with suppress(SignatureError):
        found = read_signed(store, path, signing)
        if found and own.items() <= found[0].items():
            return False
    data = b""
    with suppress(DamageError):  # it is too large
        data = store.get(path, limit=MAX_DOCUMENT_BYTES)
    if expected is not None and data != expected():
        store.put(path, data := expected())
    store.put(path + SIGNATURE, sign(signing, data, _time_of(path, data)[1]))
    return True


def read_signed(store: ObjectStore, path: str, signing: Signing) -> tuple[dict[str, Any], str] | None:
    """Return a signed document, and who signed it by a key that was valid at its time; None if it is not signed.

    Raises:
        SignatureError: The signature does not count.
    """
    if not is_there(store, path + SIGNATURE):
        return None
    try:
        signature, data = store.get(path + SIGNATURE, limit=_MAX_SIGNATURE), store.get(path, limit=MAX_DOCUMENT_BYTES)
    except (ObjectNotFoundError, DamageError) as error:  # or it is too large
        raise SignatureError(f"{path} is not signed so that it counts: {error}", object=path) from None
    document, at = _time_of(path, data)
    return document, check_signature(signing, path, data, signature, at)


def _time_of(path: str, data: bytes) -> tuple[dict[str, Any], datetime]:
    """Return a document that is signed, and when it was written."""
    try:
        document = parse_json(data, path)
        [(folder, at)] = [(folder, document[name]) for folder, name in _TIMES.items() if name in document]
        if not path.startswith(folder):
            raise ValueError(f"its folder is not {folder}")
        return document, parse_time(at)
    except (DamageError, PlanError, ValueError, TypeError) as error:
        raise SignatureError(f"{path} is no statement or record, or was altered: {error}", object=path) from None
