"""Lists of tags and savepoints, by when the revisions that they pin were committed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter

from snapshot_assets.catalog.state import State


@dataclass(frozen=True)
class ListedTag:
    """A tag among the others.

    Attributes:
        committed_at: When the revision that it pins was committed.
        ttl: How long it lives from `created_at`; None for ever.
        automatic: Whether a rule made it, and may delete it.
        previous: The tag of the closest earlier revision, "" if there is none.
        next: The tag of the closest later revision, likewise.
    """

    name: str
    revision: int
    committed_at: datetime
    created_at: datetime
    ttl: timedelta | None
    automatic: bool
    previous: str
    next: str

    @property
    def expires_at(self) -> datetime | None:
        """When its time to live is over, None for never."""
        return None if self.ttl is None else self.created_at + self.ttl


@dataclass(frozen=True)
class ListedSavepoint:
    """A savepoint among the others; `previous` and `next` are None where there is none; else as of a tag."""

    id: int
    revision: int
    committed_at: datetime
    created_at: datetime
    automatic: bool
    previous: int | None
    next: int | None


def list_tags(state: State) -> list[ListedTag]:
    """Return all tags, by commit time of the revisions they pin, then by creation and name."""
    committed = _committed(state)
    tags = sorted(
        (known.tag for known in state.tags.values()), key=lambda tag: (tag.revision, tag.created_at, tag.name)
    )
    neighbours = _neighbours([tag.revision for tag in tags])
    return [
        ListedTag(
            tag.name,
            tag.revision,
            committed[tag.revision],
            tag.created_at,
            tag.ttl,
            tag.automatic,
            "" if before is None else tags[before].name,
            "" if after is None else tags[after].name,
        )
        for tag, (before, after) in zip(tags, neighbours, strict=True)
    ]


def list_savepoints(state: State) -> list[ListedSavepoint]:
    """Return all savepoints, by commit time of the revisions they pin, then by id."""
    committed = _committed(state)
    savepoints = sorted((known.savepoint for known in state.pins.savepoints.values()), key=attrgetter("revision", "id"))
    neighbours = _neighbours([each.revision for each in savepoints])
    return [
        ListedSavepoint(
            each.id,
            each.revision,
            committed[each.revision],
            each.created_at,
            each.automatic,
            None if before is None else savepoints[before].id,
            None if after is None else savepoints[after].id,
        )
        for each, (before, after) in zip(savepoints, neighbours, strict=True)
    ]


def _committed(state: State) -> dict[int, datetime]:
    return {seal.revision: seal.committed_at for seal in state.seals}


def _neighbours(revisions: list[int]) -> Iterable[tuple[int | None, int | None]]:
    """Yield for each of ascending revisions the places of the last earlier and of the first later one.

    Revisions are committed one after the other, so that they stand for their times.
    """
    for revision in revisions:
        first, end = bisect_left(revisions, revision), bisect_right(revisions, revision)
        yield (first - 1 if first else None), (end if end < len(revisions) else None)
