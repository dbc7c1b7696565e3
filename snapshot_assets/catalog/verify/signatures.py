"""Verifies signatures: of the newest seal, or of one that covers an older version, and of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from snapshot_assets.catalog.log.store import is_there
from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.seals.ssh import Signing, lists_of
from snapshot_assets.catalog.seals.statement import compare_statement, read_signed, statements_that_count
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.faults import Fault, FaultKind
from snapshot_assets.catalog.verify.objects import Report
from snapshot_assets.errors import DamageError, ObjectNotFoundError, SignatureError
from snapshot_assets.format.layout import SIGNATURE, is_record_signature, seal_path, transaction_path
from snapshot_assets.format.units import parse_time
from snapshot_assets.storage.base import ObjectStore


class Signed(NamedTuple):
    """A signed seal: its revision, when its rows were exported, and who signed it."""

    revision: int
    at: datetime
    by: str


def check_signed(
    store: ObjectStore, head: State, signing: Signing | None, version: int | None = None, *, files: bool = True
) -> Signed | None:
    """Return the signed seal that covers a version, or the newest one, after a comparison with the log.

    Without a list of signers, nothing need be signed: returns None. Without `files`, no statistics are compared.

    Raises:
        SignatureError: No signature that counts covers it, or what is signed is not what the log has.
        PlanError: See `lists_of`.
    """
    if signing is None or signing.allowed_signers is signing.revoked_keys is None:
        return None
    lists_of(signing)
    newest = max((each.revision for each in head.readable()), default=0)
    revision = version or newest
    found = read_signed(store, seal_path(revision), signing)
    if found is None:
        revision, found = newest, read_signed(store, seal_path(newest), signing)
    path = seal_path(revision)
    if found is None:
        message = f"The newest seal, revision {newest}, is not signed: {path}{SIGNATURE} is missing."
        raise SignatureError(f"{message} `snapshots sign` signs it, where the key is.", object=path)
    statement, by = found
    try:
        compare_statement(store, head, revision, statement, files=files)
    except SignatureError:
        raise
    except (DamageError, ObjectNotFoundError) as error:
        message = f"{path} cannot be compared with the log: {error} `snapshots catalog repair` mends it, if it can."
        raise SignatureError(message, object=path) from None
    for each in {revision, version or revision}:  # a seal in the log may state another checksum than its files have
        if (checksum := checksum_of(head.at(each))) != (stated := statement["versions"][str(each)]):
            message = f"Revision {each} has checksum {checksum}; {path} is signed, and states {stated}."
            raise SignatureError(message, object=path)
    for last, _ in statements_that_count(store, head, signing, head.revision):
        if not is_there(store, transaction_path(last)):
            raise SignatureError(
                f"Revision {last} was sealed and signed; the log ends at revision {head.revision}. Its end is lost, or"
                " an older log was put in its place.",
                object=seal_path(last),
            )
    return Signed(revision, parse_time(statement["exported_at"]), by)


def signature_faults(
    report: Report, store: ObjectStore, head: State, signing: Signing | None, version: int | None, paths: Iterable[str]
) -> Iterator[Fault]:
    """Yield the faults of signatures: of a version's seal, or the newest, and of the records among paths."""
    if signing is None:
        return
    try:
        if (signed := check_signed(store, head, signing, version)) is None:
            return
        report.signed = f"revision {signed.revision}, by {signed.by}"
    except SignatureError as error:
        yield Fault(FaultKind.SIGNATURE, error.attributes["object"], str(error))
    for path in filter(is_record_signature, paths):
        try:
            read_signed(store, path.removesuffix(SIGNATURE), signing)
        except SignatureError as error:
            yield Fault(FaultKind.SIGNATURE, path, str(error))
