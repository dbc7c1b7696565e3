"""Logs a warning about a location once per process: a command reads what the warning is about several times."""

from __future__ import annotations

import logging
from functools import lru_cache

_LOG = logging.getLogger(__name__)


@lru_cache(maxsize=256)
def warn_once(_uri: str, message: str) -> None:
    """Log a warning about the location at a URI, once per process."""
    _LOG.warning("%s", message)
