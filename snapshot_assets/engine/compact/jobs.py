"""The chunks that a compaction works on, with all that its tasks need to know of the state it was planned on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.engine.compact.plan import CompactionPlan, Group
from snapshot_assets.format.actions import Chunk
from snapshot_assets.format.layout import UNTIMED_CHUNK

JOB_BYTES = 64 << 20
"""Chunks are put into one Spark job while what is merged of them stays below this."""
JOB_CHUNKS = 32


@dataclass(frozen=True)
class Job:
    """A chunk that is compacted, as it was when the run planned.

    Attributes:
        window: The window as text; "" for chunk 0.
        zone: IANA zone of times without one.
    """

    chunk: Chunk
    window: str
    zone: str
    groups: tuple[Group, ...]

    @property
    def bytes(self) -> int:
        """Bytes of the files that are merged."""
        return sum(group.bytes for group in self.groups)


def jobs_of(plan: CompactionPlan, state: State) -> tuple[Job, ...]:
    """Return what a plan means for each chunk, in order."""
    assert state.header is not None
    return tuple(
        Job(
            state.chunks[chunk].chunk,
            str(state.window(chunk)) if chunk != UNTIMED_CHUNK else "",
            state.header.time_zone,
            groups,
        )
        for chunk, groups in plan.by_chunk().items()
    )


def batches_of(jobs: Sequence[Job]) -> list[list[Job]]:
    """Put small chunks together, in order."""
    batches: list[list[Job]] = []
    size = 0
    for job in jobs:
        size += job.bytes
        if not batches or size > JOB_BYTES or len(batches[-1]) == JOB_CHUNKS:
            batches.append([])
            size = job.bytes
        batches[-1].append(job)
    return batches
