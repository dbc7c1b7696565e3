"""What `snapshots tag` and `snapshots savepoint` share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.state.pins import PinState, TagState
from snapshot_assets.catalog.state.unreferenced import PinEnd, end_of_pin
from snapshot_assets.cli.confirm import confirmed
from snapshot_assets.cli.output import say, show, show_json, show_table
from snapshot_assets.cli.unreferenced import released_json, show_released, sizes


def show_pins(
    options: argparse.Namespace,
    what: str,
    found: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str],
) -> int:
    """Show pins as a table or as JSON; exit status 0.

    Args:
        options: The call.
        what: What there is none of, if it is so.
        found: The pins, as JSON holds them.
        columns: The facts of a pin that the table shows, by header.
    """
    if options.json:
        show_json(found)
    elif found:
        show_table(tuple(columns), [tuple(each[name] for name in columns.values()) for each in found])
    else:
        say(f"No {what} at {options.snapshot}.")
    return 0


def delete_pin(
    options: argparse.Namespace, catalog: Catalog, known: PinState, delete: Callable[[], bool], **which: object
) -> int:
    """Delete a pin, or tell what nothing would need then; exit status 1 if it was asked for and not confirmed.

    Args:
        options: The call.
        catalog: The location.
        known: The pin.
        delete: Deletes it; False if another was quicker.
        which: It, as JSON holds it.
    """
    ends, uri = end_of_pin(catalog.state, known), catalog.store.uri
    if options.dry_run or not agreed(options, uri, known, ends):
        return not_done(options, {"uri": uri, **which, "deleted": False}, f"{known.pin} would be deleted", ends)
    deleted = delete()
    if options.json:
        show_json(_as_json(options, {"uri": uri, **which, "deleted": deleted}, ends))
    else:
        [name] = which.values()
        show(f"{uri}: {'tag' if isinstance(known, TagState) else 'savepoint'} {name} is deleted")
    return 0


def agreed(options: argparse.Namespace, uri: str, known: PinState, ends: PinEnd) -> bool:
    """Ask before the last pin of a revision that has expired goes, as none can be made of it again."""
    if ends.unreadable is None or options.yes:
        return True
    return confirmed(
        f"{uri}: only {known.pin} keeps revision {ends.unreadable} readable, which has expired: without it nothing can "
        f"read or pin that again, and {sizes(ends.released)}, will be needed by nothing."
    )


def not_done(options: argparse.Namespace, facts: Mapping[str, object], would: str, ends: PinEnd) -> int:
    """Tell what nothing would need without a pin that is still there; exit status 1 unless it was only to be told.

    Args:
        options: The call.
        facts: What JSON says first.
        would: What would be done, in words.
        ends: What ends with the pin.
    """
    if not options.dry_run:
        say("Nothing was changed.")
    if options.json:
        show_json(_as_json(options, facts, ends))
    elif options.dry_run:
        show(would + (f", and revision {ends.unreadable} not be readable" if ends.unreadable else ""))
        show_released(ends.released, done=False)
    return 0 if options.dry_run else 1


def _as_json(options: argparse.Namespace, facts: Mapping[str, object], ends: PinEnd) -> dict[str, Any]:
    return {**facts, "dry_run": options.dry_run, "unreadable": ends.unreadable} | released_json(ends.released)
