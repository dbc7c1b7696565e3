"""Executes a restore: pins the revision, creates tables, loads chunks, creates keys, indexes and views.

Dagster's assets, the command line and the tests use this one class; it needs Spark only through its runner. The
ledger in the target decides what is loaded already, so every step can be repeated after a kill.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta

from snapshot_assets.catalog.verify.objects import Depth
from snapshot_assets.databases.open import open_target, target_module
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.protocol.sql_target import SqlTarget
from snapshot_assets.databases.protocol.steps import SchemaStep
from snapshot_assets.engine.jobs import MapRunner
from snapshot_assets.engine.progress import Stage, silent
from snapshot_assets.engine.restore.damage import partly_restored
from snapshot_assets.engine.restore.loader import ChunkOutcome, Loader
from snapshot_assets.engine.restore.pin import pin, unpin
from snapshot_assets.engine.restore.plan import RestorePlan
from snapshot_assets.engine.restore.prepare import plan_again, plan_restore
from snapshot_assets.engine.restore.row_counts import check_rows, table_counts
from snapshot_assets.engine.restore.settings import RestoreSettings
from snapshot_assets.engine.restore.steps import FailedStep, incomplete, without_tables
from snapshot_assets.engine.restore.target import TargetLedger
from snapshot_assets.engine.restore.windows import numbered
from snapshot_assets.engine.retry import RetryPolicy
from snapshot_assets.engine.session import Session, parallel_chunks, parallel_tasks
from snapshot_assets.errors import OtherImportError, RestoreError, RestoreFailedError, SnapshotError, TransientError
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore

_BEFORE, _AFTER = "making tables", "making keys, indexes and views"
"""Stages of a restore, before and after the rows."""


@dataclass
class RestoreRun:
    """Restores one snapshot, or a part of it, into one database.

    Attributes:
        address: The target.
        runner: Where tasks run; used only when there is something to load.
        parallelism: Jobs at a time; None asks the session. A target that allows one writer has one.
        slots: Tasks of one job; None for as many as the session runs at a time.
        session: Returns the Spark session that is asked; None without Spark.
        plan: The plan, if there is one already; it is made on first use.
        pin_for: How long the revision stays pinned if the restore is killed; None until it is finished.
        changed: Whether it has made a step of the schema, or loaded rows.
        stage: Takes how far the steps of the schema and the counts of rows are.
    """

    store: ObjectStore
    address: DatabaseAddress
    runner: MapRunner
    settings: RestoreSettings = field(default_factory=RestoreSettings)
    parallelism: int | None = 1
    slots: int | None = 2
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    session: Session | None = None
    plan: RestorePlan | None = None
    pin_for: timedelta | None = None
    changed: bool = False
    stage: Stage = silent
    _started: bool = False
    _pinned: bool = False
    _target: SqlTarget | None = None

    @contextmanager
    def target(self) -> Iterator[SqlTarget]:
        """Open the target, or share it with the context around this one.

        No context may be open while tasks load: they could not open a file of one writer.
        """
        if self._target is not None:
            yield self._target
            return
        with closing(open_target(self.address)) as self._target:
            try:
                yield self._target
            finally:
                self._target = None

    def current(self, *, depth: Depth = "quick", recorded: bool = False, rehearse: bool = False) -> RestorePlan:
        """Return the plan for the target's current ledger; only the first call reads the location."""
        with self.target() as target:
            if self.plan is None or self.plan.settings != self.settings:
                self.plan = plan_restore(
                    self.store,
                    self.address,
                    target,
                    self.settings,
                    depth=depth,
                    recorded=recorded,
                    whole=rehearse,
                )
            else:
                self._refresh(self.plan)
        return self.plan

    def _refresh(self, plan: RestorePlan) -> RestorePlan:
        with self.target() as target:
            ledger = TargetLedger.read(target, plan.state.location_id, plan.ledger.tables)
        self.plan = plan.with_ledger(ledger)
        return self.plan

    def prepare(self, *, depth: Depth = "quick", rehearse: bool = False) -> RestorePlan:
        """Return the plan for all chunks, after checking that each can be restored; changes nothing.

        See `plan_restore` and `RestorePlan.choose`.
        """
        self.plan = self.current(depth=depth, rehearse=rehearse).choose()
        return self.plan

    def begin(self, only: Collection[int] = (), again: Collection[int] = ()) -> RestorePlan:
        """Create the tables and pin the revision, once per run; resumes a restore that was started.

        If a chunk is refused, nothing is recorded; see `plan_restore` and `RestorePlan.choose`.
        """
        with self.target() as target:
            if self.plan is not None and self._started:
                plan = self.plan
            elif self.plan is None or self.plan.settings != self.settings:
                plan = self.current()
            else:  # the target may have changed since the plan was made
                plan = plan_again(self.plan, target)
            plan = plan.choose(only, again)
            self.plan = plan if self._started else self._start(plan, target)
        self._started = True
        return self.plan

    def _start(self, plan: RestorePlan, target: SqlTarget) -> RestorePlan:
        """Record the restore, pin its revision, and make the steps before the rows."""
        if any(load.plans for load in plan.loads):
            self.runner.ready()
        if not plan.resumed:
            earlier = plan.ledger.earlier
            recorded = target.begin(plan.record, earlier[-1].id if earlier else "")
            if recorded.id == plan.record.id:
                ledger = replace(plan.ledger, records=(*plan.ledger.records, recorded))
                plan = replace(plan, ledger=ledger, resumed=True)
            else:  # another run started meanwhile: resume it, or be refused
                other = self._refresh(plan)
                if not other.resumed:
                    raise RestoreError(
                        "Another import into the same tables started at the same moment, and differs from this one."
                        " Run again.",
                        other=recorded.id,
                    )
                plan = other.choose(plan.only, plan.again)
        if not plan.record.finished and replace(plan.record, finished=True) in plan.ledger.records:
            target.finish(plan.record, finished=False)  # it adds tables that it left out
        superseded = {record.tag for record in plan.ledger.earlier if record.id != plan.record.id}
        if not plan.source.contradicted:
            unpin(self.store, superseded.intersection(plan.source.head.tags))
        if not plan.finished or plan.again:
            self._pinned = pin(self.store, plan.record, plan.source, self.pin_for)
        return self._make(plan, _BEFORE, plan.steps.pending_before())

    def _make(
        self, plan: RestorePlan, doing: str, steps: Sequence[SchemaStep], absent: Collection[TableName] = ()
    ) -> RestorePlan:
        """Make steps of the schema; returns the plan for the ledger that lists how each ended."""
        if not steps:
            return replace(plan, tried=True)
        with self.target() as target:
            results = target.make(plan.record, steps, absent, lambda done: self.stage(doing, done, len(steps)))
        self.changed = self.changed or any(each.made for each in results.values())
        return replace(plan, ledger=replace(plan.ledger, steps={**plan.ledger.steps, **results}), tried=True)

    def restore(self) -> Generator[ChunkOutcome, None, None]:
        """Load the chunks that `begin` was called for, or all; yields each outcome after the last file is committed.

        Close it where it is not taken to its end: that interrupts the tasks that run.

        Raises:
            RestoreFailedError: Some chunks failed; the others are loaded. Names each with its error.
            SnapshotError: Nothing was loaded; see `begin`.
        """
        plan = self.plan if self.plan is not None and self._started else self.begin()
        if renewals := [load.renewal for load in plan.loads if load.renewal is not None]:
            # Files of these chunks were only compacted.
            old = [entry for each in renewals for entry in each.old]
            new = [entry for each in renewals for entry in each.new]
            with self.target() as target:
                target.renew(plan.record, old, new)
            self.plan = plan = replace(plan, ledger=plan.ledger.renewed(renewals))
        in_order = target_module(self.address).KIND.one_writer or plan.has_foreign_keys
        chunks = 1 if in_order else self.parallelism
        tasks = 1 if in_order else self.slots
        loader = Loader(
            self.store,
            self.address,
            self.runner,
            plan,
            parallelism=lambda: chunks or (parallel_chunks(self.session()) if self.session else 1),
            slots=lambda: tasks or (parallel_tasks(self.session()) if self.session else 2),
            retry=self.retry,
        )
        try:
            for outcome in loader.run(plan.loads):
                self.changed = self.changed or outcome.changed
                if outcome.damaged and self.plan is not None:
                    self.plan = replace(self.plan, damaged={**self.plan.damaged, **outcome.damaged})
                yield outcome
        except RestoreFailedError as error:
            raise self._finish_others(error) from None

    def _finish_others(self, error: RestoreFailedError) -> RestoreFailedError:
        """Make keys, indexes and views of the complete tables; returns the error with those that are not complete."""
        assert self.plan is not None
        try:
            with self.target():
                plan = self._make_after(self._refresh(self.plan))
                failed = self.failed_steps()
        except (TransientError, OtherImportError):  # the chunks failed because of it too
            return error
        except SnapshotError as other:
            text = f"{error} Keys, indexes and views of the other tables could not be made: {other}"
            return RestoreFailedError(text, **error.attributes)
        lacking = {
            file.table.table_name for each in error.attributes["chunks"] for file in plan.loadable(plan.by_id[each])
        }
        tables = sorted(name for name, new in plan.source.names.items() if new in lacking)  # by the snapshot's names
        return without_tables(error, tables, failed) if tables and plan.incomplete < set(plan.ledger.tables) else error

    def check_rows(self, plan: RestorePlan, *, added: bool = False) -> None:
        """Check that the target holds the rows that its ledger lists, before a run that loads nothing or little.

        With `added`, more rows than were loaded are an error too, if the plan loads nothing.

        Raises:
            RestoreError: It does not; names the tables, with rows found and rows expected.
        """
        loading = any(load.plans for load in plan.loads)
        # Rows that are replaced may be missing. The asset's checks count the windows that are loaded.
        if any(load.replace for load in plan.loads) or (plan.only and loading):
            return
        with self.target() as target:
            check_rows(target, plan, added=added and not loading, stage=self.stage)

    def finish(self, *, unpin: bool = True) -> bool:
        """Create keys, indexes and views, and unpin the revision, if all chunks are loaded.

        Returns whether the restore is finished now. Without `unpin`, the caller unpins the revision.

        Raises:
            SchemaIncompleteError: It is finished, except for steps of the schema that failed, now or before.
            PartlyRestoredError: Damaged files are left out, and all else is done. The restore stays unfinished, and the
                revision pinned: a later run loads what was left out.
        """
        with self.target() as target:
            plan = self._refresh(self.plan if self.plan is not None and self._started else self.begin())
            if plan.incomplete:
                if plan.left_of_chosen:
                    raise partly_restored(plan, self.failed_steps())
                return False
            plan = self._make_after(plan)
            if plan.partial:
                raise partly_restored(plan, self.failed_steps())
            if plan.left:
                return False
            if not plan.record.finished:
                target.finish(plan.record)
            failed = self.failed_steps()
        if unpin:
            self.unpin()
        if failed:
            raise incomplete(failed, plan.absent)
        return True

    def _make_after(self, plan: RestorePlan) -> RestorePlan:
        """Make the steps after the rows; those that need an incomplete table wait."""
        waiting, tried = plan.waiting, list[SchemaStep]()
        pending = plan.steps.pending_after(changed=self.changed)
        plan = self._make(plan, _AFTER, [each for each in pending if not each.waits_for(waiting)], plan.absent)
        while (steps := [each for each in plan.steps.retried() if not each.waits_for(waiting)]) and steps != tried:
            plan, tried = self._make(plan, _AFTER, steps, plan.absent), steps  # what they need may have come after them
        self.plan = plan
        return plan

    def failed_steps(self) -> list[FailedStep]:
        """Return the steps of the schema that could not be made, by the newest plan."""
        plan = self.plan
        if plan is None or not plan.steps.any_failed:
            return []
        with self.target() as target:
            return plan.steps.failed(target)

    def unpin(self) -> None:
        """Delete the tag of this restore, if it is there and the log may be written to."""
        plan = self.plan
        if plan is None or plan.source.contradicted:
            return
        if self._pinned or plan.record.tag in plan.source.head.tags:
            unpin(self.store, [plan.record.tag])

    def check_ended(self) -> None:
        """Check that the target's ledger has all files and the end of the restore, except for what damage leaves out.

        Raises:
            RestoreError: It does not.
        """
        plan = self.current()
        if not plan.ended and not plan.partial:
            lacking = [chunk.chunk for chunk in plan.chunks if plan.ledger.missing(chunk)]
            raise RestoreError(
                f"Nothing failed, but the import is not finished by the target's ledger:"
                f" {numbered(lacking) if lacking else 'its end'} is still to come. Run again to continue.",
                chunks=lacking,
            )

    def check_counts(self) -> dict[TableName, tuple[int, int]]:
        """Return rows expected and rows found in the target, for every restored table."""
        with self.target() as target:
            return table_counts(target, self.current(), self.stage)
