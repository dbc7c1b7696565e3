"""Asset checks: they report; the manifest verifies for itself and never relies on them."""

# Dagster reads the annotations of assets and checks, so they must not be postponed here.
from collections.abc import Callable, Iterator

import dagster as dg

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.state import State
from snapshot_assets.catalog.verify import Fault, FaultKind, Report, check_chunk_checksum, check_files
from snapshot_assets.format.layout import MANIFEST
from snapshot_assets.pipeline.dagster_internals import target_materialization
from snapshot_assets.pipeline.metadata import fault_metadata
from snapshot_assets.pipeline.partitions import window_of
from snapshot_assets.pipeline.resources import SNAPSHOTS, snapshots_of
from snapshot_assets.plan import Plan
from snapshot_assets.storage.base import ObjectStore

ChunkCheck = Callable[[ObjectStore, State, int], list[Fault]]
StateCheck = Callable[[State], list[Fault]]


def chunk_checks(plan: Plan, partitions: dg.PartitionsDefinition) -> list[dg.AssetChecksDefinition]:
    """Return the partitioned checks of `chunks`: `file_checksums` and `chunk_checksum`."""
    return [
        _partitioned(plan, partitions, "file_checksums", "Every file of the chunk has its size and SHA-256.", _files),
        _partitioned(plan, partitions, "chunk_checksum", "The chunk's checksum is that of its files.", _chunk),
    ]


def manifest_checks(plan: Plan) -> list[dg.AssetChecksDefinition]:
    """Return the checks of `manifest`: `snapshot_checksum` and `coverage`."""
    return [
        _whole(plan, "snapshot_checksum", "The seal's checksum is that of the snapshot.", _snapshot_checksum),
        _whole(plan, "coverage", "Every window of the range is exported, without gap or overlap.", _coverage),
    ]


def _files(store: ObjectStore, state: State, chunk: int) -> list[Fault]:
    objects = {info.path: info for info in store.list(f"data/{chunk}/")}
    return list(check_files(store, state, objects, Report(store.uri, "full"), chunk=chunk))


def _chunk(_: ObjectStore, state: State, chunk: int) -> list[Fault]:
    if not state.completed(chunk):
        return [Fault(FaultKind.COVERAGE, f"data/{chunk}", f"Chunk {chunk} is not completed.", chunk)]
    return list(check_chunk_checksum(state, chunk))


def _snapshot_checksum(state: State) -> list[Fault]:
    if not state.sealed or state.newest_seal is None:
        return [Fault(FaultKind.SNAPSHOT_CHECKSUM, MANIFEST, "The newest state is not sealed.")]
    found, expected = checksum_of(state), state.newest_seal.seal.checksum
    if found == expected:
        return []
    return [
        Fault(FaultKind.SNAPSHOT_CHECKSUM, MANIFEST, f"The snapshot has checksum {found}; its seal says {expected}.")
    ]


def _coverage(state: State) -> list[Fault]:
    return [Fault(FaultKind.COVERAGE, f"data/{n}", f"Chunk {n} is not exported.", n) for n in state.missing()]


def _partitioned(
    plan: Plan,
    partitions: dg.PartitionsDefinition,
    name: str,
    description: str,
    check: ChunkCheck,
) -> dg.AssetChecksDefinition:
    asset = dg.AssetKey([plan.name, "chunks"])

    @dg.asset_check(  # type: ignore[arg-type]  # Dagster accepts generators of evaluations; its stub does not say so
        asset=asset,
        name=name,
        description=description,
        partitions_def=partitions,
        required_resource_keys={SNAPSHOTS},
    )
    def partitioned(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckEvaluation | dg.Output[None]]:
        # One evaluation per key: an AssetCheckResult loses its partition in a range run.
        store, state = _read(context, plan)
        for key in context.partition_keys:
            faults = check(store, state, window_of(plan, key).id)
            yield dg.AssetCheckEvaluation(
                asset_key=asset,
                check_name=name,
                partition=key,
                passed=not faults,
                metadata=fault_metadata(faults),
                target_materialization_data=target_materialization(context.instance, asset, key),
            )
        yield dg.Output(None)

    return partitioned


def _whole(plan: Plan, name: str, description: str, check: StateCheck) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=dg.AssetKey([plan.name, "manifest"]),
        name=name,
        description=description,
        required_resource_keys={SNAPSHOTS},
    )
    def whole(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        _, state = _read(context, plan)
        faults = check(state)
        return dg.AssetCheckResult(passed=not faults, metadata=fault_metadata(faults))

    return whole


def _read(context: dg.AssetCheckExecutionContext, plan: Plan) -> tuple[ObjectStore, State]:
    store = snapshots_of(context).store(plan.name)
    return store, Catalog.open(store).begun()
