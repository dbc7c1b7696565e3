"""The op of `<plan>_compare`, and the check `equals_source`: whether chunks hold the rows that the source holds."""

# Dagster reads the annotations of ops and checks, so they must not be postponed here.
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.verify.comparisons import last_full_comparison
from snapshot_assets.catalog.verify.objects import Rotation
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import parse_share, time_text
from snapshot_assets.pipeline.assets.checks import chunk_check, not_exported
from snapshot_assets.pipeline.assets.conditions import EQUAL, IN_TIME, equality_check
from snapshot_assets.pipeline.assets.current import place_of, row_of
from snapshot_assets.pipeline.dagster.dagster_internals import (
    CheckResult,
    check_events,
    last_tick,
    passing_partitions,
    runs_asset,
    store_results,
)
from snapshot_assets.pipeline.dagster.failures import showing_failures
from snapshot_assets.pipeline.dagster.metadata import first_rows, with_sizes
from snapshot_assets.pipeline.dagster.partitions import asset_key, chunk_assets, key_of_chunk
from snapshot_assets.pipeline.dagster.resources import SNAPSHOTS, snapshots_of
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore

if TYPE_CHECKING:  # Arrow, which definitions do not load
    from snapshot_assets.engine.export.compare import Compared, ComparedPart
    from snapshot_assets.engine.files.row_differences import RowDifference

_CHECK = (
    "The files hold the rows that the source holds, compared by value. It warns where rows changed in the source since"
    " the export, and where it cannot tell; other differences are damage. A run that exports rows compares none."
)
_EQUAL = "The files hold the rows that the source holds."
_DAMAGED = (
    "Snapshot and source differ, and the source did not change since the export. If its rows are right, materialise"
    " this partition again with replace: true, then manifest, which seals it."
)
_CHANGED = "The rows changed in the source since they were exported."
_UNKNOWN = "The rows differ, and the source cannot tell whether they changed there since they were exported."
_IN_TIME = "All rows were compared with the source whenever `compare_cron` says, or at most a day later."


class CompareConfig(dg.Config):
    """Run config of `<plan>_compare`."""

    sample: str = Field(
        default="",
        description="Compare only a share of all tables and windows, such as 5%, another one each day, as `snapshots"
        " compare --sample` does. By default all are compared.",
    )


def compare_op(plan: Plan, spark_key: str) -> dg.OpDefinition:
    """Return the op of the job `<plan>_compare`."""

    @dg.op(
        name=f"{plan.name}_compare_rows",
        required_resource_keys={SNAPSHOTS, spark_key},
        pool=plan.dagster.pool,
        description="Compares the rows with the source, and records what differs as results of the asset checks.",
    )
    def compare_rows(context: dg.OpExecutionContext, config: CompareConfig) -> None:
        with showing_failures():
            rotation = Rotation.of_share(parse_share(config.sample), datetime.now(UTC)) if config.sample else None
            compared = _compare(context, plan, rotation=rotation)
        _record(context, plan, compared)
        facts = _facts(compared)
        context.log_event(dg.AssetObservation(asset_key(plan, "manifest"), description="Comparison", metadata=facts))
        if facts["different"] != "0":
            text = f"{plan.to} differs from {plan.source}, which did not change: {compared}."
            raise dg.Failure(text, facts | {"remedy": _DAMAGED}, allow_retries=False)
        context.add_output_metadata(facts)

    return compare_rows


def equality_checks(plan: Plan, spark_key: str) -> list[dg.AssetChecksDefinition]:
    """Return the check `equals_source` of each of the plan's `chunk_assets`, whose source can be compared."""
    return [
        chunk_check(plan, asset, EQUAL, _CHECK, _judge_equality, spark_key, pool=plan.dagster.pool)
        for asset in chunk_assets(plan)
    ]


