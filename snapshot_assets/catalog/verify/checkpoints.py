"""Verification of the bytes of checkpoints, also those that nobody reads to open the location."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from snapshot_assets.catalog.log.replay import FAULTS, LogScan
from snapshot_assets.catalog.verify.faults import Fault, FaultKind
from snapshot_assets.errors import ObjectNotFoundError
from snapshot_assets.format.checkpoint import check_bytes
from snapshot_assets.format.layout import checkpointed_revision
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.listed import Listed


def checkpoint_faults(store: ObjectStore, scan: LogScan, objects: Listed, *, full: bool) -> Iterator[Fault]:
    """Yield the faults of checkpoints that reading the log did not meet.

    Args:
        store: The location.
        scan: Its log.
        objects: The location's objects by path.
        full: Read every byte; otherwise only sizes are compared.
    """
    noted, rebuilt = {path for path, _ in scan.faults}, scan.state.rebuilt_at
    for path, info in objects.items():
        revision = checkpointed_revision(path)
        if revision is None or revision < rebuilt or path in noted:
            continue
        try:
            with suppress(ObjectNotFoundError):  # pruned since it was listed
                check_bytes(partial(store.get_range, path), info.size, path, sections=full)
        except FAULTS as error:
            yield Fault(FaultKind.LOG, path, f"{type(error).__name__}: {error}")
