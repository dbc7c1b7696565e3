"""Prints a promotion: the location that comes of a replica, and what of its source it lacks."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator

from snapshot_assets.catalog.replication.promote import PromotionPlan
from snapshot_assets.cli.output import show, show_json
from snapshot_assets.format.units import counted, time_text


def report_promotion(options: argparse.Namespace, uri: str, plan: PromotionPlan, done: bool) -> None:
    """Print a promotion, and whether it was carried out."""
    if options.json:
        show_json({"uri": uri, "dry_run": options.dry_run, "promoted": done, **_facts(plan)})
        return
    verb = "is no longer" if done else "would no longer be"
    sealed = "sealed" if plan.sealed else "not sealed"
    show(f"{uri} {verb} a replica of {plan.replica.source}; it goes on from revision {plan.revision}, {sealed}")
    if text := ends_text(plan, "ended" if done else "would end"):
        show(f" {text}")
    if plan.damaged:
        show("  its log is not whole: rebuild it with `snapshots catalog rebuild`")
    if plan.known_damage:
        show(f" {known_damage_text(plan)} `snapshots export verify --snapshot {shlex.quote(uri)}` names them.")


def _facts(plan: PromotionPlan) -> dict[str, object]:
    return {
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


def ends_text(plan: PromotionPlan, verb: str) -> str:
    """Return a sentence on what a replica of chosen versions lacks, with a space before it; "" for nothing."""
    parts = list(_parts(plan))
    return f" It never had these, which {verb}: {'; '.join(parts)}." if parts else ""


def known_damage_text(plan: PromotionPlan) -> str:
    """Return a sentence on damage that verifications of the replica recorded, with a space before it; "" for none."""
    count = len(plan.known_damage)
    return f" {counted(count, 'object')} had damage when last verified." if count else ""


def _parts(plan: PromotionPlan) -> Iterator[str]:
    revisions = plan.ends.revisions
    if revisions:
        yield f"{'revision' if len(revisions) == 1 else 'revisions'} {', '.join(map(str, revisions))}"
    for known in plan.ends.tags:
        yield f"{known.pin}, held" if known.hold is not None else str(known.pin)
    yield from (str(known.pin) for known in plan.ends.savepoints)
