"""Pinning the revision that an import restores, so that nothing it still needs expires meanwhile."""

from __future__ import annotations

import logging

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins import create_tag, delete_tag
from snapshot_assets.databases.target import ImportRecord
from snapshot_assets.errors import ConditionalCreateUnsupportedError, StoreDeniedError
from snapshot_assets.format.scrub import scrub
from snapshot_assets.storage.base import ObjectStore

_LOG = logging.getLogger(__name__)


def tag_of(import_id: str) -> str:
    """Return the name of the tag that pins an import's revision."""
    return f"import-{import_id[:12]}"


def pin(store: ObjectStore, record: ImportRecord) -> None:
    """Create the tag of an import that is not finished, unless it is there; warn where the location is read-only.

    Raises:
        VersionNotFoundError: The revision is not there any more.
    """
    known = Catalog.open(store).state.tags.get(record.tag)
    if known is not None and known.tag.revision == record.revision:
        return  # a location that may only be read by now needs no write
    try:
        create_tag(Catalog.open_for_writing(store), record.tag, record.revision)
    except (StoreDeniedError, ConditionalCreateUnsupportedError) as error:
        _LOG.warning(
            "%s cannot be written to, so revision %s is not pinned while it is imported: do not expire it. %s",
            store.uri,
            record.revision,
            scrub(str(error)),
        )


def unpin(store: ObjectStore, record: ImportRecord) -> None:
    """Delete the tag of an import that has finished, if it is there."""
    if record.tag in Catalog.open(store).state.tags:
        delete_tag(Catalog.open_for_writing(store), record.tag)
