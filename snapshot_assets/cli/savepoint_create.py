"""`snapshots savepoint create`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from snapshot_assets.catalog.pin_list import list_savepoints
from snapshot_assets.cli.catalog.compact import compact
from snapshot_assets.cli.catalog.describe import plain
from snapshot_assets.cli.catalog.opening import open_catalog
from snapshot_assets.cli.output import counted, only_results_on_stdout, show, show_json
from snapshot_assets.engine.compact_plan import CompactionPlan, Wanted
from snapshot_assets.engine.savepoint import compact_and_pin


def run(options: argparse.Namespace) -> int:
    """Compact everything as the job of a plan does, then pin it; Spark starts only if there is something to compact.

    Raises:
        UnsealedError: The head is not sealed; nothing was done, or others committed while it was compacted.
        ConflictError: Others changed data again and again.
    """
    runs: list[str] = []
    chunks = 0

    def compact_all(wanted: Wanted, plan: CompactionPlan) -> None:
        nonlocal chunks
        with only_results_on_stdout():
            outcomes, run_id = compact(options, wanted, len(plan.by_chunk()))
        runs.append(run_id)
        chunks += len(outcomes)

    catalog = open_catalog(options, writing=True)
    savepoint = compact_and_pin(catalog, compact_all).savepoint
    if options.json:
        [listed] = [each for each in list_savepoints(catalog.state) if each.savepoint_id == savepoint.id]
        show_json({"uri": catalog.store.uri, "run_ids": runs, "chunks_compacted": chunks} | plain(asdict(listed)))
    else:
        done = f"{counted(chunks, 'chunk')} compacted by run {', '.join(runs)}" if runs else "nothing to compact"
        show(f"{catalog.store.uri}: savepoint {savepoint.id} keeps revision {savepoint.revision}; {done}")
    return 0
