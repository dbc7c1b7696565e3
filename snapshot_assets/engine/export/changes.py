"""Which exported rows changed in the source: by the source's own versions of rows, else by comparing values.

Each part of the snapshot is compared first by what the source knows of its rows. What stays unknown is read from source
and snapshot, and compared by value. So a part is never taken for unchanged without proof.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.databases.protocol.source import Answer, Verdict
from snapshot_assets.engine.export.division import Portion
from snapshot_assets.engine.export.parts import Part, answered, compare_values, parts_of, read_parts, reason_of
from snapshot_assets.engine.export.run import OpenExport
from snapshot_assets.engine.progress import Stage, silent
from snapshot_assets.errors import PlanError, SnapshotError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import counted, noun
from snapshot_assets.plan.plan import Plan


@dataclass(frozen=True)
class Changes:
    """What was found about the parts of some chunks.

    Attributes:
        parts: All parts that were looked at; none is unknown.
        proved: Chunks of which a part was unknown, and its values are the same: their fence moves to this run's, so
            that the next run need not compare them.
        compared: How many tables of chunks were compared by value.
    """

    parts: tuple[Part, ...]
    proved: frozenset[int] = frozenset()
    compared: int = 0

    @property
    def only(self) -> dict[int, frozenset[Portion]]:
        """What to export again by chunk, as `OpenExport.commits` takes it."""
        changed: defaultdict[int, set[Portion]] = defaultdict(set)
        for chunk in self.proved:
            changed[chunk] = set()
        for part in self.parts:
            if part.changed:
                changed[part.chunk].add(part.range or part.table)
        return {chunk: frozenset(portions) for chunk, portions in sorted(changed.items())}

    @property
    def changed(self) -> list[Part]:
        """The tables that changed, by chunk and name; the ranges of one that changed are shown as one part."""
        tables: dict[tuple[int, TableName], Part] = {}
        for part in filter(lambda part: part.changed, self.parts):
            known = tables.get((part.chunk, part.table))
            tables[part.chunk, part.table] = part if known is None else known.with_range(part)
        return [tables[place] for place in sorted(tables)]

    @property
    def chunks(self) -> int:
        """How many chunks were looked at."""
        return len({part.chunk for part in self.parts})

    def __str__(self) -> str:
        looked = f"{counted(self.chunks, 'chunk')} looked at for changes"
        if self.compared:
            looked += f", {counted(self.compared, 'table')} in them compared by value"
        changed = len({part.chunk for part in self.changed})
        return f"{looked}: " + (f"{changed:,} {noun(changed, 'has', 'have')} changed" if changed else "nothing changed")


def chunks_to_look_at(state: State, plan: Plan, now: datetime) -> list[int]:
    """Return the completed chunks to look at: that of the untimed tables, and windows of the plan's `refresh_for`."""
    completed = [chunk for chunk in sorted({*state.expected_chunks(), UNTIMED_CHUNK}) if state.completed(chunk)]
    if plan.refresh_for is None:
        return completed
    since = now - plan.refresh_for
    return [chunk for chunk in completed if chunk == UNTIMED_CHUNK or state.window(chunk).end >= since]


def find_changes(opened: OpenExport, chunks: Sequence[int], stage: Stage = silent) -> Changes:
    """Find out which rows of chunks changed in the source since they were exported.

    The source is read in the state that the run's tasks read, so what is exported next is what was compared.

    Args:
        opened: The run.
        chunks: Ids of the chunks; those that are not completed are passed over.
        stage: Takes how many parts were compared by value.

    Raises:
        PlanError: The source is an asset, whose check `current` names the partitions that changed.
        SnapshotError: The source or the store cannot be read.
    """
    source = opened.source
    if source is None:
        raise PlanError(
            "The rows come from a Dagster asset. Its check `current` names the partitions that were made from other"
            " versions: materialise them with `replace: true`."
        )
    parts = answered(source.database, parts_of(opened, opened.catalog.state, chunks))
    unknown = [part for part in parts if part.answer.verdict is Verdict.UNKNOWN]
    if not unknown:
        return Changes(tuple(parts))
    if not source.by_tasks:  # a Spark catalog, which tasks cannot read by themselves: what is unknown is exported again
        changed = {part.place: replace(part, answer=replace(part.answer, verdict=Verdict.CHANGED)) for part in unknown}
        return Changes(tuple(changed.get(part.place, part) for part in parts))
    compared = {part.place: part for part in _compared(opened, unknown, stage)}
    every = tuple(compared.get(part.place, part) for part in parts)
    proved = frozenset(part.chunk for part in unknown if not part.answer.lasting)
    return Changes(every, proved, len({(part.chunk, part.table) for part in unknown}))


def _compared(opened: OpenExport, parts: Sequence[Part], stage: Stage) -> Iterator[Part]:
    """Compare parts by value; yields each with its answer. Parts that cannot be read have to be exported again, too."""
    compared = read_parts(opened, opened.catalog.state, parts, compare_values)
    for number, (part, values) in enumerate(compared, 1):
        stage("comparing", number, len(parts))
        if isinstance(values, SnapshotError):
            answer = Answer(Verdict.CHANGED, reason_of(values))
        elif values.equal:
            answer = Answer(Verdict.UNCHANGED, found=values.found)
        else:
            answer = Answer(Verdict.CHANGED, "other values", values.found)
        yield replace(part, answer=answer)
