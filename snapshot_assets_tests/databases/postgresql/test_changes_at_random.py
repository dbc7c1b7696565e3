"""No set of rows whose values changed since an export is called unchanged, whatever happened in between."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress

import adbc_driver_manager
import pytest

from snapshot_assets.databases.protocol.source import AllRows, ExportedRows, Verdict
from snapshot_assets.format.relations import Carrier, Table
from snapshot_assets_tests.databases.postgresql.exported_rows import TIMED, values
from snapshot_assets_tests.databases.postgresql.helpers import Run, client, opened, table_of
from snapshot_assets_tests.servers.postgresql import DEBIAN, binaries, start_postgresql

TABLES = ("t", "m", "u")
PARTITIONS = ("m1", "m2", "spare1", "spare2")
BOUNDS = {
    "m1": "FOR VALUES FROM ('2026-01-01Z') TO ('2026-01-02Z')",
    "m2": "FOR VALUES FROM ('2026-01-02Z') TO ('2026-01-04Z')",
}
ROWS = """
SELECT i AS id, '2026-01-01Z'::timestamptz + i % 3 * interval '1 day' AS at, i % 3 AS x, i % 2 AS y
FROM generate_series(1, 9) i
"""
SETUP = (
    # A connection that was closed holds its locks until the server has noticed.
    "SET LOCAL lock_timeout = '60s'",
    "DROP TABLE IF EXISTS t, t_other, u, m, m1, m2, spare1, spare2",
    "CREATE TABLE t (id int PRIMARY KEY, at timestamptz, x int, y int)",
    f"INSERT INTO t {ROWS} UNION ALL SELECT 10, NULL, 0, 0",
    "CREATE TABLE t_other (LIKE t INCLUDING ALL)",
    f"INSERT INTO t_other {ROWS} UNION ALL SELECT 10, NULL, 1, 1",
    f"CREATE TABLE u AS {ROWS}",
    "CREATE TABLE m (id int, at timestamptz, x int, y int) PARTITION BY RANGE (at)",
    *(f"CREATE TABLE {name} PARTITION OF m {bounds}" for name, bounds in BOUNDS.items()),
    f"INSERT INTO m {ROWS}",
    "CREATE TABLE spare1 (LIKE m)",
    "INSERT INTO spare1 SELECT id, at, x + 1, y FROM m1",
    "CREATE TABLE spare2 (LIKE m)",
    "INSERT INTO spare2 SELECT id, at, x + 1, y FROM m2",
)


def change(choose: random.Random) -> list[str]:
    """Return statements that change rows, and may run in a transaction with others."""
    table, row, day = choose.choice(TABLES), choose.randint(1, 11), choose.randint(1, 3)
    other = choose.randint(1, 9)
    changes = {
        f"UPDATE {table} SET x = x + 1 WHERE id = {row}": 4,
        f"UPDATE {table} SET at = '2026-01-0{day}Z' WHERE id = {row}": 3,
        f"UPDATE {table} SET at = CASE id WHEN {row} THEN '2026-01-01Z' ELSE '2026-01-02Z' END::timestamptz"
        f" WHERE id IN ({row}, {other})": 1,
        f"DELETE FROM {table} WHERE id = {row}": 3,
        f"INSERT INTO {table} SELECT {row}, '2026-01-0{day}Z', {other}, 0 WHERE NOT EXISTS"
        f" (SELECT FROM {table} WHERE id = {row})": 3,
        f"INSERT INTO t VALUES ({row}, NULL, 7, 7) ON CONFLICT (id) DO UPDATE SET x = t.x + 1": 1,
        f"UPDATE t SET at = NULL WHERE id = {row}": 1,
        f"DO $$ BEGIN BEGIN UPDATE {table} SET x = x + 1 WHERE id = {row}; PERFORM 1 / (random() < {day} / 3.0)::int;"
        " EXCEPTION WHEN division_by_zero THEN NULL; END; END $$": 2,
        f"SELECT count(*) FROM (SELECT FROM {table} FOR UPDATE) l": 1,
    }
    return choose.choices(list(changes), list(changes.values()))


def definition(choose: random.Random) -> list[str]:
    """Return statements that change definitions or storage."""
    table, (partition, bounds) = choose.choice(TABLES), choose.choice(list(BOUNDS.items()))
    spare = partition.replace("m", "spare")
    whole = "SELECT id, at, x + 1 AS x, y FROM"
    options: list[list[str]] = [
        ["ALTER TABLE t RENAME TO t_old", "ALTER TABLE t_other RENAME TO t", "ALTER TABLE t_old RENAME TO t_other"],
        [f"ALTER TABLE {table} RENAME COLUMN x TO z", f"ALTER TABLE {table} RENAME COLUMN y TO x",
         f"ALTER TABLE {table} RENAME COLUMN z TO y"],
        [f"ALTER TABLE m DETACH PARTITION {partition}", f"ALTER TABLE m ATTACH PARTITION {spare} {bounds}",
         f"ALTER TABLE {partition} RENAME TO former", f"ALTER TABLE {spare} RENAME TO {partition}",
         f"ALTER TABLE former RENAME TO {spare}"],
        [f"CREATE TEMP TABLE kept AS {whole} {table}", f"TRUNCATE {table}", f"INSERT INTO {table} SELECT * FROM kept",
         "DROP TABLE kept"],
        [f"ALTER TABLE {table} ALTER COLUMN x TYPE int USING x + 1"],
        [f"ALTER TABLE {table} DROP COLUMN y", f"ALTER TABLE {table} ADD COLUMN y int DEFAULT 1"],
    ]  # fmt: skip
    return choose.choice(options)


def maintenance(choose: random.Random) -> list[str]:
    """Return a statement that changes no row, and runs outside of transactions."""
    table = choose.choice((*TABLES, *BOUNDS))
    return [
        choose.choice((f"VACUUM FREEZE {table}", f"VACUUM {table}", f"ANALYZE {table}", "VACUUM FULL u", "CHECKPOINT"))
    ]


class History:
    """A random history of one database: changes, with transactions that stay open, or are prepared.

    Args:
        clients: Connections of this history; all but the first may have a transaction open.
        seed: Number of the history.
    """

    def __init__(self, clients: Sequence[Run], seed: int) -> None:
        self.choose = random.Random(seed)
        self.run, *self.others = clients
        self.open: set[int] = set()
        self.prepared: set[str] = set()

    def all(self, run: Run, statements: list[str]) -> bool:
        """Run statements in one transaction, or up to its first error, such as a lock of an open transaction."""
        with suppress(adbc_driver_manager.Error):
            for statement in statements:
                run(statement)
            return True
        with suppress(adbc_driver_manager.Error):
            run("ROLLBACK")
        return False

    def step(self) -> None:
        """Do something at random."""
        choose = self.choose
        alone: list[Callable[[random.Random], list[str]]] = [change] * 5 + [definition]
        match choose.choices(("alone", "savepoint", "open", "close", "prepared", "maintain"), (6, 1, 2, 3, 1, 1))[0]:
            case "alone":
                end = choose.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK"))
                self.all(self.run, ["BEGIN", *choose.choice(alone)(choose), *change(choose), end])
            case "savepoint":
                end = choose.choice(("RELEASE a", "ROLLBACK TO a"))
                self.all(self.run, ["BEGIN", "SAVEPOINT a", *change(choose), end, *change(choose), "COMMIT"])
            case "open":
                number = choose.randrange(len(self.others))
                begin = [] if number in self.open else ["BEGIN"]
                done = self.all(self.others[number], [*begin, *change(choose)])
                (self.open.add if done else self.open.discard)(number)
            case "close":
                self.close()
            case "maintain":
                self.all(self.run, maintenance(choose))

    def close(self) -> None:
        """End an open transaction, or a prepared one."""
        choose = self.choose
        if self.open:
            number = choose.choice(sorted(self.open))
            self.open.discard(number)
            name = f"p{choose.randrange(10**9)}"
            end = choose.choice(("COMMIT", "COMMIT", "ROLLBACK", f"PREPARE TRANSACTION '{name}'"))
            if self.all(self.others[number], [end]) and end.startswith("PREPARE"):
                self.prepared.add(name)
        elif self.prepared:
            name = choose.choice(sorted(self.prepared))
            self.prepared.discard(name)
            self.all(self.run, [f"{choose.choice(('COMMIT', 'ROLLBACK'))} PREPARED '{name}'"])

    def finish(self) -> None:
        """End all transactions."""
        while self.open or self.prepared:
            self.close()


def documents(uri: str) -> list[Table]:
    """Return the documents of the tables."""
    carriers = {"at": Carrier.TEXT}
    with opened(uri) as database:
        return [table_of(database, name, time="at", carriers=carriers) for name in "tm"] + [table_of(database, "u")]


def exported(uri: str, tables: Sequence[Table]) -> tuple[list[ExportedRows], list[list[str]]]:
    """Return all sets of rows of the tables, with their values."""
    with opened(uri) as database:
        sets = [(table, rows) for table in tables for rows in (TIMED if table.time_index else [AllRows()])]
        found = [values(database, table, rows) for table, rows in sets]
        fence = database.fence()
    return [ExportedRows(*each, len(those), fence) for each, those in zip(sets, found, strict=True)], found


def check(uri: str, parts: list[ExportedRows], before: list[list[str]]) -> list[Verdict]:
    """Assert that no set with other values is unchanged; return the answers."""
    with opened(uri) as database:
        found = [each.verdict for each in database.changes_since(parts)]
        for part, old, verdict in zip(parts, before, found, strict=True):
            if verdict is Verdict.UNCHANGED:
                assert values(database, part.table, part.rows) == old, (part.table.name, part.rows)
    return found


@pytest.fixture(scope="module", params=["18", pytest.param(DEBIAN, marks=pytest.mark.slow)])
def uri(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of a server that can prepare transactions."""
    version = 18 if request.param == "18" else 15
    if not (binaries(version) / "initdb").exists():
        pytest.skip(
            f"PostgreSQL {version} is not installed in {binaries(version)}: apt-get install postgresql-{version}"
        )
    with start_postgresql(version) as server:
        server.psql(server.uri(), "ALTER SYSTEM SET max_prepared_transactions = 20")
        server.control("restart")
        yield server.create_database()


