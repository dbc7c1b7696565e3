"""Tasks of a restore: every error becomes the result of its file or chunk."""

from __future__ import annotations

from typing import Any, cast

import pytest

from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.protocol.target import RestoreRecord
from snapshot_assets.engine.restore.loader import ReplaceTask, replace_chunk
from snapshot_assets.errors import TaskFailedError
from snapshot_assets.storage.base import ObjectStore


class Broken:
    """A target whose driver raises errors of its own."""

    closed = False

    def replace(self, *_: Any) -> int:
        raise ValueError("not of this package")

    def interrupt(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        self.closed = True


def test_an_error_of_a_driver_fails_only_the_chunk_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Broken()
    record = RestoreRecord("a" * 32, "0" * 32, "file:///x", 1, "c" * 64, "{}", ())
    monkeypatch.setattr("snapshot_assets.engine.restore.loader.open_target", lambda _: target)
    task = ReplaceTask(DatabaseAddress("target", "duckdb:///x"), cast(ObjectStore, None), (), 3, record, ())
    [result] = replace_chunk(task)
    assert (result.chunk, result.rows, type(result.error)) == (3, None, TaskFailedError)
    assert str(result.error) == "chunk 3: ValueError: not of this package"
    assert target.closed
