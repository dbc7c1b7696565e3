"""The check `current`: whether the rows in the source are still those that were exported.

Plans that follow a database look for changes there. Of an asset as the source, Dagster knows the versions of what it
was made from.
"""

# Dagster reads the annotations of checks, so they must not be postponed here.
from collections.abc import Iterator, Sequence, Set
from typing import TYPE_CHECKING, Any

import dagster as dg

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import table_text
from snapshot_assets.pipeline.assets.checks import chunk_check, not_exported
from snapshot_assets.pipeline.dagster.dagster_internals import (
    CheckResult,
    Context,
    changed_inputs,
    check_events,
    instance_of,
    passing_partitions,
    store_events,
    store_results,
)
from snapshot_assets.pipeline.dagster.metadata import first_rows, with_sizes
from snapshot_assets.pipeline.dagster.partitions import asset_key, chunk_assets, key_of_chunk
from snapshot_assets.pipeline.dagster.resources import snapshots_of
from snapshot_assets.plan.plan import Plan

if TYPE_CHECKING:  # Arrow, which definitions do not load
    from snapshot_assets.engine.export.changes import Changes
    from snapshot_assets.engine.export.parts import Part

CURRENT = "current"
_CHECK = (
    "The rows in the source are those that were exported. The check only looks; the export job exports others again."
)
_EXPORT_AGAIN = "The rows changed since they were exported. Run the export job, as its schedule does."
_UNCHANGED = "The run looked for changes in the source, and found none."
_EXPORTED = "The rows had changed in the source, and the run exported them again."


_CHECK_OF_ASSET = "What each partition was made from has the same versions in Dagster as when it was exported."
_MAKE_AGAIN = "It was made from other versions. Materialise the partition with `replace: true`."
_UNKNOWN = "Dagster has no record of what the exported rows were made from."


def current_checks(plan: Plan, spark_key: str) -> list[dg.AssetChecksDefinition]:
    """Return the check `current` of the plan's `chunk_assets`, if it follows its source, or that is an asset."""
    if plan.source_asset:
        return [chunk_check(plan, "chunks", CURRENT, _CHECK_OF_ASSET, _judge_inputs)]
    if plan.late_windows != "changed":
        return []
    return [chunk_check(plan, asset, CURRENT, _CHECK, _judge_current, spark_key) for asset in chunk_assets(plan)]


def _judge_inputs(
    context: dg.AssetCheckExecutionContext, plan: Plan, chunks: Sequence[int] | None
) -> Iterator[CheckResult]:
    """Judge partitions of the asset that is the source, by the versions of what they were made from.

    Of an asset without upstream assets, Dagster knows none: there is no result.
    """
    state = Catalog.open(snapshots_of(context).store(plan.name)).require_snapshot()
    if chunks is None:
        chunks = [chunk for chunk in state.expected_chunks() if state.completed(chunk)]
    keys = [str(key_of_chunk(plan, chunk)) for chunk in chunks]
    own = asset_key(plan, "chunks")
    found = changed_inputs(context, own, keys)
    for chunk, (record, changed, unknown) in zip(chunks, found, strict=True):
        if own in unknown:
            continue
        if not state.completed(chunk):
            yield not_exported(plan, chunk)
            continue
        facts = {"changed": _texts(changed), "unknown": _texts(unknown)}
        text = _MAKE_AGAIN if changed else _UNKNOWN if unknown or not _is_of(state, chunk, record) else None
        passed, partition = text is None, key_of_chunk(plan, chunk)
        yield CheckResult(partition, passed, {} if passed else facts, text, dg.AssetCheckSeverity.WARN)


def _texts(keys: Set[dg.AssetKey]) -> list[str]:
    return sorted(key.to_user_string() for key in keys)


def _is_of(state: State, chunk: int, record: dg.EventLogRecord | None) -> bool:
    """Return whether a materialization is that of a chunk's export; compactions keep the rows, and not the checksum."""
    event = record.asset_materialization if record else None
    known = state.chunks[chunk].chunk
    if event is None or event.metadata["snapshot_id"].value != state.snapshot_id:
        return False
    return bool(known.exported) or event.metadata["chunk_checksum"].value == known.checksum


