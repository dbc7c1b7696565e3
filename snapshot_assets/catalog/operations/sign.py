"""Signs seals and records that exist: also on another machine than that which exports, so that it needs no key."""

from __future__ import annotations

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.log.truncation import refuse_faults
from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.replica import refuse_replica
from snapshot_assets.catalog.seals.ssh import Signing
from snapshot_assets.catalog.seals.statement import refuse_altered, sign_object, sign_seal
from snapshot_assets.catalog.state.data_files import FileSet
from snapshot_assets.errors import SignatureError, VersionNotFoundError
from snapshot_assets.format.layout import SIGNATURE, comparison_of, seal_path, verification_of
from snapshot_assets.storage.base import ObjectStore


def sign_location(
    store: ObjectStore, signing: Signing, *, all_seals: bool = False, records: bool = False, again: bool = False
) -> list[str]:
    """Sign the newest seal, or all that are readable, unless they are signed; return the paths of new signatures.

    With `again`, sign all that are readable, also those whose signed statement the log contradicts.

    Raises:
        VersionNotFoundError: Nothing is sealed.
        DamageError: The log has a fault, or contradicts a seal, or what was signed before.
        PlanError, SigningError: See `seals.ssh.sign`.
    """
    refuse_replica(store)
    scan = scan_log(store)
    refuse_faults(scan, "nothing was signed")
    head = Catalog(store, scan.state).require_snapshot()
    if not head.seals:
        raise VersionNotFoundError(f"Nothing is sealed at {store.uri}; export what is missing, which seals it.")
    head.files, signed = FileSet(head.files.merged()), []  # whose digests are computed once
    if not again:
        refuse_altered(store, head, signing)
    for sealed in head.readable() if all_seals or again else head.readable()[-1:]:
        if (found := checksum_of(head.at(sealed.revision))) != sealed.seal.checksum:
            path, own = seal_path(sealed.revision), sealed.seal.checksum
            message = f"Revision {sealed.revision} has checksum {found}; its seal records {own}. It was not signed."
            raise SignatureError(message, object=path)
        if sign_seal(store, head, sealed.revision, signing, again=again):
            signed.append(seal_path(sealed.revision))
    for path in sorted(info.path for info in store.list()) if records else ():
        finished = verification_of(path) or comparison_of(path) not in (None, ("unfinished",))
        if finished and sign_object(store, signing, path, {}, None):
            signed.append(path)
    return [path + SIGNATURE for path in signed]
