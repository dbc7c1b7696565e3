"""Makes the plan of a restore: verifies the snapshot, reads the target, rehearses statements, and collects refusals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from snapshot_assets.catalog.verify.objects import Depth
from snapshot_assets.databases.definition import Definition, FailedStatement, Need, Rehearsal, Statement
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.protocol.sql_target import SqlTarget
from snapshot_assets.engine.files.read import TextOf, text_schemas
from snapshot_assets.engine.restore.files import FilePlan, chunk_files
from snapshot_assets.engine.restore.plan import RestorePlan, deleted_rows
from snapshot_assets.engine.restore.refusals import lacking, refuse, schema_refusals, table_refusals
from snapshot_assets.engine.restore.settings import RestoreSettings
from snapshot_assets.engine.restore.source import RestoreSource, open_source
from snapshot_assets.engine.restore.steps import RestoreSteps
from snapshot_assets.engine.restore.target import (
    TargetContents,
    check_ledger,
    definition_for,
    new_record,
    read_target,
    resumed_record,
)
from snapshot_assets.engine.restore.values import too_long, unfit_values
from snapshot_assets.engine.restore.windows import PinnedWindows, check_windows
from snapshot_assets.errors import RefusedImportError, RestoreError, SnapshotError
from snapshot_assets.format.names import rule_of
from snapshot_assets.storage.base import ObjectStore


def plan_restore(
    store: ObjectStore,
    address: DatabaseAddress,
    target: SqlTarget,
    settings: RestoreSettings,
    *,
    depth: Depth = "quick",
    recorded: bool = False,
    rehearse: bool = False,
) -> RestorePlan:
    """Verify the snapshot, map its schema, and check the target; changes nothing.

    The statements before the rows are rehearsed in the target, in a transaction that is rolled back. Those without
    which rows cannot be loaded are refused if they fail.

    Args:
        store: The location.
        address: The target's address.
        target: The target, open.
        settings: What the restore selects, and what it may do.
        depth: `quick` verifies log, documents and sizes; `full` also reads all data.
        recorded: Choose the revision of the newest recorded restore, if there is one, instead of the newest seal.
        rehearse: Whether to rehearse the statements after the rows too.

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
    source = open_source(store, settings, target.imports(), rule_of(target.kind), depth=depth, recorded=recorded)
    same_kind = target.kind == source.schema.database
    while True:
        steps = target.steps(source.state.location_id)
        definition = definition_for(source.schema, address, source.filters, steps)
        contents = read_target(target, source, definition)
        plan, refusals = make_plan(source, definition, contents, settings, same_kind)
        errors, rehearsal = _rehearse_plan(target, plan, contents, whole=rehearse)
        kept = target.would_keep(plan.record, plan.to_create()) if rehearse else {}
        acting = target.acting(plan.written(), deletes=settings.replace)
        if not errors or tuple(target.imports()) == contents.ledger.records:
            break  # else another restore created the tables meanwhile
    if rehearse and not same_kind:
        unfit = unfit_values(store, target, _readable(plan), definition.tables, source.documents)
        rehearsal = replace(rehearsal, failed=(*rehearsal.failed, *unfit))
    refusals += [*errors, *map(RefusedImportError, acting), *_too_long(store, plan, contents)]
    refuse([*refusals, *(would_fail(rehearsal.failed) if refusals else ())])
    return replace(plan, rehearsal=rehearsal, lacking=tuple(lacking(definition, contents)[1]), foreseen=kept)


def plan_again(plan: RestorePlan, target: SqlTarget) -> RestorePlan:
    """Return the plan of all chunks for what the target has now; storage is not read.

    Raises:
        SnapshotError: The target refuses it; see `plan_restore`.
    """
    contents = read_target(target, plan.source, plan.definition)
    again, refusals = make_plan(plan.source, plan.definition, contents, plan.settings, plan.same_kind)
    refuse(refusals)
    return again


