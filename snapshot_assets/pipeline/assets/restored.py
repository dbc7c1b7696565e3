"""The asset `restored`, which restores a plan's snapshot window by window, and the checks of its rows."""

# Dagster reads the annotations of assets and checks, so they must not be postponed here.
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from snapshot_assets.databases.contract import DatabaseKind
from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.engine.restore.settings import RestoreSettings
from snapshot_assets.errors import PartlyRestoredError, SchemaIncompleteError, TransientError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import ColumnPath, check_pattern, column_text, parse_table, rule_of, table_text
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import human_bytes
from snapshot_assets.pipeline.assets.checks import chunk_check
from snapshot_assets.pipeline.assets.tables import target_lineage
from snapshot_assets.pipeline.dagster.dagster_internals import (
    NO_EVENTS_AT_THE_END,
    CheckResult,
    StepContext,
    check_events,
    runs_asset,
    store_events,
    store_results,
)
from snapshot_assets.pipeline.dagster.failures import showing_failures
from snapshot_assets.pipeline.dagster.metadata import (
    first_rows,
    made_from_seal,
    materialization,
    rates,
    restored_schema,
    with_sizes,
)
from snapshot_assets.pipeline.dagster.partitions import (
    asset_key,
    asset_keys,
    chunks_of_run,
    key_of,
    key_of_chunk,
    partitions_of,
    plan_asset,
)
from snapshot_assets.pipeline.dagster.resources import SNAPSHOTS, snapshots_of
from snapshot_assets.plan.plan import Plan

if TYPE_CHECKING:
    from snapshot_assets.engine.restore.drill import ComparedRows
    from snapshot_assets.engine.restore.loader import ChunkOutcome
    from snapshot_assets.engine.restore.plan import RestorePlan
    from snapshot_assets.engine.restore.run import RestoreRun

_CHECKS = {
    "row_counts": "The target has as many rows of the window as the manifest, table by table.",
    "untimed_row_counts": "The target has as many rows that lie in no window as the manifest, table by table.",
    "equals_snapshot": "The target's rows of the window equal the manifest's, compared by value; not by a run that"
    " restores.",
    "untimed_equals_snapshot": "The target's rows that lie in no window equal the manifest's, compared by value; not by"
    " a run that restores.",
}
_RESTORE_AGAIN = "Materialise this partition of restored again, with run config replace: true."


class RestoreConfig(dg.Config):
    """Run config of `restored`."""

    replace: bool = Field(
        default=False,
        description="Delete the rows of the run's windows from the target and load them again; in a run without"
        " partitions, those of windows that changed since they were loaded.",
    )
    into_nonempty: bool = Field(
        default=False,
        description="Load into tables that have rows of other users: rows that both have are then doubled.",
    )
    version: str | None = Field(
        default=None, description="Version to restore, such as rev:12; the newest seal by default."
    )

    expressions: bool = Field(
        default=True,
        description="Whether SQL text of the snapshot is restored: defaults, checks, generated columns, views.",
    )
    with_code: bool = Field(
        default=False,
        description="Whether code of the snapshot is restored: functions, triggers, rules, policies and other SQL that"
        " runs later; also if the plan does not say so.",
    )

    exclude_tables: list[str] = Field(
        default_factory=list,
        description="Patterns of tables and views of the snapshot to leave out, such as public.audit or *.tmp_*; by"
        " default the plan's restore_exclude_tables.",
    )
    map_schemas: dict[str, str] = Field(
        default_factory=dict,
        description="New names of schemas in the target, by those of the snapshot; by default the plan's.",
    )
    map_tables: dict[str, str] = Field(
        default_factory=dict, description="New names of tables, such as public.orders: public.orders_of_may."
    )
    verify_first: bool = Field(
        default=False, description="Hash the whole snapshot before the first row is loaded, also if the plan does not."
    )

    keep_going: bool = Field(
        default=False,
        description="Leave out the windows of tables whose files are damaged, restore all else, and fail then.",
    )

    def over(self, settings: RestoreSettings) -> RestoreSettings:
        """Return settings with the values that are configured here."""
        tables = ((parse_table(old), parse_table(new)) for old, new in self.map_tables.items())
        renaming = Renaming.of(self.map_schemas.items(), tables) or settings.filters.renaming
        expressions = self.expressions and settings.filters.expressions
        code = self.with_code or (settings.filters.code and expressions)
        filters = dataclasses.replace(
            settings.filters,
            exclude_tables=tuple(map(check_pattern, self.exclude_tables)) or settings.filters.exclude_tables,
            expressions=expressions,
            code=code,
            renaming=renaming,
        )
        return dataclasses.replace(
            settings,
            version=settings.version if self.version is None else self.version,
            into_nonempty=self.into_nonempty or settings.into_nonempty,
            filters=filters,
            verify_first=self.verify_first or settings.verify_first,
            replace=self.replace or settings.replace,
            keep_going=self.keep_going or settings.keep_going,
        )


