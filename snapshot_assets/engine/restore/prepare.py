"""Prepares a restore: verifies the snapshot, reads the target, rehearses the statements, and collects all refusals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace

from snapshot_assets.catalog.verify.objects import Depth
from snapshot_assets.databases.open import kind_of, open_target
from snapshot_assets.databases.source import DatabaseAddress
from snapshot_assets.databases.sql_target import SqlTarget
from snapshot_assets.databases.target import Rehearsal
from snapshot_assets.engine.restore.files import FilePlan
from snapshot_assets.engine.restore.lengths import too_long
from snapshot_assets.engine.restore.plan import RestorePlan, planned
from snapshot_assets.engine.restore.refusals import lacking, refuse, rehearsed, would_fail
from snapshot_assets.engine.restore.settings import RestoreSettings
from snapshot_assets.engine.restore.source import open_source
from snapshot_assets.engine.restore.target import TargetContents, definition_for, read_target
from snapshot_assets.engine.restore.unfit import unfit_values
from snapshot_assets.errors import RefusedImportError, SnapshotError
from snapshot_assets.format.name_rules import rule_of
from snapshot_assets.storage.base import ObjectStore


def plan_restore(
    store: ObjectStore,
    address: DatabaseAddress,
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
        address: The target.
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
    with closing(open_target(address)) as target:
        records = target.imports()
    in_target = rule_of(kind_of(address.uri))
    source = open_source(store, settings, records, in_target, depth=depth, recorded=recorded)
    any_carrier = kind_of(address.uri) == source.schema.database
    with closing(open_target(address)) as target:
        while True:
            steps = target.steps(source.state.location_id)
            definition = definition_for(source.schema, address, source.filters, steps)
            contents = read_target(target, source, definition)
            plan, refusals = planned(source, definition, contents, settings, any_carrier)
            errors, rehearsal = _rehearsed(target, plan, contents, whole=rehearse)
            kept = target.would_keep(plan.record, plan.to_create()) if rehearse else {}
            acting = target.acting(plan.written(), deletes=settings.replace)
            if not errors or tuple(target.imports()) == contents.ledger.records:
                break  # else another restore created the tables meanwhile
    if rehearse and kind_of(address.uri) == "postgresql" != source.schema.database:
        unfit = unfit_values(store, _readable(plan), definition.tables, source.documents)
        rehearsal = replace(rehearsal, failed=(*rehearsal.failed, *unfit))
    refusals += [*errors, *map(RefusedImportError, acting), *_too_long(store, plan, contents)]
    refuse([*refusals, *(would_fail(rehearsal.failed) if refusals else ())])
    return replace(plan, rehearsal=rehearsal, lacking=tuple(lacking(definition, contents)[1]), foreseen=kept)


def _readable(plan: RestorePlan) -> Iterator[FilePlan]:
    """Yield the files that a restore is to load, without damaged ones."""
    return (file for chunk in plan.chunks for file in plan.missing(chunk) if file.file.path not in plan.damaged)


def _too_long(store: ObjectStore, plan: RestorePlan, contents: TargetContents) -> Iterable[SnapshotError]:
    shorter = [each for each in contents.other_types if each.limit is not None]
    return too_long(store, _readable(plan), plan.definition.tables, plan.source.documents, shorter)


def _rehearsed(
    target: SqlTarget, plan: RestorePlan, contents: TargetContents, *, whole: bool
) -> tuple[list[SnapshotError], Rehearsal]:
    """Rehearse what a restore that starts would run; one that is resumed has tried all of it."""
    if plan.resumed:
        return [], Rehearsal()
    refused, _ = lacking(plan.definition, contents)
    errors, rehearsal = rehearsed(target, plan.steps.rehearsed(whole=whole), refused)
    return errors, rehearsal if whole else Rehearsal()
