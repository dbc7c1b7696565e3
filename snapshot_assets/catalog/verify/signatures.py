"""Verifies signatures: of the newest seal, or of one that covers an older version, and of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from snapshot_assets.catalog.log.store import is_there
from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.seals.ssh import Signing
from snapshot_assets.catalog.seals.statement import compare_statement, read_signed
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.faults import Fault, FaultKind
from snapshot_assets.errors import SignatureError
from snapshot_assets.format.layout import (
    SEALS,
    SIGNATURE,
    is_record_signature,
    seal_path,
    sealed_revision,
    transaction_path,
)
from snapshot_assets.format.units import parse_time
from snapshot_assets.storage.base import ObjectStore


class Signed(NamedTuple):
    """A signed seal: its revision, when its rows were exported, and who signed it."""

    revision: int
    at: datetime
    by: str


def check_signed(store: ObjectStore, head: State, signing: Signing, version: int | None = None) -> Signed:
    """Return the signed seal that covers a version, or the newest one, after a comparison with the log.

    Raises:
        SignatureError: No signature that counts covers it, or what is signed is not what the log has.
    """
    seals = {each.revision: each for each in head.readable()}
    newest = max(seals, default=0)
    own = read_signed(store, seal_path(version), signing) if version not in (None, newest) else None
    revision = newest if own is None or version is None else version
    found = own or read_signed(store, seal_path(newest), signing)
    if found is None:
        raise SignatureError(
            f"The newest seal, revision {newest}, is not signed: {seal_path(newest)}{SIGNATURE} is missing."
            " `snapshots sign` signs it, where the key is.",
            object=seal_path(newest),
        )
    compare_statement(store, head, revision, found[0])
    for each in {revision, version or revision}:  # a seal in the log may state another checksum than its files have
        if (checksum := checksum_of(head.at(each))) != (stated := found[0]["versions"][str(each)]):
            message = f"Revision {each} has checksum {checksum}; {seal_path(revision)} is signed, and states {stated}."
            raise SignatureError(message, object=seal_path(revision))
    _refuse_older_log(store, head)
    return Signed(revision, parse_time(found[0]["exported_at"]), found[1])


def _refuse_older_log(store: ObjectStore, head: State) -> None:
    """Refuse a log that ends before a signed seal."""
    signed = [sealed_revision(each.path) or 0 for each in store.list(SEALS) if each.path.endswith(SIGNATURE)]
    last = max(signed, default=0)
    if last > head.revision and not is_there(store, transaction_path(last)):
        raise SignatureError(
            f"Revision {last} was sealed and signed; the log ends at revision {head.revision}. Its end is lost, or an"
            " older log was put in its place.",
            object=seal_path(last),
        )


def record_faults(store: ObjectStore, signing: Signing, paths: Iterable[str]) -> Iterator[Fault]:
    """Yield a fault for each signature of a record that does not count; a record need not be signed."""
    for path in filter(is_record_signature, paths):
        try:
            read_signed(store, path.removesuffix(SIGNATURE), signing)
        except SignatureError as error:
            yield fault_of(error)


def fault_of(error: SignatureError) -> Fault:
    """Return the fault that a signature does not count."""
    return Fault(FaultKind.SIGNATURE, error.attributes["object"], str(error))
