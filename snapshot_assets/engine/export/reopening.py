"""The planning connection of a source whose connections read states of their own: it is opened again when it is lost.

The state of another connection serves a plan, a count or a comparison as well, as tasks read states of their own too.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from functools import partial
from typing import Any

from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.protocol.source import Database, DatabaseAddress
from snapshot_assets.engine.retry import RetryPolicy
from snapshot_assets.errors import SnapshotError, TransientError
from snapshot_assets.format.scrub import scrub

_LOG = logging.getLogger(__name__)


class ReopeningDatabase:
    """A `Database` that makes a call with a transient failure again, over a new connection.

    Raises:
        DatabaseError: It cannot be opened; see `open_database`.
    """

    def __init__(self, address: DatabaseAddress, policy: RetryPolicy) -> None:
        self._address, self._policy = address, policy
        self._database: Database | None = open_database(address)

    def __getattr__(self, name: str) -> Any:
        """Return a method of the database that is tried again, or an attribute."""
        found = getattr(self._opened(), name)
        return partial(self._call, name) if callable(found) else found

    def close(self) -> None:
        """Close the connection."""
        if self._database is not None:
            self._database.close()

    def _opened(self) -> Database:
        if self._database is None:
            self._database = open_database(self._address)
        return self._database

    def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        waits = self._policy.waits()
        while True:
            try:
                return getattr(self._opened(), name)(*arguments, **named)
            except TransientError as error:
                if (wait := next(waits, None)) is None:
                    raise
                _LOG.warning("The source is asked again over a new connection: %s", scrub(str(error)))
                with suppress(SnapshotError):
                    self.close()
                self._database = None
                time.sleep(wait)
