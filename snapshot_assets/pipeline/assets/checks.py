"""Asset checks, and their results, which runs record for all that they hash: exports, seals and verifications.

Checks only report: the manifest verifies the snapshot itself.
"""

# Dagster reads the annotations of checks, so they must not be postponed here.
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime

import dagster as dg

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.faults import Fault, FaultKind
from snapshot_assets.catalog.verify.objects import (
    Report,
    check_chunk_checksum,
    check_head,
    damaged_chunks,
    files_after_seal,
    files_to_seal,
    verified_revision,
)
from snapshot_assets.catalog.verify.records import damage_on_record, record_verification
from snapshot_assets.engine.export.tasks import Outcome
from snapshot_assets.errors import IncompleteError, PlanError
from snapshot_assets.format.layout import MANIFEST, UNTIMED_CHUNK, chunk_of, is_receipt
from snapshot_assets.format.units import counted, time_text
from snapshot_assets.pipeline.dagster.dagster_internals import (
    CheckResult,
    Context,
    StepContext,
    check_events,
    failed_partitions,
    instance_of,
    passing_partitions,
    store_results,
)
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
from snapshot_assets.plan.windows import windows_of
from snapshot_assets.storage.base import ObjectStore

CHECKSUM, INTACT, COVERAGE, FILES = "snapshot_checksum", "files_intact", "coverage", "file_checksums"
_NOT_SEALED = (
    "The newest state is not sealed yet, so there is no checksum of it; its documents are whole. Once every window is"
    " exported, materialise manifest, or run the export job: both seal it."
)

FOUND_BY_SEAL = "The seal hashed the files that it had to read, and found all whole."
_WRITTEN = "The run hashed the files as it wrote them; a seal reads them again."
_WRITTEN_BESIDE = "The run hashed the files as it wrote them; the others were whole when they were last hashed."
_READ = "The run hashed the files, which are whole, and did not export them again."

# Dagster shows a result's description as it is, without Markdown.
REPAIR = (
    "Materialise this partition again. A run exports a chunk whose files are damaged again, without replace. Then"
    " materialise manifest, which seals the repaired snapshot."
)


def record_written(context: Context, key: dg.AssetKey, plan: Plan, outcomes: Sequence[Outcome]) -> None:
    """Record `file_checksums` of the chunks whose files a run hashed, as it wrote or read them, or found damaged."""
    check = dg.AssetCheckKey(key, FILES)
    results = [
        CheckResult(
            key_of_chunk(plan, outcome.chunk),
            outcome.error is None,
            fault_metadata(outcome.faults) if outcome.error else with_sizes({"hashed_bytes": outcome.bytes}),
            REPAIR if outcome.error else _READ if outcome.status == "present" else _WRITTEN,
        )
        for outcome in outcomes
        if (outcome.faults if outcome.error else outcome.hashed)
    ]
    kept = [key_of_chunk(plan, each.chunk) for each in outcomes if each.status == "replaced" and not each.hashed]
    if kept:  # some files stay: the result of before stays, too, beside the new materialization
        before = passing_partitions(instance_of(context), check, current=False)
        results += [CheckResult(partition, True, {}, _WRITTEN_BESIDE) for partition in kept if partition in before]
    store_results(context, check_events(instance_of(context), check, results))


def record_report(context: StepContext, plan: Plan, state: State, report: Report, whole: str) -> None:
    """Record a verification of the newest state, as results of the checks of chunks and of `manifest`.

    Args:
        context: The step.
        plan: The plan.
        state: The newest state of its location.
        report: The verification.
        whole: Describes the results of what is whole.
    """
    record_chunks(context, plan, state, report, whole)
    manifest, read = asset_key(plan, "manifest"), with_sizes({"hashed_bytes": report.bytes})
    for name, found in head_results(plan, state, report).items():
        result = replace(found, metadata={**found.metadata, **read}, description=found.description or whole)
        store_results(context, check_events(context.instance, dg.AssetCheckKey(manifest, name), [result]))


