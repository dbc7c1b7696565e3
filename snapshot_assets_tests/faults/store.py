"""Real stores: one ends the process, fails, or loses the reply at one of its calls; one omits objects from listings."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from snapshot_assets.errors import ObjectExistsError, StoreUnavailableError
from snapshot_assets.storage.base import ObjectInfo, ObjectStore
from snapshot_assets_tests.waiting import until

KINDS = (
    "kill-before",
    "kill-after",
    "drop-before",
    "drop-after",
    "fail-before",
    "fail-after",
    "exists-after",
    "throttle",
    "pause-before",
)
THROTTLED = 4
"""Consecutive calls that a throttling store refuses, after the retries of its client."""


class Dropped(BaseException):
    """Ends a run at this call, in tests that do not start another process."""


@dataclass(frozen=True)
class Fault:
    """What happens at one storage call.

    Attributes:
        kind: `kill-…` is SIGKILL. After `drop-…` no call has an effect, so clean-up has none either. `fail-before`
            skips the call; `throttle` skips several consecutive calls. `fail-after` loses the reply of a call that took
            effect. `exists-after` is the error of a client whose retry finds the object that it had created.
            `pause-before` waits.
        at: Number of the call, from 1; 0 for no fault.
        reached: File that is created when a pause starts.
        go: File that ends the pause once it exists.
    """

    kind: str = "kill-before"
    at: int = 0
    reached: str = ""
    go: str = ""


@dataclass
class FaultyStore:
    """Counts every call to a store and causes a fault at one of them.

    Attributes:
        trace: Every call so far: operation and kind of object.
        dropped: Whether further calls have no effect.
    """

    inner: ObjectStore
    fault: Fault = field(default_factory=Fault)
    trace: list[str] = field(default_factory=list)
    dropped: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def uri(self) -> str:
        return self.inner.uri

    @contextmanager
    def _call(self, operation: str, path: str) -> Iterator[None]:
        with self._lock:
            if self.dropped:
                raise Dropped
            self.trace.append(f"{operation} {kind_of_object(path)}")
            struck = self._strikes(len(self.trace))
        if struck:
            self._strike_before(operation, path)
        try:
            yield
        finally:
            if struck:
                self._strike_after(operation, path)

    def _strikes(self, number: int) -> bool:
        first = self.fault.at
        last = first + THROTTLED - 1 if self.fault.kind == "throttle" else first
        return 0 < first <= number <= last

    def _strike_before(self, operation: str, path: str) -> None:
        if self.fault.kind == "kill-before":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault.kind == "drop-before":
            self._drop()
        if self.fault.kind in ("fail-before", "throttle"):
            raise StoreUnavailableError(f"The store did not take {operation} {path}.")
        if self.fault.kind == "pause-before":
            Path(self.fault.reached).touch()
            until(Path(self.fault.go).exists)

    def _drop(self) -> None:
        self.dropped = True
        raise Dropped

    def _strike_after(self, operation: str, path: str) -> None:
        if self.fault.kind == "kill-after":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault.kind == "drop-after":
            self._drop()
        if self.fault.kind == "exists-after" and operation == "create":
            raise ObjectExistsError(f"{path} exists.")
        if self.fault.kind in ("fail-after", "exists-after"):
            raise StoreUnavailableError(f"The store did not answer {operation} {path}.")

    def _done(self, operation: str, path: str, call: Callable[[], Any]) -> Any:
        with self._call(operation, path):
            return call()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Pass `get`, `put` and all other calls that name one object or folder to the real store."""
        call = getattr(self.inner, name)
        return lambda path="", *arguments, **options: self._done(name, path, lambda: call(path, *arguments, **options))

    def list(self, prefix=""):
        return iter(self._done("list", prefix, lambda: list(self.inner.list(prefix))))

    def temporaries(self):
        return iter(self._done("temporaries", "", lambda: list(self.inner.temporaries())))

    @contextmanager
    def open_reader(self, path):
        opened = self._done("open_reader", path, lambda: self.inner.open_reader(path))
        with opened as reader:
            yield reader

    @contextmanager
    def open_writer(self, path):
        opened = self.inner.open_writer(path)
        writer = self._done("open", path, opened.__enter__)
        with ExitStack() as closing:
            try:
                yield _CountingWriter(self, writer, path)
                closing.enter_context(self._call("close", path))
            except BaseException as error:
                opened.__exit__(type(error), error, error.__traceback__)
                raise
            opened.__exit__(None, None, None)


@dataclass(frozen=True)
class _CountingWriter:
    store: FaultyStore
    writer: object
    path: str

    def write(self, data):
        return self.store._done("write", self.path, lambda: self.writer.write(data))


@dataclass
class HidingStore:
    """A real store whose listings omit some objects, as listings of a folder with concurrent writers may.

    Attributes:
        hides: Returns whether a listing omits the object at a path.
    """

    inner: ObjectStore
    hides: Callable[[str], bool]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return (info for info in self.inner.list(prefix) if not self.hides(info.path))


@cache
def kind_of_object(path: str) -> str:
    """Return a path without the parts that differ between runs."""
    path = re.sub(r"probe-[0-9a-f]+", "probe", path)
    path = re.sub(r"schema/[0-9a-f]+/.*", "schema", path)
    path = re.sub(r"data/\d+/chunk-.*", "receipt", path)
    path = re.sub(r"data/\d+/.*", "file", path)
    return re.sub(r"\d{20}", "revision", path)
