"""`snapshots savepoint create`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins.listing import list_savepoints
from snapshot_assets.catalog.pins.savepoints import sealed_head
from snapshot_assets.cli.catalog.compact import compact, groups_json, show_groups
from snapshot_assets.cli.catalog.describe import plain
from snapshot_assets.cli.location import open_catalog
from snapshot_assets.cli.output import counted, human_bytes, only_results_on_stdout, show, show_json
from snapshot_assets.engine.compact.plan import CompactionPlan, Group
from snapshot_assets.engine.compact.savepoint import compact_and_pin, compactions
from snapshot_assets.format.relations import TableName


def run(options: argparse.Namespace) -> int:
    """Compact everything by the same job as a plan, then pin it. Spark starts only if there is something to compact.

    Raises:
        UnsealedError: The head is not sealed, now or after the compaction.
        ConflictError: Other writers changed data during each of several compactions.
    """
    catalog = open_catalog(options, writing=not options.dry_run)
    if options.dry_run:
        return _dry_run(options, catalog)
    runs: list[str] = []
    chunks = 0

    def compact_all(plan: CompactionPlan) -> None:
        nonlocal chunks
        with only_results_on_stdout():
            outcomes, run_id = compact(options, plan)
        runs.append(run_id)
        chunks += len(outcomes)

    savepoint = compact_and_pin(catalog, compact_all).savepoint
    if options.json:
        [listed] = [each for each in list_savepoints(catalog.state) if each.savepoint_id == savepoint.id]
        show_json({"uri": catalog.store.uri, "run_ids": runs, "chunks_compacted": chunks} | plain(asdict(listed)))
    else:
        done = f"{counted(chunks, 'chunk')} compacted by run {', '.join(runs)}" if runs else "nothing to compact"
        show(f"{catalog.store.uri}: savepoint {savepoint.id} keeps revision {savepoint.revision}; {done}")
    return 0


def _dry_run(options: argparse.Namespace, catalog: Catalog) -> int:
    """Print what would be compacted, and what would be pinned: the newest seal, or the result of the compaction."""
    sealed = sealed_head(catalog.state)
    groups = _groups(catalog)
    number, revision = catalog.state.pins.last_savepoint + 1, None if groups else sealed
    if options.json:
        facts = {"uri": catalog.store.uri, "dry_run": True, "savepoint_id": number, "saved_snapshot_id": revision}
        show_json(facts | {"groups": groups_json(groups)})
        return 0
    if groups:
        show_groups(groups)
        size = human_bytes(sum(group.bytes for group in groups))
        show(f"{counted(sum(len(group.files) for group in groups), 'file')}, {size}, would be rewritten")
    what = "the result" if revision is None else f"revision {revision}; nothing to compact"
    show(f"{catalog.store.uri}: savepoint {number} would keep {what}")
    return 0


def _groups(catalog: Catalog) -> list[Group]:
    """Return the groups of all compactions, without those that a later compaction takes whole."""
    groups: dict[tuple[int, TableName], Group] = {}
    for plan in compactions(catalog.store, catalog.state):
        for group in plan.groups:
            key = group.chunk, group.table.table_name
            if key not in groups or groups[key].kept:
                groups[key] = group
    return [groups[key] for key in sorted(groups)]
