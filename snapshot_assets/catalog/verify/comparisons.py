"""Records of comparisons of a snapshot with its source: when, by whom, of what, and with which result (FORMAT.md, 7).

They are kept as those of verifications are. The last one names all parts that are known to be different: it takes over
those of the one before that it did not compare. A comparison that is at work records which parts were equal, so that
another one can continue it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from snapshot_assets.catalog.catalog import writer_name
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.record_kind import RecordKind
from snapshot_assets.errors import StorageError
from snapshot_assets.format.layout import COMPARISONS, comparison_of, comparison_path, new_attempt
from snapshot_assets.format.units import counted
from snapshot_assets.storage.base import ObjectInfo, ObjectStore

UNFINISHED = "unfinished"
_TRIES = 5
"""How often the record of a part is written while others are."""


@dataclass(frozen=True)
class ComparisonRecord:
    """One comparison of a snapshot with its source. A part is named `<chunk id>/<schema>.<table>`.

    Attributes:
        scope: `all` parts of the newest state, a `part` of them, or `unfinished`.
        chosen: Which part, in words; "" for all.
        started_at: When it began: it read the source in the state of about that time.
        fence: Identifiers of the source's state.
        parts: How many parts were compared; the next four numbers add up to it.
        changed: How many changed in the source since their export.
        different: How many are different although the source did not change.
        unknown: Of how many neither is known.
        different_parts: The names of the parts that are known to be different; empty if it is unfinished.
        equal_parts: If it is unfinished, the names of parts that were equal.
    """

    scope: str
    chosen: str
    started_at: datetime
    compared_at: datetime
    compared_by: str = field(default_factory=writer_name)
    fence: Mapping[str, str] = field(default_factory=dict)
    parts: int = 0
    equal: int = 0
    changed: int = 0
    different: int = 0
    unknown: int = 0
    different_parts: tuple[str, ...] = ()
    equal_parts: tuple[str, ...] = ()
    snapshot_id: str = ""
    revision: int = 0

    def __str__(self) -> str:
        counts = {name: getattr(self, name) for name in ("equal", "changed", "different", "unknown")}
        found = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        return f"{self.chosen or 'everything'}, {counted(self.parts, 'part')}: {found or 'nothing to compare'}"


def record_comparison(
    store: ObjectStore, state: State, record: ComparisonRecord, compared: Container[str] = (), path: str = ""
) -> None:
    """Record a comparison of the newest state at its location.

    A store that refuses the record, such as one that is read-only, causes a warning.

    Args:
        store: The location.
        state: The state that was compared.
        record: The comparison.
        compared: The names of all compared parts.
        path: Where an unfinished one has its record, which that of the finished one replaces; "" if it has none.
    """
    with _RECORDS.warning(store):
        if record.scope == "part":
            _record_part(store, state, record, compared)
        else:
            _RECORDS.write(store, path if record.scope == UNFINISHED else _new_path(record), state, record)
    if path and record.scope != UNFINISHED:
        with suppress(StorageError):  # what stays is garbage
            store.delete(path)


def _record_part(store: ObjectStore, state: State, record: ComparisonRecord, compared: Container[str]) -> None:
    own, before = set[str](), set[str]()
    for _ in range(_TRIES):
        infos = [info for info in _finished(store.list(COMPARISONS)) if info.path not in own]
        if own and before.issuperset(info.path for info in infos):
            return
        # Again if others recorded a comparison meanwhile, of which this record knows nothing.
        before.update(info.path for info in infos)
        known = known_differences(current_comparisons(store, state, infos))
        different = {name for name in known if name not in compared}.union(record.different_parts)
        own.add(path := _new_path(record))
        _RECORDS.write(store, path, state, replace(record, different_parts=tuple(sorted(different))))


def _new_path(record: ComparisonRecord) -> str:
    return comparison_path(record.compared_at, record.scope, new_attempt())


def superseded_comparisons(infos: Iterable[ObjectInfo]) -> dict[str, datetime]:
    """Return the records that are garbage, with the time since when: one of all covers any, one of a part another one.

    Those of unfinished comparisons are garbage at once, but stay for the grace period.
    """
    records = list(infos)
    unfinished = {info.path: info.modified for info in records if comparison_of(info.path) == (UNFINISHED,)}
    return _RECORDS.superseded(records) | unfinished


def current_comparisons(store: ObjectStore, state: State, infos: Iterable[ObjectInfo]) -> list[ComparisonRecord]:
    """Return the finished comparisons of a snapshot that no later one covers, in the order in which they were recorded.

    These are the last one of everything, and the last one of a part if it is later. `infos` are the location's objects;
    others than records are ignored.
    """
    found = _RECORDS.current(store, state.location_id, _finished(infos)).values()
    return [record for record in found if record.snapshot_id == state.snapshot_id]


def last_full_comparison(store: ObjectStore, state: State) -> ComparisonRecord | None:
    """Return the last finished comparison of everything; None if there was none."""
    current = current_comparisons(store, state, store.list(COMPARISONS))
    return next((record for record in current if record.scope == "all"), None)


def _finished(infos: Iterable[ObjectInfo]) -> Iterator[ObjectInfo]:
    return (info for info in infos if comparison_of(info.path) not in (None, (UNFINISHED,)))


def unfinished_comparison(
    store: ObjectStore, state: State, chosen: str, since: datetime
) -> tuple[str, ComparisonRecord] | None:
    """Return the last unfinished comparison of a revision and a choice with its path, if it was recorded since then."""
    infos = [info for info in store.list(COMPARISONS) if info.modified >= since]
    wanted = (UNFINISHED, chosen, state.snapshot_id, state.revision)
    records = _RECORDS.current(store, state.location_id, infos).items()
    found = [
        each for each in records if (each[1].scope, each[1].chosen, each[1].snapshot_id, each[1].revision) == wanted
    ]
    return found[-1] if found else None


def known_differences(comparisons: list[ComparisonRecord]) -> tuple[str, ...]:
    """Return the names of the parts that were different when they were last compared; see `current_comparisons`."""
    return comparisons[-1].different_parts if comparisons else ()


def _covers(later: tuple[str, ...], earlier: tuple[str, ...]) -> bool:
    return later == ("all",) or later == earlier == ("part",)


_RECORDS = RecordKind("comparison", ComparisonRecord, ("scope",), comparison_of, _covers)
