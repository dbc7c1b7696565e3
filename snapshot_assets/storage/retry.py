"""Repeats store calls that failed for a passing reason: decides how often and how long.

The clients repeat most such requests themselves, within one call: throttling, server errors, failed connections.
They do not repeat a conflict (409, which S3 answers while another request for the same object is under way) or a
write whose reply was lost; these are repeated here. A streamed object cannot be: its bytes are gone, so the task that
writes it is repeated.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from snapshot_assets.errors import StoreUnavailableError

_LOG = logging.getLogger(__name__)
_FIRST_WAIT = 0.2
_LONGEST_WAIT = 10.0
_PATIENCE = 120.0


class _Retrying(Protocol):
    retries: int


_Store = TypeVar("_Store", bound=_Retrying)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def retried(
    method: Callable[Concatenate[_Store, _Arguments], _Result],
) -> Callable[Concatenate[_Store, _Arguments], _Result]:
    """Repeat a store's method while it raises `StoreUnavailableError`.

    It is repeated at most `retries` times, within two minutes, with pauses of up to 0.2 s that double up to 10 s. An
    error whose attribute `repeated` is true is raised at once: the client has already repeated the request as often.

    Args:
        method: A method that may be called twice, such as a create: the store refuses the second one.
    """

    @wraps(method)
    def patient(store: _Store, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        deadline = time.monotonic() + _PATIENCE
        for attempt in range(store.retries):
            wait = random.uniform(0, min(_LONGEST_WAIT, _FIRST_WAIT * 2**attempt))
            try:
                return method(store, *args, **kwargs)
            except StoreUnavailableError as error:
                if error.attributes.get("repeated") or time.monotonic() + wait > deadline:
                    raise
                _LOG.info("%s Trying again in %.1f s.", error, wait)
            time.sleep(wait)
        return method(store, *args, **kwargs)

    return patient
