"""Copies a database in a process of its own and kills that process at a call of the target: `SOURCE TARGET CALL`.

Prints the number of calls if it lives to the end.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from snapshot_assets.databases.duckdb.target import DuckDBTarget
from snapshot_assets.databases.source import DatabaseAddress
from snapshot_assets_tests.databases.restores import copy, extracted


def main(origin: str, into: str, fatal: int) -> None:
    calls = 0
    translated = DuckDBTarget.translated

    @contextmanager
    def counted(self: DuckDBTarget, doing: str) -> Iterator[None]:
        nonlocal calls
        calls += 1
        if calls == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        with translated(self, doing):
            yield

    DuckDBTarget.translated = counted  # type: ignore[method-assign]
    address = DatabaseAddress("origin", origin)
    copy(extracted(address), address, DatabaseAddress("copy", into))
    sys.stdout.write(str(calls))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
