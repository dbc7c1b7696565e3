"""The op of `<plan>_verify`: verifies a location and its replica, and records the results as those of asset checks."""

# Dagster reads the annotations of ops, so they must not be postponed here.
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from pydantic import Field

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.replica import marker_or_fault
from snapshot_assets.catalog.seals.ssh import Signing
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.faults import Fault, FaultKind, with_replicas_remedy
from snapshot_assets.catalog.verify.objects import Report, Rotation, check_head, files_to_seal, verified_revision
from snapshot_assets.catalog.verify.records import damage_on_record, record_verification
from snapshot_assets.catalog.verify.signatures import signature_faults
from snapshot_assets.errors import PlanError
from snapshot_assets.format.layout import REPLICA, is_probe
from snapshot_assets.format.units import human_seconds, parse_share
from snapshot_assets.pipeline.assets.checks import INTACT, record_report, remedy, suspected_files
from snapshot_assets.pipeline.assets.conditions import IN_TIME
from snapshot_assets.pipeline.assets.replicas import replica_store
from snapshot_assets.pipeline.assets.tags import show_tags
from snapshot_assets.pipeline.automation.comparison import judge_lateness
from snapshot_assets.pipeline.dagster.dagster_internals import CheckResult, check_events, store_results
from snapshot_assets.pipeline.dagster.failures import joined, showing_failures
from snapshot_assets.pipeline.dagster.metadata import fault_metadata, with_sizes
from snapshot_assets.pipeline.dagster.partitions import asset_key
from snapshot_assets.pipeline.dagster.resources import SNAPSHOTS, snapshots_of
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore

_WHOLE = "Found whole by the verification job."
_DEPTHS = ("quick", "sample", "full")


class VerifyConfig(dg.Config):
    """Run config of `<plan>_verify`."""

    depth: str = Field(
        default="",
        description="By default what the plan's `verify_depth` says. `quick`: every data file of the newest state is"
        " there with its size, and its schema documents and receipts have their SHA-256. `sample`: up to 1 GiB of the"
        " files, another part each day, have their SHA-256, too. `full`: all objects of all readable revisions.",
    )
    sample: str = Field(
        default="",
        description="With depth `sample`: hash this share of the data files of all readable revisions instead, another"
        " one each day, as `snapshots export verify --sample` does. By default the plan's `verify_sample`.",
    )

    def chosen(self, plan: Plan) -> tuple[str, Rotation | None]:
        """Return the depth of this run, its own or else the plan's, and what chooses the share that is hashed, if any.

        Raises:
            PlanError: Depth or share is invalid.
        """
        depth = self.depth or plan.dagster.verify_depth
        if depth not in _DEPTHS:
            raise PlanError(f"depth {depth!r} is invalid; write one of {', '.join(_DEPTHS)}.")
        if depth != "sample":
            if self.sample:
                raise PlanError(f"sample {self.sample!r} has no effect with depth {depth}; leave one out.")
            return depth, None
        share = self.sample or plan.dagster.verify_sample
        return depth, Rotation.of_share(parse_share(share), datetime.now(UTC)) if share else None


def verify_op(plan: Plan) -> dg.OpDefinition:
    """Return the op of the job `<plan>_verify`."""
    parts = [_verify_location, *([_verify_replica] if plan.replicate_to else [])]

    @dg.op(
        name=f"{plan.name}_verify_location",
        required_resource_keys={SNAPSHOTS},
        description="Verifies the location and its replica, and records damage as results of the asset checks.",
    )
    def verify_location(context: dg.OpExecutionContext, config: VerifyConfig) -> None:
        with showing_failures():
            depth, rotation = config.chosen(plan)
        facts: dict[str, Any] = {}
        failures = []
        for part in parts:  # each whatever became of the other
            try:
                facts |= part(context, plan, depth, rotation)
            except dg.Failure as failure:
                failures.append(failure)
        if failures:
            raise joined(failures)
        context.add_output_metadata(facts)

    return verify_location


