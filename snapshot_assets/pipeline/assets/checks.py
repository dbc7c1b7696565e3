"""Asset checks. They only report: the manifest verifies the snapshot itself."""

# Dagster reads the annotations of assets and checks, so they must not be postponed here.
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

import dagster as dg

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.faults import Fault, FaultKind
from snapshot_assets.catalog.verify.objects import (
    check_chunk_checksum,
    check_head,
    damaged_chunks,
    files_after_seal,
    files_to_seal,
    verified_revision,
)
from snapshot_assets.catalog.verify.records import damage_on_record, record_verification
from snapshot_assets.errors import PlanError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.pipeline.assets.check_results import (
    CHECKSUM,
    COVERAGE,
    FILES,
    INTACT,
    REPAIR,
    head_findings,
    record_chunks,
)
from snapshot_assets.pipeline.dagster.dagster_internals import CheckResult, check_events, failed_partitions
from snapshot_assets.pipeline.dagster.failures import showing_failures
from snapshot_assets.pipeline.dagster.metadata import fault_metadata, with_sizes
from snapshot_assets.pipeline.dagster.partitions import (
    asset_key,
    chunk_assets,
    chunks_of_run,
    key_of_chunk,
    partitions_of,
    window_of,
)
from snapshot_assets.pipeline.dagster.resources import SNAPSHOTS, snapshots_of
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore

Judge = Callable[[Sequence[int]], Iterable[tuple[int, bool, Mapping[str, Any], str | None]]]
"""Returns for each chunk whether it passes, its metadata, and what to do."""

Opened = Callable[[dg.AssetCheckExecutionContext, Plan], AbstractContextManager[tuple[Sequence[int], Judge]]]
"""Opens the judge of a plan's chunks, for one run of a check; gives the chunks that there are, too."""

_OF_MANIFEST = {
    CHECKSUM: "The snapshot has the seal's checksum, and its documents theirs.",
    INTACT: "All files exist with their size, and up to 1 GiB of them, another part each day, have their SHA-256 (all"
    " with `seal_verify: full`), unless the seal in the same run checked that.",
    COVERAGE: "Every window of the range is exported, without gap or overlap. It warns of windows that closed since and"
    " were never exported.",
}


def chunk_checks(plan: Plan) -> list[dg.AssetChecksDefinition]:
    """Return the check `file_checksums` of each of the plan's `chunk_assets`; of windows, partitioned."""
    description = "Every file of the chunk has its size and SHA-256, and the chunk's checksum is that of its files."
    return [chunk_check(plan, asset, FILES, description, _judging) for asset in chunk_assets(plan)]


def failed_chunks(instance: dg.DagsterInstance, plan: Plan) -> set[int]:
    """Return the chunks for which the newest result of a check is that it failed.

    Seals, checks and verifications hash them until they are whole.

    Args:
        instance: The instance that has the checks' results.
        plan: The plan.
    """
    checks = [dg.AssetCheckKey(asset_key(plan, asset), FILES) for asset in chunk_assets(plan)]
    chunks = set()
    for key in failed_partitions(instance, *checks):
        with suppress(PlanError):  # a result from before the plan's windows were changed
            chunks.add(UNTIMED_CHUNK if key is None else window_of(plan, key).id)
    return chunks


def suspected_files(instance: dg.DagsterInstance, plan: Plan, store: ObjectStore, state: State) -> set[str]:
    """Return the paths of the files of `failed_chunks`, and of what was damaged when the location was last verified.

    They are all files where `suspects_all`.
    """
    if suspects_all(instance, plan, store, state):
        return {known.file.path for known in state.live_files()}
    chunks = failed_chunks(instance, plan)
    files = {known.file.path for known in state.live_files() if known.file.chunk in chunks}
    return files | damage_on_record(store, state.location_id)


def suspects_all(instance: dg.DagsterInstance, plan: Plan, store: ObjectStore, state: State) -> bool:
    """Return whether any file may be damaged: a check of `manifest` found damage that no record at the location names.

    Its store may have refused the record. A state without a seal fails none of these checks.
    """
    checks = (dg.AssetCheckKey(asset_key(plan, "manifest"), name) for name in (CHECKSUM, INTACT))
    return bool(failed_partitions(instance, *checks)) and not damage_on_record(store, state.location_id)


