"""`snapshots tag create | list | delete | rename | replace | exists`."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins.listing import ListedTag, list_tags
from snapshot_assets.catalog.pins.objects import ttl_text
from snapshot_assets.catalog.pins.tags import Tag, create_tag, delete_tag, known_tag, rename_tag, replace_tag
from snapshot_assets.catalog.state.unreferenced import end_of_pin
from snapshot_assets.catalog.state.versions import version_to_pin
from snapshot_assets.cli.catalog.describe import plain
from snapshot_assets.cli.catalog.opening import open_catalog
from snapshot_assets.cli.output import show, show_json
from snapshot_assets.cli.pins import agreed, delete_pin, not_done, show_pins
from snapshot_assets.format.units import parse_duration, time_text

_COLUMNS = {
    "Tag": "tag_name",
    "Revision": "tagged_snapshot_id",
    "Commit time": "commit_time",
    "Created": "create_time",
    "Time retained": "time_retained",
    "Expires at": "expires_at",
}


def run(options: argparse.Namespace) -> int:
    """Do what the command says; exit status 1 only of `exists`, where there is no such tag."""
    actions = {
        "create": _create,
        "list": _list,
        "delete": _delete,
        "rename": _rename,
        "replace": _replace,
        "exists": _exists,
    }
    return actions[options.action](options)


def _create(options: argparse.Namespace) -> int:
    ttl = _ttl(options)
    catalog = open_catalog(options, writing=True)
    tag = create_tag(catalog, options.name, version_to_pin(options.at, catalog.state), ttl)
    return _report(options, catalog, tag, "" if tag.new else ", as before")


def _replace(options: argparse.Namespace) -> int:
    ttl = _ttl(options)
    catalog = open_catalog(options, writing=not options.dry_run)
    known, revision = known_tag(catalog.state, options.name), version_to_pin(options.at, catalog.state)
    ends, uri = end_of_pin(catalog.state, known, replaced_by=revision), catalog.store.uri
    if options.dry_run or not agreed(options, uri, known, ends):
        facts = {"uri": uri, "tag_name": options.name, "tagged_snapshot_id": revision, "replaced": False}
        return not_done(options, facts, f"{known.pin} would pin revision {revision}", ends)
    return _report(options, catalog, replace_tag(catalog, options.name, revision, ttl))


def _rename(options: argparse.Namespace) -> int:
    catalog = open_catalog(options, writing=True)
    return _report(options, catalog, rename_tag(catalog, options.name, options.new_name))


def _ttl(options: argparse.Namespace) -> timedelta | None:
    return None if options.time_retained is None else parse_duration(options.time_retained)


def _report(options: argparse.Namespace, catalog: Catalog, tag: Tag, remark: str = "") -> int:
    pinned = tag.known.tag
    if options.json:
        [listed] = [each for each in list_tags(catalog.state) if each.tag_name == pinned.name]
        show_json({"uri": catalog.store.uri, "new": tag.new} | plain(asdict(listed)))
    else:
        life = f" for {ttl_text(pinned.ttl)}" if pinned.ttl else ""
        show(f"{catalog.store.uri}: tag {pinned.name} keeps revision {pinned.revision}{life}{remark}")
    return 0


def _delete(options: argparse.Namespace) -> int:
    catalog = open_catalog(options, writing=not options.dry_run)
    known = known_tag(catalog.state, options.name)  # a wrong name is told with those that are near
    return delete_pin(options, catalog, known, partial(delete_tag, catalog, options.name), tag_name=options.name)


def _exists(options: argparse.Namespace) -> int:
    catalog = open_catalog(options, writing=False)
    found = options.name in catalog.state.tags
    if options.json:
        show_json({"uri": catalog.store.uri, "tag_name": options.name, "exists": found})
    else:
        show("yes" if found else "no")
    return 0 if found else 1


def _list(options: argparse.Namespace) -> int:
    catalog = open_catalog(options, writing=False)
    tags = list_tags(catalog.state)
    found = [plain(asdict(tag)) | ({} if options.json else _words(tag, catalog.now())) for tag in tags]
    return show_pins(options, "tags", found, _COLUMNS)


def _words(tag: ListedTag, now: datetime) -> dict[str, str]:
    """Return how a table shows how long a tag lives: outlived, it stays and keeps its revision until it is deleted."""
    expires = "never" if tag.expires_at is None else time_text(tag.expires_at)
    outlived = " (outlived)" if tag.expires_at is not None and tag.expires_at <= now else ""
    return {"time_retained": tag.time_retained or "for ever", "expires_at": expires + outlived}
