"""The statement about a seal, which is signed: one signature covers the log before it, and older versions by checksum.

It is a pure function of the log, and written beside every seal, so that somebody else can sign it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from snapshot_assets.catalog.log.store import read_entry
from snapshot_assets.catalog.seals.ssh import Signing, check_signature, sign
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import DamageError, ObjectExistsError, ObjectNotFoundError, PlanError, SignatureError
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES, parse_json, pretty_json
from snapshot_assets.format.layout import SIGNATURE, seal_path
from snapshot_assets.format.units import parse_time, time_text
from snapshot_assets.storage.base import ObjectStore

_CONTRADICTIONS = {
    "location_id": "it was copied from another location",
    "revision": "it is of another seal",
    "transaction": "the log was replaced after that seal",
}
_CONTENT = ("location_id", "snapshot_id", "revision", "checksum", "sealed_at", "versions")
"""Members that the log gives without the seal's transaction."""


def _statement(store: ObjectStore, state: State, revision: int) -> dict[str, Any]:
    """Return what the log gives about a sealed revision; `transaction` is null if that was pruned."""
    seals = {each.revision: each for each in state.readable() if each.revision <= revision}
    sealed, transaction = seals[revision], state.sha256 if state.revision == revision else None
    with suppress(ObjectNotFoundError, DamageError):  # damage is reported as that of the log
        if transaction is None and revision >= state.rebuilt_at:
            transaction = read_entry(store, revision).sha256
    writers = {each.revision: each.writer_id for each in state.events}
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
        "sealed_by": writers[revision],
        "versions": {str(number): each.seal.checksum for number, each in seals.items()},
    }


def compare_statement(store: ObjectStore, state: State, revision: int, found: dict[str, Any]) -> None:
    """Compare a statement with the log. It may have versions that have expired since.

    Raises:
        SignatureError: It is of another location, of another log, or of another seal.
    """
    path, expected = seal_path(revision), _statement(store, state, revision)
    if None in (found.get("transaction"), expected["transaction"]):  # pruned, or lost before a rebuild
        expected = {name: own for name, own in expected.items() if name in _CONTENT}
    pairs = {name: (found.get(name), own) for name, own in expected.items() if name != "versions"}
    versions = found.get("versions")
    listed = versions if isinstance(versions, dict) else {}
    pairs |= {f"the checksum of revision {each}": (listed.get(each), own) for each, own in expected["versions"].items()}
    for name, (stated, own) in pairs.items():
        if stated != own:
            why = _CONTRADICTIONS.get(name, "the snapshot was altered or replaced after that seal")
            raise SignatureError(f"{path} states {name} {stated}; the log has {own}: {why}.", object=path)


def sign_seal(store: ObjectStore, state: State, revision: int, signing: Signing | None) -> bool:
    """Write the statement about a sealed revision and, with a key, its signature; return whether it was unsigned.

    Raises:
        SignatureError: A statement exists that is signed, or that is not to be signed, and the log contradicts it.
    """
    path, data = seal_path(revision), pretty_json(_statement(store, state, revision))
    try:
        store.create(path, data)
    except ObjectExistsError:
        found = store.get(path, limit=MAX_DOCUMENT_BYTES)
        signs = signing is not None and signing.key is not None
        if not signs or _is_signed(store, signing, path, found):
            compare_statement(store, state, revision, _parsed(found, path))
            return False
        if found != data:  # others may have written it: nothing is signed but what the log gives
            store.put(path, data)
    if signing is None or signing.key is None:
        return False
    store.put(path + SIGNATURE, sign(signing, data))
    return True


def sign_record(store: ObjectStore, signing: Signing, path: str) -> bool:
    """Sign the record of a verification or comparison; return whether it was unsigned."""
    data = store.get(path, limit=MAX_DOCUMENT_BYTES)
    if _is_signed(store, signing, path, data):
        return False
    store.put(path + SIGNATURE, sign(signing, data))
    return True


def _is_signed(store: ObjectStore, signing: Signing | None, path: str, data: bytes) -> bool:
    """Return whether an object has a signature; one that counts, if that is known."""
    try:
        if signing is not None and signing.allowed_signers is not None:
            return read_signed(store, path, signing) is not None
        store.head(path + SIGNATURE)
    except (ObjectNotFoundError, SignatureError):
        return False
    return True


_TIMES = ("sealed_at", "verified_at", "compared_at")


def read_signed(store: ObjectStore, path: str, signing: Signing) -> tuple[dict[str, Any], str] | None:
    """Return a signed document, and who signed it by a key that was valid at its time; None if it is not signed.

    Raises:
        SignatureError: The signature does not count.
    """
    try:
        data, signature = (store.get(each, limit=MAX_DOCUMENT_BYTES) for each in (path, path + SIGNATURE))
    except ObjectNotFoundError:
        return None
    document = _parsed(data, path)
    try:
        at = next(parse_time(document[name]) for name in _TIMES if name in document)
    except (StopIteration, TypeError, PlanError):
        raise SignatureError(f"{path} has no valid {_TIMES[0]}; see FORMAT.md, section 7.", object=path) from None
    return document, check_signature(signing, path, data, signature, at)


def _parsed(data: bytes, path: str) -> dict[str, Any]:
    try:
        return parse_json(data, path)
    except DamageError as error:
        raise SignatureError(f"{error} It was altered.", object=path) from None
