"""`snapshots catalog expire | gc`: release what retention no longer keeps, and delete what nothing needs."""

from __future__ import annotations

import argparse
from datetime import timedelta
from typing import Any

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.expire import ExpiryPlan, execute_expiry, plan_expiry
from snapshot_assets.catalog.operations.garbage import Garbage, GarbagePlan, execute_collection, plan_collection
from snapshot_assets.catalog.operations.old_versions import execute_versions, plan_versions
from snapshot_assets.catalog.pins.automatic import TagRule
from snapshot_assets.catalog.rules import RULES, Retention
from snapshot_assets.catalog.rules.retention import Calendar
from snapshot_assets.cli.confirm import execute_confirmed
from snapshot_assets.cli.location import duration_of, open_catalog, place_of
from snapshot_assets.cli.output import show, show_json, show_message, show_table
from snapshot_assets.cli.progress import object_progress
from snapshot_assets.cli.unreferenced import RETAINED, by_reason, released_json, show_reasons, show_released, sizes
from snapshot_assets.errors import PlanError
from snapshot_assets.format.name_texts import shell_word
from snapshot_assets.format.units import counted, duration_text, human_bytes, time_text
from snapshot_assets.plan.plan import Plan

_NO_RULE = (
    "No rule was given, so no revision expires. Give --keep-last, --keep-for, --keep-daily, --keep-weekly,"
    " --keep-monthly or --keep-yearly, or --plan NAME for the rules in a plan's retention."
)


def expire(options: argparse.Namespace) -> int:
    """Expire revisions after a confirmation.

    Raises:
        PlanError: With `--yes`, the only rule is a time shorter than the grace period, such as 0s.
    """
    place = place_of(options)
    retention, tags = _rules(options, place.plan)
    catalog = open_catalog(options, writing=not options.dry_run, place=place)
    plan = plan_expiry(catalog, retention, tags=tags)
    header = catalog.require_snapshot().header
    assert header is not None
    given, grace = _given_rule(options), timedelta(microseconds=header.grace)
    age = None if given is None else given.keep_for
    asks = options.dry_run or options.unsafe or not options.yes
    if plan.expired and not asks and age is not None and age < grace and given == Retention(None, age):
        raise PlanError(
            f"--keep-for {duration_text(age)} is shorter than the plan's grace period of {duration_text(grace)}:"
            f" {_summary(plan, 'would go', 'would expire')}. Leave out --yes to be asked, or add --unsafe to go on"
            " without a question."
        )
    question = f"{_summary(plan, 'will be deleted', 'will expire')}." if plan.expired or plan.tags else ""
    return execute_confirmed(
        options, catalog, plan, execute_expiry, _report_expiry, question=question, refusal="Nothing expired."
    )


def _rules(options: argparse.Namespace, plan: Plan | None) -> tuple[Retention | None, TagRule | None]:
    """Return the rules of revisions and of automatic tags, None for none.

    Options are the rule of revisions in place of the plan's.

    Raises:
        PlanError: A plan is named, and neither it nor an option has a rule.
    """
    given = _given_rule(options)
    if plan is None:
        return given, None
    rule = given or plan.retention.rule
    if rule is None and plan.retention.tag is None:
        raise PlanError(
            f"Plan {plan.name!r} has neither tag nor any of {', '.join(RULES)} in its retention, so nothing expires. "
            f"Write one there; or give --keep-last or another such option; or give --snapshot {shell_word(plan.to)} "
            "without any to delete only tags past their time retained."
        )
    return rule, plan.retention.tag_rule


def _given_rule(options: argparse.Namespace) -> Retention | None:
    """Return the rule of the options; None if they give none."""
    if all(getattr(options, name) is None for name in RULES):
        return None
    calendar = Calendar(options.keep_daily, options.keep_weekly, options.keep_monthly, options.keep_yearly)
    return Retention(options.keep_last, duration_of(options.keep_for), calendar)


def _summary(plan: ExpiryPlan, deleted: str, expired: str) -> str:
    """Return what happens to tags and to revisions, with a verb for either."""
    pinned = f"; tags or savepoints keep {len(plan.pinned):,} of them readable" if plan.pinned else ""
    sealed = len(plan.expired) + plan.kept - len(plan.pinned)
    outlived = [name for name in plan.tags if name not in plan.surplus]
    phrases = []
    for tags, why in ((outlived, "past the time retained"), (plan.surplus, "that no rule keeps")):
        if tags:
            phrases.append(f"{counted(len(tags), 'tag')} ({', '.join(tags)}) {why} {deleted}")
    if plan.expired:
        phrases.append(f"{len(plan.expired):,} of {counted(sealed, 'sealed revision')} {expired}{pinned}")
    return " and ".join(phrases)


