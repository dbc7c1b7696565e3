"""`snapshots catalog expire`."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.expire import ExpiryPlan, execute_expiry, plan_expiry
from snapshot_assets.catalog.rules import Retention
from snapshot_assets.cli.confirm import execute_confirmed
from snapshot_assets.cli.location import begun_catalog, open_catalog, with_log
from snapshot_assets.cli.output import counted, show, show_json, show_table
from snapshot_assets.cli.unreferenced import released_json, show_released
from snapshot_assets.errors import PlanError
from snapshot_assets.format.units import parse_duration
from snapshot_assets.plan.configuration import load_configuration


def run(options: argparse.Namespace) -> int:
    """Expire revisions after a confirmation."""
    catalog, retention = _of_plan(options) if options.plan else _given(options)
    uri, plan = catalog.store.uri, plan_expiry(catalog, retention)
    return execute_confirmed(
        options,
        plan,
        partial(execute_expiry, catalog),
        partial(_report, options, uri, retention),
        question=f"{uri}: {_summary(plan, 'will be deleted', 'will expire')}." if plan.expired or plan.tags else "",
        refusal="Nothing expired.",
    )


def _given(options: argparse.Namespace) -> tuple[Catalog, Retention | None]:
    """Return the location, and the rule of the options; None if they give none."""
    keep_for = None if options.keep_for is None else parse_duration(options.keep_for)
    given = options.keep_last is not None or keep_for is not None
    retention = Retention(options.keep_last, keep_for) if given else None
    return open_catalog(options, writing=not options.dry_run), retention


def _of_plan(options: argparse.Namespace) -> tuple[Catalog, Retention]:
    """Return the location and the rule of the plan of `--plan`.

    Raises:
        PlanError: There is no such plan, it has no such rule, or the options give another.
    """
    clashing = [f"--{name.replace('_', '-')}" for name in ("keep_last", "keep_for") if getattr(options, name)]
    if clashing:
        raise PlanError(
            f"{' and '.join(clashing)} cannot be given beside --plan; change the plan's retention in the configuration,"
            " or name the location by --snapshot."
        )
    configuration = load_configuration(options.config)
    plan = configuration.plan(options.plan)
    if plan.retention.rule is None:
        raise PlanError(
            f"Plan {plan.name!r} has neither keep_last nor keep_for in its retention, so its revisions do not expire. "
            f"Write one there; or give --snapshot {plan.to}, with --keep-last or --keep-for, or without both "
            "to delete only tags that outlived their time."
        )
    store = with_log(configuration.store(plan))
    single_writer = plan.single_writer or options.single_writer
    return begun_catalog(store, writing=not options.dry_run, single_writer=single_writer), plan.retention.rule


def _summary(plan: ExpiryPlan, deleted: str, expired: str) -> str:
    """Return what happens to tags and to revisions, with a verb for either."""
    pinned = f", {len(plan.pinned)} of them pinned and kept so," if plan.pinned else ""
    sealed = len(plan.expired) + plan.kept - len(plan.pinned)
    phrases = []
    if plan.tags:
        tags = f"{counted(len(plan.tags), 'tag')} ({', '.join(plan.tags)})"
        phrases.append(f"{tags} past the time retained {deleted}")
    if plan.expired:
        phrases.append(f"{counted(len(plan.expired), 'sealed revision')}{pinned} of {sealed} {expired}")
    return " and ".join(phrases)


def _report(options: argparse.Namespace, uri: str, retention: Retention | None, plan: ExpiryPlan, done: bool) -> None:
    if options.json:
        show_json(_as_json(options, uri, plan))
        return
    if not plan.expired:
        rule = "" if retention else "; no rule was given: --keep-last, --keep-for or --plan"
        show(f"nothing to expire; {counted(plan.kept, 'sealed revision')} can be read{rule}")
    if plan.expired or plan.tags:
        _show(plan, done=done)


def _as_json(options: argparse.Namespace, uri: str, plan: ExpiryPlan) -> dict[str, Any]:
    return {
        "uri": uri,
        "dry_run": options.dry_run,
        "revision": plan.revision,
        "tags": list(plan.tags),
        "expired": list(plan.expired),
        "pinned": [{"revision": revision, "pins": list(pins)} for revision, pins in plan.pinned.items()],
        "readable": plan.kept,
    } | released_json(plan.released)


def _show(plan: ExpiryPlan, *, done: bool) -> None:
    if not done and plan.expired:
        rows = [(revision, ", ".join(plan.pinned.get(revision, ())) or "nothing") for revision in plan.expired]
        show_table(("Revision", "Kept by"), rows)
    if done:
        show(_summary(plan, "deleted", f"expired as of revision {plan.revision}"))
    else:
        show(_summary(plan, "would be deleted", "would expire"))
    show_released(plan.released, done=done)
