"""Retention by the calendar keeps the exports that restic keeps, whatever is compacted or forgotten between."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag
from snapshot_assets.catalog.receipts import Receipt
from snapshot_assets.catalog.rules.retention import Calendar, backups
from snapshot_assets.format.actions import ObjectRef
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.conftest import Writer
from snapshot_assets_tests.catalog.execute import delete_rows, expire, rollback
from snapshot_assets_tests.catalog.merging import merge
from snapshot_assets_tests.catalog.tags import replaced
from snapshot_assets_tests.catalog.test_calendar import documented

MINUTE = timedelta(minutes=1)
STEPS = ("export", "export", "export", "compact", "compact", "tag", "untag", "delete", "forget", "roll back")


class Dated(Writer):
    """A writer at times of a test's choice."""

    now: datetime

    def __init__(self, folder: str, now: datetime) -> None:
        super().__init__(open_store(parse_location(Path(folder, "location").as_uri())))
        self.at(now)
        self.begin()
        self.fill()
        seal(self.catalog)

    def at(self, now: datetime) -> None:
        self.now = now
        self.catalog._clock = lambda: self.now

    def receipt(self, chunk: int, *files: object, **changes: object) -> tuple[Receipt, ObjectRef]:
        return super().receipt(chunk, *files, **({"opened_at": self.now} | changes))

    def reopen(self) -> None:
        write_checkpoint(self.store, read_state(self.store))
        self.catalog = Catalog(self.store, read_state(self.store), clock=lambda: self.now)

    def do(self, step: str, chunk: int) -> bool:
        """Do something, and return whether that makes another backup."""
        state = self.catalog.refresh()
        match step:
            case "export":
                replaced(self, chunk)
                seal(self.catalog)
            case "compact":
                merge(self, chunk)
            case "tag":
                create_tag(
                    self.catalog, f"at-{state.revision}", state.readable()[chunk % len(state.readable())].revision
                )
            case "untag" if state.tags:
                delete_tag(self.catalog, min(state.tags))
            case "delete":
                before = state.revision
                delete_rows(self.catalog, TableName("main", "m"), f"t < '2025-01-0{chunk}T00:00:00Z'")
                return self.catalog.refresh().revision > before
            case "roll back":
                before = state.revision
                oldest = next(each.revision for each in state.readable())
                rollback(self.catalog, oldest, undelete=True)
                return self.catalog.refresh().revision > before
            case "forget":
                self.reopen()
        return step == "export"

    def left(self) -> set[datetime]:
        """Return when what is not expired was made."""
        state = self.catalog.refresh()
        kept = [each for each in backups(state) if {seal.revision for seal in each.seals} - state.expired]
        return {each.made_at.replace(second=0, microsecond=0) for each in kept}  # a commit is after the one before


def minutes_of(days: Sequence[tuple[int, int]]) -> list[int]:
    """Return ascending times in minutes, from steps of days and minutes."""
    minutes, now = [], 0
    for day, minute in days:
        now += day * 1440 + minute
        minutes.append(now)
    return minutes


TIMES = st.tuples(st.sampled_from((0, 0, 1, 1, 1, 2, 5, 30, 200)), st.integers(1, 1439))
HISTORIES = st.lists(
    st.tuples(TIMES, st.sampled_from(STEPS), st.integers(1, 3), st.booleans()), min_size=2, max_size=14
)
COUNTS = st.fixed_dictionaries(
    {}, optional={period: st.integers(1, 4) for period in ("daily", "weekly", "monthly", "yearly")}
).filter(bool)
SATURDAY = [((0, 60 * 12), "export", 1, False), ((0, 255), "compact", 1, True), ((0, 1185), "export", 1, False)]
"""Exports at 23:00 on Saturday and Sunday, and a compaction at 03:15 between."""
SEPTEMBER = [
    ((270, 720), "export", 1, False),
    ((3, 0), "compact", 1, True),
    ((28, 0), "export", 2, True),
]
"""Exports on the last days of September and October, and a compaction of the first on 3 October."""


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(HISTORIES, COUNTS)
@example(SATURDAY, {"daily": 7})
@example(SEPTEMBER, {"monthly": 12})
def test_exports_stay_as_restic_keeps_them_whatever_happens_between(
    steps: Sequence[tuple], counts: dict[str, int]
) -> None:
    """Do steps, expire after some and after the last, and compare what is left with what restic leaves each time."""
    start = datetime.fromisoformat("2027-01-02T11:00:00Z")  # a Saturday
    with TemporaryDirectory() as folder:
        writer, left = Dated(folder, start), {start}
        for number, (minutes, (_, step, chunk, expires)) in enumerate(
            zip(minutes_of([each[0] for each in steps]), steps, strict=True), start=1
        ):
            writer.at(start + minutes * MINUTE)
            if writer.do(step, chunk):
                left.add(writer.now)
            if expires or number == len(steps):
                left = documented(sorted(left, reverse=True), counts)
                expire(writer.catalog, calendar=Calendar(**counts))
                assert writer.left() == left
