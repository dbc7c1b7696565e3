"""Metadata of chunks, seals, checks and jobs in Dagster's UI, and the materializations of chunks and seals.

Dagster plots numbers. Numbers are rows, bytes, seconds and rates only. Ids, revisions and all other counts are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import dagster as dg

from snapshot_assets.catalog.manifest import consistency_text, manifest_of
from snapshot_assets.catalog.operations.garbage import GarbagePlan
from snapshot_assets.catalog.operations.maintain_log import WrittenCheckpoint
from snapshot_assets.catalog.operations.seal import Sealed
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.totals import outside_text, rows_outside
from snapshot_assets.catalog.verify.faults import Fault
from snapshot_assets.engine.export.tasks import Outcome
from snapshot_assets.format.kinds import capital, counts_by_kind, counts_text, kind_of_object
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import table_text
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import counted, duration_text, human_bytes, time_text
from snapshot_assets.pipeline.dagster.dagster_internals import Context, store_events
from snapshot_assets.pipeline.dagster.partitions import CODE_VERSION, key_of_chunk
from snapshot_assets.plan.plan import Plan

if TYPE_CHECKING:
    from snapshot_assets.engine.compact.plan import CompactionPlan
    from snapshot_assets.engine.compact.run import Compacted
    from snapshot_assets.engine.export.run import OpenExport
    from snapshot_assets.engine.restore.plan import RestorePlan
    from snapshot_assets.engine.restore.steps import FailedStep

NEVER_SEEN = "INITIAL"
"""Dagster's data version of an asset that it never saw materialized or observed."""
_PLOTTED = frozenset(("rows", "row", "record", "bytes", "seconds", "second"))
"""Words in the names of numbers that stay numbers."""

_MIB = 1 << 20
_MOST_ROWS = 50
_DIGITS = 12
"""Digits of a SHA-256 in a table: all 64 would make it scroll. `SHA256SUMS` and the log have them."""
_HOW_TO_REPLACE = (
    "Completed before, and its files are whole. To export it again, for example for late rows, materialise it with run"
    " config `replace: true`."
)


