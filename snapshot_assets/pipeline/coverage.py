"""What the check `coverage` finds: windows that are not exported."""

from __future__ import annotations

import dagster as dg

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.faults import Fault, FaultKind
from snapshot_assets.format.counts import counted
from snapshot_assets.format.layout import MANIFEST
from snapshot_assets.format.units import time_text
from snapshot_assets.plan.plan import Plan, windows_of


def coverage_faults(plan: Plan, state: State) -> list[Fault]:
    """Return a fault for each window of the snapshot's range that is missing, and one for windows after it.

    The range of a continuous plan ends with the windows that the last export knew. Those that have closed since are not
    exported, except the newest: the next export may be at it.

    Args:
        plan: The plan.
        state: The newest state of its location.
    """
    faults = [Fault(FaultKind.COVERAGE, f"data/{n}", f"Chunk {n} is not exported.", n) for n in state.missing()]
    if plan.kind != "continuous":
        return faults
    known = set(state.expected_chunks())
    late = [window for window in windows_of(plan)[:-1] if window.id not in known]
    if late:
        message = f"{counted(len(late), 'window')} from {time_text(late[0].start)} on closed and were never exported."
        faults.append(Fault(FaultKind.COVERAGE, MANIFEST, message))
    return faults


def coverage_severity(state: State) -> dg.AssetCheckSeverity:
    """Return how severe the faults of `coverage` are: windows after the range only warn, as the snapshot is whole."""
    return dg.AssetCheckSeverity.ERROR if state.missing() else dg.AssetCheckSeverity.WARN
