"""Results of asset checks, which runs record for all that they hash: exports, seals, checks and verifications."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter

import dagster as dg

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.faults import Fault, FaultKind
from snapshot_assets.catalog.verify.objects import Report
from snapshot_assets.engine.export.tasks import Outcome
from snapshot_assets.errors import IncompleteError
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
from snapshot_assets.pipeline.dagster.metadata import fault_metadata, with_sizes
from snapshot_assets.pipeline.dagster.partitions import asset_key, chunk_assets, key_of_chunk
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
_READ = "The run hashed the files, which are whole, and did not export them again."

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


def record_written(context: Context, key: dg.AssetKey, plan: Plan, outcomes: Sequence[Outcome]) -> None:
    """Record `file_checksums` of the chunks whose files a run hashed, as it wrote or read them, or found damaged.

    Args:
        context: The step or output.
        key: The asset that has the partitions.
        plan: The plan.
        outcomes: The chunks.
    """
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
    check = dg.AssetCheckKey(key, FILES)
    store_results(context, check_events(instance_of(context), check, results))


def record_report(context: StepContext, plan: Plan, state: State, report: Report, whole: str) -> None:
    """Record what a verification found, as results of the checks of chunks and of `manifest`.

    Args:
        context: The step.
        plan: The plan.
        state: The newest state of its location.
        report: The verification of that state.
        whole: Describes the results of what is whole.
    """
    record_chunks(context, plan, state, report, whole)
    manifest, read = asset_key(plan, "manifest"), with_sizes({"hashed_bytes": report.bytes})
    for name, found in head_findings(plan, state, report).items():
        facts, text = fault_metadata(found.faults) | read, found.description or whole
        result = CheckResult(None, not found.faults, facts, text, found.severity)
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
        results.sort(key=attrgetter("passed"), reverse=True)  # the overview of a check shows its newest result
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
        COVERAGE: replace(_finding(plan, _coverage_faults(plan, state)), severity=_coverage_severity(state)),
    }


def _coverage_faults(plan: Plan, state: State) -> list[Fault]:
    """Return a fault for each window of the snapshot's range that is missing, and one for windows after it.

    The range of a continuous plan ends with the windows that the last export knew. Those that have closed since are not
    exported, except the newest: the next export may be at it.

    Args:
        plan: The plan.
        state: The newest state of its location.
    """
    faults = [Fault(FaultKind.COVERAGE, f"data/{n}", f"Chunk {n} is not exported.", n) for n in state.missing()]
    if plan.kind != "continuous":
        return faults
    known = set(state.expected_chunks())
    late = [window for window in windows_of(plan)[:-1] if window.id not in known]
    if late:
        message = f"{counted(len(late), 'window')} from {time_text(late[0].start)} on closed and were never exported."
        faults.append(Fault(FaultKind.COVERAGE, MANIFEST, message))
    return faults


def _coverage_severity(state: State) -> dg.AssetCheckSeverity:
    """Return how severe the faults of `coverage` are: windows after the range only warn, as the snapshot is whole."""
    return dg.AssetCheckSeverity.ERROR if state.missing() else dg.AssetCheckSeverity.WARN


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


def _checksum_faults(state: State, faults: list[Fault]) -> list[Fault]:
    if not state.sealed or state.newest_seal is None:
        return faults
    found, expected = checksum_of(state), state.newest_seal.seal.checksum
    if found != expected:
        message = f"The snapshot has checksum {found}; its seal records {expected}."
        return [*faults, Fault(FaultKind.SNAPSHOT_CHECKSUM, MANIFEST, message)]
    return faults
