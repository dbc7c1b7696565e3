"""Pins the revision of a restore by a tag at its location, so that it does not expire before the restore ends."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from snapshot_assets.catalog.catalog import Catalog, writable
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag
from snapshot_assets.catalog.state.pins import held_tags
from snapshot_assets.databases.protocol.target import RestoreRecord
from snapshot_assets.engine.restore.source import RestoreSource
from snapshot_assets.errors import ConditionalCreateUnsupportedError, ReplicaError, StoreDeniedError
from snapshot_assets.format.scrub import scrub
from snapshot_assets.storage.base import ObjectStore

_LOG = logging.getLogger(__name__)
_UNWRITABLE = (StoreDeniedError, ConditionalCreateUnsupportedError, ReplicaError)


def pin(store: ObjectStore, record: RestoreRecord, source: RestoreSource, ttl: timedelta | None) -> bool:
    """Create the tag of an unfinished restore, unless it exists; warn if the location is read-only or a replica.

    Nothing is committed to a log that objects contradict. Newer transactions than those of `source` are read here.

    Returns:
        Whether the tag exists.

    Raises:
        VersionNotFoundError: The revision expired.
    """
    if source.contradicted:
        return False
    catalog = Catalog(store, source.head.copy())
    existing = catalog.refresh().tags.get(record.tag)
    if existing is not None and existing.pin.revision == record.revision:
        return True  # a location that is read-only by now needs no write
    try:
        # Opening the location for writing would read the log again, which the plan has verified to its end.
        probed = writable(store, single_writer=False, clock=lambda: datetime.now(UTC))
        create_tag(Catalog(probed, catalog.state), record.tag, record.revision, ttl)
    except ReplicaError:
        _LOG.warning(
            "%s is a replica, so revision %s is not pinned while it is imported: do not replicate to it with --delete.",
            store.uri,
            record.revision,
        )
        return False
    except _UNWRITABLE as error:
        _LOG.warning(
            "%s cannot be written to, so revision %s is not pinned while it is imported: do not expire it. %s",
            store.uri,
            record.revision,
            scrub(str(error)),
        )
        return False
    return True


def unpin(store: ObjectStore, tags: Iterable[str]) -> list[str]:
    """Delete tags of restores; returns those that are held, or that remain because the location is read-only."""
    left = list(tags)
    try:
        catalog = Catalog.open_for_writing(store) if left else None
        if catalog is not None:
            held = held_tags(catalog.state.pins).keys() & set(left)
            for tag in [tag for tag in left if tag not in held]:
                delete_tag(catalog, tag)
                left.remove(tag)
    except _UNWRITABLE as error:
        existing = Catalog.open(store).state.tags
        left = [tag for tag in left if tag in existing]
        if left:
            _LOG.warning("%s cannot be written to, so it keeps %s. %s", store.uri, ", ".join(left), scrub(str(error)))
    return left
