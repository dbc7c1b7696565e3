"""What records of verifications and of comparisons have in common (FORMAT.md, 7).

Each is an object of its own, so that writers do not disturb each other. No transaction names it. It counts until a
later one covers it, at the place that it names: a copy of a location was not verified with its original.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Generic, TypeVar, get_type_hints

from snapshot_assets.catalog.state.fold import State
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
from snapshot_assets.format.layout import TRANSACTIONS
from snapshot_assets.format.units import parse_time, time_text
from snapshot_assets.storage.base import ObjectInfo, ObjectStore

_LOG = logging.getLogger(__name__)
_Record = TypeVar("_Record")


@dataclass(frozen=True)
class RecordKind(Generic[_Record]):
    """The records of verifications, or those of comparisons.

    Attributes:
        thing: What is recorded, in one word.
        record: A dataclass, whose fields are the members of the documents.
        named: The members that the path repeats.
        kind_of: Returns their values from the path of a record; None for another object.
        covers: Whether a later record covers an earlier one, by these values of both.
    """

    thing: str
    record: type[_Record]
    named: tuple[str, ...]
    kind_of: Callable[[str], tuple[str, ...] | None]
    covers: Callable[[tuple[str, ...], tuple[str, ...]], bool]

    @contextmanager
    def warning(self, store: ObjectStore) -> Iterator[None]:
        """Warn of a store that refuses a record, such as one that is read-only: what was found is reported anyway."""
        try:
            yield
        except StorageError as error:
            _LOG.warning("The %s of %s is not recorded: %s", self.thing, store.uri, error)

    def write(self, store: ObjectStore, path: str, of: State | Report, record: Any) -> None:
        """Write a record about a state of a location, unless its snapshot was deleted meanwhile."""
        place = {"location_id": of.location_id, "uri": store.uri, "snapshot_id": of.snapshot_id}
        about = {"version": of.format_version, **place, "revision": of.revision}
        facts = asdict(record)
        times = {name: time_text(value) for name, value in facts.items() if isinstance(value, datetime)}
        if next(iter(store.list(TRANSACTIONS)), None) is not None:
            store.put(path, pretty_json(about | facts | times | about))

    def superseded(self, infos: Iterable[ObjectInfo]) -> dict[str, datetime]:
        """Return the records among objects that a later one covers, with the time since when."""
        since: dict[str, datetime] = {}
        later: dict[tuple[str, ...], datetime] = {}
        for info in reversed(self._by_time(infos)):
            kind = self.kind_of(info.path)
            assert kind is not None
            covering = [at for other, at in later.items() if self.covers(other, kind)]
            if covering:
                since[info.path] = min(covering)
            later[kind] = info.modified
        return since

    def _by_time(self, infos: Iterable[ObjectInfo]) -> list[ObjectInfo]:
        """Return the records among objects in the order in which they were written, on the store's clock."""
        return sorted((info for info in infos if self.kind_of(info.path)), key=attrgetter("modified", "path"))

    def current(self, store: ObjectStore, location_id: str, infos: Iterable[ObjectInfo]) -> dict[str, _Record]:
        """Return the records that no later one covers by path, in the order in which they were written.

        `infos` are the location's objects; others than records are ignored, and so are records of other places, and
        damaged ones.
        """
        known, found = self._by_time(infos), dict[str, _Record | None]()
        while True:
            covered = self.superseded(known)
            latest = [info.path for info in known if info.path not in covered]
            for path in latest:
                if path not in found:
                    found[path] = self._read(store, location_id, path)
            if all(found[path] for path in latest):
                return {path: record for path in latest if (record := found[path])}
            known = [info for info in known if found.get(info.path, True)]

    def _read(self, store: ObjectStore, location_id: str, path: str) -> _Record | None:
        """Return a record; None if it is not this location's, was deleted since, or is damaged."""
        try:
            document = parse_json(store.get(path, limit=MAX_DOCUMENT_BYTES), path)
            record = self._parse(document, path)
        except ObjectNotFoundError:
            return None
        except (DamageError, UnsupportedVersionError, PlanError) as error:
            _LOG.warning("A record of a %s is ignored: %s", self.thing, error)
            return None
        return record if (document["location_id"], document["uri"]) == (location_id, store.uri) else None

    def _parse(self, document: dict[str, Any], path: str) -> _Record:
        """Return a record; refuse one with missing or wrong members."""
        members = get_type_hints(self.record)
        expected = {"location_id": str, "uri": str, "snapshot_id": str, "revision": int, **members}
        wrong = [name for name, kind in expected.items() if not _is(document.get(name), _IN_JSON.get(kind, kind))]
        if not wrong and tuple(document[name] for name in self.named) != self.kind_of(path):
            wrong = [*self.named]
        if wrong:
            raise DocumentError(f"{path} has no valid {' and '.join(wrong)}; see FORMAT.md, section 7.", object=path)
        facts = {name: tuple(value) if isinstance(value, list) else value for name, value in document.items()}
        times = {name: parse_time(facts[name]) for name, kind in members.items() if kind is datetime}
        return self.record(**{name: facts[name] for name in members} | times)


_IN_JSON: dict[Any, type] = {datetime: str, tuple[str, ...]: list, Mapping[str, str]: dict}


def _is(value: Any, kind: type) -> bool:
    """Return whether a member has its type; lists and objects have texts."""
    texts = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    return isinstance(value, kind) and all(isinstance(each, str) for each in texts)
