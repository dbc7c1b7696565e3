"""What left files and schema documents unneeded, and when: garbage collection counts their age from there.

One that was needed by a revision which expired a moment ago, or lost its last pin then, may still be read by somebody.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from snapshot_assets.catalog.state.file_columns import Removal
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.retained_events import schema_lives
from snapshot_assets.format import actions as act
from snapshot_assets.format.checkpoint import Event


def expiries_since(state: State, before: datetime, written_at: Callable[[int], datetime]) -> dict[int, Removal]:
    """Return what let revisions expire after a time, by revision; of several that did, the newest.

    Args:
        state: The head.
        before: The time.
        written_at: Returns when a revision of the log was written, on the store's clock.
    """
    found: dict[int, Removal] = {}
    for event in state.events:
        expired = [each for action in event.actions if isinstance(action, act.Expired) for each in action.revisions]
        if expired and max(event.committed_at, written_at(event.revision)) > before:
            found.update(dict.fromkeys(expired, (event.revision, event.committed_at)))
    return found


@dataclass(frozen=True)
class UnreferencedSchemas:
    """The schema documents of snapshots that ended, which nothing else may need.

    Attributes:
        left: What left each unneeded last, by path: what ended its snapshot, or the expiry of a revision of it.
        of_expired: Those of revisions that expired.
    """

    left: dict[str, Removal] = field(default_factory=dict)
    of_expired: set[str] = field(default_factory=set)


def unneeded_documents(state: State, expired: Mapping[int, Removal]) -> UnreferencedSchemas:
    """Return the schema documents of snapshots that ended.

    Args:
        state: The head.
        expired: What expired of late, by revision.
    """
    found = UnreferencedSchemas()
    late, ever = sorted(expired), sorted(state.expired)
    for added, schema, end in schema_lives(state.events):
        if end is None:
            continue
        left = max([(end.revision, end.committed_at), *(expired[each] for each in _between(late, added, end))])
        for ref in schema.files:
            found.left[ref.path] = max(left, found.left.get(ref.path, left))
            if _between(ever, added, end):
                found.of_expired.add(ref.path)
    return found


def _between(revisions: Sequence[int], first: Event, end: Event) -> Sequence[int]:
    return revisions[bisect_left(revisions, first.revision) : bisect_left(revisions, end.revision)]
