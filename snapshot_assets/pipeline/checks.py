"""Asset checks: they report; the manifest verifies for itself and never relies on them."""

# Dagster reads the annotations of assets and checks, so they must not be postponed here.
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.head import check_head, verified_revision
from snapshot_assets.catalog.verify.verify import Fault, FaultKind, Report, check_chunk_checksum, check_files
from snapshot_assets.format.layout import MANIFEST
from snapshot_assets.pipeline.dagster_internals import target_materialization
from snapshot_assets.pipeline.metadata import fault_metadata
from snapshot_assets.pipeline.partitions import window_of
from snapshot_assets.pipeline.resources import SNAPSHOTS, snapshots_of
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.listed import Listed

ChunkCheck = Callable[[ObjectStore, State, int], list[Fault]]
StateCheck = Callable[[ObjectStore, State], list[Fault]]

Judge = Callable[[int], tuple[bool, Mapping[str, Any]]]
"""Tells whether a chunk is well, and what to show of it."""

Opened = Callable[[dg.AssetCheckExecutionContext, Plan], AbstractContextManager[Judge]]
"""Opens what judges the chunks of a plan, for one run of a check."""


def chunk_checks(plan: Plan, partitions: dg.PartitionsDefinition) -> list[dg.AssetChecksDefinition]:
    """Return the partitioned checks of `chunks`: `file_checksums` and `chunk_checksum`."""
    return [
        partitioned_check(plan, dg.AssetKey([plan.name, "chunks"]), partitions, name, description, _judging(check))
        for name, description, check in (
            ("file_checksums", "Every file of the chunk has its size and SHA-256.", _files),
            ("chunk_checksum", "The chunk's checksum is that of its files.", _chunk),
        )
    ]


def manifest_checks(plan: Plan) -> list[dg.AssetChecksDefinition]:
    """Return the checks of `manifest`: `snapshot_checksum` and `coverage`."""
    return [
        _whole(
            plan,
            "snapshot_checksum",
            "The seal's checksum is that of the snapshot, and files and documents are as the log has them: all are "
            "there with their size, and up to 1 GB of them, another part each day, with their SHA-256.",
            _snapshot_checksum,
        ),
        _whole(
            plan,
            "coverage",
            "Every window of the range is exported, without gap or overlap, and its files are there with their size.",
            _coverage,
        ),
    ]


def _files(store: ObjectStore, state: State, chunk: int) -> list[Fault]:
    objects = Listed(store, f"data/{chunk}/")
    return list(check_files(store, state, objects, Report(store.uri, "full"), chunk=chunk))


def _chunk(_: ObjectStore, state: State, chunk: int) -> list[Fault]:
    if not state.completed(chunk):
        return [Fault(FaultKind.COVERAGE, f"data/{chunk}", f"Chunk {chunk} is not completed.", chunk)]
    return list(check_chunk_checksum(state, chunk))


def _snapshot_checksum(store: ObjectStore, state: State) -> list[Fault]:
    if not state.sealed or state.newest_seal is None:
        return [Fault(FaultKind.SNAPSHOT_CHECKSUM, MANIFEST, "The newest state is not sealed.")]
    faults = check_head(store, state, datetime.now(UTC), verified=verified_revision(state)).faults
    found, expected = checksum_of(state), state.newest_seal.seal.checksum
    if found != expected:
        message = f"The snapshot has checksum {found}; its seal says {expected}."
        faults.append(Fault(FaultKind.SNAPSHOT_CHECKSUM, MANIFEST, message))
    return faults


def _coverage(store: ObjectStore, state: State) -> list[Fault]:
    missing = [Fault(FaultKind.COVERAGE, f"data/{n}", f"Chunk {n} is not exported.", n) for n in state.missing()]
    objects = Listed(store, "data/")
    return [*missing, *check_files(store, state, objects, Report(store.uri, "quick"))]


def partitioned_check(
    plan: Plan,
    asset: dg.AssetKey,
    partitions: dg.PartitionsDefinition,
    name: str,
    description: str,
    opened: Opened,
) -> dg.AssetChecksDefinition:
    """Return a check that judges each window by itself.

    Args:
        plan: The plan that the windows are of.
        asset: What is checked.
        partitions: The asset's.
        name: The check's name.
        description: For people.
        opened: Opens, for one run of the check, what judges its chunks.
    """

    @dg.asset_check(  # type: ignore[arg-type]  # Dagster accepts generators of evaluations; its stub does not say so
        asset=asset,
        name=name,
        description=description,
        partitions_def=partitions,
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


def _judging(check: ChunkCheck) -> Opened:
    """Return what judges a location's chunks by the faults that a check finds."""

    @contextmanager
    def opened(context: dg.AssetCheckExecutionContext, plan: Plan) -> Iterator[Judge]:
        store, state = _read(context, plan)

        def judge(chunk: int) -> tuple[bool, Mapping[str, Any]]:
            faults = check(store, state, chunk)
            return not faults, fault_metadata(faults)

        yield judge

    return opened


def _whole(plan: Plan, name: str, description: str, check: StateCheck) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=dg.AssetKey([plan.name, "manifest"]),
        name=name,
        description=description,
        required_resource_keys={SNAPSHOTS},
    )
    def whole(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        faults = check(*_read(context, plan))
        return dg.AssetCheckResult(passed=not faults, metadata=fault_metadata(faults))

    return whole


def _read(context: dg.AssetCheckExecutionContext, plan: Plan) -> tuple[ObjectStore, State]:
    store = snapshots_of(context).store(plan.name)
    return store, Catalog.open(store).begun()
