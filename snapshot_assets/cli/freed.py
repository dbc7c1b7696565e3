"""What nothing needs once a tag or savepoint is gone, as its deletion tells with `--dry-run`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pin_set import PinState
from snapshot_assets.catalog.retention import retained_without
from snapshot_assets.cli.output import counted, human_bytes, show, show_json


def would_free(options: argparse.Namespace, catalog: Catalog, known: PinState, which: Mapping[str, object]) -> int:
    """Tell what nothing would need without a pin; exit status 0.

    Args:
        options: Those of the command.
        catalog: The location, opened for reading.
        known: The pin.
        which: It, as JSON holds it.
    """
    state = catalog.state
    unneeded = state.files.freed(state.retained(), retained_without(state, pins=[known]))
    if options.json:
        files = [{"path": path, "bytes": size} for path, size in unneeded.items()]
        show_json({"uri": catalog.store.uri, **which, "dry_run": True, "deleted": False, "unneeded": files})
        return 0
    for path in unneeded:
        show(f"not needed then: {path}")
    said = f"{counted(len(unneeded), 'file')}, {human_bytes(sum(unneeded.values()))}"
    show(f"{known.pin} would be deleted: {said}, needed by nothing then; `snapshots catalog gc` deletes what is")
    return 0
