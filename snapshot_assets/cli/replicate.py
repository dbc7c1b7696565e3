"""`snapshots replicate`, and `snapshots catalog promote`, with what a promoted replica lacks of its source."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict
from functools import partial
from typing import Any

from snapshot_assets.catalog.replication.plan import ReplicationPlan, plan_replication, refuse_same
from snapshot_assets.catalog.replication.promote import PromotionPlan, execute_promotion, plan_promotion
from snapshot_assets.catalog.replication.replicate import replicate
from snapshot_assets.cli.confirm import execute_confirmed
from snapshot_assets.cli.location import open_catalog, place_of
from snapshot_assets.cli.output import show, show_json
from snapshot_assets.cli.progress import object_progress
from snapshot_assets.errors import UsageError
from snapshot_assets.format.actions import ObjectRef
from snapshot_assets.format.units import counted, human_bytes, noun, time_text
from snapshot_assets.plan.read_configuration import load_configuration
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store


def _report_promotion(options: argparse.Namespace, uri: str, plan: PromotionPlan, done: bool) -> None:
    """Print a promotion, and whether it was carried out."""
    if options.json:
        facts = {
            "uri": uri,
            "dry_run": options.dry_run,
            "promoted": done,
            "source": plan.replica.source,
            "replicated_since": time_text(plan.replica.created_at),
            "revision": plan.revision,
            "committed": plan.committed,
            "ended": {
                "tags": [known.pin.name for known in plan.ends.tags],
                "savepoints": [known.pin.id for known in plan.ends.savepoints],
                "revisions": list(plan.ends.revisions),
            },
            "released": list(plan.released),
            "damaged": plan.damaged,
            "known_damage": list(plan.known_damage),
        }
        show_json(facts)
        return
    verb = "is no longer" if done else "would no longer be"
    sealed = "sealed" if plan.sealed else "not sealed"
    show(f"{uri} {verb} a replica of {plan.replica.source}; it goes on from revision {plan.revision}, {sealed}")
    if text := _ends_text(plan, "ended" if done else "would end"):
        show(f" {text}")
    if plan.damaged:
        show("  its log is not whole: rebuild it with `snapshots catalog rebuild`")
    if plan.known_damage:
        show(f" {_known_damage_text(plan)} `snapshots export verify --snapshot {shlex.quote(uri)}` names them.")


def _ends_text(plan: PromotionPlan, verb: str) -> str:
    """Return a sentence on what a replica of chosen versions lacks, with a space before it; "" for nothing."""
    parts, revisions = [], plan.ends.revisions
    if revisions:
        parts.append(f"{noun(len(revisions), 'revision')} {', '.join(map(str, revisions))}")
    parts += [f"{known.pin}, held" if known.hold is not None else str(known.pin) for known in plan.ends.tags]
    parts += [str(known.pin) for known in plan.ends.savepoints]
    return f" It never had these, which {verb}: {'; '.join(parts)}." if parts else ""


def _known_damage_text(plan: PromotionPlan) -> str:
    """Return a sentence on damage that verifications of the replica recorded, with a space before it; "" for none."""
    count = len(plan.known_damage)
    return f" {counted(count, 'object')} had damage when last verified." if count else ""


def run(options: argparse.Namespace) -> int:
    """Replicate a location."""
    place = place_of(options)
    named = place.plan
    uri = options.to or (named.replicate_to if named is not None else None)
    if uri is None:
        where = "--snapshot" if named is None else f"plan {named.name!r} has no replicate_to, so --plan"
        raise UsageError(f"{where} needs --to, the location of the replica.")
    location = parse_location(uri)
    storage = load_configuration(options.config, storage_only=True).store_options_for(location)
    source, target = place.store(), open_store(location, storage)
    refuse_same(source, target, same_service=storage == place.storage)
    delete = options.delete or (options.to is None and named is not None and named.replicate_delete)
    choice = {"delete": delete, "only": options.only, "accept_loss": options.accept_loss}
    plan = plan_replication(source, target, **choice)
    if options.dry_run:
        _report_plan(options, plan)
        return 0
    with object_progress("replicating", options.progress, len(plan.copied), plan.bytes) as watch:

        def finish(ref: ObjectRef, copied: bool) -> None:
            if copied:  # others were there already
                watch.finish(ref.bytes)

        single_writer = options.single_writer or place.single_writer
        done = replicate(source, target, **choice, single_writer=single_writer, progress=finish)
    facts = asdict(done)
    if options.json:
        show_json(facts | {"dry_run": False})
    else:
        _show_counts(facts, "were")
    return 0


def _report_plan(options: argparse.Namespace, plan: ReplicationPlan) -> None:
    facts = {
        "source": plan.source,
        "replica": plan.replica,
        "dry_run": True,
        "revision": plan.log.head,
        "previous": plan.log.last,
        "sealed": plan.state.sealed,
        "objects": len(plan.copied),
        "bytes": plan.bytes,
        "transactions": len(plan.log.transactions),
        "deleted": len(plan.deleted),
        "deleted_bytes": sum(info.size for info in plan.deleted),
    }
    if options.json:
        show_json(facts)
        return
    for ref in plan.copied:
        show(f"{ref.path}  {human_bytes(ref.bytes)}")
    _show_counts(facts, "would be")


def _show_counts(facts: dict[str, Any], verb: str) -> None:
    sealed = "sealed" if facts["sealed"] else "not sealed"
    if not facts["objects"] and not facts["transactions"]:
        show(f"{facts['replica']} has all of {facts['source']} up to revision {facts['revision']}, {sealed}")
    else:
        copied = f"{counted(facts['objects'], 'object')}, {human_bytes(facts['bytes'])}"
        log = counted(facts["transactions"], "transaction")
        show(f"{copied}, and {log} {verb} copied from {facts['source']} to {facts['replica']}")
        show(f"  revision {facts['revision']}, {sealed}; before: {facts['previous'] or 'none'}")
    if facts["deleted"]:
        gone = f"{counted(facts['deleted'], 'object')}, {human_bytes(facts['deleted_bytes'])}"
        were = noun(facts["deleted"], "was", "were") if verb == "were" else verb
        show(f"  {gone}, that the source no longer has, {were} deleted")


def promote(options: argparse.Namespace) -> int:
    """Make a replica a location of its own, after a confirmation."""
    place = place_of(options)
    catalog = open_catalog(options, writing=False, place=place)
    plan = plan_promotion(catalog, incomplete=options.incomplete, release=options.release)
    execute = partial(execute_promotion, single_writer=options.single_writer or place.single_writer)
    question = (
        f"it will no longer be a replica of {plan.replica.source}, and can be written to. Nothing may write to the"
        f" source any more: both have the same log.{_ends_text(plan, 'will end')}{_known_damage_text(plan)}"
    )
    return execute_confirmed(
        options, catalog, plan, execute, _report_promotion, question=question, refusal="It stays a replica."
    )
