"""Makes the plan of a restore: verifies the snapshot, reads the target, rehearses statements, and collects refusals."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

from snapshot_assets.catalog.verify.objects import Depth
from snapshot_assets.databases.definition import Definition, Need, Rehearsal, Statement
from snapshot_assets.databases.open import kind_of
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.protocol.sql_target import SqlTarget
from snapshot_assets.databases.protocol.target import RestoreRecord
from snapshot_assets.engine.restore.files import TombstoneDeletions, chunk_files
from snapshot_assets.engine.restore.plan import RestorePlan
from snapshot_assets.engine.restore.refusals import (
    lacking,
    refuse,
    surely_unfit,
    target_refusals,
    too_long,
    unfit_values,
)
from snapshot_assets.engine.restore.settings import RestoreSettings
from snapshot_assets.engine.restore.source import RestoreSource, open_source
from snapshot_assets.engine.restore.target import IMPORT, TargetContents, definition_for, read_target, resumed_record
from snapshot_assets.engine.restore.windows import PinnedWindows, check_windows
from snapshot_assets.errors import RefusedImportError, RestoreError, SnapshotError
from snapshot_assets.storage.base import ObjectStore


def plan_restore(
    store: ObjectStore,
    address: DatabaseAddress,
    target: SqlTarget,
    settings: RestoreSettings,
    *,
    depth: Depth = "quick",
    recorded: bool = False,
    whole: bool = False,
) -> RestorePlan:
    """Verify the snapshot, map its schema, and check the target; changes nothing.

    The statements before the rows are rehearsed in the target, in a transaction that is rolled back. Those without
    which rows cannot be loaded are refused if they fail, and so are values that do not fit by the log's statistics.
    With `whole`, those after the rows are rehearsed too, and values that do not fit are looked for. The depth `quick`
    verifies log, documents and sizes; `full` also reads all data. With `recorded`, the revision is that of the newest
    recorded restore, if there is one.

    Raises:
        RefusedImportError: The target refuses it for several reasons, or lacks what tables need; lists all of it.
        NoSnapshotError: There is no snapshot.
        IncompleteError: Nothing is sealed; names how many chunks are not exported.
        DamageError: The log or the newest schema is damaged, or the log is lost; names the objects. Of data files, see
            `RestorePlan.choose`.
        VersionNotFoundError: There is no such sealed version.
        UnknownRelationError: A chosen schema or table is not in the snapshot.
        PlanError: A chosen table lies outside the chosen schemas.
        TargetNotEmptyError: A target table has rows that no restore loaded.
        OtherImportError: The tables were restored with other filters, from elsewhere, or at another revision by a
            restore that is unfinished.
        RestoreError: The ledger does not fit the target or the revision.
    """
    if settings.verify_first:
        depth = "full"
    names = kind_of(address.uri).names
    source = open_source(store, settings, target.imports(), names, depth=depth, recorded=recorded)
    same_kind = target.kind == source.schema.database
    while True:
        definition = definition_for(source, address, target.steps(source.state.location_id))
        contents = read_target(target, source, definition)
        plan = _make_plan(source, definition, contents, settings, same_kind)
        refusals = list(target_refusals(plan, contents))
        needed, only_later = lacking(definition, contents)
        errors, rehearsal = list[SnapshotError](), Rehearsal()
        if not plan.resumed:  # a restore that is resumed has tried all of it
            errors, rehearsal = rehearse(target, plan.steps.to_rehearse(whole=whole), needed)
        kept = target.would_keep(plan.record, plan.to_create()) if whole else {}
        acting = target.acting(plan.written(), deletes=settings.replace)
        if not errors or tuple(target.imports()) == contents.ledger.records:
            break  # else another restore created the tables meanwhile
    rehearsal = rehearsal if whole else Rehearsal()
    if whole and not same_kind:
        unfit = unfit_values(store, plan, target)
        rehearsal = replace(rehearsal, failed=(*rehearsal.failed, *unfit))
    refusals += [*errors, *map(RefusedImportError, acting)]
    refusals += too_long(store, plan, contents.other_types)
    refusals += [] if whole or same_kind else surely_unfit(plan, target)
    if refusals:
        refusals += [RestoreError(f"{each.statement.key} would fail: {each.message}.") for each in rehearsal.failed]
    refuse(refusals)
    return replace(plan, rehearsal=rehearsal, lacking=tuple(only_later), foreseen=kept)


def plan_again(plan: RestorePlan, target: SqlTarget) -> RestorePlan:
    """Return the plan of all chunks for what the target has now; storage is not read.

    Raises:
        SnapshotError: The target refuses it; see `plan_restore`.
    """
    contents = read_target(target, plan.source, plan.definition)
    again = _make_plan(plan.source, plan.definition, contents, plan.settings, plan.same_kind)
    refuse(list(target_refusals(again, contents)))
    return again


def _make_plan(
    source: RestoreSource, definition: Definition, contents: TargetContents, settings: RestoreSettings, same_kind: bool
) -> RestorePlan:
    """Return the plan for what a target has, with the ledger's record of the restore, or the one that it will get.

    Raises:
        SnapshotError: The ledger has a different restore, or does not fit the revision.
    """
    ledger = contents.ledger
    record = resumed_record(ledger, source)
    resumed = record is not None
    deleted = TombstoneDeletions(source, ledger)
    chunks = chunk_files(source, definition.tables, deleted)
    if record is None:
        windows = PinnedWindows.of(source.state, source.tables)
        check_windows(ledger, windows, {chunk.chunk for chunk in chunks}, source.state.revision)
        restore_id = uuid.uuid4().hex
        created = {each.table for each in (*definition.before, *definition.after) if each.table is not None}
        existing = contents.existing
        mixed = any(
            name in existing and existing[name].has_rows for name in ledger.tables if name not in ledger.newest_of
        )
        record = RestoreRecord(
            id=restore_id,
            tag=f"{IMPORT}{restore_id[:12]}",
            location_id=source.state.location_id,
            location=source.location,
            revision=source.state.revision,
            checksum=source.checksum,
            filters=source.filters.text(),
            tables=ledger.tables,
            made=tuple(sorted(created - set(existing))),
            into_nonempty=mixed or any(each.into_nonempty for each in ledger.earlier),
            windows=windows.text(),
            stepwise=True,
        )
    plan = RestorePlan(settings, source, definition, ledger, record, resumed, deleted, chunks, same_kind)
    return replace(plan, differing=tuple(contents.differing), damaged=source.damaged).reopen_for_tables()


def rehearse(
    target: SqlTarget, statements: Sequence[Statement], missing: Sequence[Need]
) -> tuple[list[SnapshotError], Rehearsal]:
    """Rehearse the statements of a restore; those that fail because of `missing` objects are not listed again.

    Returns:
        The errors of statements without which rows cannot be loaded, for which a restore is refused; and the
        statements that would fail alone, with those that were not tried.
    """
    found = target.rehearse(statements)
    failed = [
        each
        for each in found.failed
        if not each.lacks or all(each.statement.table not in (None, *need.tables) for need in missing)
    ]
    errors: list[SnapshotError] = [
        RestoreError(f"{each.statement.key} could not be made: {each.message}.", makes=str(each.statement.key))
        for each in failed
        if each.holds_rows
    ]
    explained = found.following | {each.statement for each in found.failed if each not in failed}
    return errors, replace(found, failed=tuple(each for each in failed if not each.holds_rows), following=explained)
