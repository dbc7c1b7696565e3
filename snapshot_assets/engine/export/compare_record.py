"""Records a comparison at the location while it is made, so that monitoring sees it and another run can continue it.

Once a minute, and when it is interrupted, it records the parts that were equal, with the fence of the state of the
source that it read. A comparison of the same choice and revision passes over those that the source proves unchanged
since (`Database.changes_since`), so its result is that of one state, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.comparisons import (
    UNFINISHED,
    ComparisonRecord,
    record_comparison,
    unfinished_comparison,
)
from snapshot_assets.databases.protocol.source import SchemaSource, Verdict
from snapshot_assets.engine.export.parts import Part, answers_of
from snapshot_assets.format.layout import comparison_path, new_attempt
from snapshot_assets.storage.base import ObjectStore

_SECONDS = 60.0
"""Seconds between two records of how far a comparison is."""


@dataclass
class Recorder:
    """Records one comparison.

    Attributes:
        state: The state that is compared.
        database: The source, in the state that tasks read.
        chosen: What is compared, in words; "" for everything.
        is_newest: Whether the state is the newest one: others are not recorded.
        started: When the comparison began, or the one that it continues.
    """

    store: ObjectStore
    state: State
    database: SchemaSource
    chosen: str
    is_newest: bool
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    _path: str = ""
    _fence: Mapping[str, str] = field(default_factory=dict)
    _equal: set[str] = field(default_factory=set)
    _recorded: float = field(default_factory=monotonic)

    def pass_over(self, parts: Sequence[Part]) -> list[Part]:
        """Return the parts that an unfinished comparison found equal, and that did not change since; continues it."""
        assert self.state.header is not None
        self._fence, since = self.database.fence(), self.started - timedelta(microseconds=self.state.header.grace)
        unfinished = self.is_newest and unfinished_comparison(self.store, self.state, self.chosen, since)
        if not unfinished:
            return []
        self._path, record = unfinished
        before = set(record.equal_parts)
        known = [replace(part, fence=record.fence) for part in parts if part.name in before]
        answers = answers_of(self.database, known, [part.exported for part in known])
        passed = [part for part, answer in zip(known, answers, strict=True) if answer.verdict is Verdict.UNCHANGED]
        if passed:
            self.started = record.started_at
        self._equal.update(part.name for part in passed)
        return passed

    def add(self, part: Part, deleted: int) -> None:
        """Take a part that is equal, and how many of its rows the snapshot has deleted.

        With deleted rows, the source may have other rows than were exported, so the part will be compared again.
        """
        if not deleted:
            self._equal.add(part.name)
        if monotonic() - self._recorded >= _SECONDS:
            self.record()

    def record(self) -> None:
        """Record how far the comparison is."""
        if self._equal and self.is_newest:
            self._path = self._path or comparison_path(self.started, UNFINISHED, new_attempt())
            record = self._made(UNFINISHED, equal_parts=tuple(sorted(self._equal)))
            record_comparison(self.store, self.state, record, path=self._path)
        self._recorded = monotonic()

    def finish(self, verdicts: Mapping[str, str]) -> None:
        """Record the result: by the names of all parts, whether they are equal, changed, different or unknown."""
        if not self.is_newest:
            return
        different = tuple(sorted(name for name, verdict in verdicts.items() if verdict == "different"))
        scope, counts = "part" if self.chosen else "all", Counter(verdicts.values())
        record = self._made(scope, parts=len(verdicts), different_parts=different, **counts)
        record_comparison(self.store, self.state, record, verdicts, self._path)

    def _made(self, scope: str, **members: Any) -> ComparisonRecord:
        return ComparisonRecord(self.started, datetime.now(UTC), scope, self.chosen, self._fence, **members)