def make_plan(
    source: RestoreSource,
    definition: Definition,
    contents: TargetContents,
    settings: RestoreSettings,
    same_kind: bool,
) -> tuple[RestorePlan, list[SnapshotError]]:
    """Return the plan for what a target has, and the errors for which it refuses the plan.

    Args:
        source: The verified revision.
        definition: How the target creates the tables.
        contents: The tables in the target, and its ledger.
        settings: What the restore selects, and what it may do.
        same_kind: See `RestorePlan`.

    Raises:
        SnapshotError: The ledger has a different restore, or does not fit the revision.
    """
    ledger = contents.ledger
    check_ledger(ledger, source, source.filters)
    resumed = resumed_record(ledger, source, source.filters)
    record = resumed or new_record(source, definition, contents)
    steps = RestoreSteps(definition, ledger, record, resumed is not None)
    refusals = [
        *schema_refusals(definition, contents, resumed=resumed is not None),
        *table_refusals(contents, definition, steps, into_nonempty=settings.into_nonempty),
    ]
    deleted = deleted_rows(source, ledger)
    tables = dict(zip((table.table_name for table in source.schema.tables), source.tables, strict=True))
    text_of = _text_schemas(source)
    chunks = tuple(chunk_files(source.state, tables, source.filters, definition.tables, deleted, text_of))
    if resumed is None:
        windows = PinnedWindows.parse(record.windows)
        ids = {chunk.chunk for chunk in chunks}
        check_windows(ledger.loaded, ledger.earlier, windows, ids, source.state.revision)
    plan = RestorePlan(settings, source, definition, ledger, record, resumed is not None, deleted, chunks, same_kind)
    return replace(plan, differing=tuple(contents.differing), damaged=source.damaged).reopen_for_tables(), refusals


def _readable(plan: RestorePlan) -> Iterator[FilePlan]:
    """Yield the files that a restore is to load, without damaged ones."""
    return (file for chunk in plan.chunks for file in plan.missing(chunk) if file.file.path not in plan.damaged)


def _too_long(store: ObjectStore, plan: RestorePlan, contents: TargetContents) -> Iterable[SnapshotError]:
    shorter = [each for each in contents.other_types if each.limit is not None]
    return too_long(store, _readable(plan), plan.definition.tables, plan.source.documents, shorter)


def _rehearse_plan(
    target: SqlTarget, plan: RestorePlan, contents: TargetContents, *, whole: bool
) -> tuple[list[SnapshotError], Rehearsal]:
    """Rehearse what a restore that starts would run; one that is resumed has tried all of it."""
    if plan.resumed:
        return [], Rehearsal()
    refused, _ = lacking(plan.definition, contents)
    errors, rehearsal = rehearse(target, plan.steps.to_rehearse(whole=whole), refused)
    return errors, rehearsal if whole else Rehearsal()


def rehearse(
    target: SqlTarget, statements: Sequence[Statement], missing: Iterable[Need]
) -> tuple[list[SnapshotError], Rehearsal]:
    """Rehearse the statements of a restore.

    Args:
        target: The target.
        statements: What the restore runs.
        missing: Objects that are refused already: statements that fail because of them are not listed again.

    Returns:
        The errors of statements without which rows cannot be loaded, for which a restore is refused; and the
        statements that would fail alone, with those that were not tried.
    """
    absent = list(missing)
    found = target.rehearse(statements)
    failed = [each for each in found.failed if not _is_explained(each, absent)]
    errors: list[SnapshotError] = [
        RestoreError(f"{each.statement.key} could not be made: {each.message}.", makes=str(each.statement.key))
        for each in failed
        if each.holds_rows
    ]
    explained = found.following | {each.statement for each in found.failed if each not in failed}
    return errors, replace(found, failed=tuple(each for each in failed if not each.holds_rows), following=explained)


def would_fail(failing: Iterable[FailedStatement]) -> Iterator[SnapshotError]:
    """Yield the errors of statements that would fail alone, to be listed with those that refuse a restore."""
    for each in failing:
        yield RestoreError(f"{each.statement.key} would fail: {each.message}.")


def _is_explained(failed: FailedStatement, missing: Iterable[Need]) -> bool:
    """Return whether a statement may fail because an object is missing that is listed by itself."""
    table = failed.statement.table
    return failed.lacks and any(table is None or table in need.tables for need in missing)


def _text_schemas(source: RestoreSource) -> TextOf:
    """Return the function that finds the schemas of text files; a file whose schema is damaged is never read."""
    of = text_schemas(source.state.header, source.documents)
    return lambda file: of(file) if file.schema_id in source.documents else None
