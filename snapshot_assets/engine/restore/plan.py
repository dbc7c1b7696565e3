"""The plan of a restore: the verified revision, the target's ledger, and the decision for each chunk.

A plan is made once, before anything is changed. The dry run prints it; the run, its checks and the command share it.
Only the ledger's part changes while a run loads files; `RestorePlan.with_ledger` brings it up to date.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.objects import Depth
from snapshot_assets.databases.open import kind_of
from snapshot_assets.databases.source import DatabaseAddress
from snapshot_assets.databases.target import Definition, FailedStatement, RestoreRecord, RestoreTarget, Statement
from snapshot_assets.engine.files.read import text_schemas
from snapshot_assets.engine.restore.changes import ChunkChanges
from snapshot_assets.engine.restore.decide import ChunkLoad, check_files, check_replaceable
from snapshot_assets.engine.restore.files import (
    ChunkFiles,
    FilePlan,
    TombstoneDeletions,
    chunk_files,
    parents_first,
    tombstones_at,
)
from snapshot_assets.engine.restore.ledger import TargetLedger
from snapshot_assets.engine.restore.lengths import too_long
from snapshot_assets.engine.restore.pin import IMPORT
from snapshot_assets.engine.restore.refusals import refuse, rehearsed, schema_refusals, would_fail
from snapshot_assets.engine.restore.settings import RestoreSettings
from snapshot_assets.engine.restore.source import RestoreSource, open_source
from snapshot_assets.engine.restore.spark_loader import open_restore_target
from snapshot_assets.engine.restore.target import (
    TargetContents,
    check_ledger,
    definition_for,
    read_target,
    table_refusals,
)
from snapshot_assets.engine.restore.windows import PinnedWindows, check_windows, numbered
from snapshot_assets.engine.session import Session
from snapshot_assets.errors import RestoreError, SnapshotError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore


@dataclass(frozen=True)
class RestorePlan:
    """A checked restore that has changed nothing.

    Attributes:
        settings: What it selects, and what it may do.
        source: The verified revision.
        definition: How the target creates the tables, and what is lost.
        record: The ledger's record of this restore, or the one it will get.
        resumed: Whether the ledger has the record already.
        chunks: Everything that the restore loads, loaded already or not.
        any_carrier: Whether the target can read columns whose carrier differs from that of the newest schema.
        only: Ids of the chunks to restore; empty for all.
        again: Ids of chunks to replace, whatever the ledger lists.
        failing: Statements after the rows that the target refused in a rehearsal.
    """

    settings: RestoreSettings
    source: RestoreSource
    definition: Definition
    ledger: TargetLedger
    record: RestoreRecord
    resumed: bool
    deleted: TombstoneDeletions
    chunks: tuple[ChunkFiles, ...]
    any_carrier: bool = True
    only: frozenset[int] = frozenset()
    again: frozenset[int] = frozenset()
    failing: tuple[FailedStatement, ...] = ()

    @property
    def state(self) -> State:
        """The state at the restored revision."""
        return self.source.state

    @property
    def finished(self) -> bool:
        """Whether the restore is finished, and the ledger still has every file."""
        return self.record.finished and not any(self.missing(chunk) for chunk in self.chunks)

    @property
    def complete(self) -> bool:
        """Whether the target has exactly the chunks' rows, by what its ledger has of them."""
        same = (not change.reason and not change.renewal for change in map(self._changes.of, self.chunks))
        return all(same) and not any(self.missing(chunk) for chunk in self.chunks)

    @property
    def lost(self) -> tuple[str, ...]:
        """What is not carried over, a sentence each."""
        return (*self.source.lost, *self.definition.lost)

    @property
    def has_foreign_keys(self) -> bool:
        """Whether a table that existed before has foreign keys: then parents must be loaded before their children."""
        created = set(self.record.made)
        return any(table.foreign_keys and table.table_name not in created for table in self.definition.tables)

    def statements(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return those of a definition's statements that this restore runs; existing tables are left as they are."""
        own = set(self.record.made)
        every = own.union(*(record.made for record in self.ledger.records))
        return [each for each in statements if each.table is None or each.table in (every if each.always else own)]

    def to_create(self) -> list[Statement]:
        """Return the statements that are still to be run."""
        if self.record.finished:
            return []
        before = [] if self.resumed else self.statements(self.definition.before)
        return [*before, *self.statements(self.definition.after)]

    @cached_property
    def by_id(self) -> Mapping[int, ChunkFiles]:
        """The chunks by their ids."""
        return {chunk.chunk: chunk for chunk in self.chunks}

    def missing(self, chunk: ChunkFiles) -> tuple[FilePlan, ...]:
        """Return the files of a chunk that the ledger lacks."""
        return tuple(plan for plan in chunk.files if plan.key not in self.ledger.files)

    @cached_property
    def _changes(self) -> ChunkChanges:
        return ChunkChanges(self.source.head, self.state, self.ledger, self.deleted, self.record)

    def choose(self, only: Iterable[int] = (), again: Iterable[int] = ()) -> RestorePlan:
        """Return the plan for some chunks, after checking that each can be restored.

        Args:
            only: Chunk ids; empty for all.
            again: Ids of chunks to replace, whatever the ledger lists.

        Raises:
            RestoreError: The revision lacks a chunk. Or a chunk changed and may not be replaced, or is carried in a
                way that the target cannot read.
            PlanError: Rows are to be filtered by a time that is carried as text.
        """
        chosen = replace(self, only=frozenset(only), again=frozenset(again))
        chosen._check_chunks()
        tables = {table.table_name: table for table in self.definition.tables}
        check_files(chosen.loads, tables, self.source.documents, any_carrier=self.any_carrier)
        return chosen

    @cached_property
    def loads(self) -> tuple[ChunkLoad, ...]:
        """What is done with each chosen chunk; `choose` has checked it."""
        return tuple(self._load(chunk) for chunk in self.chunks if not self.only or chunk.chunk in self.only)

    def _load(self, chunk: ChunkFiles) -> ChunkLoad:
        again = chunk.chunk in self.again
        change = self._changes.of(chunk)
        if change.renewal is not None and not again:
            renewed = replace(self, ledger=self.ledger.renewed([change.renewal]))
            return ChunkLoad(chunk, renewed.missing(chunk), renewal=change.renewal)
        if again or change.reason:
            allowed = again or self.settings.replace
            check_replaceable(chunk, change, allowed=allowed, into_nonempty=self.record.into_nonempty)
            ordered = parents_first(chunk)
            return ChunkLoad(ordered, ordered.files, replace=True)
        return ChunkLoad(chunk, self.missing(parents_first(chunk)))

    def _check_chunks(self) -> None:
        unknown = sorted(self.only - {chunk.chunk for chunk in self.chunks} - {UNTIMED_CHUNK})
        if unknown:
            pinned = self.resumed and not self.finished
            why = ", which the target's unfinished import has pinned," if pinned else ""
            then = " Finish it first: load the chunks that it has." if pinned else " Export them, and seal."
            raise RestoreError(
                f"Revision {self.state.revision}{why} has no {numbered(unknown)} to restore.{then}",
                chunks=unknown,
                revision=self.state.revision,
            )

    def for_target(self, contents: TargetContents) -> RestorePlan:
        """Return the plan of all chunks for what the target has now; storage is not read.

        Raises:
            SnapshotError: The target refuses it; see `plan_restore`.
        """
        plan, refusals = _planned(self.source, self.definition, contents, self.settings, self.any_carrier)
        refuse(refusals)
        return plan

    def with_ledger(self, ledger: TargetLedger) -> RestorePlan:
        """Return the plan for a newer state of the ledger; storage is not read.

        Raises:
            OtherImportError: A different restore into the tables was recorded meanwhile.
        """
        check_ledger(ledger, self.source, self.settings.filters)
        resumed = _resumed(ledger, self.source)
        return replace(
            self,
            ledger=ledger,
            record=resumed or self.record,
            resumed=resumed is not None,
            deleted=_deleted(self.source, ledger),
        )


def plan_restore(
    store: ObjectStore,
    address: DatabaseAddress,
    settings: RestoreSettings,
    *,
    session: Session | None = None,
    depth: Depth = "quick",
    recorded: bool = False,
    rehearse: bool = False,
) -> RestorePlan:
    """Verify the snapshot, map its schema, and check the target; changes nothing.

    The statements before the rows are rehearsed in the target, in a transaction that is rolled back.

    Args:
        store: The location.
        address: The target.
        settings: What the restore selects, and what it may do.
        session: Returns the Spark session; called only for a Spark catalog.
        depth: `quick` verifies log, documents and sizes; `full` also reads all data.
        recorded: Choose the revision of the newest recorded restore, if there is one, instead of the newest seal.
        rehearse: Whether to rehearse the statements after the rows too.

    Raises:
        RefusedImportError: The target refuses it for several reasons, or lacks what tables need; lists all of it.
        NoSnapshotError: There is no sealed snapshot.
        DamageError: The location is damaged, or has lost its log; names the objects.
        VersionNotFoundError: There is no such sealed version.
        UnknownRelationError: A chosen schema or table is not in the snapshot.
        PlanError: A chosen table lies outside the chosen schemas.
        TargetNotEmptyError: A target table has rows that no restore loaded.
        OtherImportError: The tables were restored with other filters, from elsewhere, or at another revision by a
            restore that is unfinished.
        RestoreError: The ledger does not fit the target or the revision.
    """
    with open_restore_target(address, session) as target:
        records = target.imports()
    source = open_source(store, settings, records, depth=depth, recorded=recorded)
    definition = definition_for(source.schema, address.uri, expressions=settings.filters.expressions)
    any_carrier = kind_of(address.uri) in ("spark", source.schema.database)
    with open_restore_target(address, session) as target:
        while True:
            contents = read_target(target, source, definition)
            plan, refusals = _planned(source, definition, contents, settings, any_carrier)
            errors, failing = _rehearsed(target, plan, contents, whole=rehearse)
            if not errors or tuple(target.imports()) == contents.ledger.records:
                break  # else another restore created the tables meanwhile
    refusals += [*errors, *_too_long(store, plan, contents)]
    refuse([*refusals, *(would_fail(failing) if refusals else ())])
    return replace(plan, failing=failing)


def _too_long(store: ObjectStore, plan: RestorePlan, contents: TargetContents) -> Iterable[SnapshotError]:
    files = (file for chunk in plan.chunks for file in plan.missing(chunk))
    shorter = [each for each in contents.other_types if each.limit is not None]
    return too_long(store, files, plan.definition.tables, plan.source.documents, shorter)


def _rehearsed(
    target: RestoreTarget, plan: RestorePlan, contents: TargetContents, *, whole: bool
) -> tuple[list[SnapshotError], tuple[FailedStatement, ...]]:
    """Rehearse what a restore that starts would run; one that is resumed has created its tables."""
    if plan.resumed:
        return [], ()
    after = plan.statements(plan.definition.after) if whole else []
    return rehearsed(target, plan.statements(plan.definition.before), after, contents.missing)


def _planned(
    source: RestoreSource,
    definition: Definition,
    contents: TargetContents,
    settings: RestoreSettings,
    any_carrier: bool,
) -> tuple[RestorePlan, list[SnapshotError]]:
    """Return the plan, and the errors for which the target refuses it."""
    ledger = contents.ledger
    check_ledger(ledger, source, settings.filters)
    resumed = _resumed(ledger, source)
    into_nonempty = settings.into_nonempty
    refusals = [
        *schema_refusals(definition, contents),
        *table_refusals(contents, definition, resumed=resumed is not None, into_nonempty=into_nonempty),
    ]
    record = resumed or _new_record(source, definition, contents, settings)
    deleted = _deleted(source, ledger)
    tables = source.schema.tables
    text_of = text_schemas(source.state.header, source.documents)
    chunks = tuple(chunk_files(source.state, tables, settings.filters, definition.tables, deleted, text_of))
    if resumed is None:
        windows = PinnedWindows.parse(record.windows)
        ids = {chunk.chunk for chunk in chunks}
        check_windows(ledger.loaded, ledger.earlier, windows, ids, source.state.revision)
    plan = RestorePlan(settings, source, definition, ledger, record, resumed is not None, deleted, chunks, any_carrier)
    return plan, refusals


def _resumed(ledger: TargetLedger, source: RestoreSource) -> RestoreRecord | None:
    """Return the newest restore into the tables if it restores the same revision; `check_ledger` compared the rest."""
    newest = ledger.newest
    return newest if newest is not None and newest.revision == source.state.revision else None


def _deleted(source: RestoreSource, ledger: TargetLedger) -> TombstoneDeletions:
    own = source.head.location_id
    before = tombstones_at(source.head, [each.revision for each in ledger.records if each.location_id == own])
    return TombstoneDeletions(source.state, source.documents, before)


def _new_record(
    source: RestoreSource, definition: Definition, contents: TargetContents, settings: RestoreSettings
) -> RestoreRecord:
    """Return what the ledger will record of a restore that starts."""
    restore_id = uuid.uuid4().hex
    created = {each.table for each in (*definition.before, *definition.after) if each.table is not None}
    tables, earlier, existing = contents.ledger.tables, contents.ledger.earlier, contents.existing
    own: set[TableName] = set(earlier[-1].tables) if earlier else set()
    of_others = [name for name in tables if name not in own and name in existing and existing[name].has_rows]
    return RestoreRecord(
        id=restore_id,
        tag=f"{IMPORT}{restore_id[:12]}",
        location_id=source.state.location_id,
        location=source.location,
        revision=source.state.revision,
        checksum=source.checksum,
        filters=settings.filters.text(),
        tables=tables,
        made=tuple(sorted(created - set(existing))),
        into_nonempty=bool(of_others) or any(record.into_nonempty for record in earlier),
        windows=PinnedWindows.of(source.state, source.schema).text(),
    )
