"""Functions that `snapshots tag` and `snapshots savepoint` share."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins import objects
from snapshot_assets.catalog.state.pins import PinState, TagState
from snapshot_assets.catalog.state.unreferenced import PinEnd, end_of_pin
from snapshot_assets.cli.confirm import execute_confirmed
from snapshot_assets.cli.output import show, show_json, show_message, show_table
from snapshot_assets.cli.unreferenced import released_json, show_released, sizes


def show_pins(
    options: argparse.Namespace,
    what: str,
    pins: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str],
) -> int:
    """Print pins as a table or as JSON, and return exit status 0.

    Args:
        options: The call.
        what: What pins these are, such as `tags`.
        pins: The pins, as JSON shows them.
        columns: The key that each column of the table shows, by header.
    """
    if options.json:
        show_json(pins)
    elif pins:
        show_table(tuple(columns), [tuple(each[name] for name in columns.values()) for each in pins])
    else:
        show_message(f"No {what} at {options.snapshot}.")
    return 0


def delete_pin(options: argparse.Namespace, catalog: Catalog, pin: PinState, **which: object) -> int:
    """Delete a pin; ask first if a revision becomes unreadable.

    Args:
        options: The call.
        catalog: The location.
        pin: The pin.
        which: Its name or number, as JSON shows it.

    Returns:
        Exit status: 1 if another writer changed the pin first, so that it is still there.
    """
    uri, ends, stays = catalog.store.uri, end_of_pin(catalog.state, pin), False
    [name] = which.values()

    def report(deleted: bool, done: bool) -> None:
        if not done or options.json:
            show_ends(options, {"uri": uri, **which, "deleted": deleted}, f"{pin.pin} would be deleted", ends)
        elif stays:
            show_message(f"{uri}: {pin.pin} was changed by another writer meanwhile; nothing was deleted. Run again.")
        elif deleted:
            show(f"{uri}: {'tag' if isinstance(pin, TagState) else 'savepoint'} {name} is deleted")
        else:
            show(f"{uri}: {pin.pin} was deleted by another writer meanwhile; nothing was deleted")

    def execute(_: bool) -> bool:
        nonlocal stays
        deleted = objects.delete_pin(catalog, pin, ends)
        stays = not deleted and objects.pin_of_same_name(catalog.state, pin) is not None
        return deleted

    question = loss_question(uri, pin, ends)
    status = execute_confirmed(options, False, execute, report, question=question, refusal="Nothing was changed.")
    return 1 if stays else status


def loss_question(uri: str, pin: PinState, ends: PinEnd) -> str:
    """Return the question to ask before a revision becomes unreadable with its last pin; "" if none does."""
    if ends.unreadable is None:
        return ""
    return (
        f"{uri}: only {pin.pin} keeps revision {ends.unreadable} readable, which has expired: without it nothing can "
        f"read or pin that again, and {sizes(ends.released)}, will be needed by nothing."
    )


def show_ends(options: argparse.Namespace, facts: Mapping[str, object], would: str, ends: PinEnd) -> None:
    """Print what ends with a pin.

    Args:
        options: The call.
        facts: The first keys of the JSON document.
        would: What would be done, as text.
        ends: What ends with the pin.
    """
    if options.json:
        ending = {"dry_run": options.dry_run, "unreadable": ends.unreadable}
        show_json({**facts, **ending, **released_json(ends.released)})
    else:
        show(would + (f", and revision {ends.unreadable} not be readable" if ends.unreadable else ""))
        show_released(ends.released, done=False)