def record_chunks(context: StepContext, plan: Plan, state: State, report: Report, whole: str) -> None:
    """Record `file_checksums` of the chunks that are damaged, and of those whose files a verification hashed.

    Dagster stores every result by itself, so those are left out that would show again what the UI shows already.
    """
    damaged: dict[int, list[Fault]] = {}
    for fault in report.faults:
        if fault.is_damage and not fault.revisions and fault.chunk is not None and state.completed(fault.chunk):
            damaged.setdefault(fault.chunk, []).append(fault)
    unread = {known.file.chunk for known in state.live_files() if known.file.path not in report.paths}
    for asset in chunk_assets(plan):
        check = dg.AssetCheckKey(asset_key(plan, asset), FILES)
        passing, shown = passing_partitions(context.instance, check), failed_partitions(context.instance, check)
        results = []
        for chunk in state.expected_chunks():
            key, faults = key_of_chunk(plan, chunk), damaged.get(chunk, [])
            of_asset = (chunk == UNTIMED_CHUNK) == (asset == "untimed_tables") and state.completed(chunk)
            if of_asset and (faults or not (chunk in unread or key in passing)):
                results.append(CheckResult(key, not faults, fault_metadata(faults), REPAIR if faults else whole))
        events = check_events(context.instance, check, results)
        shown |= {event.partition for event in events if event.target_materialization_data or not event.passed}
        store_results(context, (event for event in events if event.partition in shown))


@contextmanager
def recording_damage(context: StepContext, plan: Plan, store: ObjectStore) -> Iterator[None]:
    """Record the damage that keeps a state from being sealed inside the context, and raise the seal's error."""
    try:
        yield
    except IncompleteError as error:
        if report := error.attributes.get("report"):
            record_report(context, plan, Catalog.open(store).state, report, FOUND_BY_SEAL)
        raise


def head_results(plan: Plan, state: State, report: Report) -> dict[str, CheckResult]:
    """Return the results of the checks of `manifest`, of a verification of the newest state.

    Only where a state is as its check expects, the result has no description.
    """
    damage = [fault for fault in report.faults if fault.is_damage and not fault.revisions]
    files = {fault.object for fault in damage if chunk_of(fault.object) is not None and not is_receipt(fault.object)}
    documents = [fault for fault in damage if fault.object not in files]
    if state.sealed and state.newest_seal is not None:
        found, expected = checksum_of(state), state.newest_seal.seal.checksum
        if found != expected:
            message = f"The snapshot has checksum {found}; its seal records {expected}."
            documents.append(Fault(FaultKind.SNAPSHOT_CHECKSUM, MANIFEST, message))
    faults_of = {
        CHECKSUM: documents,
        INTACT: [fault for fault in damage if fault.object in files],
        COVERAGE: _coverage_faults(plan, state),
    }
    results = {
        name: CheckResult(None, not faults, fault_metadata(faults), remedy(plan, faults))
        for name, faults in faults_of.items()
    }
    if not documents and not state.sealed:
        results[CHECKSUM] = replace(results[CHECKSUM], description=_NOT_SEALED)
    if not state.missing():  # windows after the range only warn, as the snapshot is whole
        results[COVERAGE] = replace(results[COVERAGE], severity=dg.AssetCheckSeverity.WARN)
    return results


def _coverage_faults(plan: Plan, state: State) -> list[Fault]:
    """Return a fault for each window of the snapshot's range that is missing, and one for windows after it."""
    faults = [Fault(FaultKind.COVERAGE, f"data/{n}", f"Chunk {n} is not exported.", n) for n in state.missing()]
    if plan.kind == "continuous":
        # The range ends with the windows that the last export knew. Those that have closed since are not exported,
        # except the newest: the next export may be at it.
        known = set(state.expected_chunks())
        late = [window for window in windows_of(plan)[:-1] if window.id not in known]
        if late:
            since = time_text(late[0].start)
            message = f"{counted(len(late), 'window')} from {since} on closed and were never exported."
            faults.append(Fault(FaultKind.COVERAGE, MANIFEST, message))
    return faults


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


Judge = Callable[[dg.AssetCheckExecutionContext, Plan, Sequence[int] | None], Iterable[CheckResult]]
"""Returns the result of each chunk, without chunks of each window; by default it is described as the check is."""

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
    return [chunk_check(plan, asset, FILES, description, _judge_files) for asset in chunk_assets(plan)]


