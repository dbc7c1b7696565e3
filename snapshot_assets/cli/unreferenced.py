"""Prints objects that nothing needs, by reason, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from snapshot_assets.catalog.operations.garbage import Garbage
from snapshot_assets.catalog.state.retained import ReleasedObject
from snapshot_assets.cli.output import show, show_table
from snapshot_assets.format.units import counted, human_bytes
from snapshot_assets.storage.s3_bucket import ObjectVersion

RETAINED = "stay: the store keeps them until their retention ends; the next call tries again"
"""What is said of objects that the store does not delete yet."""

Reasoned = ReleasedObject | Garbage
"""An object that is deleted, and why."""


def by_reason(objects: Iterable[Reasoned]) -> dict[str, dict[str, int]]:
    """Return how many objects and bytes there are by the reason why nothing needs them."""
    reasons: dict[str, dict[str, int]] = {}
    for each in objects:
        sums = reasons.setdefault(each.reason, {"objects": 0, "bytes": 0})
        sums["objects"] += 1
        sums["bytes"] += each.bytes
    return dict(sorted(reasons.items()))


def show_reasons(objects: Iterable[Reasoned]) -> None:
    """Print a line for each reason."""
    for reason, sums in by_reason(objects).items():
        show(f"{reason}: {counted(sums['objects'], 'object')}, {human_bytes(sums['bytes'])}")


def sizes(objects: Sequence[Reasoned | ObjectVersion]) -> str:
    """Return how many objects there are and their size, as text."""
    return f"{counted(len(objects), 'object')}, {human_bytes(sum(each.bytes for each in objects))}"


def released_json(objects: Sequence[ReleasedObject]) -> dict[str, Any]:
    """Return objects and their sums for JSON, with the same keys as `gc`."""
    return {
        "objects": len(objects),
        "bytes": sum(each.bytes for each in objects),
        "reasons": by_reason(objects),
        "unneeded": [{"path": each.path, "bytes": each.bytes, "reason": each.reason} for each in objects],
    }


def show_objects(objects: Sequence[ReleasedObject]) -> None:
    """Print each object with its reason and size."""
    if objects:
        rows = [(each.reason, human_bytes(each.bytes), each.path) for each in objects]
        show_table(("Reason", "Size", "Object"), rows)


def show_released(objects: Sequence[ReleasedObject], *, done: bool) -> None:
    """Print sums of what a change releases, by reason, and what deletes it.

    Args:
        objects: The objects.
        done: Whether the change was made; if not, each object is listed too.
    """
    if not done:
        show_objects(objects)
    show_reasons(objects)
    at_once, left = ([each for each in objects if each.at_once is now] for now in (True, False))
    if at_once:
        show(f"{sizes(at_once)}, {'deleted' if done else 'would be deleted'} at once")
    collected = "; `snapshots catalog gc` deletes them after the grace period" if left else ""
    show(f"{sizes(left)}, unreferenced {'now' if done else 'then'}{collected}")
