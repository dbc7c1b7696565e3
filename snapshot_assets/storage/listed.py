"""The objects of a location, by a listing that may miss some of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from snapshot_assets.errors import ObjectNotFoundError
from snapshot_assets.storage.base import ObjectInfo, ObjectStore
from snapshot_assets.storage.in_parallel import in_parallel


class Listed(Mapping[str, ObjectInfo]):
    """The objects of a location by path.

    A listing of a folder that others write to may miss an object. So a lookup of an unlisted path asks the store.
    Iteration yields the listed objects, and those that lookups added.

    Args:
        store: The location.
        prefixes: What to list, as `ObjectStore.list` takes it; nothing for all objects.
    """

    def __init__(self, store: ObjectStore, *prefixes: str) -> None:
        self._store = store
        self._known = {info.path: info for prefix in prefixes or ("",) for info in store.list(prefix)}

    def __getitem__(self, path: str) -> ObjectInfo:
        """Return an object's size and time; `KeyError` if it is missing."""
        if path not in self._known:
            try:
                self._known[path] = self._store.head(path)
            except ObjectNotFoundError:
                raise KeyError(path) from None
        return self._known[path]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._known))

    def __len__(self) -> int:
        return len(self._known)

    def missing(self, paths: Iterable[str]) -> set[str]:
        """Return those of the paths that have no object."""
        unlisted = sorted(set(paths) - self._known.keys())
        if not unlisted:
            return set()
        exists = in_parallel(self._store, self.__contains__, unlisted)
        return {path for path, present in zip(unlisted, exists, strict=True) if not present}
