"""`snapshots tag`, and `snapshots savepoint list | delete`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins import listing, tags
from snapshot_assets.catalog.pins.objects import delete_pin, pin_of_same_name, ttl_text
from snapshot_assets.catalog.pins.tags import hold_tag, release_tag
from snapshot_assets.catalog.state.pins import PinState, refuse_held
from snapshot_assets.catalog.state.retained import PinEnd, end_of_pin
from snapshot_assets.catalog.state.versions import resolve_version, version_to_pin
from snapshot_assets.cli.confirm import execute_confirmed
from snapshot_assets.cli.exit_status import ExitStatus
from snapshot_assets.cli.location import duration_of, open_catalog
from snapshot_assets.cli.output import plain, show, show_json, show_message, show_table
from snapshot_assets.cli.unreferenced import released_json, show_released, sizes
from snapshot_assets.format.actions import TagCreated
from snapshot_assets.format.units import time_text

_UNCHANGED = "Nothing was changed."
_TAG_COLUMNS = {
    "Tag": "tag_name",
    "Revision": "tagged_snapshot_id",
    "Commit time": "commit_time",
    "Created": "create_time",
    "Time retained": "time_retained",
    "Expires at": "expires_at",
}
_HOLD_COLUMNS = {"Held since": "held_since", "Held by": "held_by", "Reason": "hold_reason"}
_SAVEPOINT_COLUMNS = {
    "Savepoint": "savepoint_id",
    "Revision": "saved_snapshot_id",
    "Commit time": "commit_time",
    "Created": "create_time",
}


def create(options: argparse.Namespace) -> int:
    """Create a tag."""
    ttl = duration_of(options.time_retained)
    catalog = open_catalog(options, writing=True)
    tag = tags.create_tag(catalog, options.name, version_to_pin(options.at, catalog.state), ttl)
    return _report(options, catalog, tag, "" if tag.new else ", as before")


def replace(options: argparse.Namespace) -> int:
    """Let a tag pin another revision; ask first if a revision becomes unreadable."""
    ttl = duration_of(options.time_retained)
    catalog = open_catalog(options, writing=not options.dry_run)
    known = tags.known_tag(catalog.state, options.name)
    refuse_held([known])
    revision = version_to_pin(options.at, catalog.state)
    ends = end_of_pin(catalog.state, known, replaced_by=revision)

    def report(_: argparse.Namespace, uri: str, tag: tags.Tag | None, __: bool) -> None:
        if tag is not None:
            _report(options, catalog, tag)
        else:
            facts = {"uri": uri, "tag_name": options.name, "tagged_snapshot_id": revision, "replaced": False}
            _show_ends(options, facts, f"{known.pin} would pin revision {revision}", ends)

    def execute(catalog: Catalog, _: tags.Tag | None) -> tags.Tag | None:
        return tags.replace_tag(catalog, options.name, revision, ttl, known=known)

    question = _loss_question(known, ends)
    return execute_confirmed(options, catalog, None, execute, report, question=question, refusal=_UNCHANGED)


def rename(options: argparse.Namespace) -> int:
    """Rename a tag."""
    catalog = open_catalog(options, writing=True)
    return _report(options, catalog, tags.rename_tag(catalog, options.name, options.new_name))


def hold(options: argparse.Namespace) -> int:
    """Put a tag under legal hold."""
    catalog = open_catalog(options, writing=True)
    tag = hold_tag(catalog, options.name, options.reason, options.by)
    return _report(options, catalog, tag, f", held: {options.reason}" if tag.new else ", held as before")


def release(options: argparse.Namespace) -> int:
    """End the legal hold on a tag."""
    catalog = open_catalog(options, writing=True)
    tag = release_tag(catalog, options.name, options.reason, options.by)
    return _report(options, catalog, tag, ", no longer held")


def _report(options: argparse.Namespace, catalog: Catalog, tag: tags.Tag, remark: str = "") -> int:
    pinned = tag.known.pin
    if options.json:
        [listed] = [each for each in listing.list_tags(catalog.state) if each.tag_name == pinned.name]
        show_json({"uri": catalog.store.uri, "new": tag.new} | plain(asdict(listed)))
    else:
        life = f" for {ttl_text(pinned.ttl)}" if pinned.ttl else ""
        show(f"{catalog.store.uri}: tag {pinned.name} keeps revision {pinned.revision}{life}{remark}")
    return 0


def exists(options: argparse.Namespace) -> int:
    """Print whether there is a tag; exit status 5 if not."""
    catalog = open_catalog(options, writing=False)
    present = options.name in catalog.state.tags
    if options.json:
        show_json({"uri": catalog.store.uri, "tag_name": options.name, "exists": present})
    else:
        show("yes" if present else "no")
    return ExitStatus.DONE if present else ExitStatus.NOT_FOUND


def list_tags(options: argparse.Namespace) -> int:
    """List the tags. One that outlived its time keeps its revision until it is deleted."""
    catalog = open_catalog(options, writing=False)
    found, now = listing.list_tags(catalog.state), catalog.now()
    rows = []
    for tag in found:
        row = plain(asdict(tag))
        if not options.json:
            expires = "never" if tag.expires_at is None else time_text(tag.expires_at)
            outlived = " (outlived)" if tag.expires_at is not None and tag.expires_at <= now else ""
            row |= {"time_retained": tag.time_retained or "for ever", "expires_at": expires + outlived}
            row |= {} if tag.held_since else dict.fromkeys(_HOLD_COLUMNS.values(), "")
        rows.append(row)
    columns = _TAG_COLUMNS | (_HOLD_COLUMNS if any(tag.held_since for tag in found) else {})
    return _list(options, catalog, "tags", rows, columns)


def list_savepoints(options: argparse.Namespace) -> int:
    """List the savepoints."""
    catalog = open_catalog(options, writing=False)
    rows = [plain(asdict(each)) for each in listing.list_savepoints(catalog.state)]
    return _list(options, catalog, "savepoints", rows, _SAVEPOINT_COLUMNS)


def _list(
    options: argparse.Namespace,
    catalog: Catalog,
    what: str,
    pins: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str],
) -> int:
    """Print pins as a table, whose columns show the given keys, or as JSON."""
    if options.json:
        show_json(pins)
    elif pins:
        show_table(tuple(columns), [tuple(each[name] for name in columns.values()) for each in pins])
    else:
        show_message(f"No {what} at {catalog.store.uri}.")
    return 0


def delete_tag(options: argparse.Namespace) -> int:
    """Delete a tag; ask first if a revision becomes unreadable."""
    catalog = open_catalog(options, writing=not options.dry_run)
    return _delete(options, catalog, tags.known_tag(catalog.state, options.name), tag_name=options.name)


def delete_savepoint(options: argparse.Namespace) -> int:
    """Delete a savepoint; ask first if a revision becomes unreadable."""
    catalog = open_catalog(options, writing=not options.dry_run)
    resolve_version(f"savepoint:{options.id}", catalog.state)  # its error names the savepoints that there are
    return _delete(options, catalog, catalog.state.pins.savepoints[options.id], savepoint_id=options.id)


def _delete(options: argparse.Namespace, catalog: Catalog, pin: PinState, **which: object) -> int:
    """Delete a pin, with its name or number as JSON shows it; exit status 1 if another writer changed it first."""
    refuse_held([pin])
    ends, stays = end_of_pin(catalog.state, pin), False
    [name] = which.values()

    def report(_: argparse.Namespace, uri: str, deleted: bool, done: bool) -> None:
        if not done or options.json:
            _show_ends(options, {"uri": uri, **which, "deleted": deleted}, f"{pin.pin} would be deleted", ends)
        elif stays:
            show_message(f"{uri}: {pin.pin} was changed by another writer meanwhile; nothing was deleted. Run again.")
        elif deleted:
            show(f"{uri}: {'tag' if isinstance(pin.pin, TagCreated) else 'savepoint'} {name} is deleted")
        else:
            show(f"{uri}: {pin.pin} was deleted by another writer meanwhile; nothing was deleted")

    def execute(catalog: Catalog, _: bool) -> bool:
        nonlocal stays
        deleted = delete_pin(catalog, pin, ends)
        stays = not deleted and pin_of_same_name(catalog.state, pin) is not None
        return deleted

    question = _loss_question(pin, ends)
    status = execute_confirmed(options, catalog, False, execute, report, question=question, refusal=_UNCHANGED)
    return 1 if stays else status


def _loss_question(pin: PinState, ends: PinEnd) -> str:
    """Return the question to ask before a revision becomes unreadable with its last pin; "" if none does."""
    if ends.unreadable is None:
        return ""
    return (
        f"only {pin.pin} keeps revision {ends.unreadable} readable, which has expired: without it nothing can "
        f"read or pin that again, and {sizes(ends.released)}, will be unreferenced."
    )


def _show_ends(options: argparse.Namespace, facts: Mapping[str, object], would: str, ends: PinEnd) -> None:
    """Print what ends with a pin, after the document's first keys or the text of what would be done."""
    if options.json:
        ending = {"dry_run": options.dry_run, "unreadable": ends.unreadable}
        show_json({**facts, **ending, **released_json(ends.released)})
    else:
        show(would + (f", and revision {ends.unreadable} not be readable" if ends.unreadable else ""))
        show_released(ends.released, done=False)
