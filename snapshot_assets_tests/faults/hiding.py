"""A real store whose listings pass over some objects, as those of a folder do that others write to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from snapshot_assets.storage.base import ObjectInfo, ObjectStore


@dataclass
class HidingStore:
    """Every object is there, and can be read by its name.

    Attributes:
        hides: Tells, for each object of each listing, whether it is passed over.
    """

    inner: ObjectStore
    hides: Callable[[str], bool]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return (info for info in self.inner.list(prefix) if not self.hides(info.path))
