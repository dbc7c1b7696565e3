"""Ends a command quietly whose output nobody reads any more, as in `snapshots … | head`."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable

READER_GONE = 141
"""Exit status then: that of a process which SIGPIPE ended, as shells report it."""
_STDOUT, _STDERR = 1, 2


def run_for_reader(run: Callable[[], int]) -> int:
    """Run a command and return its exit status, or `READER_GONE` if its output has no reader any more."""
    try:
        try:
            return run()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not is_reader_gone():
            raise
        _discard()
        return READER_GONE


def is_reader_gone() -> bool:
    """Return whether stdout or stderr is a pipe whose reader has closed it."""
    poll = select.poll()
    for descriptor in (_STDOUT, _STDERR):
        poll.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _discard() -> None:
    """Let the interpreter write what is left in its buffers to nowhere when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (_STDOUT, _STDERR):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
