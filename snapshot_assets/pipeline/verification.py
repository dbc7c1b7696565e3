"""The op of `<plan>_verify`: verifies a location, and records the results as those of asset checks."""

# Dagster reads the annotations of ops, so they must not be postponed here.
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from pydantic import Field

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.status import unsealed_work
from snapshot_assets.catalog.verify.faults import Fault
from snapshot_assets.catalog.verify.objects import Report, check_head, files_to_seal, verified_revision
from snapshot_assets.catalog.verify.records import record_verification
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import PlanError
from snapshot_assets.format.units import human_seconds
from snapshot_assets.pipeline.checks import (
    REPAIR,
    check_of_chunk,
    failed_chunks,
    head_faults,
    remedy,
    severity_of,
    suspected_files,
)
from snapshot_assets.pipeline.dagster_internals import check_event
from snapshot_assets.pipeline.failures import as_failure, showing_failures
from snapshot_assets.pipeline.keys import asset_key
from snapshot_assets.pipeline.metadata import fault_metadata, with_sizes
from snapshot_assets.pipeline.partitions import key_of_chunk
from snapshot_assets.pipeline.resources import SNAPSHOTS, snapshots_of
from snapshot_assets.pipeline.tags import show_tags
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore

_WHOLE = "Found whole by the verification job."
_DEPTHS = ("quick", "sample", "full")


class VerifyConfig(dg.Config):
    """Run config of `<plan>_verify`."""

    depth: str = Field(
        default="",
        description="By default what the plan's `verify_depth` says. `quick`: every object of the newest state exists"
        " with its size. `sample`: up to 1 GB of the files, another part each day, have their SHA-256, too. `full`: all"
        " objects of all readable revisions.",
    )


def verify_op(plan: Plan) -> dg.OpDefinition:
    """Return the op of the job `<plan>_verify`."""

    @dg.op(
        name=f"{plan.name}_verify_location",
        required_resource_keys={SNAPSHOTS},
        description="Verifies the location, and records damage as results of the asset checks.",
    )
    def verify_location(context: dg.OpExecutionContext, config: VerifyConfig) -> None:
        depth = config.depth or plan.dagster.verify_depth
        if depth not in _DEPTHS:
            raise as_failure(PlanError(f"depth {depth!r} is invalid; write one of {', '.join(_DEPTHS)}."))
        store = snapshots_of(context).store(plan.name)
        with showing_failures():
            state = Catalog.open(store).require_snapshot()
            suspected = suspected_files(context.instance, plan, store, state)
            report = _report(store, state, depth, suspected)
            record_verification(store, report, datetime.now(UTC))
        for event in _events(context.instance, plan, state, report):
            context.log_event(event)  # type: ignore[arg-type]  # Dagster takes results of checks; its stub does not
        show_tags(context, plan, state, store.uri)
        age = _age(state, datetime.now(UTC))
        context.log_event(dg.AssetObservation(asset_key(plan, "manifest"), description="Verification", metadata=age))
        facts = with_sizes({"revision": str(state.revision), "files": report.files, "hashed_bytes": report.bytes})
        damage = [fault for fault in report.faults if fault.is_damage]
        if damage:
            raise dg.Failure(
                description=f"{store.uri} is damaged: {damage[0].message}",
                metadata=facts | fault_metadata(damage) | {"remedy": dg.MetadataValue.md(_remedy(report, damage))},
                allow_retries=False,
            )
        context.add_output_metadata(facts)

    return verify_location


def _age(state: State, now: datetime) -> dict[str, Any]:
    """Return how old the newest seal is, and what was committed since."""
    work = unsealed_work(state)
    facts: dict[str, Any] = {"sealed": state.sealed, "missing_windows": work.chunks}
    if state.newest_seal is not None:
        seconds = (now - state.newest_seal.committed_at).total_seconds()
        facts |= {"seal_age_seconds": round(seconds), "seal_age": human_seconds(seconds)}
    return with_sizes(facts | {"unsealed_files": work.files, "unsealed_bytes": work.bytes})


def _remedy(report: Report, damage: Sequence[Fault]) -> str:
    """Return what repairs a location: the newest state first, then commands that expire older damaged revisions."""
    newest = [fault for fault in damage if not fault.revisions]
    older = "\n".join(f"- `{command}`" for command in report.remedy.commands) if report.remedy else ""
    ways = (remedy(newest), f"Expire the older revisions that need damaged objects:\n\n{older}" if older else None)
    return "\n\n".join(way for way in ways if way)


def _report(store: ObjectStore, state: State, depth: str, suspected: set[str]) -> Report:
    if depth == "full":
        return verify(store, depth="full")
    sample = files_to_seal(state, datetime.now(UTC), verified_revision(state)) if depth == "sample" else set()
    return check_head(store, state, sample | suspected)


def _events(
    instance: dg.DagsterInstance, plan: Plan, state: State, report: Report
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the results of checks: of chunks that are damaged, or were when last checked, and of the manifest."""
    by_chunk: dict[int, list[Fault]] = {chunk: [] for chunk in failed_chunks(instance, plan)}
    for fault in report.faults:
        if fault.is_damage and not fault.revisions and fault.chunk is not None and state.completed(fault.chunk):
            by_chunk.setdefault(fault.chunk, []).append(fault)
    for chunk, faults in sorted(by_chunk.items()):
        check, repair = check_of_chunk(plan, chunk), REPAIR if faults else _WHOLE
        yield _event(instance, check, key_of_chunk(plan, chunk), faults, repair, {})
    manifest = asset_key(plan, "manifest")
    for name, faults in head_faults(plan, state, report).items():
        check, read = dg.AssetCheckKey(manifest, name), {"hashed_bytes": report.bytes}
        yield _event(instance, check, None, faults, remedy(faults) or _WHOLE, read, severity_of(name, state))


def _event(
    instance: dg.DagsterInstance,
    check: dg.AssetCheckKey,
    partition: str | None,
    faults: Sequence[Fault],
    description: str | None,
    metadata: Mapping[str, Any],
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
) -> dg.AssetCheckEvaluation:
    facts = fault_metadata(faults) | with_sizes(metadata)
    return check_event(
        instance, check, partition, passed=not faults, metadata=facts, description=description, severity=severity
    )
