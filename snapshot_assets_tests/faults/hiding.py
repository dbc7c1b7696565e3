"""A real store whose listings omit some objects, as listings of a folder with concurrent writers may."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from snapshot_assets.storage.base import ObjectInfo, ObjectStore


@dataclass
class HidingStore:
    """Every object exists and can be read by its name.

    Attributes:
        hides: Returns whether a listing omits the object at a path.
    """

    inner: ObjectStore
    hides: Callable[[str], bool]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return (info for info in self.inner.list(prefix) if not self.hides(info.path))
