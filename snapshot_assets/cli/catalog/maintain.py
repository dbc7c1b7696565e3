"""`snapshots catalog checkpoint | prune | rebuild | repair | upgrade`: work on the log itself."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from snapshot_assets.catalog.operations.maintain_log import (
    PrunePlan,
    RepairPlan,
    UpgradePlan,
    checkpoint_head,
    execute_pruning,
    execute_repair,
    execute_upgrade,
    plan_pruning,
    plan_repair,
    plan_upgrade,
)
from snapshot_assets.catalog.rebuild.rebuild import Rebuild
from snapshot_assets.catalog.rebuild.rebuild import rebuild as rebuild_log
from snapshot_assets.cli.confirm import execute_confirmed
from snapshot_assets.cli.location import duration_of, open_catalog, place_of
from snapshot_assets.cli.output import show, show_json
from snapshot_assets.cli.unreferenced import RETAINED, released_json, show_objects, show_reasons, sizes
from snapshot_assets.format.units import counted, human_bytes, noun


def checkpoint(options: argparse.Namespace) -> int:
    """Write the checkpoint of the newest revision."""
    catalog = open_catalog(options, writing=True)
    written = checkpoint_head(catalog)
    if options.json:
        show_json({"uri": catalog.store.uri} | asdict(written))
    else:
        verb = "written" if written.new else "there already"
        show(f"{written.path} is {verb}: revision {written.revision}, {human_bytes(written.bytes)}")
        for path in written.mended:
            show(f"{path} was damaged, and is written again")
    return 0


def prune(options: argparse.Namespace) -> int:
    """Prune a log after a confirmation."""
    catalog = open_catalog(options, writing=not options.dry_run)
    plan = plan_pruning(catalog, grace=duration_of(options.grace), unsafe=options.unsafe)
    what = f"{sizes(plan.released)}, of the log before revision {plan.kept}"
    question = f"{what} will be deleted for ever; retained revisions stay readable." if plan.released else ""
    return execute_confirmed(options, catalog, plan, execute_pruning, _report_pruning, question=question)


def _report_pruning(options: argparse.Namespace, uri: str, plan: PrunePlan, done: bool) -> None:
    if options.json:
        facts = {"uri": uri, "dry_run": options.dry_run, "deleted": done, "kept": plan.kept}
        facts["retained"] = plan.retained
        show_json(facts | released_json(plan.released))
    elif not plan.kept:
        show("nothing to prune: two checkpoints stay, and there are fewer; `snapshots catalog checkpoint` writes one")
    elif not plan.released and not plan.retained:
        show(f"nothing to prune: nothing that lies before revision {plan.kept} is older than the grace period")
    else:
        if not done:
            show_objects(plan.released)
        show_reasons(plan.released)
        verb = "deleted" if done else "would be deleted"
        show(f"{sizes(plan.released)}, {verb}; the log is whole from {plan.kept} on")
        if plan.retained:
            show(f"{plan.retained} and later objects {RETAINED}")


def repair(options: argparse.Namespace) -> int:
    """Write damaged objects again that the log gives."""
    catalog = open_catalog(options, writing=not options.dry_run)
    return execute_confirmed(options, catalog, plan_repair(catalog), execute_repair, _report_repair)


def _report_repair(options: argparse.Namespace, uri: str, plan: RepairPlan, done: bool) -> None:
    if options.json:
        show_json({"uri": uri, "dry_run": options.dry_run, "written": list(plan.paths)})
    elif not plan.paths:
        show(f"{uri}: nothing to repair; `snapshots export verify` names what the log cannot give")
    else:
        for path in plan.paths:
            show(f"{path} {'is' if done else 'would be'} written again")


def upgrade(options: argparse.Namespace) -> int:
    """Raise the format version of a location."""
    catalog = open_catalog(options, writing=not options.dry_run)
    plan = plan_upgrade(catalog, options.to)
    return execute_confirmed(options, catalog, plan, execute_upgrade, _report_upgrade)


def _report_upgrade(options: argparse.Namespace, uri: str, plan: UpgradePlan, done: bool) -> None:
    if options.json:
        show_json({"uri": uri, "dry_run": options.dry_run} | asdict(plan))
    elif plan.previous == plan.version:
        show(f"{uri} has format version {plan.version}; nothing to do")
    elif not done:
        show(f"{uri} would be upgraded from format version {plan.previous} to {plan.version}")
    else:
        show(
            f"{uri} is upgraded from format version {plan.previous} to {plan.version} as of revision {plan.revision}; "
            "older code can no longer read it"
        )


def rebuild(options: argparse.Namespace) -> int:
    """Rebuild a lost or damaged log, and report what is lost."""
    place = place_of(options)
    done = rebuild_log(
        place.store(),
        accept_undeleted=options.accept_undeleted,
        from_files=options.from_files,
        dry_run=options.dry_run,
        single_writer=options.single_writer or place.single_writer,
    )
    if options.json:
        texts = {"taken": {str(chunk): path for chunk, path in done.taken.items()}}
        show_json({"dry_run": not done.committed} | asdict(done) | texts)
    else:
        _show_rebuild(done)
    return 0


def _show_rebuild(done: Rebuild) -> None:
    verb = "begins" if done.committed else "would begin"
    if done.revision == done.proved:
        show(f"{done.uri}: the log is whole up to revision {done.revision}")
    else:
        base = f"revision {done.proved}" if done.proved else "receipts and data files alone"
        show(f"{done.uri}: a new log {verb} at revision {done.revision}, from {base}")
    show(f"  {counted(done.files, 'file')}, {counted(done.rows, 'row')}, {human_bytes(done.bytes)}")
    for path in done.restored:
        show(f"  {'written' if done.committed else 'would be written'} again: {path}")
    for chunk, path in sorted(done.taken.items()):
        show(f"  not proved: chunk {chunk} rests on {path}")
    for sentence in done.lost:
        show(f"  lost: {sentence}")
    if done.tags:
        show(f"  tags: {', '.join(done.tags)}")
    if done.savepoints:
        show(f"  savepoints: {', '.join(map(str, done.savepoints))}")
    if done.missing:
        show(f"  to be exported: {noun(len(done.missing), 'chunk')} {', '.join(map(str, done.missing))}")
    show("  sealed" if done.sealed else "  not sealed: run the export again, which verifies and seals it")
