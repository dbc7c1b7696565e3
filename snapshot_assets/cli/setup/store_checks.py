"""The checks of `snapshots doctor` on a location: rights, conditional creates and the clock, by one probe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime

from snapshot_assets.catalog.catalog import MAX_CLOCK_SKEW
from snapshot_assets.cli.setup.checks import Check, failed
from snapshot_assets.format.units import duration_text
from snapshot_assets.storage.create import ProbeResult, probe
from snapshot_assets.storage.location import FILE, Location, parse_location
from snapshot_assets.storage.options import StoreOptions, open_store

_PATIENCE = "10s"
_CONDITIONAL = (
    "Use a store with conditional creates (If-None-Match); or write `single_writer: true` in the plan, if no other"
    " writer ever uses the location."
)


def check_location(uri: str, options: StoreOptions | None, *, single_writer: bool) -> Iterator[Check]:
    """Check a location by a probe, which leaves nothing behind.

    Args:
        uri: The location.
        options: Its storage options.
        single_writer: Whether a plan does without conditional creates.
    """
    try:
        location = parse_location(uri)
        if location.scheme != FILE:
            options = replace(options or StoreOptions(), retry_timeout=_PATIENCE)
        with _without_new_folders(location):
            probed = probe(open_store(location, options), single_writer=True)
    except Exception as error:  # whatever it is, the other checks go on
        remedy = "Correct the location, or its storage options in the configuration or the environment; grant its user"
        yield failed("store", uri, error, f"{remedy} the rights to read, write, list and delete objects there.")
        return
    yield Check("store", uri, True, "an object was written, read, listed and deleted")
    yield from _properties(uri, probed, single_writer)


def _properties(uri: str, probed: ProbeResult, single_writer: bool) -> Iterator[Check]:
    conditional = probed.conditional_create
    detail = "the second of two creates was refused" if conditional else "two creates of one object both succeeded"
    if not conditional and single_writer:
        detail += "; the plan has `single_writer: true`"
    ok = conditional or single_writer
    yield Check("conditional create", uri, ok, detail, "" if ok else _CONDITIONAL)
    seconds = (datetime.now(UTC) - probed.store_time).total_seconds()
    ok = abs(seconds) <= MAX_CLOCK_SKEW.total_seconds()
    where = "ahead of" if seconds > 0 else "behind"
    most = duration_text(MAX_CLOCK_SKEW)
    detail = f"this machine's clock is {abs(seconds):.0f} s {where} the store's; at most {most} is accepted"
    yield Check("clock", uri, ok, detail, "" if ok else "Set this machine's clock, by NTP.")


@contextmanager
def _without_new_folders(location: Location) -> Iterator[None]:
    """Remove the folders of a location on disk that the context made, unless others use them."""
    path = location.local_path if location.scheme == FILE else None
    new = [folder for folder in (path, *path.parents) if not folder.exists()] if path is not None else []
    try:
        yield
    finally:
        for folder in new:
            with suppress(OSError):
                folder.rmdir()
