"""Savepoints: numbered pins, which keep sealed revisions readable.

A savepoint takes a number that no other had before. It pins a complete and compacted state: the head is sealed
(FORMAT.md, section 6), and its data is what the caller compacted.
"""

from __future__ import annotations

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins.objects import NO_OBJECT, create_pin
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import SavepointState
from snapshot_assets.errors import ConflictError, UnsealedError
from snapshot_assets.format import actions as act


class UncompactedError(ConflictError):
    """Data changed after the compaction for a savepoint: the caller compacts again."""


def create_savepoint(catalog: Catalog, compacted: int, *, automatic: bool = False) -> SavepointState:
    """Pin the newest seal under the next free number; see `create_pin`.

    Args:
        catalog: The location, opened for writing.
        compacted: The `data_revision` of the compacted state; only that data is pinned.
        automatic: Whether a rule creates it, and may delete it.

    Raises:
        UnsealedError: The head is not sealed.
        UncompactedError: The newest seal is of other data.
    """
    created_at = catalog.now()

    def wanted(state: State) -> act.SavepointCreated:
        number, revision = state.pins.last_savepoint + 1, sealed_head(state)
        if state.data_revision != compacted:
            raise UncompactedError(
                f"Revision {state.data_revision} changed data after everything was compacted, which was at revision "
                f"{compacted}; no savepoint was made. Compact again.",
                revision=state.data_revision,
            )
        return act.SavepointCreated(number, revision, NO_OBJECT, created_at, automatic)

    made = create_pin(catalog, wanted)
    assert made is not None
    return made


def sealed_head(state: State) -> int:
    """Return the revision of the newest seal, whose data the head has: only complete data becomes a savepoint.

    Raises:
        UnsealedError: The head is not sealed.
    """
    if not state.sealed or state.newest_seal is None:
        newest = f"the newest seal is revision {state.newest_seal.revision}" if state.newest_seal else "nothing is"
        raise UnsealedError(
            f"Revision {state.revision}, the head, is not sealed ({newest}), so it cannot become a savepoint. "
            "Export what is missing, which seals it; or pin an older revision by a tag.",
            revision=state.revision,
        )
    return state.newest_seal.revision