def lateness_check(plan: Plan) -> dg.AssetChecksDefinition:
    """Return the check `compared_in_time` of `manifest`, for a plan with `compare_cron`."""

    @dg.asset_check(
        asset=asset_key(plan, "manifest"), name=IN_TIME, required_resource_keys={SNAPSHOTS}, description=_IN_TIME
    )
    def compared_in_time(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        with showing_failures():
            return dg.AssetCheckResult(**judge_lateness(plan, snapshots_of(context).store(plan.name)))

    return compared_in_time


def judge_lateness(plan: Plan, store: ObjectStore) -> dict[str, Any]:
    """Return the result of `compared_in_time`: whether a comparison of everything began since it was due a day ago."""
    assert plan.dagster.compare_cron is not None
    state = Catalog.open(store).require_snapshot()
    last = last_full_comparison(store, state)
    due = last_tick(plan.dagster.compare_cron, datetime.now(UTC) - timedelta(days=1))
    passed = (last.started_at if last else state.created_at) >= due
    late = f"No comparison of all rows began since {time_text(due)}. Run {plan.name}_compare."
    return {
        "passed": passed,
        "severity": dg.AssetCheckSeverity.WARN,
        "metadata": {"compared": time_text(last.started_at) if last else "never"},
        "description": _IN_TIME if passed else late,
    }


def _judge_equality(
    context: dg.AssetCheckExecutionContext, plan: Plan, chunks: Sequence[int] | None
) -> Iterator[CheckResult]:
    """Compare chunks, unless the run exports: users who materialise windows in the UI would read the source twice."""
    if any(runs_asset(context, asset_key(plan, asset)) for asset in chunk_assets(plan)):
        context.log.info("This run exports rows, so it compares none. Run the check by itself, or the comparison job.")
        return
    if chunks is None:
        state = snapshots_of(context).export_run(plan.name).read_catalog().state
        chunks = [chunk for chunk in state.chunks if chunk != UNTIMED_CHUNK and state.completed(chunk)]
    yield from _results(plan, _compare(context, plan, only=chunks), chunks)


def _compare(context: dg.OpExecutionContext | dg.AssetCheckExecutionContext, plan: Plan, **choice: Any) -> "Compared":
    """Compare what a `Choice` has."""
    from snapshot_assets.engine.export.compare import Choice, compare

    snapshots = snapshots_of(context)
    with (
        snapshots.counting("comparing", 0, context.log.info),
        snapshots.export_run(plan.name).look() as opened,
    ):
        compared = compare(opened, Choice(**choice), snapshots.stage)
    context.log.info(f"{compared}.")
    return compared


def _record(context: dg.OpExecutionContext, plan: Plan, compared: "Compared") -> None:
    """Record the results that show something new. A chunk is not proved equal if a sample left tables of it out."""
    places, state = {each.part.place for each in compared.parts}, compared.state
    files = (known.file for known in state.live_files())
    left_out = {file.chunk for file in files if (file.chunk, TableName(file.schema, file.table)) not in places}
    unproved = {key_of_chunk(plan, chunk) for chunk in left_out}
    every = list(_results(plan, compared, filter(state.completed, state.chunks)))
    for asset in chunk_assets(plan):
        check = equality_check(plan, asset)
        shown = unproved | passing_partitions(context.instance, check)
        results = [each for each in every if (each.partition is None) == (asset == "untimed_tables")]
        new = [each for each in results if not (each.passed and each.partition in shown)]
        store_results(context, check_events(context.instance, check, new))


def _results(plan: Plan, compared: "Compared", chunks: Iterable[int]) -> Iterator[CheckResult]:
    """Yield the result of each of some chunks; of those that were not compared, as if they were equal."""
    from snapshot_assets.engine.export.compare import Comparison

    texts = {Comparison.DIFFERENT: _DAMAGED, Comparison.UNKNOWN: _UNKNOWN, Comparison.CHANGED: _CHANGED}
    of_chunk: defaultdict[int, list[ComparedPart]] = defaultdict(list)
    for each in compared.unequal:
        of_chunk[each.part.chunk].append(each)
    for chunk in chunks:
        unequal = of_chunk[chunk]
        found = {each.comparison for each in unequal}
        text = next((text for worse, text in texts.items() if worse in found), _EQUAL)
        severity = dg.AssetCheckSeverity.ERROR if text == _DAMAGED else dg.AssetCheckSeverity.WARN
        result = CheckResult(key_of_chunk(plan, chunk), not unequal, _differing(unequal), text, severity)
        yield result if compared.state.completed(chunk) else not_exported(plan, chunk)


def _facts(compared: "Compared") -> dict[str, Any]:
    """Return how many tables of chunks compare in which way, and which are not equal."""
    from snapshot_assets.engine.export.compare import Comparison

    facts: dict[str, Any] = {"revision": compared.state.revision, "compared": len(compared.parts)}
    facts |= {kind.name.lower(): compared.counts[kind] for kind in Comparison}
    facts |= {"missing_windows": compared.missing} | ({"sample_days": compared.within} if compared.within else {})
    return with_sizes(facts | _differing(compared.unequal))


def _differing(parts: "Sequence[ComparedPart]") -> dict[str, Any]:
    """Return the metadata of tables of chunks that are not equal; values of masked columns are on neither side."""

    def texts(row: "RowDifference") -> dict[str, str]:
        sides = {"key": row.key, "in_snapshot": row.snapshot or {}, "in_source": row.source or {}}
        shown = {name: ", ".join(f"{column} {value}" for column, value in side.items()) for name, side in sides.items()}
        return {**shown, "columns": ", ".join(row.columns), "times": str(row.times)}

    unequal = (
        row_of(each.part, each.found, comparison=each.comparison.value, reason=each.error or each.reason)
        for each in parts
    )
    rows = [place_of(each.part) | texts(row) for each in parts for row in each.rows]
    named = {"rows_that_differ": first_rows(rows)} if rows else {}
    return {"unequal": first_rows(unequal)} | named if parts else {}
