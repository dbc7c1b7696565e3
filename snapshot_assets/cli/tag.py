"""`snapshots tag create | list | delete | rename | replace | exists`."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import datetime, timedelta

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins.listing import ListedTag, list_tags
from snapshot_assets.catalog.pins.objects import ttl_text
from snapshot_assets.catalog.pins.tags import Tag, create_tag, known_tag, rename_tag, replace_tag
from snapshot_assets.catalog.state.unreferenced import end_of_pin
from snapshot_assets.catalog.state.versions import version_to_pin
from snapshot_assets.cli.catalog.describe import plain
from snapshot_assets.cli.confirm import execute_confirmed
from snapshot_assets.cli.location import open_catalog
from snapshot_assets.cli.output import show, show_json
from snapshot_assets.cli.pins import delete_pin, loss_question, show_ends, show_pins
from snapshot_assets.format.units import parse_duration, time_text

_COLUMNS = {
    "Tag": "tag_name",
    "Revision": "tagged_snapshot_id",
    "Commit time": "commit_time",
    "Created": "create_time",
    "Time retained": "time_retained",
    "Expires at": "expires_at",
}


def create(options: argparse.Namespace) -> int:
    """Create a tag."""
    ttl = _ttl(options)
    catalog = open_catalog(options, writing=True)
    tag = create_tag(catalog, options.name, version_to_pin(options.at, catalog.state), ttl)
    return _report(options, catalog, tag, "" if tag.new else ", as before")


def replace(options: argparse.Namespace) -> int:
    """Let a tag pin another revision; ask first if a revision becomes unreadable."""
    ttl = _ttl(options)
    catalog = open_catalog(options, writing=not options.dry_run)
    known, revision = known_tag(catalog.state, options.name), version_to_pin(options.at, catalog.state)
    ends, uri = end_of_pin(catalog.state, known, replaced_by=revision), catalog.store.uri

    def report(tag: Tag | None, done: bool) -> None:
        if tag is not None:
            _report(options, catalog, tag)
        else:
            facts = {"uri": uri, "tag_name": options.name, "tagged_snapshot_id": revision, "replaced": False}
            show_ends(options, facts, f"{known.pin} would pin revision {revision}", ends)

    def execute(_: Tag | None) -> Tag | None:
        return replace_tag(catalog, options.name, revision, ttl, known=known)

    question = loss_question(uri, known, ends)
    return execute_confirmed(options, None, execute, report, question=question, refusal="Nothing was changed.")


def rename(options: argparse.Namespace) -> int:
    """Rename a tag."""
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


def delete(options: argparse.Namespace) -> int:
    """Delete a tag; ask first if a revision becomes unreadable."""
    catalog = open_catalog(options, writing=not options.dry_run)
    return delete_pin(options, catalog, known_tag(catalog.state, options.name), tag_name=options.name)


def exists(options: argparse.Namespace) -> int:
    """Print whether there is a tag; exit status 1 if not."""
    catalog = open_catalog(options, writing=False)
    present = options.name in catalog.state.tags
    if options.json:
        show_json({"uri": catalog.store.uri, "tag_name": options.name, "exists": present})
    else:
        show("yes" if present else "no")
    return 0 if present else 1


def list_(options: argparse.Namespace) -> int:
    """List the tags."""
    catalog = open_catalog(options, writing=False)
    tags = list_tags(catalog.state)
    rows = [plain(asdict(tag)) | ({} if options.json else _words(tag, catalog.now())) for tag in tags]
    return show_pins(options, "tags", rows, _COLUMNS)


def _words(tag: ListedTag, now: datetime) -> dict[str, str]:
    """Return the table's columns on a tag's time to live. A tag that outlived it keeps its revision until deleted."""
    expires = "never" if tag.expires_at is None else time_text(tag.expires_at)
    outlived = " (outlived)" if tag.expires_at is not None and tag.expires_at <= now else ""
    return {"time_retained": tag.time_retained or "for ever", "expires_at": expires + outlived}