def replica_check(plan: Plan) -> dg.AssetChecksDefinition:
    """Return the check `files_intact` of the asset `replica`, whose results `<plan>_verify` records, too."""

    @dg.asset_check(
        asset=asset_key(plan, "replica"),
        name=INTACT,
        required_resource_keys={SNAPSHOTS},
        description=f"All files of `{plan.replicate_to}` exist with their size, and a part of them, another one each"
        " day, have their SHA-256.",
    )
    def files_intact(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        with showing_failures():
            report = _replica_report(context, plan, *VerifyConfig(depth="sample").chosen(plan))
        return dg.AssetCheckResult(**_replica_result(plan, report))

    return files_intact


def _verify_location(
    context: dg.OpExecutionContext, plan: Plan, depth: str, rotation: Rotation | None
) -> dict[str, Any]:
    """Verify a plan's location, record the results of checks, and return the facts of the run.

    Raises:
        dagster.Failure: It is damaged, or cannot be read.
    """
    from snapshot_assets.catalog.status import unsealed_work

    with showing_failures():
        store = snapshots_of(context).store(plan.name)
        state = Catalog.open(store).require_snapshot()
        suspected = suspected_files(context.instance, plan, store, state)
        report = _report(store, state, depth, rotation, suspected, plan.signing)
        record_verification(store, report, datetime.now(UTC))
    record_report(context, plan, state, report, _WHOLE)
    if plan.dagster.compare_cron:
        check = dg.AssetCheckKey(asset_key(plan, "manifest"), IN_TIME)
        store_results(
            context, check_events(context.instance, check, [CheckResult(None, **judge_lateness(plan, store))])
        )
    show_tags(context, plan, state, store.uri)
    work = unsealed_work(state)
    age: dict[str, Any] = {"sealed": state.sealed, "missing_windows": work.chunks}
    if state.newest_seal is not None:
        seconds = (datetime.now(UTC) - state.newest_seal.committed_at).total_seconds()
        age |= {"seal_age_seconds": round(seconds), "seal_age": human_seconds(seconds)}
    age = with_sizes(age | {"unsealed_files": work.files, "unsealed_bytes": work.bytes})
    context.log_event(dg.AssetObservation(asset_key(plan, "manifest"), description="Verification", metadata=age))
    facts = with_sizes({"revision": str(state.revision), "files": report.files, "hashed_bytes": report.bytes})
    if damage := _damage(report):
        ways = [remedy(plan, [fault for fault in damage if not fault.revisions])]
        if report.remedy and report.remedy.commands:
            older = "\n".join(f"- `{command}`" for command in report.remedy.commands)
            ways.append(f"Expire the older revisions that need damaged objects:\n\n{older}")
        raise _failure(report, damage, facts, "\n\n".join(filter(None, ways)))
    return facts


def _verify_replica(
    context: dg.OpExecutionContext, plan: Plan, depth: str, rotation: Rotation | None
) -> dict[str, Any]:
    """Verify a plan's replica; see `_verify_location`."""
    with showing_failures():
        report = _replica_report(context, plan, depth, rotation)
    check, result = dg.AssetCheckKey(asset_key(plan, "replica"), INTACT), _replica_result(plan, report)
    store_results(context, check_events(context.instance, check, [CheckResult(None, **result)]))
    if report is None:
        context.log.warning(result["description"])
        return {"replica": result["description"]}
    facts = {f"replica_{name}": value for name, value in result["metadata"].items()}
    if damage := _damage(report):
        raise _failure(report, damage, facts, result["description"])
    return facts


def _replica_report(
    context: dg.OpExecutionContext | dg.AssetCheckExecutionContext, plan: Plan, depth: str, rotation: Rotation | None
) -> Report | None:
    """Verify a plan's replica, and record that there; None for an empty one to which no run has replicated.

    Raises:
        NoSnapshotError: There is no replica, although a run has replicated, or its place has other objects.
    """
    store = replica_store(snapshots_of(context), plan)
    replicated = context.instance.get_latest_materialization_event(asset_key(plan, "replica")) is not None
    if not replicated and all(is_probe(info.path) for info in store.list()):
        return None
    state = Catalog.open(store).require_snapshot()
    damaged = damage_on_record(store, state.location_id)
    report = _report(store, state, depth, rotation, damaged, plan.signing)
    record_verification(store, report, datetime.now(UTC))
    return report


def _replica_result(plan: Plan, report: Report | None) -> dict[str, Any]:
    """Return the result of the check `files_intact` of a replica; it warns where there is none yet."""
    if report is None:
        run = f"run {plan.name}_export, or snapshots replicate --plan {plan.name}"
        text = f"There is no replica at {plan.replicate_to} yet; {run}."
        return {"passed": False, "severity": dg.AssetCheckSeverity.WARN, "metadata": {}, "description": text}
    damage = _damage(report)
    facts = with_sizes({"revision": str(report.revision), "files": report.files, "hashed_bytes": report.bytes})
    again = f"Move the damaged objects away; snapshots replicate --plan {plan.name} then copies them again."
    return {
        "passed": not damage,
        "metadata": facts | fault_metadata(damage),
        "description": again if damage else _WHOLE,
    }


def _damage(report: Report) -> list[Fault]:
    return [fault for fault in report.faults if fault.is_damage]


def _failure(report: Report, damage: Sequence[Fault], facts: Mapping[str, Any], remedy: str) -> dg.Failure:
    return dg.Failure(
        description=f"{report.uri} is damaged: {damage[0].message}",
        metadata={**facts, **fault_metadata(damage), "remedy": dg.MetadataValue.md(remedy)},
        allow_retries=False,
    )


def _report(
    store: ObjectStore,
    state: State,
    depth: str,
    rotation: Rotation | None,
    suspected: set[str],
    signing: Signing | None = None,
) -> Report:
    from snapshot_assets.catalog.verify.verify import verify

    if depth == "full":
        return verify(store, depth="full", signing=signing)
    if rotation is not None:
        return verify(store, depth="sample", rotation=rotation, suspected=suspected, signing=signing)
    sample = files_to_seal(state, datetime.now(UTC), verified_revision(state)) if depth == "sample" else set()
    report = check_head(store, state, sample | suspected)
    marker, fault = marker_or_fault(store)
    if marker is not None or fault is not None:
        report.faults = list(map(with_replicas_remedy, report.faults))
    if fault is not None:
        report.faults.append(Fault(FaultKind.LOG, REPLICA, str(fault)))
    report.faults += signature_faults(report, store, state, signing, None, ())
    return report
