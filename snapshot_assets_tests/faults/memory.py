"""An object store in a dictionary, for searches that start from the same objects a hundred thousand times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO

from snapshot_assets.errors import ObjectExistsError, ObjectNotFoundError
from snapshot_assets.storage.base import ObjectInfo, check_path, check_size, folder_of
from snapshot_assets_tests.catalog.conftest import START


class MemoryStore:
    """An `ObjectStore` without streamed objects; `test_exhaustive.py` compares it with the local driver.

    Attributes:
        uri: That of a disk, so that many objects are read one after the other.
        objects: All objects, by path.
        changed: Paths of the objects that were written or deleted since somebody emptied it.
    """

    def __init__(self, objects: dict[str, bytes] | None = None, uri: str = "file:///memory") -> None:
        self.uri = uri
        self.objects = objects or {}
        self.changed: set[str] = set()

    def get(self, path: str, *, limit: int | None = None) -> bytes:
        data = self._data(path)
        check_size(path, len(data), limit)
        return data

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return self._data(path)[start : start + length]

    @contextmanager
    def open_reader(self, path: str) -> Iterator[BytesIO]:
        yield BytesIO(self._data(path))

    def put(self, path: str, data: bytes) -> None:
        self.objects[check_path(path)] = bytes(data)
        self.changed.add(path)

    def create(self, path: str, data: bytes) -> None:
        if path in self.objects:
            raise ObjectExistsError(f"Object {path} exists already.", uri=self.uri)
        self.put(path, data)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        folder_of(prefix)
        paths = sorted(path for path in self.objects if path.startswith(prefix))
        return iter([self.head(path) for path in paths])

    def temporaries(self) -> Iterator[ObjectInfo]:
        return iter(())

    def folders(self, prefix: str = "") -> tuple[str, ...]:
        rests = [path.removeprefix(prefix) for path in self.objects if path.startswith(prefix)]
        return tuple(sorted({rest.split("/")[0] for rest in rests if "/" in rest}))

    def head(self, path: str) -> ObjectInfo:
        return ObjectInfo(path, len(self._data(path)), START)

    def delete(self, path: str) -> None:
        if self.objects.pop(path, None) is not None:
            self.changed.add(path)

    def _data(self, path: str) -> bytes:
        if path not in self.objects:
            raise ObjectNotFoundError(f"There is no object {path}.", uri=self.uri)
        return self.objects[path]
