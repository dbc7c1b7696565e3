"""Exports of MariaDB follow its changes by value: no row has a version there, so equal counts prove nothing."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.export.changes import Changes, find_changes
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.plan.plan import Plan
from snapshot_assets_tests.cli.helpers import store_of
from snapshot_assets_tests.servers.mariadb import MariadbServer

EVERY = range(4)
DAYS = "'2024-01-01'", "'2024-01-02'", "'2024-01-03'", "NULL"
SETUP = (
    "CREATE TABLE t (id int PRIMARY KEY, at datetime(3), x int, note varchar(20), KEY (at))",
    "INSERT INTO t SELECT seq, '2024-01-01' + INTERVAL seq % 3 DAY, 0, 'a' FROM seq_1_to_9",
    "INSERT INTO t VALUES (10, NULL, 0, '')",
    "CREATE TABLE u (id int PRIMARY KEY, x int, note varchar(20) COLLATE utf8mb4_general_ci) ENGINE=InnoDB",
    "INSERT INTO u SELECT seq, 0, 'a' FROM seq_1_to_5",
    "CREATE TABLE plain (id int, x int, note varchar(20)) ENGINE=MyISAM",
    "INSERT INTO plain SELECT seq, 0, 'a' FROM seq_1_to_5",
)


class Following:
    """Exports of a database that follow its changes."""

    def __init__(self, server: MariadbServer, uri: str, folder: Path) -> None:
        self.server = server
        self.folder = folder
        plan = Plan(
            name="shop",
            source=uri,
            to=folder.as_uri(),
            start_time="2024-01-01T00:00:00Z",
            end_time="2024-01-04T00:00:00Z",
            chunk_time_window="1d",
        )
        self.run = ExportRun(plan, DatabaseAddress("shop", uri), store_of(folder), InlineRunner(), "run")
        with self.run.open() as opened:
            list(opened.export(EVERY))
            opened.seal()

    def follow(self) -> Changes:
        """Export what changed, and return that."""
        with self.run.open() as opened:
            changes = find_changes(opened, EVERY)
            for _ in opened.commits(list(changes.only), replace_completed=True, only=changes.only):
                pass
            opened.seal()
        return changes

    def files(self) -> frozenset[str]:
        """Return the paths of the data files."""
        return frozenset(each.file.path for each in read_state(store_of(self.folder)).live_files())

    def rows(self) -> Mapping[tuple[int, str], str]:
        """Return the rows of each table in each chunk."""
        found: dict[tuple[int, str], str] = {}
        for table, chunk in (("t", "IFNULL(DAY(at), 0)"), ("u", "0"), ("plain", "0")):
            query = f"SELECT {chunk}, id, x, HEX(note){', at' if table == 't' else ''} FROM {table} ORDER BY 1, 2, 3"
            for line in self.server.sql(query, database="shop").split("\n"):
                number, _, row = line.partition("\t")
                if row:
                    found[int(number), table] = found.get((int(number), table), "") + row + "\n"
        return found


def statements(choose: random.Random) -> list[str]:
    """Return statements of which most keep the number of rows."""
    table = choose.choice(("t", "u", "plain"))
    one, other = choose.sample(range(1, 11), 2)
    day, another = choose.choice(DAYS), choose.choice(DAYS)
    return choose.choice(
        [
            [f"UPDATE {table} SET x = x + 1 WHERE id = {one}"],
            [f"UPDATE {table} SET x = {other} WHERE id = {one}"],
            [f"UPDATE {table} SET note = IF(note = 'a', 'A', 'a ') WHERE id = {one}"],  # equal by the collation
            [f"UPDATE t SET at = {day} WHERE id = {one}"],
            [f"UPDATE t SET at = CASE id WHEN {one} THEN {day} ELSE {another} END WHERE id IN ({one}, {other})"],
            [f"UPDATE {table} SET id = 100 WHERE id = {one}", f"UPDATE {table} SET id = {one} WHERE id = {other}",
             f"UPDATE {table} SET id = {other} WHERE id = 100"],
            [f"DELETE FROM {table} WHERE id = {one}"],
            [f"INSERT IGNORE INTO t VALUES ({one}, {day}, 1, 'new')", f"DELETE FROM t WHERE id = {other}"],
            [f"REPLACE INTO u VALUES ({one}, 7, 'b')"],
            ["START TRANSACTION", f"UPDATE {table} SET x = 99", "ROLLBACK"],
            ["SET sql_log_bin = 0", f"UPDATE {table} SET x = x - 1 WHERE id = {one}"],  # no log knows of it
            [f"ALTER TABLE {table} FORCE"],
            [f"UPDATE {table} SET x = x"],
        ]
    )  # fmt: skip


@pytest.fixture
def following(mariadb_server: MariadbServer, mariadb_database: str, tmp_path: Path) -> Following:
    mariadb_server.sql(*SETUP, database="shop")
    return Following(mariadb_server, mariadb_database, tmp_path)


def test_nothing_is_written_where_nothing_changed_and_an_update_is_found(
    mariadb_server: MariadbServer, following: Following
) -> None:
    files = following.files()
    assert not following.follow().changed
    assert following.files() == files
    mariadb_server.sql("UPDATE t SET x = 1 WHERE id = 3", "UPDATE u SET note = 'A' WHERE id = 2", database="shop")
    changes = following.follow()
    assert [(part.chunk, part.table.table, part.answer.reason) for part in changes.changed] == [
        (0, "u", "other values"),
        (1, "t", "other values"),
    ]
    assert len(following.files() & files) == len(files) - 2
    assert not following.follow().changed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_exactly_what_changed_is_exported_again_whatever_happened(following: Following, seed: int) -> None:
    choose, exported = random.Random(seed), following.rows()
    for _ in range(10):
        for _ in range(choose.randrange(3)):
            following.server.sql(*statements(choose), database="shop")
        now = following.rows()
        changed = {place for place in exported.keys() | now.keys() if exported.get(place) != now.get(place)}
        assert {(part.chunk, part.table.table) for part in following.follow().changed} == changed
        exported = now
