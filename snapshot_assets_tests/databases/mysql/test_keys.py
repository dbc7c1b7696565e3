"""The keys of a table in MySQL: one statement adds them, and the ledger records each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import cast

import pytest

from snapshot_assets.databases.mysql.target import MysqlTarget
from snapshot_assets.databases.open import open_target
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.protocol.steps import SchemaStep, StepResult, steps_of
from snapshot_assets.testing.restores import definition_of, record_of
from snapshot_assets_tests.databases.mysql.helpers import described
from snapshot_assets_tests.servers.mariadb import MariadbServer

NAMES = ("unique constraint two of shop.t", "index one of shop.t", "index three of shop.t", "index words of shop.t")
ALL = (*NAMES, "foreign key here of shop.t", "foreign key there of shop.t")


@contextmanager
def loaded(server: MariadbServer, uri: str) -> Iterator[tuple[MysqlTarget, tuple[SchemaStep, ...]]]:
    """Yield a target with a table of one row, and the steps that follow its rows."""
    server.sql(
        "CREATE TABLE t (id int PRIMARY KEY, a int, b int, c int, d text, KEY one (a), UNIQUE KEY two (b),"
        " KEY three (c, a), FULLTEXT KEY words (d), CONSTRAINT here FOREIGN KEY (a) REFERENCES t (id),"
        " CONSTRAINT there FOREIGN KEY (c) REFERENCES t (id))",
        database="shop",
    )
    address = DatabaseAddress("shop", uri)
    definition = definition_of(described(uri), address)
    server.sql("DROP TABLE shop.t")
    with closing(open_target(address)) as target:
        target.begin(record_of(definition), "")
        target.make(record_of(definition), steps_of(definition.before))
        server.sql("INSERT INTO shop.t VALUES (1, 1, 1, 1, '')")
        yield cast("MysqlTarget", target), steps_of(definition.after)


def made(target: MysqlTarget, steps: Sequence[SchemaStep]) -> dict[str, StepResult]:
    return target.make(target.imports()[0], steps)


def altered(server: MariadbServer) -> int:
    """Return how many tables the server has altered."""
    return int(server.sql("SHOW GLOBAL STATUS LIKE 'Com_alter_table'").split()[1])


def test_the_keys_of_a_table_are_added_by_one_statement_and_recorded_each(
    mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    with loaded(mariadb_server, mariadb_database) as (target, steps):
        before = altered(mariadb_server)
        results = made(target, steps)
        assert altered(mariadb_server) - before == 3  # the keys, the index of words, the foreign keys
        assert [(each.name, each.status) for each in results.values()] == [(name, "made") for name in ALL]
        assert {name: each.status for name, each in target.steps(target.imports()[0].location_id).items()}.items() >= (
            dict.fromkeys(ALL, "made").items()
        )


def test_of_keys_that_one_statement_cannot_add_each_is_tried(
    mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    with loaded(mariadb_server, mariadb_database) as (target, steps):
        mariadb_server.sql("INSERT INTO shop.t VALUES (2, 9, 1, 2, '')")
        results = made(target, steps)
        failed = {name: each.message for name, each in results.items() if not each.made}
        assert list(failed) == [ALL[0], ALL[4]]
        assert "Duplicate entry '1' for key 'two'" in failed[ALL[0]]
        assert "foreign key constraint fails" in failed[ALL[4]]
        assert all(results[name].violated for name in failed)
        mariadb_server.sql("UPDATE shop.t SET a = 1, b = id")
        before = altered(mariadb_server)
        again = made(target, [step for step in steps if step.name in failed])
        assert [each.status for each in again.values()] == ["made", "made"]
        assert altered(mariadb_server) - before == 2  # one that failed is tried alone


@pytest.mark.parametrize("after", [False, True])
def test_keys_are_made_again_or_found_after_a_kill_at_their_statement(
    mariadb_server: MariadbServer, mariadb_database: str, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    with loaded(mariadb_server, mariadb_database) as (target, steps):
        execute = MysqlTarget.execute

        def killed(self: MysqlTarget, sql: str | bytes, doing: str) -> int:
            if b"ADD UNIQUE" not in (sql if isinstance(sql, bytes) else sql.encode()):
                return execute(self, sql, doing)
            if after:
                execute(self, sql, doing)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(MysqlTarget, "execute", killed)
            with pytest.raises(KeyboardInterrupt):
                made(target, steps)
        shown = mariadb_server.sql("SHOW CREATE TABLE shop.t")
        assert [f"KEY `{name}`" in shown for name in ("two", "one", "three")] == [after] * 3
        before = altered(mariadb_server)
        assert {each.status for each in made(target, steps).values()} == {"made"}
        assert altered(mariadb_server) - before == (6 if after else 3)
