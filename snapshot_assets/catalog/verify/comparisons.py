"""Records of comparisons of a snapshot with its source: when, by whom, of what, and with which result (FORMAT.md, 7).

They are kept as those of verifications are. The last one names all parts that are known to be different: it takes over
those of the one before that it did not compare. A comparison that is at work records which parts were equal, so that
another one can continue it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from snapshot_assets.catalog.catalog import writer_name
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.record_kind import RecordKind
from snapshot_assets.format.layout import COMPARISONS, comparison_of, comparison_path, new_attempt
from snapshot_assets.format.units import counted, parse_time, time_text
from snapshot_assets.storage.base import ObjectInfo, ObjectStore

UNFINISHED = "unfinished"


@dataclass(frozen=True)
class ComparisonRecord:
    """One comparison of a snapshot with its source. A part is named `<chunk id>/<schema>.<table>`.

    Attributes:
        started_at: When it began: it read the source in the state of about that time.
        scope: `all` parts of the newest state, a `part` of them, or `unfinished`.
        chosen: Which part, in words; "" for all.
        fence: Identifiers of the source's state.
        parts: How many parts were compared; the next four numbers add up to it.
        changed: How many changed in the source since their export.
        different: How many are different although the source did not change.
        unknown: Of how many neither is known.
        different_parts: The names of the parts that are known to be different; empty if it is unfinished.
        equal_parts: If it is unfinished, the names of parts that were equal.
    """

    started_at: datetime
    compared_at: datetime
    scope: str
    chosen: str = ""
    fence: Mapping[str, str] = field(default_factory=dict)
    parts: int = 0
    equal: int = 0
    changed: int = 0
    different: int = 0
    unknown: int = 0
    different_parts: tuple[str, ...] = ()
    equal_parts: tuple[str, ...] = ()
    compared_by: str = field(default_factory=writer_name)
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
        path: Where its record is written, in place of the one there; "" for a new one.
    """
    with _RECORDS.warning(store):
        if record.scope == "part":
            before = known_differences(current_comparisons(store, state, store.list(COMPARISONS)))
            kept = {name for name in before if name not in compared}
            record = replace(record, different_parts=tuple(sorted(kept.union(record.different_parts))))
        times = {name: time_text(getattr(record, name)) for name in _TIMES}
        facts = asdict(record) | times
        path = path or comparison_path(record.compared_at, record.scope, new_attempt())
        _RECORDS.write(store, path, state, {name: facts[name] for name in _MEMBERS})


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
    finished = (info for info in infos if comparison_of(info.path) != (UNFINISHED,))
    found = _RECORDS.current(store, state.location_id, finished).values()
    return [record for record in found if record.snapshot_id == state.snapshot_id]


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


def _parse(document: dict[str, Any]) -> ComparisonRecord:
    facts = {each.name: document[each.name] for each in fields(ComparisonRecord)}
    times = {name: parse_time(facts[name]) for name in _TIMES}
    lists = {name: tuple(value) for name, value in facts.items() if isinstance(value, list)}
    return ComparisonRecord(**facts | times | lists)


_TIMES = ("started_at", "compared_at")
_MEMBERS: dict[str, type] = {
    **dict.fromkeys(("scope", "chosen", "started_at", "compared_at", "compared_by"), str),
    "fence": dict,
    **dict.fromkeys(("parts", "equal", "changed", "different", "unknown"), int),
    **dict.fromkeys(("different_parts", "equal_parts"), list),
}
_RECORDS = RecordKind("comparison", _MEMBERS, ("scope",), comparison_of, _covers, _parse)
