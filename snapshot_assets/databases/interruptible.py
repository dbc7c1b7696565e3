"""Runs database calls so that Ctrl-C and SIGTERM end them.

In the main thread, a driver either handles SIGINT itself, so that nobody learns of it, or keeps Python's handlers
waiting until the call ends. So the main thread leaves the call to another one, and waits for that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

Result = TypeVar("Result")
_SECONDS = 0.5


def interruptible(call: Callable[[], Result], cancel: Callable[[], None]) -> Result:
    """Return what a database call returns; an exception of a signal's handler cancels it.

    Args:
        call: The call.
        cancel: Ends the call from another thread; it may be called before the call begins, and again.

    Raises:
        BaseException: What the call raises, or what a signal's handler raised, once the call has ended.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    with ThreadPoolExecutor(1, thread_name_prefix="database") as pool:
        future = pool.submit(call)
        try:
            while not future.done():  # a signal that another thread received does not end a wait
                wait([future], _SECONDS)
        except BaseException:
            while not future.done():  # the call may have begun after it was cancelled
                cancel()
                wait([future], _SECONDS)
            raise
        return future.result()
