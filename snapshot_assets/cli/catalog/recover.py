"""`snapshots catalog recover`: bring a location back from the versions that its bucket keeps."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.rebuild.recover import Recovery, execute_recovery, plan_recovery
from snapshot_assets.catalog.replication.plan import refuse_same
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.records import record_verification
from snapshot_assets.cli.confirm import execute_confirmed
from snapshot_assets.cli.exit_status import ExitStatus
from snapshot_assets.cli.location import place_of
from snapshot_assets.cli.output import show, show_json
from snapshot_assets.cli.progress import object_progress
from snapshot_assets.cli.unreferenced import sizes
from snapshot_assets.format.units import counted, noun, parse_given_time, time_text
from snapshot_assets.plan.read_configuration import load_configuration
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store


def run(options: argparse.Namespace) -> int:
    """Recover a location after a confirmation; exit status 3 if the result is damaged."""
    place, to = place_of(options), None
    if options.to is not None:
        location = parse_location(options.to)
        storage = load_configuration(options.config, storage_only=True).store_options_for(location)
        to = open_store(location, storage)
        refuse_same(place.store(), to, same_service=storage == place.storage)
    plan, done = plan_recovery(place.store(), parse_given_time(options.before), to), list[Recovery]()

    def execute(_: Catalog, plan: Recovery) -> Recovery:
        size = sum(each.bytes for each in plan.written)
        with object_progress("recovering", options.progress, len(plan.written), size) as watch:
            single_writer = options.single_writer or place.single_writer
            done.append(execute_recovery(plan, single_writer=single_writer, progress=watch.finish))
        if done[0].report is not None:
            record_verification(plan.target, done[0].report, datetime.now(UTC))
        return done[0]

    lost = f" {_lost(plan)} will be given up." if plan.lost else ""
    question = f"{sizes(plan.written)} will be written.{lost} Nobody else may write meanwhile, nor have the right to."
    catalog = Catalog(plan.target, State())
    status = execute_confirmed(
        options, catalog, plan, execute, _report, question=question, refusal="Nothing was changed."
    )
    damaged = any(each.report is not None and each.report.damaged for each in done)
    return ExitStatus.DAMAGED if damaged else status


def _lost(plan: Recovery) -> str:
    revisions = f"{noun(len(plan.lost), 'revision')} {', '.join(map(str, plan.lost))}"
    return revisions + (f" ({', '.join(plan.pins)})" if plan.pins else "")


def _report(options: argparse.Namespace, uri: str, plan: Recovery, done: bool) -> None:
    report = plan.report
    damage = [fault.message for fault in report.faults if fault.is_damage] if report is not None else []
    if options.json:
        kinds = {"hidden": plan.hidden, "overwritten": plan.overwritten, "copied": plan.copied}
        sums = {kind: {"objects": len(each), "bytes": sum(one.bytes for one in each)} for kind, each in kinds.items()}
        names = ("revision", "later", "lost", "pins", "missing", "restart")
        facts = {"uri": uri, "dry_run": options.dry_run, "recovered": done, "before": time_text(plan.before)}
        proof = {"damage": damage, "sealed": report is not None and report.sealed}
        show_json(facts | sums | {name: getattr(plan, name) for name in names} | proof)
        return
    verb = "is" if done else "would be"
    show(f"{uri} {verb} as it was at {time_text(plan.before)}, at revision {plan.revision}")
    written = "written" if done else "would be written"
    for what, objects in (("hidden", plan.hidden), ("overwritten", plan.overwritten), ("copied", plan.copied)):
        if objects:
            show(f"  {what}: {sizes(objects)}, {written} {'here' if what == 'copied' else 'again'}")
    if plan.later:
        show(f"  later: {counted(len(plan.later), 'object')}, {'hidden' if done else 'would be hidden'}")
    if plan.lost:
        show(f"  given up: {_lost(plan)}; the log goes on at revision {plan.restart}")
    for path in plan.missing:
        show(f"  no version: {path}")
    for message in damage:
        show(f"DAMAGE  {message}")
    if report is not None:
        seal = "the newest seal holds" if report.sealed else "the newest state is not sealed"
        show(f"DAMAGED: {uri}" if damage else f"OK: {uri} at revision {report.revision}, every byte read; {seal}")
