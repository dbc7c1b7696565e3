"""`snapshots catalog extend-locks`: keep what is needed locked on S3."""

from __future__ import annotations

import argparse

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
        with object_progress("locking", options.progress, len(plan.versions), 0) as watch:
            return execute_extension(catalog, plan, lambda: watch.finish(0))

    return execute_confirmed(options, catalog, plan_extension(catalog), execute, _report)


def _report(options: argparse.Namespace, uri: str, plan: LockExtension, done: bool) -> None:
    run = plan.run
    if options.json:
        show_json({"uri": uri, "dry_run": options.dry_run, "extended": plan.extended} | plain(run._asdict()))
        return
    verb, extended = ("are", f", {plan.extended:,} of them by this run") if done else ("would be", "")
    show(f"{uri}: {counted(run.objects, 'version')} of objects {verb} locked until {time_text(run.until)}{extended}")
