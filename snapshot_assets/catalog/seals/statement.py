"""The statement about a seal, which is signed: one signature covers the log before it, and older versions by checksum.

It is written beside every seal, also without a key, so that somebody else can sign it.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any

from snapshot_assets import __version__
from snapshot_assets.catalog.log.store import read_entry
from snapshot_assets.catalog.seals.ssh import Signing, check_signature, sign
from snapshot_assets.catalog.state.fold import SealState, State
from snapshot_assets.errors import DamageError, ObjectExistsError, ObjectNotFoundError, PlanError, SignatureError
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES, parse_json, pretty_json
from snapshot_assets.format.layout import SIGNATURE, seal_path
from snapshot_assets.format.units import parse_time, time_text
from snapshot_assets.storage.base import ObjectStore

_WRITER = ("verified_depth", "program")
"""Members of a statement that the log does not give."""


def seal_of(state: State, revision: int) -> SealState:
    """Return the seal of a readable revision."""
    return next(seal for seal in state.readable() if seal.revision == revision)


def _facts(store: ObjectStore, state: State, sealed: SealState) -> dict[str, Any]:
    """Return what the log gives for a statement; `transaction` is null if the transaction was pruned."""
    transaction = state.sha256 if state.revision == sealed.revision else None
    with suppress(ObjectNotFoundError):
        transaction = transaction or read_entry(store, sealed.revision).sha256
    older = [each for each in state.readable() if each.revision <= sealed.revision]
    return {
        "location_id": state.location_id,
        "snapshot_id": sealed.snapshot_id,
        "revision": sealed.revision,
        "transaction": transaction,
        "checksum": sealed.seal.checksum,
        "sealed_at": time_text(sealed.committed_at),
        "exported_at": time_text(sealed.exported_at),
        "verified_revision": sealed.seal.verified_revision,
        "versions": {str(each.revision): each.seal.checksum for each in older},
    }


def _statement(store: ObjectStore, state: State, sealed: SealState, depth: str | None) -> dict[str, Any]:
    facts = _facts(store, state, sealed)
    versions = facts.pop("versions")
    wrote = {"verified_depth": depth, "program": f"snapshot_assets/{__version__}"}
    return {"version": sealed.version, **facts, **wrote, "versions": versions}


def sign_seal(
    store: ObjectStore, state: State, revision: int, signing: Signing | None, depth: str | None = None
) -> bool:
    """Write the statement about a sealed revision and, with a key, its signature; return whether it was unsigned.

    A statement that exists is signed as it is only if the log gives all of it: others may have written it. `depth` is
    how deeply the seal verified files, if the caller knows it.

    Raises:
        SignatureError: A statement exists that is signed, and that the log contradicts.
    """
    sealed, path = seal_of(state, revision), seal_path(revision)
    statement = _statement(store, state, sealed, depth)
    signs = signing is not None and signing.key is not None
    signed, data = False, pretty_json(statement)
    try:
        store.create(path, data)
    except ObjectExistsError:
        own, data = data, store.get(path, limit=MAX_DOCUMENT_BYTES)
        signed = _is_signed(store, signing, path, data, sealed.committed_at)
        found = _parsed(data, path)
        if signed or not signs:
            compare_statement(store, state, sealed, found)
        elif found | {name: statement[name] for name in _WRITER} != statement:
            store.put(path, own)
            data = own
    if signed or signing is None or signing.key is None:
        return False
    store.put(path + SIGNATURE, sign(signing, data))
    return True


def _parsed(data: bytes, path: str) -> dict[str, Any]:
    try:
        return parse_json(data, path)
    except DamageError as error:
        raise SignatureError(f"{error} It is no statement about a seal.", object=path) from None


def _is_signed(store: ObjectStore, signing: Signing | None, path: str, data: bytes, at: datetime) -> bool:
    """Return whether an object is signed, by a signature that counts if it is known which do."""
    try:
        signature = store.get(path + SIGNATURE, limit=MAX_DOCUMENT_BYTES)
        if signing is not None and signing.allowed_signers is not None:
            check_signature(signing, path, data, signature, at)
    except (ObjectNotFoundError, SignatureError):
        return False
    return True


def sign_object(store: ObjectStore, signing: Signing, path: str, at: datetime) -> bool:
    """Sign an object that exists, such as a record; return whether it was unsigned."""
    data = store.get(path, limit=MAX_DOCUMENT_BYTES)
    if _is_signed(store, signing, path, data, at):
        return False
    store.put(path + SIGNATURE, sign(signing, data))
    return True


def read_statement(store: ObjectStore, revision: int, signing: Signing) -> tuple[dict[str, Any], str] | None:
    """Return a signed statement, and who signed it; None if the revision is not signed.

    Raises:
        SignatureError: The signature does not count.
    """
    path = seal_path(revision)
    try:
        data, signature = (store.get(each, limit=MAX_DOCUMENT_BYTES) for each in (path, path + SIGNATURE))
    except ObjectNotFoundError:
        return None
    statement = _parsed(data, path)
    try:
        at = parse_time(statement["sealed_at"])
    except (KeyError, TypeError, PlanError):
        raise SignatureError(f"{path} has no valid sealed_at; see FORMAT.md, section 7.", object=path) from None
    return statement, check_signature(signing, path, data, signature, at)


def compare_statement(store: ObjectStore, state: State, sealed: SealState, statement: dict[str, Any]) -> None:
    """Compare a statement with the log.

    Raises:
        SignatureError: It is of another location, of another log, or of another version.
    """
    path, facts = seal_path(sealed.revision), _facts(store, state, sealed)
    versions, known = facts.pop("versions"), statement.get("versions")
    if facts["transaction"] is None:
        facts.pop("transaction")  # pruned: the checksum still covers the content
    for name, own in facts.items():
        found = statement.get(name)
        if found != own and (name, found) != ("transaction", None):
            what = _MEANING.get(name, "the log was replaced, or this statement is not its own")
            raise SignatureError(f"{path} states {name} {found}; the log has {own}: {what}.", object=path)
    for revision, own in versions.items():
        found = known.get(revision) if isinstance(known, dict) else None
        if found != own:
            raise SignatureError(
                f"{path} states checksum {found} for revision {revision}; the log has {own}: that version was altered,"
                " or is not of this log.",
                object=path,
            )


_MEANING = {
    "location_id": "it was copied from another location",
    "revision": "it is of another seal",
    "transaction": "the log was replaced after that seal",
    "checksum": "the snapshot was replaced after that seal",
}
