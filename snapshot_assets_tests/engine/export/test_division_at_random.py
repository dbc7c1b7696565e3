"""An export that follows changes makes divided tables equal to their source, whatever happened to both before."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress

import adbc_driver_manager
import duckdb
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.engine.export.changes import find_changes
from snapshot_assets.errors import ConflictError
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.catalog.execute import rollback
from snapshot_assets_tests.databases.postgresql.helpers import client
from snapshot_assets_tests.engine.compact.compactions import compact
from snapshot_assets_tests.engine.export.test_division import SMALL, Divided, in_postgresql, items, place  # noqa: F401
from snapshot_assets_tests.engine.restore.imports import Into

TABLES = ("items", "kinds")


def change(choose: random.Random, *, postgresql: bool) -> str:
    """Return statements that change rows of `items` within one range, or across some."""
    first, new = choose.randrange(5000), choose.randrange(10_000, 10**6)
    rows = f"id >= {first} AND id < {first + choose.choice((1, 40, 2000))}"
    options = [
        f"UPDATE items SET note = '{new}' WHERE {rows}",
        f"DELETE FROM items WHERE {rows}",
        f"DELETE FROM items WHERE id = (SELECT max(id) FROM items); INSERT INTO items VALUES (-{new}, 'other')",
        f"UPDATE items SET id = {new} WHERE id = (SELECT min(id) FROM items WHERE id >= {first})",
        f"INSERT INTO items SELECT {new} * 1000 + i, repeat('y', 60) FROM generate_series(1, 3000) AS g(i); ANALYZE",
        "TRUNCATE items",
        f"INSERT INTO kinds VALUES ({new})",
    ]
    if postgresql:
        options += ["VACUUM FULL items", "ALTER TABLE items DROP CONSTRAINT IF EXISTS items_pkey"]
    return choose.choice(options)


def happen(place: Divided, choose: random.Random, sealed: list[int]) -> None:  # noqa: F811
    """Do something to the source or the snapshot."""
    match choose.choice(("change", "change", "change", "stop", "meanwhile", "merge", "roll back", "replace", "size")):
        case "change":
            with suppress(duckdb.ConstraintException, adbc_driver_manager.IntegrityError):  # the key exists
                place.sql(change(choose, postgresql="duckdb" not in place.source))
        case "stop":
            with place.run(**place.plan).open() as export:
                commits = export.commits([UNTIMED_CHUNK], replace_completed=True, only=find_changes(export, [0]).only)
                next(commits, None)
                commits.close()
        case "meanwhile":
            with place.run(**place.plan).open() as export, suppress(ConflictError):
                only = find_changes(export, [UNTIMED_CHUNK]).only
                choose.choice((place.follow, lambda: compact(place.store, chunks=(UNTIMED_CHUNK,))))()
                list(export.commits(list(only), replace_completed=True, only=only))
        case "merge":
            compact(place.store, tables=(TableName(place.schema, choose.choice(TABLES)),))
        case "roll back":
            rollback(Catalog.open_for_writing(place.store), choose.choice(sealed))
            write_checkpoint(place.store, place.state)
        case "replace":
            place.whole(replace=True)
        case "size":
            place.plan["max_file_size"] = choose.choice(("64KiB", "128KiB", "1MiB"))


def rows_of(place: Divided, table: str) -> Counter[tuple[object, ...]]:  # noqa: F811
    """Return the rows of a table of the source."""
    query = f"SELECT * FROM {place.schema}.{table}"
    if "duckdb" in place.source:
        with duckdb.connect(place.source.removeprefix("duckdb://")) as connection:
            return Counter(connection.execute(query).fetchall())
    with client(place.source) as run:
        return Counter(run(query))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_an_export_that_follows_makes_both_equal(place: Divided, seed: int) -> None:  # noqa: F811
    choose, sealed = random.Random(seed), list[int]()
    place.begin(f"{items()}; {SMALL}")
    for step in range(4):
        seal = place.state.newest_seal
        assert seal is not None
        sealed.append(seal.revision)
        for _ in range(choose.randint(1, 4)):
            happen(place, choose, sealed)
        place.follow()
        place.check()
        path = f"{place.folder}/restored{step}.duckdb"
        Into(f"duckdb://{path}").restore(place.store)
        with duckdb.connect(path) as connection:
            for table in TABLES:
                restored = Counter(connection.execute(f"SELECT * FROM {place.schema}.{table}").fetchall())
                assert restored == rows_of(place, table), (step, table)
