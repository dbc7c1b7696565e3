"""Asset checks. They only report: the manifest verifies the snapshot itself."""

# Dagster reads the annotations of assets and checks, so they must not be postponed here.
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import dagster as dg

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.faults import Fault, FaultKind
from snapshot_assets.catalog.verify.objects import (
    Report,
    check_chunk_checksum,
    check_files,
    check_head,
    files_after_seal,
    files_to_seal,
    verified_revision,
)
from snapshot_assets.format.layout import MANIFEST
from snapshot_assets.pipeline.dagster_internals import target_materialization
from snapshot_assets.pipeline.keys import asset_key
from snapshot_assets.pipeline.metadata import fault_metadata
from snapshot_assets.pipeline.partitions import partitions_of, window_of
from snapshot_assets.pipeline.resources import SNAPSHOTS, snapshots_of
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.listed import Listed

_CHECKSUM, _COVERAGE = "snapshot_checksum", "coverage"

ChunkCheck = Callable[[ObjectStore, State, int], list[Fault]]

Judge = Callable[[int], tuple[bool, Mapping[str, Any]]]
"""Returns whether a chunk passes, and its metadata."""

Opened = Callable[[dg.AssetCheckExecutionContext, Plan], AbstractContextManager[Judge]]
"""Opens the judge of a plan's chunks, for one run of a check."""


def chunk_checks(plan: Plan) -> list[dg.AssetChecksDefinition]:
    """Return the partitioned checks of `chunks`: `file_checksums` and `chunk_checksum`."""
    return [
        partitioned_check(plan, asset_key(plan, "chunks"), name, description, partial(_judging, check))
        for name, description, check in (
            ("file_checksums", "Every file of the chunk has its size and SHA-256.", _files),
            ("chunk_checksum", "The chunk's checksum is that of its files.", _chunk),
        )
    ]


def manifest_checks(plan: Plan) -> list[dg.AssetChecksDefinition]:
    """Return the checks of `manifest`, `snapshot_checksum` and `coverage`, which read the location once."""
    manifest = asset_key(plan, "manifest")

    @dg.multi_asset_check(
        name=f"{plan.name}__manifest_checks",
        specs=[
            dg.AssetCheckSpec(
                _CHECKSUM,
                asset=manifest,
                description="The snapshot has the seal's checksum, and files and documents match the log: all exist "
                "with their size, and up to 1 GB of the files, another part each day, have their SHA-256 (all with "
                "`seal_verify: full`), unless the seal in the same run checked that.",
            ),
            dg.AssetCheckSpec(
                _COVERAGE,
                asset=manifest,
                description="Every window of the range is exported, without gap or overlap, and its files exist with "
                "their size.",
            ),
        ],
        can_subset=True,
        required_resource_keys={SNAPSHOTS},
    )
    def whole(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        store, state = _read(context, plan)
        selected = {key.name for key in context.selected_asset_check_keys}
        hashed = _to_hash(context, plan, state) if _CHECKSUM in selected and state.sealed else set()
        report = check_head(store, state, hashed)
        if _CHECKSUM in selected:
            metadata = {**fault_metadata(faults := _checksum_faults(state, report)), "hashed_bytes": report.bytes}
            yield dg.AssetCheckResult(asset_key=manifest, check_name=_CHECKSUM, passed=not faults, metadata=metadata)
        if _COVERAGE in selected:
            metadata = fault_metadata(faults := _coverage_faults(state, report))
            yield dg.AssetCheckResult(asset_key=manifest, check_name=_COVERAGE, passed=not faults, metadata=metadata)

    return [whole]


def _files(store: ObjectStore, state: State, chunk: int) -> list[Fault]:
    objects = Listed(store, f"data/{chunk}/")
    return list(check_files(store, state, objects, Report(store.uri, "full"), chunk=chunk))


def _chunk(_: ObjectStore, state: State, chunk: int) -> list[Fault]:
    if not state.completed(chunk):
        return [Fault(FaultKind.COVERAGE, f"data/{chunk}", f"Chunk {chunk} is not completed.", chunk)]
    return list(check_chunk_checksum(state, chunk))


def _to_hash(context: dg.AssetCheckExecutionContext, plan: Plan, state: State) -> set[str]:
    """Return the paths of the files to hash, without those that the seal of this run hashed."""
    now = datetime.now(UTC)
    records = context.instance.fetch_materializations(asset_key(plan, "manifest"), limit=1).records
    made = records[0].asset_materialization if records and records[0].run_id == context.run.run_id else None
    if made is None:
        return files_to_seal(state, now, 0 if plan.seal_verify == "full" else verified_revision(state))
    verified = made.metadata["verified_before"].value
    assert isinstance(verified, int)
    return files_after_seal(state, now, verified)


def _checksum_faults(state: State, report: Report) -> list[Fault]:
    if not state.sealed or state.newest_seal is None:
        return [Fault(FaultKind.SNAPSHOT_CHECKSUM, MANIFEST, "The newest state is not sealed.")]
    faults = list(report.faults)
    found, expected = checksum_of(state), state.newest_seal.seal.checksum
    if found != expected:
        message = f"The snapshot has checksum {found}; its seal records {expected}."
        faults.append(Fault(FaultKind.SNAPSHOT_CHECKSUM, MANIFEST, message))
    return faults


def _coverage_faults(state: State, report: Report) -> list[Fault]:
    missing = [Fault(FaultKind.COVERAGE, f"data/{n}", f"Chunk {n} is not exported.", n) for n in state.missing()]
    files = {each.file.path for each in state.live_files()}
    kinds = (FaultKind.MISSING, FaultKind.SIZE)
    return [*missing, *(fault for fault in report.faults if fault.object in files and fault.kind in kinds)]


def partitioned_check(
    plan: Plan,
    asset: dg.AssetKey,
    name: str,
    description: str,
    opened: Opened,
) -> dg.AssetChecksDefinition:
    """Return a check of an asset and its partitions that judges each window of a plan by itself."""

    @dg.asset_check(  # type: ignore[arg-type]  # Dagster accepts generators of evaluations; its stub does not
        asset=asset,
        name=name,
        description=description,
        partitions_def=partitions_of(plan),
        required_resource_keys={SNAPSHOTS},
    )
    def partitioned(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckEvaluation | dg.Output[None]]:
        # One evaluation per key: an AssetCheckResult loses its partition in a range run.
        with opened(context, plan) as judge:
            for key in context.partition_keys:
                passed, metadata = judge(window_of(plan, key).id)
                yield dg.AssetCheckEvaluation(
                    asset_key=asset,
                    check_name=name,
                    partition=key,
                    passed=passed,
                    metadata=metadata,
                    target_materialization_data=target_materialization(context.instance, asset, key),
                )
        yield dg.Output(None)

    return partitioned


@contextmanager
def _judging(check: ChunkCheck, context: dg.AssetCheckExecutionContext, plan: Plan) -> Iterator[Judge]:
    """Open the judge of a check: a chunk passes if the check finds no fault."""
    store, state = _read(context, plan)

    def judge(chunk: int) -> tuple[bool, Mapping[str, Any]]:
        faults = check(store, state, chunk)
        return not faults, fault_metadata(faults)

    yield judge


def _read(context: dg.AssetCheckExecutionContext, plan: Plan) -> tuple[ObjectStore, State]:
    store = snapshots_of(context).store(plan.name)
    return store, Catalog.open(store).require_snapshot()
