"""Records of verifications: when a location was verified, by whom, how deeply, and with which result (FORMAT.md, 7).

Every verification writes an object of its own, so that verifiers do not disturb each other. No transaction names
records. Seals and samples hash again what records list as damaged; a verification that cannot be recorded still
reports what it found.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any

from snapshot_assets.catalog.catalog import writer_name
from snapshot_assets.catalog.verify.objects import Report
from snapshot_assets.errors import (
    DamageError,
    DocumentError,
    ObjectNotFoundError,
    PlanError,
    StorageError,
    UnsupportedVersionError,
)
from snapshot_assets.format.documents import MAX_DOCUMENT_BYTES, parse_json, pretty_json
from snapshot_assets.format.layout import TRANSACTIONS, VERIFICATIONS, new_attempt, verification_of, verification_path
from snapshot_assets.format.units import parse_time, time_text
from snapshot_assets.storage.base import ObjectInfo, ObjectStore

_LOG = logging.getLogger(__name__)
_DEPTHS = ("quick", "sample", "full")
_MEMBERS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("location_id", "uri", "snapshot_id", "scope", "depth", "verified_at", "verified_by"), str),
    **dict.fromkeys(("revision", "files", "hashed", "bytes"), int),
    "damaged": list,
}


@dataclass(frozen=True)
class Verification:
    """One verification of a location, as its record describes it.

    Attributes:
        scope: `all` readable revisions with the log, or the `newest` state.
        damaged: Paths of the objects that have damage, sorted; empty if there was none.
    """

    verified_at: datetime
    verified_by: str
    scope: str
    depth: str
    revision: int
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
    document = {
        "version": report.format_version,
        "location_id": report.location_id,
        "uri": report.uri,
        "snapshot_id": report.snapshot_id,
        "revision": report.revision,
        "scope": report.scope,
        "depth": report.depth,
        "verified_at": time_text(now),
        "verified_by": writer_name(),
        "files": report.files,
        "hashed": report.hashed,
        "bytes": report.bytes,
        "damaged": sorted({fault.object for fault in report.faults if fault.is_damage}),
    }
    try:
        if next(iter(store.list(TRANSACTIONS)), None) is not None:  # else it was deleted meanwhile
            store.put(path, pretty_json(document))
    except StorageError as error:
        _LOG.warning("The verification of %s is not recorded: %s", store.uri, error)


def superseded(infos: Iterable[ObjectInfo]) -> dict[str, datetime]:
    """Return the records that a later one covers, with the time since when: one of at least that depth and scope."""
    since: dict[str, datetime] = {}
    later: dict[tuple[str, str], datetime] = {}
    for info in reversed(_by_time(infos)):
        kind = verification_of(info.path)
        assert kind is not None
        covering = [at for other, at in later.items() if _covers(other, kind)]
        if covering:
            since[info.path] = min(covering)
        later[kind] = info.modified
    return since


def _by_time(infos: Iterable[ObjectInfo]) -> list[ObjectInfo]:
    """Return the records among objects in the order in which they were written, on the store's clock."""
    return sorted((info for info in infos if verification_of(info.path)), key=attrgetter("modified", "path"))


def _covers(later: tuple[str, str], earlier: tuple[str, str], least: str = "full") -> bool:
    """Return whether one verification repeats another: (depth, scope) of both; no more than `least` is asked for."""
    depth, scope = earlier
    asked = min(_DEPTHS.index(depth), _DEPTHS.index(least))
    return later[1] in ("all", scope) and _DEPTHS.index(later[0]) >= asked


def current_verifications(store: ObjectStore, location_id: str, infos: Iterable[ObjectInfo]) -> list[Verification]:
    """Return the verifications that no later one covers, in the order in which they were recorded.

    Records of other places do not count: a copy of a location was not verified with its original. `infos` are the
    location's objects; others than records are ignored.
    """
    known, found = _by_time(infos), dict[str, Verification | None]()
    while True:
        covered = superseded(known)
        latest = [info.path for info in known if info.path not in covered]
        for path in latest:
            if path not in found:
                found[path] = _read(store, location_id, path)
        if all(found[path] for path in latest):
            return [verification for path in latest if (verification := found[path])]
        known = [info for info in known if found.get(info.path, True)]


def _read(store: ObjectStore, location_id: str, path: str) -> Verification | None:
    """Return a verification; None if its record is not this location's, was deleted since, or is damaged."""
    try:
        document = parse_json(store.get(path, limit=MAX_DOCUMENT_BYTES), path)
        _check(document, path)
        verified_at = parse_time(document["verified_at"])
    except ObjectNotFoundError:
        return None
    except (DamageError, UnsupportedVersionError, PlanError) as error:
        _LOG.warning("A record of a verification is ignored: %s", error)
        return None
    if (document["location_id"], document["uri"]) != (location_id, store.uri):
        return None
    counts = {name: document[name] for name in ("revision", "files", "hashed", "bytes")}
    texts = {name: document[name] for name in ("verified_by", "scope", "depth")}
    return Verification(verified_at=verified_at, damaged=tuple(document["damaged"]), **texts, **counts)


def _check(document: dict[str, Any], path: str) -> None:
    """Refuse a record with missing or wrong members."""
    wrong = [name for name, kind in _MEMBERS.items() if not isinstance(document.get(name), kind)]
    if not wrong and not all(isinstance(each, str) for each in document["damaged"]):
        wrong = ["damaged"]
    if not wrong and (document["depth"], document["scope"]) != verification_of(path):
        wrong = ["depth", "scope"]
    if wrong:
        raise DocumentError(f"{path} has no valid {' and '.join(wrong)}; see FORMAT.md, section 7.", object=path)


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
