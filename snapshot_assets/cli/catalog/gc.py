"""`snapshots catalog gc`."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from snapshot_assets.catalog.operations.collect_garbage import GarbagePlan, execute_collection, plan_collection
from snapshot_assets.catalog.operations.garbage import Garbage
from snapshot_assets.cli.confirm import execute_confirmed
from snapshot_assets.cli.location import grace_of, open_catalog
from snapshot_assets.cli.output import show, show_json, show_message, show_table
from snapshot_assets.cli.unreferenced import by_reason, show_reasons, sizes
from snapshot_assets.format.units import duration_text, time_text


def run(options: argparse.Namespace) -> int:
    """Collect garbage after a confirmation."""
    catalog = open_catalog(options, writing=not options.dry_run)
    uri, plan = catalog.store.uri, plan_collection(catalog, grace=grace_of(options), unsafe=options.unsafe)
    question = f"{uri}: {sizes(plan.deleted)} that nothing needs will be deleted for ever."
    return execute_confirmed(
        options,
        plan,
        partial(execute_collection, catalog),
        partial(_report, options, uri),
        question=question if plan.deleted else "",
    )


def _report(options: argparse.Namespace, uri: str, plan: GarbagePlan, done: bool) -> None:
    if options.json:
        show_json(_as_json(options, uri, plan, done))
    else:
        _show(plan, done)
    for path in plan.foreign:
        show_message(f"left alone: {path} is not part of the format")


def _as_json(options: argparse.Namespace, uri: str, plan: GarbagePlan, done: bool) -> dict[str, Any]:
    return {
        "uri": uri,
        "dry_run": options.dry_run,
        "deleted": done,
        "grace": duration_text(plan.grace),
        "objects": len(plan.deleted),
        "bytes": sum(each.bytes for each in plan.deleted),
        "reasons": by_reason(plan.deleted),
        "garbage": [_garbage(each) for each in plan.deleted],
        "waiting": [_garbage(each) for each in plan.waiting],
        "foreign": list(plan.foreign),
    }


def _garbage(each: Garbage) -> dict[str, Any]:
    return {"path": each.path, "bytes": each.bytes, "reason": each.reason, "since": time_text(each.since)}


def _show(plan: GarbagePlan, done: bool) -> None:
    if not done and (plan.deleted or plan.waiting):
        marked = [("delete", each) for each in plan.deleted] + [("wait", each) for each in plan.waiting]
        rows = [(mark, each.reason, time_text(each.since), each.bytes, each.path) for mark, each in marked]
        show_table(("", "Reason", "Garbage since", "Bytes", "Object"), rows)
    show_reasons(plan.deleted)
    show(f"{sizes(plan.deleted)}, {'deleted' if done else 'would be deleted'}")
    if plan.waiting:
        show(f"{sizes(plan.waiting)}, garbage for less than {duration_text(plan.grace)}: kept so long")