def _report_expiry(options: argparse.Namespace, uri: str, plan: ExpiryPlan, done: bool) -> None:
    if options.plan is None and _given_rule(options) is None:
        show_message(_NO_RULE)
    if options.json:
        facts = {
            "uri": uri,
            "dry_run": options.dry_run,
            "revision": plan.revision,
            "tags": list(plan.tags),
            "surplus_tags": list(plan.surplus),
            "expired": list(plan.expired),
            "pinned": [{"revision": revision, "pins": list(pins)} for revision, pins in plan.pinned.items()],
            "readable": plan.kept,
        }
        show_json(facts | released_json(plan.released))
        return
    if not plan.expired:
        show(f"nothing to expire; {counted(plan.kept, 'sealed revision')} can be read")
    if not (plan.expired or plan.tags):
        return
    if done:
        show(_summary(plan, "deleted", f"expired as of revision {plan.revision}"))
    else:
        if plan.expired:
            rows = [(revision, ", ".join(plan.pinned.get(revision, ())) or "nothing") for revision in plan.expired]
            show_table(("Revision", "Kept by"), rows)
        show(_summary(plan, "would be deleted", "would expire"))
    show_released(plan.released, done=done)


def gc(options: argparse.Namespace) -> int:
    """Collect garbage, or the versions that nothing needs, after a confirmation."""
    catalog = open_catalog(options, writing=not options.dry_run)
    plan_deletion, delete = plan_collection, execute_collection
    if options.versions:
        plan_deletion, delete = plan_versions, execute_versions
    plan = plan_deletion(catalog, grace=duration_of(options.grace), unsafe=options.unsafe)
    question = f"{sizes(plan.deleted)} that nothing needs will be deleted for ever." if plan.deleted else ""

    def execute(catalog: Catalog, plan: GarbagePlan) -> GarbagePlan:
        size = sum(each.bytes for each in plan.deleted)
        with object_progress("deleting", options.progress, len(plan.deleted), size) as watch:
            return delete(catalog, plan, lambda each: watch.finish(each.bytes))

    return execute_confirmed(options, catalog, plan, execute, _report_collection, question=question)


def _report_collection(options: argparse.Namespace, uri: str, plan: GarbagePlan, done: bool) -> None:
    if options.json:
        facts = {
            "uri": uri,
            "dry_run": options.dry_run,
            "deleted": done,
            "grace": duration_text(plan.grace),
            "objects": len(plan.deleted),
            "bytes": sum(each.bytes for each in plan.deleted),
            "reasons": by_reason(plan.deleted),
            "garbage": [_garbage(each) for each in plan.deleted],
            "waiting": [_garbage(each) for each in plan.waiting],
            "retained": [_garbage(each) for each in plan.retained],
            "retained_until": plan.retained_until and time_text(plan.retained_until),
            "foreign": list(plan.foreign),
        }
        show_json(facts)
    else:
        if not done and (plan.deleted or plan.waiting):
            marked = [("delete", each) for each in plan.deleted] + [("wait", each) for each in plan.waiting]
            rows = [(mark, each.reason, _since(each), human_bytes(each.bytes), each.path) for mark, each in marked]
            show_table(("", "Reason", "Garbage since", "Size", "Object"), rows)
        show_reasons(plan.deleted)
        show(f"{sizes(plan.deleted)}, {'deleted' if done else 'would be deleted'}")
        if plan.waiting:
            show(f"{sizes(plan.waiting)}, garbage for less than {duration_text(plan.grace)}: kept so long")
        if plan.retained:
            right = "; or the right s3:DeleteObjectVersion is missing" if options.versions else ""
            until = f"; the last lock ends at {time_text(plan.retained_until)}" if plan.retained_until else ""
            show(f"{sizes(plan.retained)}, {RETAINED}{right}{until}")
    for path in plan.foreign:
        show_message(f"left alone: {path} is not part of the format")


def _garbage(each: Garbage) -> dict[str, Any]:
    version = {"version": each.version} if each.version else {}
    return {"path": each.path, "bytes": each.bytes, "reason": each.reason, "since": _since(each)} | version


def _since(each: Garbage) -> str:
    """Return the time in whole milliseconds, as the log has times; stores and disks have finer ones."""
    return time_text(each.since.replace(microsecond=each.since.microsecond // 1000 * 1000))