@pytest.mark.parametrize("histories", [10, pytest.param(250, marks=pytest.mark.slow)])
def test_no_set_with_other_values_is_unchanged(uri: str, histories: int) -> None:
    found: list[Verdict] = []
    with ExitStack() as stack:
        clients = [stack.enter_context(client(uri)) for _ in range(3)]
        for run in clients:
            run("SET lock_timeout = '5ms'")
        history = History(clients, 0)
        assert history.all(history.run, ["BEGIN", *SETUP, "COMMIT"])
        tables = documents(uri)
        for seed in range(histories):
            found += answers_of_history(uri, tables, History(clients, seed))
    assert set(found) == set(Verdict)


def answers_of_history(uri: str, tables: Sequence[Table], history: History) -> list[Verdict]:
    """Check the answers at each step of a history; return them."""
    assert history.all(history.run, ["BEGIN", *SETUP, "COMMIT"])
    for _ in range(history.choose.randrange(6)):
        history.step()
    quiet = not history.open and not history.prepared
    parts, before = exported(uri, tables)
    found = check(uri, parts, before)
    assert not quiet or set(found) == {Verdict.UNCHANGED}
    for _ in range(history.choose.randint(1, 4)):
        history.step()
    if history.choose.random() < 0.3:  # while transactions are open
        found += check(uri, parts, before)
    history.finish()
    return found + check(uri, parts, before)
