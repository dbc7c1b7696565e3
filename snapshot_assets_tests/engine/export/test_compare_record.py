"""Comparisons are recorded at the location, and one that was interrupted is continued by the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.verify.comparisons import ComparisonRecord, current_comparisons
from snapshot_assets.engine.export import compare_record
from snapshot_assets.engine.export.compare import Choice, Compared, Comparison, compare
from snapshot_assets.errors import DatabaseUnavailableError, StoreDeniedError
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.windows import TimeRange
from snapshot_assets_tests.catalog.execute import delete_rows
from snapshot_assets_tests.catalog.tags import Changed
from snapshot_assets_tests.databases.postgresql.helpers import execute
from snapshot_assets_tests.engine.export.test_compare import STATEMENTS, Shop, shop, with_value

__all__ = ["shop"]  # a fixture


class Interrupted(BaseException):
    """What Ctrl-C raises."""


def records(shop: Shop) -> list[ComparisonRecord]:
    return current_comparisons(shop.store, read_state(shop.store), shop.store.list("comparison/"))


def paths(shop: Shop) -> list[str]:
    return [info.path for info in shop.store.list("comparison/")]


def interrupt(shop: Shop, after: int, choice: Choice | None = None, **fields: Any) -> None:
    """Interrupt a comparison when a number of parts was compared."""

    def stage(_doing: str, done: int, _total: int) -> None:
        if done > after:
            raise Interrupted

    with pytest.raises(Interrupted), shop.looking(**fields) as opened:
        compare(opened, choice, stage)
    assert ["unfinished" in path for path in paths(shop)][-1:] == [True]


def read_by(shop: Shop, choice: Choice | None = None, **fields: Any) -> tuple[Compared, int]:
    """Compare; returns the result, and how many parts were read."""
    stages: list[int] = [0]
    with shop.looking(**fields) as opened:
        found = compare(opened, choice, lambda doing, done, total: stages.append(total))
    return found, max(stages)


def test_a_comparison_of_everything_is_recorded_with_what_it_found(shop: Shop) -> None:
    shop.export()
    assert records(shop) == []
    shop.compare()
    [equal] = records(shop)
    assert (str(equal), equal.scope, equal.revision) == (
        "everything, 5 parts: 5 equal",
        "all",
        read_state(shop.store).revision,
    )
    assert equal.fence.keys() >= ({"duckdb_file"} if shop.schema == "main" else {"snapshot", "lsn"})
    assert equal.started_at <= equal.compared_at
    shop.forge("items", 1, with_value("price", 0, 7.0))
    shop.compare()
    [different] = records(shop)
    assert str(different) == "everything, 5 parts: 4 equal, 1 different"
    assert different.different_parts == (f"1/{shop.schema}.items",)
    shop.run("UPDATE items SET price = 9 WHERE id = 3")
    counts = shop.compare().counts
    last = records(shop)[-1]
    assert (last.equal, last.changed, last.unknown) == (
        counts[Comparison.EQUAL],
        counts[Comparison.CHANGED],
        counts[Comparison.UNKNOWN],
    )


def test_a_comparison_of_a_part_names_it_and_keeps_what_it_did_not_compare(shop: Shop) -> None:
    shop.export()
    shop.forge("items", 1, with_value("price", 0, 7.0))
    shop.compare()
    kinds = TableName(shop.schema, "kinds")
    later = TimeRange(datetime(2025, 1, 2, tzinfo=UTC), datetime(2025, 1, 3, tzinfo=UTC))
    shop.compare(Choice(tables=[kinds]))
    assert str(records(shop)[-1]) == f"tables {shop.schema}.kinds, 1 part: 1 equal"
    shop.compare(Choice(range=later))
    everything, part = records(shop)
    assert str(part) == "range 2025-01-02T00:00:00Z/2025-01-03T00:00:00Z, 1 part: 1 equal"
    assert part.different_parts == everything.different_parts == (f"1/{shop.schema}.items",)
    shop.forge("items", 1, with_value("price", 0, 1.0))
    shop.compare(Choice(tables=[TableName(shop.schema, "items")]))
    assert records(shop)[-1].different_parts == ()


def test_a_comparison_of_an_older_revision_is_not_recorded(shop: Shop) -> None:
    shop.export()
    old = read_state(shop.store).revision
    delete_rows(Catalog.open_for_writing(shop.store), TableName(shop.schema, "items"), "id = 1")
    shop.compare(Choice(at=lambda _: old))
    assert paths(shop) == []
    shop.compare(Choice(at=lambda newest: newest.revision))
    assert len(records(shop)) == 1


def test_an_interrupted_comparison_is_continued(shop: Shop) -> None:
    shop.export()
    interrupt(shop, 3)
    [path] = paths(shop)
    assert records(shop) == []
    found, read = read_by(shop)
    assert (found.unequal, len(found.parts), found.passed, read) == ([], 5, 3, 2)
    assert "5 equal; 3 were compared by the run of 20" in str(found)
    [record] = records(shop)
    assert (record.equal, record.started_at, path in paths(shop)) == (5, found.started, False)
    found, read = read_by(shop)  # it is finished, so the next one reads everything
    assert (found.passed, read) == (0, 5)


def test_a_part_that_changed_meanwhile_is_compared_again(shop: Shop) -> None:
    shop.export()
    interrupt(shop, 4)
    shop.run("UPDATE items SET price = 2 WHERE id = 1")
    found, read = read_by(shop)
    assert [each.part.chunk for each in found.unequal] == [1]
    # A DuckDB file that was written has no versions of rows.
    assert (found.passed, read) == ((3, 2) if shop.schema == "public" else (0, 5))


def test_a_comparison_is_continued_more_than_once(shop: Shop) -> None:
    shop.export()
    interrupt(shop, 1)
    interrupt(shop, 1)
    assert len(paths(shop)) == 1
    found, read = read_by(shop)
    assert (found.passed, read) == (2, 3)


def test_another_choice_another_revision_and_an_old_record_are_not_continued(
    shop: Shop,
) -> None:
    shop.export()
    interrupt(shop, 4)
    found, _ = read_by(shop, Choice(tables=[TableName(shop.schema, "items")]))
    assert found.passed == 0
    state = read_state(shop.store)
    later = Changed(shop.store, list=lambda *_: [replace(info, modified=long_ago) for info in shop.store.list(*_)])
    long_ago = datetime.now(UTC) - timedelta(microseconds=state.header.grace, seconds=1)
    with shop.looking() as opened:
        old = replace(opened, catalog=Catalog(later, opened.catalog.state))
        assert compare(old).passed == 0
    interrupt(shop, 4)
    delete_rows(Catalog.open_for_writing(shop.store), TableName(shop.schema, "items"), "id = 1")
    assert read_by(shop)[0].passed == 0


def test_rows_that_the_snapshot_deleted_are_compared_again(shop: Shop) -> None:
    """The source may have another number of them than the snapshot deleted, so no count of rows proves anything."""
    shop.export()
    delete_rows(Catalog.open_for_writing(shop.store), TableName(shop.schema, "items"), "id = 1")
    interrupt(shop, 4)
    found, read = read_by(shop)
    assert (found.passed, read, found.deleted) == (3, 2, 1)


def test_a_store_that_refuses_records_does_not_stop_a_comparison(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    def put(*_: object) -> None:
        raise StoreDeniedError("read-only")

    shop.export()
    with shop.looking() as opened:
        denied = replace(opened, catalog=Catalog(Changed(shop.store, put=put), opened.catalog.state))
        assert compare(denied).unequal == []
    assert "is not recorded: read-only" in caplog.text


_KILLED = """
import os, signal, sys
from snapshot_assets.engine.export import compare_record
from snapshot_assets.engine.export.compare import compare
from snapshot_assets_tests.engine.export.test_compare import Path, Shop

compare_record._SECONDS = 0.0

def stage(_doing, done, _total):
    if done > 3:
        os.kill(os.getpid(), signal.SIGKILL)

with Shop(sys.argv[1], Path(sys.argv[2])).looking() as opened:
    compare(opened, None, stage)
"""


def test_what_a_killed_comparison_recorded_is_passed_over(shop: Shop) -> None:
    assert compare_record._SECONDS == 60
    shop.export()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, shop.uri, str(shop.folder)], env=environment, capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    found, read = read_by(shop)
    assert (found.unequal, found.passed, read) == ([], 3, 2)


def test_a_lost_connection_leaves_what_was_compared(postgresql_database: str, tmp_path: Path) -> None:
    execute(postgresql_database, *STATEMENTS)
    shop = Shop(postgresql_database, tmp_path / "location")
    shop.export()

    def stage(_doing: str, done: int, _total: int) -> None:
        if done == 3:
            others = "datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            execute(shop.uri, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")

    with pytest.raises(DatabaseUnavailableError), shop.looking() as opened:
        compare(opened, None, stage)
    found, read = read_by(shop)
    assert (found.unequal, found.passed, read) == ([], 3, 2)