def restored_asset(plan: Plan, target: DatabaseKind | None, spark_key: str) -> dg.AssetsDefinition:
    """Return the asset `restored` of a plan that has a target, whose kind is given; None if it cannot be known."""

    @plan_asset(
        plan,
        "restored",
        kinds={"pyspark", *([target.name] if target else [])},
        required_resource_keys={SNAPSHOTS, spark_key},
        deps=[asset_key(plan, "manifest")],
        partitions_def=None if plan.schema_only else partitions_of(plan),
        backfill_policy=dg.BackfillPolicy.single_run(),
        metadata={"location": plan.to},
        description=f"The newest sealed snapshot of `{plan.to}` in the database {plan.target}, each row exactly once.",
    )
    def restored(context: dg.AssetExecutionContext, config: RestoreConfig) -> dg.MaterializeResult[None]:
        with showing_failures():
            _restore(context, plan, config)
        return dg.MaterializeResult(metadata={} if plan.schema_only else NO_EVENTS_AT_THE_END)

    return restored


def _restore(context: dg.AssetExecutionContext, plan: Plan, config: RestoreConfig) -> None:
    """Restore the windows of a run's partitions, or all, and report each when it is loaded."""
    run = snapshots_of(context).restore_run(plan.name)
    run.settings = config.over(run.settings)
    windows = None if plan.schema_only else chunks_of_run(context, plan)
    # No window has the tables without a time index, so chunk 0 is loaded with any window.
    only = [UNTIMED_CHUNK, *windows] if windows else []
    with snapshots_of(context).counting("restoring", 0, context.log.info) as progress:
        restore_plan = run.begin(only, windows if windows and config.replace else ())
        progress.chunks = len(restore_plan.chunks)
        if not config.replace:
            run.check_rows(restore_plan)
        report = RestoreReport(context, asset_keys(plan.name, plan), run, plan)
        with report.of_end(), closing(run.restore()) as outcomes:
            for outcome in outcomes:
                progress.outcome(outcome)
                report.loaded(outcome, None if plan.schema_only else key_of_chunk(plan, outcome.chunk))
            report.finished = run.finish()


