"""Lists of tags and savepoints, by when the revisions that they pin were committed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from snapshot_assets.catalog.pins.objects import ttl_text
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.totals import revision_summaries


@dataclass(frozen=True)
class ListedTag:
    """A tag among the others: the columns of `$tags`, and its fields wherever it is shown as JSON.

    Attributes:
        tagged_snapshot_id: The revision that it pins.
        schema_id: That revision's newest schema, 0 for none.
        commit_time: When that revision was committed.
        record_count: That revision's rows; see `RevisionSummary`.
        time_retained: How long it lives from `create_time`; None for ever.
        expires_at: When its time to live is over; None for never.
        automatic: Whether a rule made it, and may delete it.
        previous: The tag of the closest earlier revision; None if there is none.
        next: The tag of the closest later revision, likewise.
    """

    tag_name: str
    tagged_snapshot_id: int
    schema_id: int
    commit_time: datetime
    record_count: int
    create_time: datetime
    time_retained: str | None
    expires_at: datetime | None
    automatic: bool
    previous: str | None
    next: str | None


@dataclass(frozen=True)
class ListedSavepoint:
    """A savepoint among the others: the columns of `$savepoints`; see `ListedTag`."""

    savepoint_id: int
    saved_snapshot_id: int
    schema_id: int
    commit_time: datetime
    record_count: int
    create_time: datetime
    automatic: bool
    previous: int | None
    next: int | None


def list_tags(state: State) -> list[ListedTag]:
    """Return all tags, by commit time of the revisions they pin, then by creation and name."""
    if not state.tags:
        return []
    facts = revision_summaries(state)
    tags = sorted(
        (known.tag for known in state.tags.values()), key=lambda tag: (tag.revision, tag.created_at, tag.name)
    )
    neighbours = _neighbours([tag.revision for tag in tags])
    return [
        ListedTag(
            tag.name,
            tag.revision,
            facts[tag.revision].schema_id,
            facts[tag.revision].committed_at,
            facts[tag.revision].rows,
            tag.created_at,
            ttl_text(tag.ttl),
            None if tag.ttl is None else tag.created_at + tag.ttl,
            tag.automatic,
            None if before is None else tags[before].name,
            None if after is None else tags[after].name,
        )
        for tag, (before, after) in zip(tags, neighbours, strict=True)
    ]


def list_savepoints(state: State) -> list[ListedSavepoint]:
    """Return all savepoints, by commit time of the revisions they pin, then by id."""
    if not state.pins.savepoints:
        return []
    facts = revision_summaries(state)
    savepoints = sorted((known.savepoint for known in state.pins.savepoints.values()), key=attrgetter("revision", "id"))
    neighbours = _neighbours([each.revision for each in savepoints])
    return [
        ListedSavepoint(
            each.id,
            each.revision,
            facts[each.revision].schema_id,
            facts[each.revision].committed_at,
            facts[each.revision].rows,
            each.created_at,
            each.automatic,
            None if before is None else savepoints[before].id,
            None if after is None else savepoints[after].id,
        )
        for each, (before, after) in zip(savepoints, neighbours, strict=True)
    ]


def _neighbours(revisions: list[int]) -> Iterable[tuple[int | None, int | None]]:
    """Yield for each of ascending revisions the places of the last earlier and of the first later one.

    Revisions are committed one after the other, so that they stand for their times.
    """
    for revision in revisions:
        first, end = bisect_left(revisions, revision), bisect_right(revisions, revision)
        yield (first - 1 if first else None), (end if end < len(revisions) else None)
