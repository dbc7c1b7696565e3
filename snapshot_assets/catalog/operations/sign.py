"""Signs seals and records that exist: also on another machine than that which exports, so that it needs no key."""

from __future__ import annotations

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.log.truncation import refuse_faults
from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.replica import refuse_replica
from snapshot_assets.catalog.seals.ssh import Signing, check_key
from snapshot_assets.catalog.seals.statement import sign_record, sign_seal
from snapshot_assets.errors import SignatureError, VersionNotFoundError
from snapshot_assets.format.layout import SIGNATURE, comparison_of, seal_path, verification_of
from snapshot_assets.storage.base import ObjectStore


def sign_location(
    store: ObjectStore, signing: Signing, *, every_version: bool = False, records: bool = False
) -> list[str]:
    """Sign the newest seal, or all readable ones, unless they are signed; return the paths of what was not.

    The log must be whole, and have what each seal states.

    Raises:
        VersionNotFoundError: Nothing is sealed.
        DamageError: The log has a fault, or contradicts a seal or its statement.
        PlanError, SigningError: The key does not exist, or does not sign.
    """
    check_key(signing)
    refuse_replica(store)
    scan = scan_log(store)
    refuse_faults(scan, "nothing was signed")
    head = Catalog(store, scan.state).require_snapshot()
    if not head.seals:
        raise VersionNotFoundError(f"Nothing is sealed at {store.uri}; export what is missing, which seals it.")
    signed = []
    for sealed in head.readable() if every_version else head.seals[-1:]:
        if (found := checksum_of(head.at(sealed.revision))) != sealed.seal.checksum:
            raise SignatureError(
                f"Revision {sealed.revision} has checksum {found}; its seal records {sealed.seal.checksum}. Verify the"
                " location; nothing of this revision was signed.",
                object=seal_path(sealed.revision),
            )
        if sign_seal(store, head, sealed.revision, signing):
            signed.append(seal_path(sealed.revision))
    paths = [info.path for info in store.list() if _is_record(info.path)] if records else []
    signed += [path for path in sorted(paths) if sign_record(store, signing, path)]
    return [path + SIGNATURE for path in signed]


def _is_record(path: str) -> bool:
    """Return whether a finished verification or comparison is recorded at `path`."""
    return verification_of(path) is not None or comparison_of(path) not in (None, ("unfinished",))