class RestoreReport:
    """Reports a restore that has begun as materializations of `restored` and `target`.

    Args:
        context: The step.
        key: Returns the key of an asset by its name in the plan.
        run: The restore.
        plan: The plan; None for a location that no plan names.
    """

    def __init__(
        self, context: StepContext, key: Callable[[str], dg.AssetKey], run: "RestoreRun", plan: Plan | None
    ) -> None:
        assert run.plan is not None
        self._context, self._key, self._run, self._plan = context, key, run, plan
        self._restore_plan = run.plan
        self._made_from = made_from_seal(context.instance, key("manifest"), run.plan.source.checksum)
        self.finished = False
        for step in run.plan.steps.any_failed:
            context.log.warning(f"{step.name} could not be made; its rows and steps wait for the next run.")

    def loaded(self, outcome: "ChunkOutcome", partition: str | None) -> None:
        """Report a window that is loaded; `partition` is its key, None for chunk 0."""
        if partition is None or outcome.status in ("failed", "incomplete"):
            return
        plan = self._restore_plan
        metadata = {
            "status": outcome.status,
            "dagster/partition_row_count": plan.rows_after(outcome),
            "rows_loaded": outcome.rows,
            "size": human_bytes(outcome.bytes),
            "bytes": outcome.bytes,
            **rates(outcome.rows, outcome.bytes, outcome.seconds),
            "chunk": str(outcome.chunk),
            "revision": str(plan.state.revision),
            "snapshot_id": plan.state.snapshot_id,
            "import": plan.record.id,
        }
        if failed := plan.steps.any_failed:
            metadata |= {"steps_failed": len(failed), "failed": [step.name for step in failed]}
        event = materialization(self._key("restored"), with_sizes(metadata), partition, "", self._made_from)
        store_events(self._context, [event])

    @contextmanager
    def of_end(self) -> Iterator[None]:
        """Report the target once the context has finished the restore, also if parts of it are left out."""
        try:
            yield
        except (SchemaIncompleteError, PartlyRestoredError):
            self._target()  # the metadata has the steps that failed, the error what is left out
            raise
        left = "finished" if self.finished else "other windows are still to be loaded"
        for warning in self._restore_plan.warnings:
            self._context.log.warning(warning)
        self._context.log.info(f"Revision {self._restore_plan.state.revision}: {left}.")
        if self.finished:
            self._target()

    def _target(self) -> None:
        """Report what the target holds now, and what of the schema it lacks."""
        plan, source = self._run.plan, self._restore_plan.source
        assert plan is not None
        facts = {"revision": str(plan.state.revision), "from": self._run.store.uri}
        facts |= restored_schema(plan, self._run.failed_steps())
        store_events(self._context, [dg.AssetObservation(self._key("restored"), metadata=facts)])
        if self._plan is not None:
            rule = rule_of(source.schema)
            facts |= target_lineage(self._plan, plan.definition.tables, source.names, rule)
        store_events(self._context, [materialization(self._key("target"), facts)])

    def row_counts(self) -> None:
        """Report the results of the checks of row counts."""
        from snapshot_assets.engine.restore.row_counts import differences

        plan = self._run.current()
        with self._run.target() as target:
            found = differences(target, plan, [each.chunk for each in plan.chunks], self._run.stage)
        for name, chunks in (
            ("row_counts", sorted(found.keys() - {UNTIMED_CHUNK})),
            ("untimed_row_counts", [UNTIMED_CHUNK] if UNTIMED_CHUNK in found else []),
        ):
            results = [
                CheckResult(
                    key_of(plan.state.window(chunk)) if chunk != UNTIMED_CHUNK else None,
                    not found[chunk],
                    _differing(found[chunk]),
                    _RESTORE_AGAIN if found[chunk] else _CHECKS[name],
                )
                for chunk in chunks
            ]
            check = dg.AssetCheckKey(self._key("restored"), name)
            store_results(self._context, check_events(self._context.instance, check, results))


def restored_checks(plan: Plan, spark_key: str) -> list[dg.AssetChecksDefinition]:
    """Return the checks of `restored`: the target has the rows of the revision that was restored.

    `row_counts` counts each window, and `equals_snapshot` compares its values; `untimed_row_counts` and
    `untimed_equals_snapshot` do so for rows that lie in no window.
    """
    made = []
    for name, text in _CHECKS.items():
        if plan.source_asset and name.startswith("untimed_"):  # all rows of an asset lie in windows
            continue
        equality = name.endswith("equals_snapshot")
        judge, pool = (_judge_equality, plan.dagster.pool) if equality else (_judge_row_counts, None)
        made.append(chunk_check(plan, "restored", name, text, judge, spark_key, pool=pool))
    return made


def _judge_row_counts(
    context: dg.AssetCheckExecutionContext, plan: Plan, chunks: Sequence[int] | None
) -> Iterator[CheckResult]:
    """Count the target's rows of chunks, and judge them."""
    from snapshot_assets.engine.restore.row_counts import differences

    snapshots = snapshots_of(context)
    run, restore_plan, known, lacking = _restored(context, plan, chunks)
    counting = snapshots.counting("counting", len(restore_plan.chunks), context.log.info)
    with run.target() as target, counting:
        found = differences(target, restore_plan, known, snapshots.stage)
    for chunk, different in found.items():
        text = _RESTORE_AGAIN if different else None
        yield CheckResult(key_of_chunk(plan, chunk), not different, _differing(different), text)
    yield from lacking