def with_sizes(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata with a text such as `size: 1.2 MiB` after each number of bytes, and with counts as text.

    Dagster plots each number, and its course is of interest only for rows, bytes, seconds and rates.
    """
    shown: dict[str, Any] = {}
    for name, value in metadata.items():
        words = set(re.split("[/_]", name))
        counts = isinstance(value, int) and not isinstance(value, bool) and not words & _PLOTTED
        shown[name] = str(value) if counts else value
        if "bytes" in words:
            shown[name.replace("bytes", "size")] = human_bytes(value)
    return shown


def rates(rows: int, size: int, seconds: float) -> dict[str, float]:
    """Return the metadata of the time that a chunk took, with its rates; nothing if it took no time."""
    if not seconds:
        return {}
    return {
        "seconds": round(seconds, 3),
        "rows_per_second": round(rows / seconds, 1),
        "mib_per_second": round(size / seconds / _MIB, 3),
    }


def chunk_metadata(outcome: Outcome, state: State) -> dict[str, Any]:
    """Return the metadata of one chunk's materialization; the UI shows it in this order."""
    known = state.chunks.get(outcome.chunk)
    whole = outcome.chunk == UNTIMED_CHUNK  # of an asset without partitions
    metadata: dict[str, Any] = {
        "status": outcome.status,
        "dagster/row_count" if whole else "dagster/partition_row_count": outcome.rows,
        "size": human_bytes(outcome.bytes),
        "chunk_checksum": known.chunk.checksum if known else "",
        "bytes": outcome.bytes,
        "file_count": len(outcome.files),
        **rates(outcome.rows, outcome.bytes, outcome.seconds),
        "chunk": str(outcome.chunk),
        "snapshot_id": state.snapshot_id,
    }
    if outcome.status == "present":
        metadata["how_to_replace"] = dg.MetadataValue.md(_HOW_TO_REPLACE)
    if outcome.faults:
        metadata |= {"repaired": len(outcome.faults), "damage": _fault_rows(outcome.faults)}
    if outcome.files:
        metadata["files"] = first_rows(
            {
                "path": file.path,
                "table": f"{file.schema}.{file.table}",
                "rows": file.rows,
                "bytes": file.bytes,
                "sha256": f"{file.sha256[:_DIGITS]}…",
            }
            for file in outcome.files
        )
    return with_sizes(metadata)


def first_rows(rows: Iterable[Mapping[str, Any]]) -> dg.TableMetadataValue:
    """Return a table of the first 50 rows."""
    return dg.MetadataValue.table([dg.TableRecord(row) for row in islice(rows, _MOST_ROWS)])


def seal_metadata(sealed: Sealed, state: State, uri: str) -> dict[str, Any]:
    """Return the metadata of the manifest's materialization."""
    manifest = manifest_of(state)
    files = [file for chunk in manifest["chunks"] for file in chunk["files"]]
    chunks = {chunk["id"] for chunk in manifest["chunks"]}
    metadata = {
        "summary": dg.MetadataValue.md(_seal_summary(state, manifest, files)),
        "location": dg.MetadataValue.text(uri),
        "snapshot_id": state.snapshot_id,
        "revision": str(sealed.seal.revision),
        "snapshot_checksum": sealed.seal.seal.checksum,
        "consistency": sealed.seal.seal.consistency,
        "dagster/row_count": manifest["rows"],
        "chunk_count": len(chunks),
        "empty_window_count": sum(1 for window in state.windows() if window.id not in chunks),
        "file_count": len(files),
        "bytes": sum(file["bytes"] for file in files),
        "rows_outside": sum(table["rows_outside"] for table in manifest["tables"]),
        "verified_bytes": sealed.verified_bytes,
        "sampled_bytes": sealed.sampled_bytes,
        "verified_before": sealed.verified_before,
        "newly_sealed": sealed.new,
    }
    if sealed.iceberg:
        columns = ("table", "folder", "metadata")
        metadata["iceberg_tables"] = first_rows({name: each[name] for name in columns} for each in sealed.iceberg)
    if tables := rows_outside(state):
        metadata |= {"not_exported": outside_text(state), "rows_outside_by_table": first_rows(map(vars, tables))}
    return with_sizes(metadata)


def _seal_summary(state: State, manifest: Mapping[str, Any], files: Sequence[Mapping[str, Any]]) -> str:
    """Return what a seal contains, in Markdown: a sentence, and the first 50 tables with their rows."""
    tables, times = manifest["tables"], " to ".join(manifest["time_range"].values())
    size = sum(file["bytes"] for file in files)
    lines = [
        f"Revision {manifest['revision']}: {counted(manifest['rows'], 'row')} in {counted(len(tables), 'table')},"
        f" {human_bytes(size)} in {counted(len(files), 'file')}."
    ]
    if times:
        lines[0] += f" From {times}."
    lines[0] += f" {capital(consistency_text(state))}."
    if tables:
        lines += ["", "| table | rows |", "| --- | --- |"]
        for each in tables[:_MOST_ROWS]:
            lines.append(f"| {_code(str(TableName(each['schema'], each['table'])))} | {each['rows']:,} |")
    return "\n".join(lines)


def schema_metadata(export: OpenExport) -> dict[str, Any]:
    """Return the metadata of the schema's materialization."""
    state = export.catalog.state
    lines = ["| table | time index | columns | primary key |", "| --- | --- | --- | --- |"]
    for table in export.schema.tables:
        key = ", ".join(map(_code, table.primary_key.columns)) if table.primary_key else ""
        index = _code(table.time_index) if table.time_index else "none: in `untimed_tables`"
        lines.append(f"| {_code(str(table.table_name))} | {index} | {len(table.columns)} | {key} |")
    return with_sizes(
        {
            **({"hidden": list(state.header.hidden)} if state.header and state.header.hidden else {}),
            "tables_skipped": [table_text(name) for name in export.skipped],
            "snapshot_id": state.snapshot_id,
            "schema_id": str(state.schema_id),
            "folder": state.schemas[state.schema_id].folder,
            "table_count": len(export.schema.tables),
            "view_count": len(export.schema.views),
            "tables": dg.MetadataValue.md("\n".join(lines)),
        }
    )


def _code(name: str) -> str:
    """Return a name as Markdown shows it in a table."""
    return f"`{name}`".replace("|", "\\|")


def restored_schema(plan: RestorePlan, failed: Sequence[FailedStep]) -> dict[str, Any]:
    """Return the metadata of a restored schema: what was made, what failed, and what no restore carries over."""
    made = counts_by_kind(step.kind for step in plan.steps.made())
    facts: dict[str, Any] = {"steps_made": sum(made.values()), "steps_failed": len(failed)}
    if made:
        facts["made"] = counts_text(made)
    if failed:
        facts["failed_steps"] = failed_steps([each.facts for each in failed])
    if plan.absent:
        facts["tables_not_made"] = sorted(map(table_text, plan.absent))
    if plan.lost:
        facts["not_carried"] = counts_text(counts_by_kind(map(kind_of_object, plan.lost)))
        facts["not_carried_objects"] = first_rows({"what": what} for what in plan.lost)
    return with_sizes(facts)


def failed_steps(steps: Iterable[Mapping[str, Any]]) -> dg.TableMetadataValue:
    """Return a table of the first 50 steps of a schema that failed, given as JSON has them."""
    return first_rows(
        {"object": each["object"], "message": each["message"], "statements": "; ".join(each["statements"])}
        for each in steps
    )


def fault_metadata(faults: Sequence[Fault]) -> dict[str, Any]:
    """Return the metadata of a check: the number of faults, and the first 50; nothing without any."""
    return with_sizes({"faults": len(faults), "first_faults": _fault_rows(faults)}) if faults else {}


def _fault_rows(faults: Sequence[Fault]) -> dg.TableMetadataValue:
    return first_rows({"object": fault.object, "kind": str(fault.kind), "message": fault.message} for fault in faults)


def checkpoint_metadata(written: WrittenCheckpoint) -> dict[str, Any]:
    """Return the metadata of a run that wrote a checkpoint, or found it there."""
    facts: dict[str, Any] = {"revision": str(written.revision), "object": written.path, "bytes": written.bytes}
    facts["newly_written"] = written.new
    return with_sizes(facts | ({"mended": list(written.mended)} if written.mended else {}))


def garbage_metadata(plan: GarbagePlan, *, dry_run: bool) -> dict[str, Any]:
    """Return the metadata of a garbage collection: counts by reason, and the first 50 objects."""
    metadata: dict[str, Any] = {
        "dry_run": dry_run,
        "objects": len(plan.deleted),
        "bytes": sum(each.bytes for each in plan.deleted),
        "waiting_objects": len(plan.waiting),
        "waiting_bytes": sum(each.bytes for each in plan.waiting),
        "retained_objects": len(plan.retained),
        "retained_bytes": sum(each.bytes for each in plan.retained),
        "foreign_objects": len(plan.foreign),
        "grace": duration_text(plan.grace),
    }
    for reason in sorted({each.reason for each in plan.deleted}):
        metadata[f"{reason}_bytes"] = sum(each.bytes for each in plan.deleted if each.reason == reason)
    if plan.deleted:
        metadata["garbage"] = first_rows(
            {"object": each.path, "bytes": each.bytes, "reason": each.reason, "since": time_text(each.since)}
            for each in plan.deleted
        )
    return with_sizes(metadata)


def plan_metadata(plan: CompactionPlan) -> dict[str, Any]:
    """Return the metadata of a planned compaction."""
    metadata: dict[str, Any] = {"dry_run": True, "files_before": plan.files_before, "bytes_before": plan.bytes_before}
    if plan.groups:
        metadata["groups"] = first_rows(
            {
                "chunk": group.chunk,
                "table": table_text(group.table.table_name),
                "files": len(group.files),
                "bytes": group.bytes,
                "reasons": ", ".join(group.reasons),
            }
            for group in plan.groups
        )
    return with_sizes(metadata)


def compaction_metadata(outcomes: Sequence[Compacted]) -> dict[str, Any]:
    """Return the metadata of a compaction: sums, and the first 50 chunks."""
    from snapshot_assets.engine.compact.run import totals_of

    metadata: dict[str, Any] = {"dry_run": False, "chunk_count": len(outcomes), **totals_of(outcomes)}
    if outcomes:
        metadata["chunks"] = first_rows(
            {"chunk": each.chunk, "status": each.status, **totals_of([each])} for each in outcomes
        )
    return with_sizes(metadata)


def report_chunks(
    context: Context,
    key: dg.AssetKey,
    plan: Plan,
    outcomes: Iterable[Outcome],
    state: State,
    made_from: Mapping[str, str],
) -> None:
    """Store the materializations of the partitions of a transaction's chunks, with their checksums as versions."""
    events = []
    for outcome in outcomes:
        metadata = chunk_metadata(outcome, state)
        version, partition = metadata["chunk_checksum"], key_of_chunk(plan, outcome.chunk)
        events.append(materialization(key, metadata, partition, version, made_from))
    store_events(context, events)


def materialization(
    key: dg.AssetKey,
    metadata: Mapping[str, Any],
    partition: str | None = None,
    version: str = "",
    made_from: Mapping[str, str] | None = None,
) -> dg.AssetMaterialization:
    """Return the materialization of an asset, or of one partition, for `store_events`.

    Args:
        key: The asset.
        metadata: The metadata.
        partition: The partition key; None for an asset without partitions.
        version: Identifies the data, such as a chunk's checksum: Dagster treats what was made from the same version as
            up to date.
        made_from: Tags that tell what it was made from; without them, Dagster shows it as unsynced once an upstream
            asset was materialized later.
    """
    tags = dict(made_from or {})
    if version:
        tags |= {"dagster/data_version": version, "dagster/data_version_is_user_provided": "true"}
    return dg.AssetMaterialization(key, partition=partition, metadata=metadata, tags=tags)


def made_from_versions(inputs: Mapping[dg.AssetKey, str]) -> dict[str, str]:
    """Return the tags of an event of this package's own assets: Dagster shows it as unsynced once an input differs.

    Args:
        inputs: The version of each upstream asset, none of which has partitions.
    """
    tags = {"dagster/code_version": CODE_VERSION}
    for upstream, known in inputs.items():
        name = upstream.to_user_string()
        tags |= {f"dagster/input_data_version/{name}": known, f"dagster/input_event_pointer/{name}": "NULL"}
    return tags


def made_from_seal(instance: dg.DagsterInstance, manifest: dg.AssetKey, checksum: str) -> dict[str, str]:
    """Return the tags of an event of what was made from a seal of `manifest`, perhaps one of another deployment."""
    seen = instance.get_latest_materialization_event(manifest) is not None
    return made_from_versions({manifest: checksum if seen else NEVER_SEEN})
