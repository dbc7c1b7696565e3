"""Verifies signatures: of the newest seal, or of one that covers an older version, and of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from snapshot_assets.catalog.log.store import is_there
from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.seals.ssh import Signing, check_signature
from snapshot_assets.catalog.seals.statement import compare_statement, read_statement, seal_of
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.faults import Fault, FaultKind
from snapshot_assets.errors import ObjectNotFoundError, SignatureError
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES
from snapshot_assets.format.layout import (
    SEALS,
    SIGNATURE,
    is_record_signature,
    recorded_at,
    seal_path,
    sealed_revision,
    transaction_path,
)
from snapshot_assets.storage.base import ObjectStore


@dataclass(frozen=True)
class Signed:
    """A signed seal: its revision, when it was sealed, and who signed it."""

    revision: int
    at: datetime
    by: str

    def __str__(self) -> str:
        return f"revision {self.revision} by {self.by}"


def check_signed(store: ObjectStore, head: State, signing: Signing, version: int | None = None) -> Signed:
    """Return the signed seal that covers a version, or the newest one; compare it with the log.

    Raises:
        SignatureError: No signature that counts covers it, or what is signed is not what the log has.
    """
    if not head.seals:
        raise SignatureError("Nothing is sealed, so nothing is signed.", object=SEALS)
    newest = head.seals[-1].revision
    revision = version or newest
    found = read_statement(store, revision, signing)
    if found is None and revision != newest:
        revision, found = newest, read_statement(store, newest, signing)
    if found is None:
        raise SignatureError(
            f"Revision {revision}, the newest seal, is not signed: {seal_path(revision)}{SIGNATURE} is missing."
            " `snapshots sign` signs it, where the key is.",
            object=seal_path(revision),
        )
    (statement, by), sealed = found, seal_of(head, revision)
    compare_statement(store, head, sealed, statement)
    for each in {revision, version or revision}:
        state = head if each == head.revision else head.at(each)
        if (own := checksum_of(state)) != statement["versions"].get(str(each)):
            signed = statement["versions"].get(str(each), "none")
            message = f"The files of revision {each} have checksum {own}; {seal_path(revision)} states {signed}."
            raise SignatureError(message, object=seal_path(revision))
    _refuse_older_log(store, head)
    return Signed(revision, sealed.committed_at, by)


def _refuse_older_log(store: ObjectStore, head: State) -> None:
    """Refuse a log that ends before a signed seal: an older copy, put in its place."""
    signed = {sealed_revision(each.path) or 0 for each in store.list(SEALS) if each.path.endswith(SIGNATURE)}
    last = max(signed, default=0)
    if last > head.revision and not is_there(store, transaction_path(last)):
        raise SignatureError(
            f"Revision {last} was sealed and signed; the log ends at revision {head.revision}. Its end is lost, or an"
            " older log was put in its place.",
            object=seal_path(last),
        )


def signature_faults(store: ObjectStore, signing: Signing, paths: Iterable[str]) -> Iterator[Fault]:
    """Yield a fault for each signature of a record that does not count; a record need not be signed."""
    for path in filter(is_record_signature, paths):
        record = path.removesuffix(SIGNATURE)
        try:
            data, signature = (store.get(each, limit=MAX_DOCUMENT_BYTES) for each in (record, path))
            check_signature(signing, record, data, signature, recorded_at(record))
        except ObjectNotFoundError:
            continue  # deleted with its record
        except SignatureError as error:
            yield fault_of(error)


def fault_of(error: SignatureError) -> Fault:
    """Return the fault that a signature does not count."""
    return Fault(FaultKind.SIGNATURE, error.attributes.get("object", SEALS), str(error))
