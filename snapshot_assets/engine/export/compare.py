"""Compares a snapshot with its source by value, and tells changes of the source from damage of the snapshot.

All rows of a part's files are compared with all rows that an export would read now, so masks apply, and excluded
columns are left out. Where they differ, the source's row versions tell whether it moved on since the export
(`Database.changes_since`). They are asked for the rows that the source has: the snapshot's own numbers may be what is
wrong. Only deletions leave no versions. They explain a difference if there are fewer rows than were exported, and none
of the first thousand that differ is one that the source has. What masks make may depend on more than the rows: a part
that differs in masked columns only is unknown.

Rows that tombstones delete are compared on neither side, and counted: the source may have kept them, deleted them too,
or changed them. Other rows that compactions left out, as duplicates, look like missing ones: such a part is different
only if its files have a row that the source lacks, else unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.objects import Rotation
from snapshot_assets.databases.protocol.source import Answer, Database, Verdict
from snapshot_assets.databases.selection.hidden import MASKS, without_masks
from snapshot_assets.engine.export.compare_record import Recorder
from snapshot_assets.engine.export.parts import (
    Part,
    Place,
    Sides,
    answered,
    compare_values,
    parts_of,
    read_parts,
    reason_of,
)
from snapshot_assets.engine.export.run import OpenExport
from snapshot_assets.engine.files.row_differences import MAX_ROWS, RowDifference, RowDifferences, differing_rows
from snapshot_assets.engine.progress import Stage, silent
from snapshot_assets.errors import CarrierError, PlanError, SnapshotError, UnknownRelationError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import Spellings, rule_of, table_text
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import counted, time_text
from snapshot_assets.format.windows import TimeRange
from snapshot_assets.storage.base import ObjectStore

_MOST_JUDGED = 1000
"""Most differing rows that are looked at, to tell deletions in the source from damage."""

_OWN_STATES = "the source's connections read states of their own, so rows may have been written meanwhile"
_UNEXPLAINED = "values differ, by a change of the source or by damage: "


class Comparison(StrEnum):
    """How a part of the snapshot compares with the source."""

    EQUAL = "equal"
    CHANGED = "changed since"
    DIFFERENT = "different though the source did not change"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class ComparedPart:
    """A part, and how it compares.

    Attributes:
        reason: Why it is not equal; "" if it is.
        found: How many rows the source has; None if they were not read.
        deleted: How many of the exported rows the snapshot has deleted since.
        rows: The first rows that differ, of a part that is different.
        more: Whether more rows differ.
        error: Why a file or a value cannot be read; "" if all were.
    """

    part: Part
    comparison: Comparison
    reason: str = ""
    found: int | None = None
    deleted: int = 0
    rows: tuple[RowDifference, ...] = ()
    more: bool = False
    error: str = ""


@dataclass(frozen=True)
class Compared:
    """How the chosen parts of a snapshot compare.

    Attributes:
        parts: All of them, by chunk and table.
        state: The state that was compared.
        within: For a sample: in how many daily runs all parts are compared; else 0.
        passed: How many parts an interrupted comparison found equal, which did not change since.
        started: When it began, or the interrupted one.
    """

    parts: tuple[ComparedPart, ...]
    state: State
    within: int = 0
    passed: int = 0
    started: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def missing(self) -> int:
        """How many chunks are not exported yet, so that they were not compared."""
        return len(self.state.missing())

    @property
    def counts(self) -> Counter[Comparison]:
        """How many parts compare in each way."""
        return Counter(each.comparison for each in self.parts)

    @property
    def unequal(self) -> list[ComparedPart]:
        """The parts that are not equal."""
        return [each for each in self.parts if each.comparison is not Comparison.EQUAL]

    @property
    def deleted(self) -> int:
        """How many of the exported rows the snapshot has deleted since."""
        return sum(each.deleted for each in self.parts)

    def __str__(self) -> str:
        chunks, counts = {each.part.chunk for each in self.parts}, self.counts
        found = ", ".join(f"{counts[each]:,} {each}" for each in Comparison if counts[each]) or "nothing to compare"
        text = f"{counted(len(self.parts), 'table')} in {counted(len(chunks), 'chunk')} compared by value: {found}"
        if self.deleted:
            text += f"; the snapshot has deleted {counted(self.deleted, 'row')}"
        if self.passed:
            text += f"; {self.passed:,} were compared by the run of {time_text(self.started)} and did not change since"
        if self.within:
            text += f"; daily runs compare all within {counted(self.within, 'day')}"
        return text + (f"; not exported yet: {counted(self.missing, 'chunk')}" if self.missing else "")


@dataclass(frozen=True)
class Choice:
    """What is compared; by default everything of the newest state.

    Attributes:
        at: Chooses the revision, given the newest state; None for that state.
        tables: The tables; empty for all.
        range: Only the windows that overlap it, and no rows without a time.
        rotation: Only the parts that are due today.
        only: Only these chunks; None for all.
    """

    tables: Sequence[TableName] = ()
    range: TimeRange | None = None
    rotation: Rotation | None = None
    at: Callable[[State], int] | None = None
    only: Collection[int] | None = None

    def __str__(self) -> str:
        chosen = ["tables " + ", ".join(sorted(map(table_text, self.tables)))] if self.tables else []
        chosen += [f"range {time_text(self.range.start)}/{time_text(self.range.end)}"] if self.range else []
        if self.only is not None:
            chosen.append(f"{counted(len(self.only), 'chunk')} from {min(self.only, default=0)} on")
        return "; ".join([*chosen, *([f"a sample, 1 of {self.rotation.days}"] if self.rotation else [])])

    def chunks(self, state: State) -> Iterator[int]:
        """Yield the completed chunks that are compared."""
        for chunk in filter(state.completed, sorted(state.chunks if self.only is None else self.only)):
            if self.range is None:
                yield chunk
            elif chunk != UNTIMED_CHUNK:
                window = state.window(chunk)
                if window.start < self.range.end and window.end > self.range.start:
                    yield chunk

    def parts(self, opened: OpenExport, state: State) -> list[Part]:
        """Return the parts of a state that are compared.

        Raises:
            UnknownRelationError: Neither source nor snapshot has a table of that name.
            PlanError: No window of the range was exported.
        """
        chunks = list(self.chunks(state))
        if self.range and not chunks:
            start, end = map(time_text, self.range)
            raise PlanError(f"No exported window overlaps {start}/{end}. `snapshots export create` exports windows.")
        parts = parts_of(opened, state, chunks, whole=True)
        if self.tables:
            chosen = self._spelled(opened, state)
            parts = [part for part in parts if part.table in chosen]
        return self.due(parts)

    def due(self, parts: Sequence[Part]) -> list[Part]:
        """Return the parts that are due today; the share of a part depends on its chunk and table alone."""
        if self.rotation is None:
            return list(parts)
        due = self.rotation.due(part.name for part in parts)
        return [part for part in parts if part.name in due]

    def _spelled(self, opened: OpenExport, state: State) -> set[TableName]:
        live = (known.file for known in state.live_files())
        known = {TableName(each.schema, each.table) for each in live}
        known |= {table.table_name for table in opened.schema.tables}
        spellings = Spellings(rule_of(opened.schema), known)
        chosen = {spellings.of(name) for name in self.tables}
        if absent := sorted(chosen - known):
            names = ", ".join(map(table_text, absent))
            raise UnknownRelationError(
                f"Neither the source nor the snapshot has rows of {names}. A view is exported if the plan names it.",
                tables=names,
            )
        return chosen


def compare(opened: OpenExport, choice: Choice | None = None, stage: Stage = silent) -> Compared:
    """Compare a snapshot with its source by value; the source is read in the one state of the run, if it has one.

    A comparison of the newest state is recorded at the location, and continues one that was interrupted.

    Args:
        opened: The run.
        choice: What is compared; None for everything.
        stage: Takes how many parts were compared.

    Raises:
        PlanError: The source is a Dagster asset or a Spark catalog, which tasks cannot open.
        UnknownRelationError: A chosen table does not exist.
        SnapshotError: There is no such version, or the source or the store cannot be read. Damage of single files is
            a result.
    """
    choice = choice or Choice()
    source, newest = opened.source, opened.catalog.state
    if source is None or not source.by_tasks:
        raise PlanError("Only a database can be compared: tasks cannot open an asset or a Spark catalog.")
    state = newest if choice.at is None else newest.at(choice.at(newest))
    is_newest = state.revision == newest.revision
    recorder = Recorder(opened.catalog.store, state, source.database, str(choice), is_newest)
    parts = choice.parts(opened, state)
    found = {part.place: ComparedPart(part, Comparison.CHANGED, part.answer.reason) for part in parts if part.changed}
    passed = recorder.pass_over([part for part in parts if not part.changed])
    found |= {part.place: ComparedPart(part, Comparison.EQUAL, found=part.exported) for part in passed}
    try:
        rest = [part for part in parts if part.place not in found]
        found |= {each.part.place: each for each in _compare_values(opened, recorder, rest, stage)}
        source.check()
    except BaseException:
        recorder.record()
        raise
    within = choice.rotation.within if choice.rotation else 0
    every = tuple(found[place] for place in sorted(found))
    recorder.finish({each.part.name: each.comparison.name.lower() for each in every})
    return Compared(every, state, within, len(passed), recorder.started)


def _compare_values(
    opened: OpenExport, recorder: Recorder, parts: Sequence[Part], stage: Stage
) -> Iterator[ComparedPart]:
    """Yield how the values of parts compare."""
    unlike = list[ComparedPart]()
    for number, (part, values) in enumerate(read_parts(opened, recorder.state, parts, compare_values), 1):
        stage("comparing", number, len(parts))
        if isinstance(values, SnapshotError):
            yield _unread(part, values)
        elif values.equal:
            recorder.add(part, values.deleted)
            yield ComparedPart(part, Comparison.EQUAL, "", values.found, values.deleted)
        else:
            unlike.append(ComparedPart(part, Comparison.UNKNOWN, "", values.found, values.deleted))
    yield from _explained(opened, recorder.state, unlike, stage)


def _explained(
    opened: OpenExport, state: State, unlike: Sequence[ComparedPart], stage: Stage
) -> Iterator[ComparedPart]:
    """Yield why the values of parts differ."""
    assert opened.source is not None
    database = opened.source.database
    suspects = dict[Place, ComparedPart]()
    for each, part in zip(unlike, answered(database, [_plain(each.part, each.found) for each in unlike]), strict=True):
        if part.answer.verdict is Verdict.UNCHANGED and opened.source.held:
            suspects[part.place] = each
        elif part.answer.verdict is Verdict.UNCHANGED:
            yield replace(each, reason=_OWN_STATES)
        else:
            unknown = _UNEXPLAINED if part.answer.verdict is Verdict.UNKNOWN else ""
            reason = f"{unknown}{part.answer.reason}"
            yield replace(each, comparison=Comparison[part.answer.verdict.name], reason=reason)
    parts = [each.part for each in suspects.values()]
    # Deleted rows have no version: only the number of rows shows them.
    by_count = {part.place: part.answer for part in answered(database, [_plain(part, part.exported) for part in parts])}
    for number, (part, differences) in enumerate(read_parts(opened, state, parts, name_differences), 1):
        stage("naming the rows that differ", number, len(parts))
        if isinstance(differences, SnapshotError):
            yield _unread(part, differences)
        else:
            yield _judged(suspects[part.place], by_count[part.place], differences)


def _unread(part: Part, error: SnapshotError) -> ComparedPart:
    """Return a part of which a side cannot be read: the source got a value that no file can hold since the export."""
    comparison = Comparison.CHANGED if isinstance(error, CarrierError) else Comparison.DIFFERENT
    return ComparedPart(part, comparison, reason_of(error), error=str(error))


def _plain(part: Part, rows: int | None) -> Part:
    """Return what to ask the source of a part: without masks, which may read more than its rows."""
    assert part.scan is not None
    assert rows is not None
    return replace(part, scan=replace(part.scan, table=without_masks(part.scan.table)), exported=rows)


def _judged(unlike: ComparedPart, by_count: Answer, differences: RowDifferences) -> ComparedPart:
    """Return whether it is damage that rows differ, though none of the source is newer.

    Args:
        unlike: The part.
        by_count: What the source knows, given the number of exported rows.
        differences: The rows that differ.
    """
    part, rows = unlike.part, differences.rows
    fewer = by_count.verdict is Verdict.CHANGED and (unlike.found or 0) < part.exported
    if fewer and all(row.source is None for row in rows):
        return replace(unlike, comparison=Comparison.CHANGED, reason=by_count.reason)
    if part.erased and all(row.snapshot is None for row in rows):
        return replace(unlike, reason="compactions left out rows, and the source has more")
    if differences.only_masked:
        return replace(unlike, reason="only masked columns differ, and masks may read more than the row")
    # Rows that deletions or compactions may explain are named last.
    rows = tuple(sorted(rows, key=lambda row: (row.source if fewer else row.snapshot) is None))
    reason, more = "other values, and no row of the source is newer", differences.more or len(rows) > MAX_ROWS
    return replace(unlike, comparison=Comparison.DIFFERENT, reason=reason, rows=rows[:MAX_ROWS], more=more)


def name_differences(store: ObjectStore, sides: Sides, database: Database) -> RowDifferences:
    """Name the rows in which the source differs from the snapshot.

    Raises:
        SnapshotError: The source or a file cannot be read.
    """
    table, reads = sides.scan.table, (partial(sides.snapshot, store, verify=False), partial(sides.source, database))
    key = table.primary_key.columns if table.primary_key else ()
    return differing_rows(sides.schema, *reads, key=key, masked=table.options.get(MASKS, {}), limit=_MOST_JUDGED)
