"""The snapshot that is restored: its revision, verified, with its schema documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.log.truncation import known_state
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.catalog.verify.objects import Depth
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.databases.target import RestoreRecord
from snapshot_assets.engine.restore.compactions import Compactions
from snapshot_assets.engine.restore.deleted_rows import TombstoneDeletions, imported_tombstones
from snapshot_assets.engine.restore.plan import Filters, check_complete, select
from snapshot_assets.errors import DamageError, NoSnapshotError, OtherImportError
from snapshot_assets.format.relations import DatabaseSchema
from snapshot_assets.storage.base import ObjectStore

_SHOWN = 10


@dataclass(frozen=True)
class RestoreSource:
    """A sealed, verified revision.

    Attributes:
        state: The state at that revision.
        schema: What is selected of its newest schema.
        documents: Every schema that a file was written with, by id.
        deleted: What tombstones delete of its files, at this revision and at those that were imported before.
        compactions: What the log says of compactions, up to the head.
        checksum: The snapshot's checksum.
        pinned: The ledger's record of an import of the same revision with the same filters, if there is one.
        lost: What the selection leaves out because it refers to something that is not selected.
    """

    state: State
    schema: DatabaseSchema
    documents: Mapping[int, DatabaseSchema]
    deleted: TombstoneDeletions
    compactions: Compactions
    checksum: str
    pinned: RestoreRecord | None = None
    lost: tuple[str, ...] = ()


def open_snapshot(
    store: ObjectStore,
    filters: Filters,
    version: str | None,
    imports: Sequence[RestoreRecord] = (),
    *,
    depth: Depth = "quick",
    recorded: bool = False,
) -> RestoreSource:
    """Choose the revision, verify it, and read its documents.

    An import that was begun and not finished goes on with the revision it pinned, whatever the head is now.

    Args:
        store: The location.
        filters: What restricts the import.
        version: As people write it; None for the newest seal.
        imports: What the target's ledger knows.
        depth: `full` also reads all data.
        recorded: Take the revision of the newest import, if there is one, unless a version is given.

    Raises:
        NoSnapshotError: There is no sealed snapshot.
        LostLogError: There is no log, but what only follows one.
        VersionNotFoundError: There is no such version.
        OtherImportError: Another version is asked for than an unfinished import pinned.
        DamageError: The location is damaged; names the objects.
        UnknownRelationError: A chosen schema or table is not in the snapshot.
    """
    head = known_state(store)
    revision, pinned = _revision(head, store.uri, filters, version, imports, recorded=recorded)
    _refuse_damage(store, revision, depth)
    state = read_state(store, through=revision)
    assert state.newest_seal is not None
    ids = {known.file.schema_id for known in state.live_files()} | {state.schema_id}
    documents = {number: read_schema(store, state.schemas[number]) for number in sorted(ids)}
    selected = select(documents[state.schema_id], filters)
    if not filters.tables and not filters.schemas:
        check_complete(state, selected.schema)
    earlier = [record.revision for record in imports if record.location_id == head.location_id]
    deleted = TombstoneDeletions(state, documents, imported_tombstones(head, earlier))
    return RestoreSource(
        state=state,
        schema=selected.schema,
        documents=documents,
        deleted=deleted,
        compactions=Compactions(store, head.events),
        checksum=state.newest_seal.seal.checksum,
        pinned=pinned,
        lost=selected.lost,
    )


def _refuse_damage(store: ObjectStore, revision: int, depth: Depth) -> None:
    report = verify(store, depth=depth, at=lambda _: revision)
    damage = [fault.message for fault in report.faults if fault.is_damage]
    if damage:
        more = f" and {len(damage) - _SHOWN} more" if len(damage) > _SHOWN else ""
        raise DamageError(
            f"{store.uri} is damaged, and nothing was restored: {' '.join(damage[:_SHOWN])}{more}", faults=damage
        )


def _revision(
    head: State, uri: str, filters: Filters, version: str | None, imports: Sequence[RestoreRecord], *, recorded: bool
) -> tuple[int, RestoreRecord | None]:
    if not head.has_snapshot:
        raise NoSnapshotError(f"There is no snapshot at {uri}: nothing can be restored.", location=uri)
    if not head.seals:
        raise NoSnapshotError(
            f"There is no sealed snapshot at {uri}: nothing can be restored. Materialise the manifest, which seals it.",
            location=uri,
        )
    mine = [record for record in imports if record.location_id == head.location_id and record.filters == filters.text()]
    newest = mine[-1] if mine else None
    wanted = None if version is None else resolve_version(version, head)
    if newest is not None and not newest.finished:
        if wanted not in (None, newest.revision):
            raise OtherImportError(
                f"The target holds an unfinished import of revision {newest.revision}; asked for is revision {wanted}."
                f" Finish it first (leave --at out, or give --at rev:{newest.revision}), or drop its tables and give"
                " --forget-ledger.",
                revision=newest.revision,
            )
        return newest.revision, newest
    if newest is not None and recorded and wanted is None:
        return newest.revision, newest
    revision = head.seals[-1].revision if wanted is None else wanted
    return revision, newest if newest is not None and newest.revision == revision else None
