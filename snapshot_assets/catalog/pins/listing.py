"""Lists of tags and savepoints, by when the revisions that they pin were committed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any

from snapshot_assets.catalog.pins.objects import Pin, ttl_text
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.totals import revision_summaries


@dataclass(frozen=True)
class ListedTag:
    """A tag in a list: the columns of `$tags`, and its keys in JSON.

    Attributes:
        tagged_snapshot_id: The revision that it pins.
        schema_id: That revision's newest schema, 0 for none.
        commit_time: When that revision was committed.
        record_count: That revision's rows; see `RevisionSummary`.
        time_retained: Time to live, from `create_time`; None for no limit.
        expires_at: When its time to live ends; None for never.
        automatic: Whether a rule created it, and may delete it.
        previous: The tag of the closest earlier revision, if there is one.
        next: The tag of the closest later revision, if there is one.
        held_since: When a legal hold was put on it; None without one, as are `held_by` and `hold_reason`.
        held_by: Who holds it.
        hold_reason: Why.
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
    held_since: datetime | None
    held_by: str | None
    hold_reason: str | None


@dataclass(frozen=True)
class ListedSavepoint:
    """A savepoint in a list: the columns of `$savepoints`; see `ListedTag`."""

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
    tags = sorted(state.tags.values(), key=attrgetter("pin.revision", "pin.created_at", "pin.name"))
    pins = [tag.pin for tag in tags]
    return [
        ListedTag(
            tag_name=pin.name,
            tagged_snapshot_id=pin.revision,
            time_retained=ttl_text(pin.ttl),
            expires_at=None if pin.ttl is None else pin.created_at + pin.ttl,
            held_since=tag.hold.at if tag.hold else None,
            held_by=tag.hold.by if tag.hold else None,
            hold_reason=tag.hold.reason if tag.hold else None,
            **columns,
        )
        for tag, pin, columns in zip(tags, pins, _common_columns(state, pins, [pin.name for pin in pins]), strict=True)
    ]


def list_savepoints(state: State) -> list[ListedSavepoint]:
    """Return all savepoints, by commit time of the revisions they pin, then by id."""
    savepoints = sorted((each.pin for each in state.pins.savepoints.values()), key=attrgetter("revision", "id"))
    ids = [each.id for each in savepoints]
    return [
        ListedSavepoint(savepoint_id=each.id, saved_snapshot_id=each.revision, **columns)
        for each, columns in zip(savepoints, _common_columns(state, savepoints, ids), strict=True)
    ]


def _common_columns(state: State, pins: Sequence[Pin], names: Sequence[str | int]) -> Iterator[dict[str, Any]]:
    """Yield the columns that both lists have, for pins by revision and their names or ids."""
    summaries = revision_summaries(state) if pins else {}
    revisions = [pin.revision for pin in pins]
    for pin in pins:
        first, end = bisect_left(revisions, pin.revision), bisect_right(revisions, pin.revision)
        summary = summaries[pin.revision]
        yield {
            "schema_id": summary.schema_id,
            "commit_time": summary.sealed.committed_at,
            "record_count": summary.rows,
            "create_time": pin.created_at,
            "automatic": pin.automatic,
            "previous": names[first - 1] if first else None,
            "next": names[end] if end < len(names) else None,
        }
