"""What the objects of tags and savepoints name, for garbage collection."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from snapshot_assets.catalog.state.pins import PinState, TagState
from snapshot_assets.catalog.verify.faults import Fault, read_object
from snapshot_assets.errors import DamageError
from snapshot_assets.format.actions import ObjectRef
from snapshot_assets.storage.base import ObjectStore

_PATH = re.compile(rb'"path": "((?:data|schema)/[^"]+)"')


class PinnedPaths:
    """What the objects of tags and savepoints name: each is read once, as none ever changes.

    Of one that goes while garbage is collected, the files only wait for the next collection.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._read: set[ObjectRef] = set()
        self._paths: set[str] = set()

    def by(self, pins: Iterable[PinState]) -> set[str]:
        """Return the paths that the objects of pins name, and their own.

        Raises:
            DamageError: One cannot be read.
        """
        for known in pins:
            if known.pin.object not in self._read:
                self._paths.update(_pinned_by(self._store, known))
                self._read.add(known.pin.object)
        return self._paths


def _pinned_by(store: ObjectStore, known: PinState) -> Iterator[str]:
    """Yield the paths that a pin's own object names, and its own.

    Its checksum proves the manifest, which may name a million files: so nothing but paths is taken from it, which have
    no character that JSON escapes.
    """
    path = known.pin.object.path
    found = read_object(store, known.pin.object, True)
    if isinstance(found, Fault):
        raise DamageError(
            f"The object of {known.pin}, which pins files, cannot be read: {found.message} Nothing was deleted. Delete "
            f"the {'tag' if isinstance(known, TagState) else 'savepoint'}, or bring the object back.",
            object=path,
        )
    yield path
    yield from (match[1].decode() for match in _PATH.finditer(found))
