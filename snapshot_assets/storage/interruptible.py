"""Runs requests to a store so that Ctrl-C and SIGTERM end the wait for them.

Python handles a signal in the main thread, between two of its own steps. A request of a native client is one step,
which a store that never answers prolongs to minutes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from traceback import clear_frames
from typing import TypeVar

_Result = TypeVar("_Result")
_SECONDS = 0.5


def interruptible(request: Callable[[], _Result]) -> _Result:
    """Return a request's result. In the main thread, an exception of a signal's handler ends the wait.

    The request goes on in a thread, which does not keep the process alive; its outcome is unknown then.

    Args:
        request: Sends the request.
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
