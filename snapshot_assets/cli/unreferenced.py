"""What nothing needs any more, by reason: as tables, and as JSON holds it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from snapshot_assets.catalog.state.unreferenced import ReleasedObject
from snapshot_assets.cli.output import counted, human_bytes, show, show_table


class Reasoned(Protocol):
    """An object that goes, and why."""

    @property
    def bytes(self) -> int:
        """Its size."""

    @property
    def reason(self) -> str:
        """Why it goes."""


def by_reason(found: Iterable[Reasoned]) -> dict[str, dict[str, int]]:
    """Return how many objects and bytes there are by the reason why nothing needs them."""
    reasons: dict[str, dict[str, int]] = {}
    for each in found:
        sums = reasons.setdefault(each.reason, {"objects": 0, "bytes": 0})
        sums["objects"] += 1
        sums["bytes"] += each.bytes
    return dict(sorted(reasons.items()))


def show_reasons(found: Iterable[Reasoned]) -> None:
    """Print a line for each reason."""
    for reason, sums in by_reason(found).items():
        show(f"{reason}: {counted(sums['objects'], 'object')}, {human_bytes(sums['bytes'])}")


def sizes(found: Sequence[Reasoned]) -> str:
    """Return how many objects there are and their size, in words."""
    return f"{counted(len(found), 'object')}, {human_bytes(sum(each.bytes for each in found))}"


def released_json(found: Sequence[ReleasedObject]) -> dict[str, Any]:
    """Return what goes as JSON holds it, its sums as those of `gc`."""
    return {
        "objects": len(found),
        "bytes": sum(each.bytes for each in found),
        "reasons": by_reason(found),
        "unneeded": [{"path": each.path, "bytes": each.bytes, "reason": each.reason} for each in found],
    }


def show_objects(found: Sequence[ReleasedObject]) -> None:
    """Print each object with its reason and size."""
    if found:
        show_table(("Reason", "Bytes", "Object"), [(each.reason, each.bytes, each.path) for each in found])


def show_released(found: Sequence[ReleasedObject], *, done: bool) -> None:
    """Print the sums of what nothing needs, by reason, and who deletes it.

    Args:
        found: It.
        done: Whether it is so already; each object is named only where it is not.
    """
    if not done:
        show_objects(found)
    show_reasons(found)
    at_once, left = ([each for each in found if each.at_once is now] for now in (True, False))
    if at_once:
        show(f"{sizes(at_once)}, {'deleted' if done else 'would be deleted'} at once")
    show(f"{sizes(left)}, needed by nothing {'now' if done else 'then'}; `snapshots catalog gc` deletes what is")
