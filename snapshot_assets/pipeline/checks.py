"""Asset checks. They only report: the manifest verifies the snapshot itself."""

# Dagster reads the annotations of assets and checks, so they must not be postponed here.
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
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
from snapshot_assets.catalog.verify.records import damage_on_record, record_verification
from snapshot_assets.errors import PlanError
from snapshot_assets.format.layout import MANIFEST, UNTIMED_CHUNK, chunk_of, is_receipt
from snapshot_assets.pipeline.coverage import coverage_faults, coverage_severity
from snapshot_assets.pipeline.dagster_internals import check_event, failed_partitions
from snapshot_assets.pipeline.failures import showing_failures
from snapshot_assets.pipeline.keys import asset_key, chunk_assets
from snapshot_assets.pipeline.metadata import fault_metadata, with_sizes
from snapshot_assets.pipeline.partitions import chunks_of_run, key_of_chunk, partitions_of, window_of
from snapshot_assets.pipeline.resources import SNAPSHOTS, snapshots_of
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.listed import Listed

CHECKSUM, INTACT, COVERAGE, FILES = "snapshot_checksum", "files_intact", "coverage", "file_checksums"

ChunkCheck = Callable[[ObjectStore, State, int], list[Fault]]

Judge = Callable[[int], tuple[bool, Mapping[str, Any], str | None]]
"""Returns whether a chunk passes, its metadata, and what to do."""

Opened = Callable[[dg.AssetCheckExecutionContext, Plan], AbstractContextManager[tuple[Sequence[int], Judge]]]
"""Opens the judge of a plan's chunks, for one run of a check; gives the chunks that there are, too."""

_OF_MANIFEST = {
    CHECKSUM: "The snapshot has the seal's checksum, and its documents theirs.",
    INTACT: "All files exist with their size, and up to 1 GiB of them, another part each day, have their SHA-256 (all"
    " with `seal_verify: full`), unless the seal in the same run checked that.",
    COVERAGE: "Every window of the range is exported, without gap or overlap. It warns of windows that closed since and"
    " were never exported.",
}

_NOT_SEALED = (
    "The newest state is not sealed yet, so there is no checksum of it; its documents are whole. Once every window is"
    " exported, materialise manifest, or run the export job: both seal it."
)

# Dagster shows a result's description as it is, without Markdown.
REPAIR = (
    "Materialise this partition again. A run exports a chunk whose files are damaged again, without replace. Then"
    " materialise manifest, which seals the repaired snapshot."
)


@dataclass(frozen=True)
class Finding:
    """What a check of `manifest` found.

    Attributes:
        faults: The check fails if there are any.
        description: What repairs them, or what the state lacks; None for a state that is as the check expects.
    """

    faults: Sequence[Fault]
    description: str | None
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR


def chunk_checks(plan: Plan) -> list[dg.AssetChecksDefinition]:
    """Return the checks `file_checksums` and `chunk_checksum` of the plan's `chunk_assets`; of windows, partitioned."""
    return [
        chunk_check(plan, asset, name, description, partial(_judging, check))
        for asset in chunk_assets(plan)
        for name, description, check in (
            (FILES, "Every file of the chunk has its size and SHA-256.", _files),
            ("chunk_checksum", "The chunk's checksum is that of its files.", _chunk),
        )
    ]


def check_of_chunk(plan: Plan, chunk: int) -> dg.AssetCheckKey:
    """Return the check that shows whether a chunk's files are whole."""
    return dg.AssetCheckKey(asset_key(plan, "chunks" if chunk != UNTIMED_CHUNK else "untimed_tables"), FILES)


def failed_chunks(instance: dg.DagsterInstance, plan: Plan) -> set[int]:
    """Return the chunks for which the newest result of a check is that it failed.

    Seals, checks and verifications hash them until they are whole.

    Args:
        instance: The instance that has the checks' results.
        plan: The plan.
    """
    checks = [
        dg.AssetCheckKey(asset_key(plan, asset), name)
        for asset in chunk_assets(plan)
        for name in (FILES, "chunk_checksum")
    ]
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