def _judge_current(
    context: dg.AssetCheckExecutionContext, plan: Plan, chunks: Sequence[int] | None
) -> Iterator[CheckResult]:
    """Look for changes in chunks, and judge them; nothing is written."""
    from snapshot_assets.engine.export.changes import chunks_to_look_at, find_changes

    snapshots = snapshots_of(context)
    with snapshots.export_run(plan.name).look() as opened:
        state = opened.catalog.state
        if chunks is None:
            chunks = [chunk for chunk in chunks_to_look_at(state, plan, snapshots.started) if chunk != UNTIMED_CHUNK]
        with snapshots.counting("looking for changes", len(chunks), context.log.info):
            changes = find_changes(opened, chunks, snapshots.stage)
    context.log.info(f"{changes}.")
    for chunk in chunks:
        changed, partition = [part for part in changes.changed if part.chunk == chunk], key_of_chunk(plan, chunk)
        if state.completed(chunk):
            text = _EXPORT_AGAIN if changed else None
            yield CheckResult(partition, not changed, _differing(changed), text, dg.AssetCheckSeverity.WARN)
        else:
            yield not_exported(plan, chunk)


def record_changes(context: Context, key: dg.AssetKey, plan: Plan, changes: "Changes", exported: Set[int]) -> None:
    """Record what a run found that looked for changes: results of `current`, and an observation of the asset.

    Results that would show again what the UI shows already are left out, since Dagster stores each by itself.

    Args:
        context: The step.
        key: The asset of the chunks.
        plan: The plan.
        changes: What was found.
        exported: The chunks that the run committed since.
    """
    instance, check = instance_of(context), dg.AssetCheckKey(key, CURRENT)
    of_chunk: dict[int, list[Part]] = {part.chunk: [] for part in changes.parts}
    for part in changes.changed:
        of_chunk[part.chunk].append(part)
    passing, results = passing_partitions(instance, check), []
    for chunk, changed in of_chunk.items():
        passed, partition = not changed or chunk in exported, key_of_chunk(plan, chunk)
        if not (passed and partition in passing):
            text = (_EXPORTED if passed else _EXPORT_AGAIN) if changed else _UNCHANGED
            facts = _differing(changed)
            results.append(CheckResult(partition, passed, facts, text, dg.AssetCheckSeverity.WARN))
    if plan.late_windows == "changed":  # else there is no such check
        store_results(context, check_events(instance, check, results))
    store_events(context, [dg.AssetObservation(key, metadata=_metadata(changes, exported))])


def _metadata(changes: "Changes", exported: Set[int]) -> dict[str, Any]:
    """Return what a run looked at, what had changed, and what it did not have to copy."""
    changed = {part.chunk for part in changes.changed}
    kept = (file.bytes for part in changes.parts if not part.changed for file in part.files)
    facts: dict[str, Any] = {
        "looked_at": changes.chunks,
        "compared_by_value": changes.compared,
        "changed": len(changed),
        "exported": len(changed & exported),
        "bytes_not_copied": sum(kept),
    }
    return with_sizes(facts | _differing(changes.changed))


def _differing(parts: Sequence["Part"]) -> dict[str, Any]:
    """Return the metadata of tables whose rows changed; nothing if there is none."""
    rows = (row_of(part, part.answer.found, reason=part.answer.reason) for part in parts)
    return {"changes": first_rows(rows)} if parts else {}


def row_of(part: "Part", found: int | None, **result: str) -> dict[str, Any]:
    """Return a part as the row of a table: its place, the result about it, and its rows at the export and now."""
    counts = {"exported_rows": part.exported, "rows_now": "not counted" if found is None else str(found)}
    return place_of(part) | result | counts


def place_of(part: "Part") -> dict[str, Any]:
    """Return where a part is, for a row of a table."""
    return {"window": part.window or "untimed", "table": table_text(part.table)}
