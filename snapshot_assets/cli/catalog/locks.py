"""`snapshots catalog extend-locks`: keep what is needed locked on S3."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.locks import LockExtension, execute_extension, plan_extension
from snapshot_assets.cli.confirm import execute_confirmed
from snapshot_assets.cli.location import open_catalog
from snapshot_assets.cli.output import plain, show, show_json
from snapshot_assets.cli.progress import object_progress
from snapshot_assets.format.units import counted, time_text


def extend(options: argparse.Namespace) -> int:
    """Extend the locks of all that is needed."""
    catalog = open_catalog(options, writing=False)

    def execute(catalog: Catalog, plan: LockExtension) -> LockExtension:
        with object_progress("locking", options.progress, len(plan.paths), 0) as watch:
            return execute_extension(catalog, plan, lambda: watch.finish(0))

    return execute_confirmed(options, catalog, plan_extension(catalog), execute, _report)


def _report(options: argparse.Namespace, uri: str, plan: LockExtension, done: bool) -> None:
    if options.json:
        show_json({"uri": uri, "dry_run": options.dry_run, "locked": len(plan.paths)} | plain(asdict(plan.run)))
        return
    verb, run = "are" if done else "would be", plan.run
    show(f"{uri}: {counted(run.objects, 'object')} {verb} locked until {time_text(run.until)}")
    if before := run.objects - len(plan.paths):
        show(f"an interrupted run had locked {before:,} of them")
