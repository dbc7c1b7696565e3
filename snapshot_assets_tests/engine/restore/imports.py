"""Restores in this process, and the comparison of their target with the source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from snapshot_assets.databases.open import open_database, open_target
from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress, Scan, Selection
from snapshot_assets.databases.protocol.target import RestoreRecord
from snapshot_assets.engine.restore.loader import ChunkOutcome
from snapshot_assets.engine.restore.plan import RestorePlan
from snapshot_assets.engine.restore.run import RestoreRun
from snapshot_assets.engine.restore.settings import Filters, RestoreSettings
from snapshot_assets.engine.retry import RetryPolicy
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.errors import SchemaIncompleteError
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.databases.postgresql.helpers import client
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.faults.source import TIMES

only_duckdb = pytest.mark.parametrize("kind", ["duckdb"])
"""Marks tests of rules that are the same for every kind of database; see the fixture `pair`."""


@dataclass
class CountingRunner(InlineRunner):
    """Runs tasks in this process and records every function that is called."""

    calls: list[str] = field(default_factory=list)

    def map(self, function: Any, items: Sequence[Any]) -> Iterable[Any]:
        self.calls += [function.__name__] * len(items)
        return list(super().map(function, items))


@dataclass
class Restored:
    """The result of one restore."""

    outcomes: dict[int, ChunkOutcome]
    finished: bool
    run: RestoreRun
    calls: list[str]
    plan: RestorePlan

    @property
    def rows(self) -> int:
        return sum(outcome.rows for outcome in self.outcomes.values())


@dataclass
class Into:
    """A target, and restores into it."""

    uri: str

    @property
    def address(self) -> DatabaseAddress:
        return DatabaseAddress("target", self.uri)

    def run(
        self, store: ObjectStore, runner: Any = None, *, filters: Filters | None = None, **settings: Any
    ) -> RestoreRun:
        chosen = RestoreSettings(filters or Filters(), **settings)
        return RestoreRun(store, self.address, runner or InlineRunner(), chosen, retry=RetryPolicy(base=0))

    def restore(
        self,
        store: ObjectStore,
        chunks: Sequence[int] = (),
        *,
        again: bool = False,
        finish: bool = True,
        **settings: Any,
    ) -> Restored:
        """Plan, begin, load and finish."""
        runner = CountingRunner()
        run = self.run(store, runner, **settings)
        plan = run.begin(chunks, chunks if again else ())
        outcomes = {each.chunk: each for each in run.restore()}
        return Restored(outcomes, finish and run.finish(), run, runner.calls, plan)

    def imports(self) -> list[RestoreRecord]:
        with closing(open_target(self.address)) as target:
            return target.imports()

    def tables(self) -> dict[str, pa.Table]:
        """Return all rows of all tables, by table name."""
        with closing(open_database(self.address)) as database:
            schema = database.extract(Selection())
            found = {}
            for table in schema.tables:
                with database.scan(Scan(table, AllRows())) as batches:
                    found[table.name] = pa.Table.from_batches(batches, table.arrow_schema())
        return found

    def differences(self, source: str, where: dict[str, str]) -> dict[str, list[tuple[Any, ...]]]:
        """Return, by table, the rows that source and target do not have equally often; empty if there are none.

        Args:
            source: URI of the DuckDB source.
            where: By table, the predicate of the source's rows that should be there.
        """
        restored = self.tables()
        return unequal_rows(source, {table: restored[table] for table in TIMES}, where)


def unequal_rows(source: str, restored: Mapping[str, pa.Table], where: Mapping[str, str]) -> dict[str, list[tuple]]:
    """Return, by table, the rows that source and restored tables do not have equally often; see `Into.differences`."""
    different = {}
    with duckdb.connect(source.removeprefix("duckdb://"), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for table, rows_there in restored.items():
            connection.register("restored", rows_there)
            wanted = f"SELECT * FROM main.{table} WHERE {where.get(table, 'true')}"
            rows = connection.sql(
                f"(({wanted}) EXCEPT ALL (FROM restored)) UNION ALL ((FROM restored) EXCEPT ALL ({wanted}))"
            ).fetchall()
            if rows:
                different[table] = rows
    return different


IN_RANGE = {
    "readings": "t IS NULL OR (t >= '2025-01-01 00:00:00Z' AND t < '2025-01-07 00:00:00Z')",
    "events": "moment IS NULL OR (moment >= '2025-01-01' AND moment < '2025-01-07')",
}
"""Predicates of the test source's rows that its snapshot holds."""


def execute(database: Into | str, *statements: str) -> None:
    """Run statements in a target, or a database given by its URI, as another user."""
    uri = database if isinstance(database, str) else database.uri
    if uri.startswith("duckdb"):
        with duckdb.connect(uri.removeprefix("duckdb://")) as connection:
            connection.execute("SET TimeZone = 'UTC'; " + "; ".join(statements))
    else:
        with client(uri) as run:
            for statement in statements:
                run(statement)


def flip(path: Path) -> bytes:
    """Flip a bit in the middle of a file; returns what it held."""
    good = path.read_bytes()
    half = len(good) // 2
    path.write_bytes(good[:half] + bytes([good[half] ^ 1]) + good[half + 1 :])
    return good


def only(folder: Path, pattern: str) -> Path:
    """Return the one file of a folder that a pattern matches."""
    [path] = folder.glob(pattern)
    return path


def incomplete(
    place: Place, into: Into, *, meanwhile: Sequence[str] = (), **settings: Any
) -> tuple[RestoreRun, list[dict[str, Any]]]:
    """Restore, and return the run with the steps that failed; `meanwhile` another user changes the target."""
    run = into.run(place.store, **settings)
    run.prepare()
    execute(into, *meanwhile)
    run.begin()
    list(run.restore())
    with pytest.raises(SchemaIncompleteError) as error:
        run.finish()
    return run, error.value.attributes["steps"]


def finished(place: Place, into: Into, **settings: Any) -> RestoreRun:
    run = into.run(place.store, **settings)
    run.begin()
    list(run.restore())
    assert run.finish()
    assert run.failed_steps() == []
    return run


def numbers(into: Into, table: str) -> list[int]:
    return sorted(into.tables()[table]["n"].to_pylist())
