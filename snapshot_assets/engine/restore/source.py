"""The snapshot that is restored: its revision, verified, with its schema documents. The log is read once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from snapshot_assets.catalog.log.scan import scan_log
from snapshot_assets.catalog.log.truncation import existing_state, refuse_lost_log
from snapshot_assets.catalog.schemas import read_schemas
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.catalog.verify.objects import Depth
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.databases.target import RestoreRecord
from snapshot_assets.engine.restore.selection import check_complete, select
from snapshot_assets.engine.restore.settings import RestoreSettings
from snapshot_assets.errors import DamageError, NoSnapshotError, OtherImportError
from snapshot_assets.format.relations import DatabaseSchema
from snapshot_assets.storage.base import ObjectStore

_SHOWN = 10


@dataclass(frozen=True)
class RestoreSource:
    """A sealed, verified revision.

    Attributes:
        location: The location's URI.
        head: The newest state.
        state: The state at the restored revision.
        schema: The selected part of its newest schema.
        documents: Every schema that a file was written with, by id.
        checksum: The snapshot's checksum.
        lost: One sentence for each view that the selection leaves out.
    """

    location: str
    head: State
    state: State
    schema: DatabaseSchema
    documents: Mapping[int, DatabaseSchema]
    checksum: str
    lost: tuple[str, ...] = ()


def open_source(
    store: ObjectStore,
    settings: RestoreSettings,
    records: Sequence[RestoreRecord],
    *,
    depth: Depth = "quick",
    recorded: bool = False,
) -> RestoreSource:
    """Choose the revision, verify it, and read its documents.

    An unfinished restore continues with the revision it pinned, whatever the head is now.

    Args:
        store: The location.
        settings: What the restore selects.
        records: Restores in the target's ledger.
        depth: `full` also reads all data.
        recorded: Choose the revision of the newest recorded restore, if there is one, unless a version is given.

    Raises:
        NoSnapshotError: There is no sealed snapshot.
        LostLogError: The location has data but no log.
        VersionNotFoundError: There is no such version.
        OtherImportError: The settings name another version than an unfinished restore pinned.
        DamageError: The location is damaged; names the objects.
        UnknownRelationError: A chosen schema or table is not in the snapshot.
    """
    scan = scan_log(store)
    head = existing_state(store) if scan.faults else scan.state  # raises the fault, unless an older checkpoint helps
    if not head.revision:
        refuse_lost_log(store)
    revision = _chosen_revision(head, store.uri, settings, records, recorded=recorded)
    report = verify(store, depth=depth, at=lambda _: revision, scan=scan)
    _refuse_damage(store, [fault.message for fault in report.faults if fault.is_damage])
    state = head.at(revision)
    assert state.newest_seal is not None
    documents = read_schemas(store, state)
    schema, lost = select(documents[state.schema_id], settings.filters)
    if not settings.filters.tables and not settings.filters.schemas:
        check_complete(state, schema)
    return RestoreSource(store.uri, head, state, schema, documents, state.newest_seal.seal.checksum, tuple(lost))


def _refuse_damage(store: ObjectStore, damage: list[str]) -> None:
    if damage:
        more = f" and {len(damage) - _SHOWN} more" if len(damage) > _SHOWN else ""
        raise DamageError(
            f"{store.uri} is damaged, and nothing was restored: {' '.join(damage[:_SHOWN])}{more}", faults=damage
        )


def _chosen_revision(
    head: State, uri: str, settings: RestoreSettings, records: Sequence[RestoreRecord], *, recorded: bool
) -> int:
    if not head.has_snapshot:
        raise NoSnapshotError(f"There is no snapshot at {uri}: nothing can be restored.", location=uri)
    if not head.seals:
        raise NoSnapshotError(
            f"There is no sealed snapshot at {uri}: nothing can be restored. Materialise the manifest, which seals it.",
            location=uri,
        )
    filters = settings.filters.text()
    own = [record for record in records if record.location_id == head.location_id and record.filters == filters]
    newest = own[-1] if own else None
    version = None if settings.version is None else resolve_version(settings.version, head)
    if newest is not None and not newest.finished:
        if version is not None:
            check_unfinished(newest, version)
        return newest.revision
    if newest is not None and recorded and version is None:
        return newest.revision
    return head.seals[-1].revision if version is None else version


def check_unfinished(newest: RestoreRecord, revision: int) -> None:
    """Refuse another revision than an unfinished restore pinned.

    Args:
        newest: The newest restore into the tables.
        revision: The revision that is to be restored.

    Raises:
        OtherImportError: The restore is unfinished and pinned another revision.
    """
    if not newest.finished and newest.revision != revision:
        raise OtherImportError(
            f"The target holds an unfinished import of revision {newest.revision}; asked for is revision {revision}."
            f" Finish it first (leave --at out, or give --at rev:{newest.revision}), or drop its tables and give"
            " --forget-ledger.",
            revision=newest.revision,
        )