def _judge_equality(
    context: dg.AssetCheckExecutionContext, plan: Plan, chunks: Sequence[int] | None
) -> Iterator[CheckResult]:
    """Compare chunks by value, unless the run restores: it has just hashed and loaded the files."""
    from snapshot_assets.engine.restore.drill import compare

    if runs_asset(context, asset_key(plan, "restored")):
        context.log.info("This run restores rows, so it compares none. Run the check by itself.")
        return
    run, restore_plan, known, lacking = _restored(context, plan, chunks)
    with snapshots_of(context).counting("comparing", len(known), context.log.info):
        found = [*compare(run, known), *_absent(restore_plan, known)]
    if (lost := next((each.error for each in found if isinstance(each.error, TransientError)), None)) is not None:
        raise lost
    for chunk in known:
        own = [each for each in found if each.chunk == chunk]
        facts = {"rows_compared": sum(each.found for each in own), **not_compared(own)}
        if unequal := [each for each in own if not each.equal]:
            facts |= {"tables_that_differ": len(unequal), "differences": first_rows(map(_row, unequal))}
        text = _RESTORE_AGAIN if unequal else None
        yield CheckResult(key_of_chunk(plan, chunk), not unequal, with_sizes(facts), text)
    yield from lacking


def _restored(
    context: dg.AssetCheckExecutionContext, plan: Plan, chunks: Sequence[int] | None
) -> "tuple[RestoreRun, RestorePlan, list[int], list[CheckResult]]":
    """Return the restore of the ledger's revision, its chunks to judge, and the results of those that it lacks."""
    run = snapshots_of(context).restore_run(plan.name)
    restore_plan = run.current(recorded=True)  # a newer revision may be sealed by now
    if chunks is None:
        chunks = [each.chunk for each in restore_plan.chunks if each.chunk != UNTIMED_CHUNK]
    known = [chunk for chunk in chunks if chunk == UNTIMED_CHUNK or chunk in restore_plan.by_id]
    facts = {"not_restored": f"Revision {restore_plan.state.revision}, which was restored, lacks it."}
    lacking = (key_of_chunk(plan, chunk) for chunk in chunks if chunk not in known)
    return run, restore_plan, known, [CheckResult(key, False, facts, _RESTORE_AGAIN) for key in lacking]


def _absent(plan: "RestorePlan", chunks: Iterable[int]) -> "Iterator[ComparedRows]":
    """Yield the rows of tables that could not be made, which `compare` leaves out."""
    from snapshot_assets.engine.restore.drill import ComparedRows
    from snapshot_assets.engine.restore.row_counts import rows_of_chunk

    for rows in (rows for chunk in chunks for rows in rows_of_chunk(plan, chunk)):
        if rows.name in plan.absent and rows.expected:
            yield ComparedRows(rows.chunk, rows.name, rows.expected)


def _row(each: "ComparedRows") -> dict[str, Any]:
    reason = "other values" if each.expected == each.found else "other rows"
    found = {"table": table_text(each.table), "expected": each.expected, "found": each.found}
    return {**found, "reason": reason if each.error is None else str(each.error)}


def not_compared(compared: "Iterable[ComparedRows]") -> dict[str, Any]:
    """Return the metadata of the columns whose values a comparison left out; nothing if there is none."""
    left = {column_text(ColumnPath(each.table, name)) for each in compared for name in each.uncompared}
    return {"columns_not_compared": first_rows({"column": column} for column in sorted(left))} if left else {}


def _differing(different: Mapping[TableName, tuple[int, int]]) -> dict[str, Any]:
    """Return the metadata of tables whose rows differ, with rows expected and rows found; nothing if there is none."""
    if not different:
        return {}
    rows = (
        {"table": table_text(name), "expected": expected, "found": found}
        for name, (expected, found) in sorted(different.items())
    )
    return with_sizes({"tables_that_differ": len(different), "differences": first_rows(rows)})
