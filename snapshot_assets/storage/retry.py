"""Repeats requests to a store that fail for the moment, and limits how many are sent each second.

This is the one place below the catalog that repeats requests. A call is repeated while its error is a
`StoreUnavailableError`: throttling, server errors, conflicts (409, which S3 answers while another request for the same
object is under way), failed and broken connections. It ends after `Patience.limit` seconds. Every other error is
permanent and raised at once. A streamed object cannot be repeated, because its bytes are gone: the client repeats its
parts, and the engine the task that writes it. A client also repeats the pages of a long listing, which has no other
place to go on from. What it has repeated counts here, so that no request is repeated by both.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import wraps
from traceback import clear_frames
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from snapshot_assets.errors import StorageError, StoreUnavailableError
from snapshot_assets.spans import span

_Result = TypeVar("_Result")
_SECONDS = 0.5


def interruptible(request: Callable[[], _Result]) -> _Result:
    """Return a request's result. In the main thread, an exception of a signal's handler ends the wait.

    Python handles a signal between two of its own steps, and a request of a native client is one step, which a store
    that never answers prolongs to minutes. So the request runs in a thread, which does not keep the process alive. It
    goes on after a signal, and its outcome is unknown then.
    """
    if threading.current_thread() is not threading.main_thread():
        return request()
    result: Future[_Result] = Future()
    threading.Thread(
        target=copy_context().run, args=(_settle, result, request), name="storage-request", daemon=True
    ).start()
    try:
        while not result.done():  # a signal that another thread received does not end a wait
            wait([result], _SECONDS)
        return result.result()
    finally:
        del result  # it holds the error, whose trace holds this frame


def _settle(result: Future[_Result], request: Callable[[], _Result]) -> None:
    try:
        result.set_result(request())
    except BaseException as error:  # raised again by whoever made the request
        cause: BaseException | None = error
        while cause is not None:  # OpenDAL's listers must end in the thread that made them
            clear_frames(cause.__traceback__)
            cause = cause.__context__
        result.set_exception(error)


FIRST_WAIT = 0.2
LONGEST_WAIT = 10.0
FIRST_CONTACT = 60.0
"""Most seconds for a store that has never answered this process: its address may be wrong."""
STOPS: ContextVar[tuple[threading.Event, ...]] = ContextVar("STOPS", default=())
"""Events that end the waits of a thread, because nobody needs its result any more."""

_WARN_AFTER = 5
_LOG = logging.getLogger(__name__)

_Arguments = ParamSpec("_Arguments")


@dataclass(frozen=True)
class Patience:
    """How long failed requests are repeated.

    Attributes:
        limit: Seconds after which a call is given up.
        retries: Most repetitions; None for as many as fit in the limit.
        rate: Most requests that this process sends each second; None for no limit.
    """

    limit: float
    retries: int | None = None
    rate: float | None = None


class Repeating(Protocol):
    """What `retried` needs of a store."""

    def attempts(self) -> Attempts:
        """Return the attempts of one call."""


class Attempts:
    """The attempts of one call: sends each when the rate allows it, and waits before the next.

    All requests of this process to the store share `contact` and `rate`.
    """

    def __init__(self, patience: Patience, contact: Contact, rate: Rate | None) -> None:
        self._patience, self._contact, self._rate = patience, contact, rate
        self._failures = 0
        self._since = time.monotonic()

    def send(self, request: Callable[[], _Result]) -> _Result:
        """Send a request once.

        Raises:
            StoreUnavailableError: It failed, and may succeed later; `failed` decides whether it is repeated.
        """
        if self._rate is not None:
            self._rate.wait()
        try:
            result = interruptible(request)
        except StorageError as error:
            if error.attributes.get("answered"):
                self._contact.made = True
            raise
        self._contact.made = True
        return result

    def failed(self, error: StoreUnavailableError) -> None:
        """Wait before the next attempt.

        Raises:
            StoreUnavailableError: There is no next attempt.
        """
        patience, seconds = self._patience, time.monotonic() - self._since
        wait = random.uniform(0, min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(self._failures, 10)))
        self._failures += 1 + error.attributes.get("repeated", 0)
        limit = patience.limit if self._contact.made else min(patience.limit, FIRST_CONTACT)
        many = patience.retries is not None and self._failures > patience.retries
        if many or seconds + wait > limit or stopped():
            tries = f"{self._failures} {'try' if self._failures == 1 else 'tries'} in {seconds:.1f} s"
            attributes = {**error.attributes, "exhausted": True}
            raise StoreUnavailableError(f"{str(error).removesuffix('.')} ({tries}).", **attributes) from error
        level = logging.WARNING if self._failures % _WARN_AFTER == 0 else logging.INFO
        _LOG.log(level, "%s Trying again in %.1f s.", error, wait)
        pause(wait)


def stopped() -> bool:
    """Return whether nobody needs the result of this thread any more."""
    return any(stop.is_set() for stop in STOPS.get())


def pause(seconds: float) -> None:
    """Wait, but not on for a thread that is stopped."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not stopped():
        time.sleep(min(left, 0.1) if STOPS.get() else left)


class Contact:
    """Whether a store has answered this process."""

    def __init__(self) -> None:
        self.made = False


class Rate:
    """Spreads requests evenly, so that no more than `rate` start each second."""

    def __init__(self, rate: float) -> None:
        self._interval = 1 / rate
        self._next = 0.0
        self._lock = threading.Lock()

    def wait(self, requests: int = 1) -> None:
        """Wait until requests may start."""
        with self._lock:
            start = max(self._next, time.monotonic())
            self._next = start + requests * self._interval
        pause(start - time.monotonic())


_Store = TypeVar("_Store", bound=Repeating)


def retried(
    method: Callable[Concatenate[_Store, _Arguments], _Result],
) -> Callable[Concatenate[_Store, _Arguments], _Result]:
    """Repeat a store's method while it raises `StoreUnavailableError`; see `Attempts`.

    The method must have the same effect if it is called twice. It sends one request, or a few that succeed or fail
    together.
    """
    request = method.__name__.removeprefix("_")

    @wraps(method)
    def patient(store: _Store, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        attempts = store.attempts()
        while True:
            try:
                with span(request):
                    return attempts.send(lambda: method(store, *args, **kwargs))
            except StoreUnavailableError as error:
                attempts.failed(error)

    return patient
