"""Runs database calls so that Ctrl-C and SIGTERM end them.

In the main thread, a driver either handles SIGINT itself, so that nobody learns of it, or keeps Python's handlers
waiting until the call ends. A handler's exception between two steps of a driver's Python code leaves its objects half
open. So the main thread leaves whole calls to another one, and waits for that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TypeVar

from snapshot_assets.spans import span

Result = TypeVar("Result")
_SECONDS = 0.5


def interruptible(call: Callable[[], Result], cancel: Callable[[], None]) -> Result:
    """Return what a database call returns; an exception of a signal's handler cancels it.

    Args:
        call: The call.
        cancel: Ends the call from another thread; it may be called before the call begins, and again. If it fails, it
            is called again.

    Raises:
        BaseException: What the call raises, or what a signal's handler raised, once the call has ended.
    """

    def end(begun: Future[Result]) -> None:
        while not begun.done():  # the call may have begun after it was cancelled
            with suppress(Exception):
                cancel()
            wait([begun], _SECONDS)

    with span("query"):
        return _in_thread(call, end)


def abandonable(call: Callable[[], Result], discard: Callable[[Result], None]) -> Result:
    """Return what a call returns that nothing can cancel; an exception of a signal's handler ends the wait for it.

    Args:
        call: The call. It may go on in a thread, which does not keep the process alive.
        discard: Called in that thread with a result that nobody waits for any more.

    Raises:
        BaseException: What the call raises, or what a signal's handler raised.
    """

    def settled(ended: Future[Result]) -> None:
        if ended.exception() is None:
            discard(ended.result())

    return _in_thread(call, lambda begun: begun.add_done_callback(settled))


def _in_thread(call: Callable[[], Result], end: Callable[[Future[Result]], None]) -> Result:
    """Return what a call returns that another thread makes for the main one; a signal ends it by `end` once begun."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    outcome: Future[Result] = Future()
    try:
        threading.Thread(target=_settle, args=(outcome, call), name="database", daemon=True).start()
        while not outcome.done():  # a signal that another thread received does not end a wait
            wait([outcome], _SECONDS)
        return outcome.result()
    except BaseException:
        if not outcome.cancel():  # the call has begun
            end(outcome)
        raise
    finally:
        del outcome  # it holds the error, whose trace holds this frame


def _settle(outcome: Future[Result], call: Callable[[], Result]) -> None:
    if not outcome.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # raised again by whoever waits
        outcome.set_exception(error)
    else:
        outcome.set_result(result)