def head_findings(plan: Plan, state: State, report: Report) -> dict[str, Finding]:
    """Return what a verification found in the newest state, by check of `manifest`."""
    damage = [fault for fault in report.faults if fault.is_damage and not fault.revisions]
    files = {fault.object for fault in damage if chunk_of(fault.object) is not None and not is_receipt(fault.object)}
    unsealed = None if state.sealed else _NOT_SEALED
    return {
        CHECKSUM: _finding(
            plan, _checksum_faults(state, [fault for fault in damage if fault.object not in files]), unsealed
        ),
        INTACT: _finding(plan, [fault for fault in damage if fault.object in files]),
        COVERAGE: replace(_finding(plan, coverage_faults(plan, state)), severity=coverage_severity(state)),
    }


def _finding(plan: Plan, faults: Sequence[Fault], otherwise: str | None = None) -> Finding:
    return Finding(faults, remedy(plan, faults) or otherwise)


def remedy(plan: Plan, faults: Sequence[Fault]) -> str | None:
    """Return what repairs faults of a plan's location; None without any."""
    if not faults:
        return None
    if all(fault.kind is FaultKind.COVERAGE for fault in faults):
        late = [fault.message for fault in faults if fault.chunk is None]
        return " ".join((*late, "Materialise the missing partitions, or run the export job, which exports them."))
    chunks = sorted({fault.chunk for fault in faults if fault.chunk is not None})
    if not chunks:
        return "Materialise manifest; if that fails, snapshots export verify names what to do."
    names = [key_of_chunk(plan, chunk) or "untimed_tables" for chunk in chunks[:10]]
    which = ", ".join(names) + (", …" if len(chunks) > 10 else "")
    return f"Materialise again what is damaged: {which}. A run exports damaged chunks again."


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
    verified = made.metadata["verified_before"].value  # text; a number in events of earlier releases
    assert isinstance(verified, str | int)
    return files_after_seal(state, now, int(verified))


def _checksum_faults(state: State, faults: list[Fault]) -> list[Fault]:
    if not state.sealed or state.newest_seal is None:
        return faults
    found, expected = checksum_of(state), state.newest_seal.seal.checksum
    if found != expected:
        message = f"The snapshot has checksum {found}; its seal records {expected}."
        return [*faults, Fault(FaultKind.SNAPSHOT_CHECKSUM, MANIFEST, message)]
    return faults


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
            judged = [(chunk, *judge(chunk)) for chunk in chosen]
            # Failed ones last: the overview of the check shows its newest result.
            for chunk, passed, metadata, remedy in sorted(judged, key=itemgetter(1), reverse=True):
                partition = key_of_chunk(plan, chunk) if partitioned else None
                yield check_event(
                    context.instance,
                    key,
                    partition,
                    passed=passed,
                    metadata=metadata,
                    description=remedy or description,
                )
        yield dg.Output(None)

    return check


def _chosen(context: dg.AssetCheckExecutionContext, plan: Plan, known: Sequence[int]) -> list[int]:
    chunks = chunks_of_run(context, plan)
    return [chunk for chunk in known if chunk != UNTIMED_CHUNK] if chunks is None else chunks


@contextmanager
def _judging(
    check: ChunkCheck, context: dg.AssetCheckExecutionContext, plan: Plan
) -> Iterator[tuple[Sequence[int], Judge]]:
    """Open the judge of a check: a chunk passes if the check finds no fault."""
    store, state = _read(context, plan)

    def judge(chunk: int) -> tuple[bool, Mapping[str, Any], str | None]:
        faults = check(store, state, chunk)
        return not faults, fault_metadata(faults), REPAIR if faults else None

    yield [chunk for chunk in state.expected_chunks() if state.completed(chunk)], judge


def _read(context: dg.AssetCheckExecutionContext, plan: Plan) -> tuple[ObjectStore, State]:
    store = snapshots_of(context).store(plan.name)
    return store, Catalog.open(store).require_snapshot()