def manifest_checks(plan: Plan) -> list[dg.AssetChecksDefinition]:
    """Return the checks of `manifest`, which read the location once."""
    manifest = asset_key(plan, "manifest")

    @dg.multi_asset_check(
        name=f"{plan.name}__manifest_checks",
        specs=[dg.AssetCheckSpec(name, asset=manifest, description=text) for name, text in _OF_MANIFEST.items()],
        can_subset=True,
        required_resource_keys={SNAPSHOTS},
    )
    def whole(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        selected = {key.name for key in context.selected_asset_check_keys}
        with showing_failures():
            store, state = _read(context, plan)
            hashed = suspected_files(context.instance, plan, store, state) if INTACT in selected else set()
            if INTACT in selected and state.sealed:
                hashed |= _to_hash(context, plan, state)
            report = check_head(store, state, hashed)
            record_verification(store, report, datetime.now(UTC))
            record_chunks(context, plan, state, report, "Found whole by the checks of manifest.")
        for name, found in head_findings(plan, state, report).items():
            if name in selected:
                read = with_sizes({"hashed_bytes": report.bytes}) if name == INTACT else {}
                yield dg.AssetCheckResult(
                    asset_key=manifest,
                    check_name=name,
                    passed=not found.faults,
                    severity=found.severity,
                    metadata=fault_metadata(found.faults) | read,
                    description=found.description or _OF_MANIFEST[name],
                )

    return [whole]


def _faults(store: ObjectStore, state: State, chunks: Sequence[int]) -> Iterator[tuple[int, list[Fault]]]:
    """Yield the faults of each chunk; the files of all are listed and hashed together."""
    damaged = damaged_chunks(store, state, [chunk for chunk in chunks if state.completed(chunk)], hashed=True)
    for chunk in chunks:
        if state.completed(chunk):
            yield chunk, [*damaged.get(chunk, ()), *check_chunk_checksum(state, chunk)]
        else:
            yield chunk, [Fault(FaultKind.COVERAGE, f"data/{chunk}", f"Chunk {chunk} is not completed.", chunk)]


def _to_hash(context: dg.AssetCheckExecutionContext, plan: Plan, state: State) -> set[str]:
    """Return the paths of the files to hash, without those that the seal of this run hashed."""
    now = datetime.now(UTC)
    records = context.instance.fetch_materializations(asset_key(plan, "manifest"), limit=1).records
    made = records[0].asset_materialization if records and records[0].run_id == context.run.run_id else None
    if made is None:
        return files_to_seal(state, now, 0 if plan.seal_verify == "full" else verified_revision(state))
    verified = made.metadata["verified_before"].value  # text; a number in events of earlier releases
    assert isinstance(verified, str | int)
    return files_after_seal(state, now, int(verified))


def chunk_check(
    plan: Plan, asset: str, name: str, description: str, opened: Opened, *resources: str
) -> dg.AssetChecksDefinition:
    """Return a check that judges chunks by themselves: of each partition, or of chunk 0 for other assets.

    A run without partitions, such as that of all checks of an asset, judges all chunks that there are.
    """
    key = dg.AssetCheckKey(asset_key(plan, asset), name)
    partitioned = asset in ("chunks", "restored") and name != "untimed_row_counts"

    @dg.asset_check(  # type: ignore[arg-type]  # Dagster accepts generators of evaluations; its stub does not
        asset=key.asset_key,
        name=name,
        description=description,
        partitions_def=partitions_of(plan) if partitioned else None,
        required_resource_keys={SNAPSHOTS, *resources},
    )
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckEvaluation | dg.Output[None]]:
        # One evaluation per key: an AssetCheckResult loses its partition in a range run.
        with showing_failures(), opened(context, plan) as (known, judge):
            chosen = _chosen(context, plan, known) if partitioned else [UNTIMED_CHUNK]
            # Failed ones last: the overview of the check shows its newest result.
            judged = sorted(judge(chosen), key=itemgetter(1), reverse=True)
            results = [
                CheckResult(key_of_chunk(plan, chunk) if partitioned else None, passed, metadata, remedy or description)
                for chunk, passed, metadata, remedy in judged
            ]
            yield from check_events(context.instance, key, results)
        yield dg.Output(None)

    return check


def _chosen(context: dg.AssetCheckExecutionContext, plan: Plan, known: Sequence[int]) -> list[int]:
    chunks = chunks_of_run(context, plan)
    return [chunk for chunk in known if chunk != UNTIMED_CHUNK] if chunks is None else chunks


@contextmanager
def _judging(context: dg.AssetCheckExecutionContext, plan: Plan) -> Iterator[tuple[Sequence[int], Judge]]:
    """Open the judge of `file_checksums`."""
    store, state = _read(context, plan)

    def judge(chunks: Sequence[int]) -> Iterator[tuple[int, bool, Mapping[str, Any], str | None]]:
        for chunk, faults in _faults(store, state, chunks):
            yield chunk, not faults, fault_metadata(faults), REPAIR if faults else None

    yield [chunk for chunk in state.expected_chunks() if state.completed(chunk)], judge


def _read(context: dg.AssetCheckExecutionContext, plan: Plan) -> tuple[ObjectStore, State]:
    store = snapshots_of(context).store(plan.name)
    return store, Catalog.open(store).require_snapshot()