def failed_chunks(instance: dg.DagsterInstance, plan: Plan) -> set[int]:
    """Return the chunks whose newest check result is a failure: seals and checks hash them until they are whole."""
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
        for name, found in head_results(plan, state, report).items():
            if name in selected:
                read = with_sizes({"hashed_bytes": report.bytes}) if name == INTACT else {}
                yield dg.AssetCheckResult(
                    asset_key=manifest,
                    check_name=name,
                    passed=found.passed,
                    severity=found.severity,
                    metadata={**found.metadata, **read},
                    description=found.description or _OF_MANIFEST[name],
                )

    return [whole]


def _to_hash(context: dg.AssetCheckExecutionContext, plan: Plan, state: State) -> set[str]:
    """Return the paths of files to hash, without those that this run's seal hashed."""
    now = datetime.now(UTC)
    records = context.instance.fetch_materializations(asset_key(plan, "manifest"), limit=1).records
    made = records[0].asset_materialization if records and records[0].run_id == context.run.run_id else None
    if made is None:
        return files_to_seal(state, now, 0 if plan.seal_verify == "full" else verified_revision(state))
    verified = made.metadata["verified_before"].value  # text; a number in events of earlier releases
    assert isinstance(verified, str | int)
    return files_after_seal(state, now, int(verified))


def chunk_check(
    plan: Plan,
    asset: str,
    name: str,
    description: str,
    judge: Judge,
    *resources: str,
    pool: str | None = None,
) -> dg.AssetChecksDefinition:
    """Return a check that judges chunks by themselves: of each partition, or of chunk 0 for other assets.

    A run without partitions, such as that of all checks of an asset, judges all chunks that there are.
    """
    key = dg.AssetCheckKey(asset_key(plan, asset), name)
    partitioned = asset in ("chunks", "restored") and not name.startswith("untimed_")

    @dg.asset_check(  # type: ignore[arg-type]  # Dagster accepts generators of evaluations; its stub does not
        asset=key.asset_key,
        name=name,
        description=description,
        partitions_def=partitions_of(plan) if partitioned else None,
        required_resource_keys={SNAPSHOTS, *resources},
        pool=pool,
    )
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckEvaluation | dg.Output[None]]:
        # One evaluation per key: an AssetCheckResult loses its partition in a range run.
        with showing_failures():
            chunks = chunks_of_run(context, plan) if partitioned else [UNTIMED_CHUNK]
            judged = judge(context, plan, chunks)
            results = [replace(each, description=each.description or description) for each in judged]
            yield from check_events(context.instance, key, results)
        yield dg.Output(None)

    return check


def not_exported(plan: Plan, chunk: int) -> CheckResult:
    """Return the result of a check that compares a chunk with the source, for one that is not completed."""
    text = "It is not exported. Materialise it, or run the export job."
    return CheckResult(key_of_chunk(plan, chunk), False, {}, text, dg.AssetCheckSeverity.WARN)


def _judge_files(
    context: dg.AssetCheckExecutionContext, plan: Plan, chunks: Sequence[int] | None
) -> Iterator[CheckResult]:
    """Judge chunks by `file_checksums`; the files of all are listed and hashed together."""
    store, state = _read(context, plan)
    if chunks is None:
        chunks = [chunk for chunk in state.expected_chunks() if chunk != UNTIMED_CHUNK and state.completed(chunk)]
    damaged = damaged_chunks(store, state, [chunk for chunk in chunks if state.completed(chunk)], hashed=True)
    for chunk in chunks:
        if state.completed(chunk):
            faults = [*damaged.get(chunk, ()), *check_chunk_checksum(state, chunk)]
        else:
            faults = [Fault(FaultKind.COVERAGE, f"data/{chunk}", f"Chunk {chunk} is not completed.", chunk)]
        yield CheckResult(key_of_chunk(plan, chunk), not faults, fault_metadata(faults), REPAIR if faults else None)


def _read(context: dg.AssetCheckExecutionContext, plan: Plan) -> tuple[ObjectStore, State]:
    store = snapshots_of(context).store(plan.name)
    return store, Catalog.open(store).require_snapshot()
