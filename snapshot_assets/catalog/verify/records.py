"""Records of verifications: when a location was verified, by whom, how deeply, and with which result (FORMAT.md, 7).

Every verification writes an object of its own, so that verifiers do not disturb each other. No transaction names
records. Seals and samples hash again what records list as damaged; a verification that cannot be recorded still
reports what it found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from snapshot_assets.catalog.catalog import writer_name
from snapshot_assets.catalog.verify.faults import FaultKind
from snapshot_assets.catalog.verify.objects import Report
from snapshot_assets.catalog.verify.record_kind import RecordKind
from snapshot_assets.format.layout import VERIFICATIONS, new_attempt, verification_of, verification_path
from snapshot_assets.storage.base import ObjectInfo, ObjectStore

_DEPTHS = ("quick", "sample", "full")


@dataclass(frozen=True)
class Verification:
    """One verification of a location, as its record describes it.

    Attributes:
        scope: `all` readable revisions with the log, or the `newest` state.
        damaged: Paths of the objects that have damage, sorted; empty if there was none.
    """

    revision: int
    scope: str
    depth: str
    verified_at: datetime
    verified_by: str
    files: int
    hashed: int
    bytes: int
    damaged: tuple[str, ...]


def record_verification(store: ObjectStore, report: Report, now: datetime) -> None:
    """Record a verification at its location, unless it was one of an older revision, or of no readable log.

    A store that refuses the record, such as one that is read-only, causes a warning. `now` is when it ended.
    """
    if report.scope == "older" or not report.location_id:
        return
    path = verification_path(now, report.depth, report.scope, new_attempt())
    damage = {fault.object for fault in report.faults if fault.is_damage and fault.kind is not FaultKind.SIGNATURE}
    damaged = tuple(sorted(damage))
    counts = (report.files, report.hashed, report.bytes)
    record = Verification(report.revision, report.scope, report.depth, now, writer_name(), *counts, damaged)
    with _RECORDS.warning(store):
        _RECORDS.write(store, path, report, record)


def superseded(infos: Iterable[ObjectInfo]) -> dict[str, datetime]:
    """Return the records that a later one covers, with the time since when: one of at least that depth and scope."""
    return _RECORDS.superseded(infos)


def _covers(later: tuple[str, ...], earlier: tuple[str, ...], least: str = "full") -> bool:
    """Return whether one verification repeats another: (depth, scope) of both; no more than `least` is asked for."""
    depth, scope = earlier
    asked = min(_DEPTHS.index(depth), _DEPTHS.index(least))
    return later[1] in ("all", scope) and _DEPTHS.index(later[0]) >= asked


def current_verifications(store: ObjectStore, location_id: str, infos: Iterable[ObjectInfo]) -> list[Verification]:
    """Return the verifications that no later one covers, in the order in which they were recorded.

    Records of other places do not count: a copy of a location was not verified with its original. `infos` are the
    location's objects; others than records are ignored.
    """
    return [*_RECORDS.current(store, location_id, infos).values()]


_RECORDS = RecordKind("verification", Verification, ("depth", "scope"), verification_of, _covers)


def known_damage(verifications: Sequence[Verification]) -> set[str]:
    """Return the paths of objects that were damaged when they were last verified.

    A sample hashes again what was damaged, so it also shows that damage which a full verification found is gone. The
    verifications are the current ones, in the order in which they were recorded.
    """
    return {
        path
        for place, each in enumerate(verifications)
        if not any(
            _covers((later.depth, later.scope), (each.depth, each.scope), "sample")
            for later in verifications[place + 1 :]
        )
        for path in each.damaged
    }


def damage_on_record(store: ObjectStore, location_id: str) -> set[str]:
    """Return the known damage of a location: seals and samples hash these objects, too."""
    return known_damage(current_verifications(store, location_id, store.list(VERIFICATIONS)))
