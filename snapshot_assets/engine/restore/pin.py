"""Pinning the revision that an import restores, so that nothing it still needs expires meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag
from snapshot_assets.databases.target import RestoreRecord
from snapshot_assets.errors import ConditionalCreateUnsupportedError, StoreDeniedError
from snapshot_assets.format.scrub import scrub
from snapshot_assets.storage.base import ObjectStore

_LOG = logging.getLogger(__name__)


def tag_of(import_id: str) -> str:
    """Return the name of the tag that pins an import's revision."""
    return f"import-{import_id[:12]}"


def pin(store: ObjectStore, record: RestoreRecord) -> None:
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


def unpin(store: ObjectStore, records: Iterable[RestoreRecord]) -> list[str]:
    """Delete the tags of imports that pin nothing any more, where they are there.

    Returns:
        Names of those that are still there, because the location may only be read.
    """
    tags = Catalog.open(store).state.tags
    left = [record.tag for record in records if record.tag in tags]
    while left:
        try:
            delete_tag(Catalog.open_for_writing(store), left[0])
        except (StoreDeniedError, ConditionalCreateUnsupportedError) as error:
            _LOG.warning("%s cannot be written to, so it keeps %s. %s", store.uri, ", ".join(left), scrub(str(error)))
            break
        del left[0]
    return left
