"""`snapshots catalog expire`."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.operations.expire import Expiry, expire
from snapshot_assets.catalog.rules import Retention
from snapshot_assets.cli.catalog.opening import begun_catalog, open_catalog
from snapshot_assets.cli.confirm import confirmed
from snapshot_assets.cli.location import with_log
from snapshot_assets.cli.output import counted, say, show, show_json, show_table
from snapshot_assets.cli.unreferenced import released_json, show_released
from snapshot_assets.errors import PlanError
from snapshot_assets.format.units import parse_duration
from snapshot_assets.plan.configuration import load_configuration


def run(options: argparse.Namespace) -> int:
    """Expire revisions after a confirmation that is exactly `yes`; exit status 1 if it was not given."""
    catalog, retention = _of_plan(options) if options.plan else _given(options)
    keep_last, keep_for = (None, None) if retention is None else (retention.keep_last, retention.keep_for)
    expired = partial(expire, catalog, keep_last=keep_last, keep_for=keep_for)
    found = expired(dry_run=True)
    if options.dry_run:
        return _report(options, catalog.store.uri, found, retention)
    asked = (found.expired or found.tags) and not options.yes
    if asked and not confirmed(f"{catalog.store.uri}: {_words(found, 'will be deleted', 'will expire')}."):
        say("Nothing expired.")
        if options.json:
            _report(options, catalog.store.uri, found, retention)
        return 1
    return _report(options, catalog.store.uri, expired(only=found), retention, done=True)


def _given(options: argparse.Namespace) -> tuple[Catalog, Retention | None]:
    """Return the location and the rule that the call itself gives, None where it gives none."""
    keep_for = None if options.keep_for is None else parse_duration(options.keep_for)
    given = options.keep_last is not None or keep_for is not None
    retention = Retention(options.keep_last, keep_for) if given else None
    return open_catalog(options, writing=not options.dry_run), retention


def _of_plan(options: argparse.Namespace) -> tuple[Catalog, Retention]:
    """Return the location and the rule of the plan that the call names.

    Raises:
        PlanError: There is no such plan, it has no such rule, or the call gives another.
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
            f"Plan {plan.name!r} has neither keep_last nor keep_for in its retention, so that none of its revisions "
            f"expires. Write one there; or give --snapshot {plan.to}, with --keep-last or --keep-for, or without both "
            "to delete only tags that outlived their time."
        )
    store = with_log(configuration.store(plan))
    single_writer = plan.single_writer or options.single_writer
    return begun_catalog(store, writing=not options.dry_run, single_writer=single_writer), plan.retention.rule


def _words(found: Expiry, deleted: str, expired: str) -> str:
    """Return what becomes of tags and of revisions, with a verb for either."""
    pinned = f", {len(found.pinned)} of them pinned and kept so," if found.pinned else ""
    revisions = f"{counted(len(found.expired), 'sealed revision')}{pinned} of {len(found.expired) + _other(found)}"
    tags = f"{counted(len(found.tags), 'tag')} ({', '.join(found.tags)}) past the time retained"
    phrases = [
        *([f"{tags} {deleted}"] if found.tags else []),
        *([f"{revisions} {expired}"] if found.expired else []),
    ]
    return " and ".join(phrases)


def _other(found: Expiry) -> int:
    """Return how many revisions the rules keep."""
    return found.kept - len(found.pinned)


def _report(
    options: argparse.Namespace, uri: str, found: Expiry, retention: Retention | None, *, done: bool = False
) -> int:
    if options.json:
        show_json(_as_json(options, uri, found))
        return 0
    if not found.expired:
        rule = "" if retention else "; no rule was given: --keep-last, --keep-for or --plan"
        show(f"nothing to expire; {counted(found.kept, 'sealed revision')} can be read{rule}")
    if found.expired or found.tags:
        _show(found, done=done)
    return 0


def _as_json(options: argparse.Namespace, uri: str, found: Expiry) -> dict[str, Any]:
    return {
        "uri": uri,
        "dry_run": options.dry_run,
        "revision": found.revision,
        "tags": list(found.tags),
        "expired": list(found.expired),
        "pinned": [{"revision": revision, "pins": list(pins)} for revision, pins in found.pinned.items()],
        "readable": found.kept,
    } | released_json(found.released)


def _show(found: Expiry, *, done: bool) -> None:
    if not done and found.expired:
        rows = [(revision, ", ".join(found.pinned.get(revision, ())) or "nothing") for revision in found.expired]
        show_table(("Revision", "Kept by"), rows)
    if done:
        show(_words(found, "deleted", f"expired as of revision {found.revision}"))
    else:
        show(_words(found, "would be deleted", "would expire"))
    show_released(found.released, done=done)
