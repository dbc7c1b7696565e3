"""Spans: where the time of a run goes, in this process and in its tasks.

Nothing is recorded unless a recording is open. Times are those of the machine's clock, so that its processes agree, and
do not go back within a process.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar, NamedTuple, TypeVar

_MOST = 500_000
"""Most spans of a recording, about 100 MB; later ones are not kept."""
_EPOCH = time.time_ns() - time.perf_counter_ns()
_Item = TypeVar("_Item")


class Span(NamedTuple):
    """What a thread did from one moment to another, in nanoseconds since 1970."""

    name: str
    start: int
    end: int
    thread: str
    process: tuple[str, int]


class Spans(list[Span]):
    """The spans of a recording."""

    open: ClassVar[Spans | None] = None
    """The recording of this process."""
    idle_since: ClassVar[int] = 0
    """When the last task of this process ended."""

    def own_times(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Return how long the spans took without those inside them, in nanoseconds, and how many there are.

        They are by thread, where threads with a number and all tasks count as one, and by name.
        """
        found: dict[str, dict[str, tuple[int, int]]] = defaultdict(lambda: defaultdict(lambda: (0, 0)))
        outer: dict[tuple[Any, ...], list[Span]] = defaultdict(list)
        for each in sorted(self, key=lambda span: (span.start, -span.end)):
            group = re.sub(r"[-_]\d+$", "", each.thread) if each.process == _process() else "tasks"
            around = outer[each.process, each.thread]
            while around and around[-1].end <= each.start:
                around.pop()
            taken = each.end - each.start
            if around:
                inner, count = found[group][around[-1].name]
                found[group][around[-1].name] = inner - taken, count
            own, count = found[group][each.name]
            found[group][each.name] = own + taken, count + 1
            around.append(each)
        return found

    def chrome_trace(self) -> str:
        """Return the spans in Chrome's trace-event format, which Perfetto opens: a track for each thread."""
        processes, threads = dict[Any, int](), dict[Any, int]()
        events: list[dict[str, Any]] = []
        for each in self:
            process = processes.setdefault(each.process, len(processes) + 1)
            thread = threads.setdefault((process, each.thread), len(threads) + 1)
            times = {"ts": each.start / 1000, "dur": (each.end - each.start) / 1000}
            events.append({"name": each.name, "ph": "X", **times, "pid": process, "tid": thread})
        for (host, pid), process in processes.items():
            name = "driver" if (host, pid) == _process() else f"tasks of process {pid} on {host}"
            events.append({"name": "process_name", "ph": "M", "pid": process, "args": {"name": name}})
        for (process, name), thread in threads.items():
            events.append({"name": "thread_name", "ph": "M", "pid": process, "tid": thread, "args": {"name": name}})
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _process() -> tuple[str, int]:
    return socket.gethostname(), os.getpid()


def now() -> int:
    """Return the nanoseconds since 1970."""
    return _EPOCH + time.perf_counter_ns()


def span(name: str) -> AbstractContextManager[None]:
    """Record the time of a context, unless nothing is recorded."""
    return nullcontext() if Spans.open is None else _recorded(name)


@contextmanager
def _recorded(name: str) -> Iterator[None]:
    start = now()
    try:
        yield
    finally:
        record(name, start)


def record(name: str, start: int) -> None:
    """Record a span from a moment until now."""
    spans, end = Spans.open, now()
    if spans is not None and len(spans) < _MOST:
        spans.append(Span(name, min(start, end), end, threading.current_thread().name, _process()))


def spanned(name: str, items: Iterable[_Item]) -> Iterator[_Item]:
    """Yield items, with a span for the wait for each."""
    iterator = iter(items)
    while True:
        with span(name):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item


@contextmanager
def recording() -> Iterator[Spans]:
    """Record spans until the context ends."""
    before, Spans.open = Spans.open, Spans()
    try:
        yield Spans.open
    finally:
        Spans.open = before


def submission() -> int | None:
    """Return the present moment for `recording_task`; None if nothing is recorded."""
    return None if Spans.open is None else now()


@contextmanager
def recording_task(submitted: int | None) -> Iterator[list[Any]]:
    """Record spans in a task; the first is the wait for it, since its driver submitted it.

    Yields a list for the task's results, to which the spans are added when the context ends.
    """
    results: list[Any] = []
    if submitted is None:
        yield results
        return
    with recording() as spans:
        record("task start", max(submitted, Spans.idle_since))
        with span("task"):
            yield results
    results.append(spans)
    Spans.idle_since = now()


def without_spans(results: Iterable[Any]) -> Iterator[Any]:
    """Yield the results of tasks, and add their spans to those of this process."""
    for result in results:
        if not isinstance(result, Spans):
            yield result
        elif Spans.open is not None:
            Spans.open += result[: _MOST - len(Spans.open)]
