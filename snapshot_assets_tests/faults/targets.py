"""Real targets whose statements are counted and struck like calls to a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from snapshot_assets.databases.open import open_target
from snapshot_assets.databases.source import DatabaseAddress
from snapshot_assets.databases.sql_target import SqlTarget
from snapshot_assets_tests.faults.store import FaultyStore

_CALLS = ("_execute", "_rows", "_insert")
_USERS = ("snapshot_assets.engine.restore.spark_loader", "snapshot_assets.engine.restore.tasks")


@contextmanager
def counted_targets(store: FaultyStore) -> Iterator[None]:
    """Within the context, count every statement to a target as a call of the store."""

    def counted(address: DatabaseAddress) -> SqlTarget:
        target = open_target(address)
        for name in _CALLS:
            setattr(target, name, _struck(store, name.removeprefix("_"), getattr(target, name)))
        return target

    with patch(f"{_USERS[0]}.open_target", counted), patch(f"{_USERS[1]}.open_target", counted):
        yield


def _struck(store: FaultyStore, operation: str, call: Any) -> Any:
    def run(*arguments: Any) -> Any:
        what = arguments[-1] if operation != "insert" else f"into {arguments[0].table_name}"
        with store._call(operation, str(what)):
            return call(*arguments)

    return run
