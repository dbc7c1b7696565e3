"""Restores under other names: each row exactly once, whatever other names the snapshot was restored under before."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.engine.restore.drill import compare
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import DamageError, OtherImportError, PlanError, RestoreError, UnknownRelationError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.catalog.execute import delete_rows
from snapshot_assets_tests.databases.postgresql.helpers import client
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import IN_RANGE, Into, execute, flip, only, unequal_rows
from snapshot_assets_tests.faults.source import add_rows

pytestmark = pytest.mark.slow

COPY = TableName("copy", "again")


def renamed(*schemas: tuple[str, str], **tables: TableName) -> Filters:
    """Return filters that rename schemas, and tables of schema `main`."""
    return Filters(renaming=Renaming.of(schemas, ((TableName("main", old), new) for old, new in tables.items())))


READINGS = renamed(readings=COPY)


def wrong(exported: Place, into: Into, **names: str) -> dict[str, object]:
    """Return the rows that tables and the source do not have equally often; `names` are those of the target."""
    found = into.tables()
    return unequal_rows(exported.source, {old: found[new] for old, new in names.items()}, IN_RANGE)


def names_in(into: Into) -> set[TableName]:
    with closing(open_database(into.address)) as database:
        tables = database.extract(Selection()).tables
    return {table.table_name for table in tables if not table.schema_name.startswith("snapshot_assets")}


def test_renamed_tables_get_every_row_once_and_a_second_run_has_nothing_to_do(exported: Place, into: Into) -> None:
    filters = renamed(("main", "shop"), readings=COPY)
    done = into.restore(exported.store, filters=filters)
    assert done.finished
    assert names_in(into) == {COPY, TableName("shop", "places"), TableName("shop", "events")}
    assert wrong(exported, into, readings="again", places="places", events="events") == {}
    assert set(done.run.check_counts()) == names_in(into)
    assert all(expected == found for expected, found in done.run.check_counts().values())
    assert [each for each in compare(done.run) if not each.equal] == []
    again = into.restore(exported.store, filters=filters)
    assert (again.rows, again.calls, again.finished, len(into.imports())) == (0, [], True, 1)


def test_other_names_are_another_restore_which_shares_only_the_tables_of_equal_names(
    exported: Place, duck: Into
) -> None:
    duck.restore(exported.store)
    second = duck.restore(exported.store, filters=READINGS)
    assert second.finished
    loaded = {file.table for file in second.plan.ledger.loaded}
    assert loaded == {TableName("main", "places"), TableName("main", "events")}
    third = duck.restore(exported.store, filters=renamed(readings=TableName("main", "r3")))
    assert third.finished
    for names in ("again", "r3", "readings"):
        assert wrong(exported, duck, readings=names, places="places", events="events") == {}
    for filters in (None, READINGS):
        once_more = duck.restore(exported.store, filters=filters)
        assert (once_more.rows, once_more.finished) == (0, True)
        assert all(expected == found for expected, found in once_more.run.check_counts().values())


def test_an_interrupted_restore_resumes_under_its_names_and_others_may_not_share_its_tables(
    exported: Place, duck: Into
) -> None:
    assert not duck.restore(exported.store, [1], filters=READINGS).finished
    with pytest.raises(OtherImportError, match=r"schema|main\.readings as copy\.again has not finished"):
        duck.restore(exported.store)
    elsewhere = renamed(("main", "other"))
    assert duck.restore(exported.store, filters=elsewhere).finished
    resumed = duck.restore(exported.store, filters=READINGS)
    assert (resumed.finished, resumed.outcomes[1].status) == (True, "present")
    assert wrong(exported, duck, readings="again") == {}
    assert duck.restore(exported.store).finished
    assert wrong(exported, duck, readings="readings") == {}


def test_a_table_is_not_loaded_from_two_tables(exported: Place, duck: Into) -> None:
    only = Filters(tables=(TableName("main", "places"),), renaming=READINGS.renaming)
    with pytest.raises(PlanError, match=r"main\.readings is mapped, but is not among the selected tables"):
        duck.restore(exported.store, filters=only)
    swapped = renamed(readings=TableName("main", "events"), events=TableName("main", "readings"))
    assert duck.restore(exported.store, filters=swapped).finished
    assert wrong(exported, duck, readings="events", events="readings") == {}
    with pytest.raises(OtherImportError, match=r"main\.events was restored with main\.events as main\.readings"):
        duck.restore(exported.store)


def test_unknown_names_and_two_tables_of_one_name_are_refused_before_anything_is_made(
    exported: Place, duck: Into
) -> None:
    with pytest.raises(UnknownRelationError, match=r"'main\.reading' is mapped, but is not in the snapshot"):
        duck.restore(exported.store, filters=renamed(reading=COPY))
    with pytest.raises(UnknownRelationError, match="Schema 'mian' is mapped, but is not in the snapshot"):
        duck.restore(exported.store, filters=renamed(("mian", "x")))
    with pytest.raises(PlanError, match=r"would both be main\.places"):
        duck.restore(exported.store, filters=renamed(readings=TableName("main", "places")))
    with pytest.raises(PlanError, match=r"would both be main\.places"):
        duck.restore(exported.store, filters=renamed(readings=TableName("main", "Places")))
    assert not Path(duck.uri.removeprefix("duckdb://")).exists()


def test_changed_chunks_and_deleted_rows_of_renamed_tables_are_replaced(exported: Place, duck: Into) -> None:
    duck.restore(exported.store, filters=READINGS)
    add_rows(exported.source)
    exported.export(chunks=[2], replace=True)
    with pytest.raises(RestoreError, match=r"Chunk 2 was loaded from other files.*--replace"):
        duck.restore(exported.store, filters=READINGS)
    done = duck.restore(exported.store, filters=READINGS, replace=True)
    assert [chunk for chunk, each in done.outcomes.items() if each.status == "replaced"] == [2]
    assert wrong(exported, duck, readings="again") == {}
    delete_rows(Catalog.open_for_writing(exported.store), TableName("main", "readings"), "sensor = 's0'")
    assert duck.restore(exported.store, filters=READINGS, replace=True).finished
    assert "s0" not in duck.tables()["again"]["sensor"].to_pylist()


def test_rows_of_others_in_the_new_table_are_refused_and_those_in_the_old_one_are_not(
    exported: Place, duck: Into
) -> None:
    execute(duck, "CREATE TABLE main.readings (theirs integer)", "INSERT INTO main.readings VALUES (1)")
    assert duck.restore(exported.store, filters=READINGS).finished
    assert duck.tables()["readings"].num_rows == 1
    with pytest.raises(RestoreError, match=r"main\.readings is .* lacks .*\bt\b.*, and the snapshot lacks theirs\."):
        duck.restore(exported.store, filters=renamed(events=TableName("main", "e")))


def test_names_that_differ_in_case_alone_are_told_apart_by_a_new_name(
    place: Place, duck: Into, postgresql_database: str
) -> None:
    execute(
        postgresql_database,
        'CREATE TABLE "T1" (id int PRIMARY KEY, name text)',
        'CREATE TABLE t1 (id int PRIMARY KEY REFERENCES "T1", at timestamptz)',
        """INSERT INTO "T1" VALUES (1, 'upper')""",
        "INSERT INTO t1 VALUES (1, '2025-01-02T00:00:00Z')",
    )
    postgresql = Place(postgresql_database, place.folder)
    postgresql.export()
    old = TableName("public", "T1")
    upper = Filters(renaming=Renaming.of((), [(old, TableName("public", "t1_upper"))]))
    done = duck.restore(postgresql.store, filters=upper)
    assert done.finished
    assert duck.tables()["t1_upper"].to_pylist() == [{"id": 1, "name": "upper"}]
    assert duck.tables()["t1"]["id"].to_pylist() == [1]
    with duckdb.connect(duck.uri.removeprefix("duckdb://")) as connection:
        [text] = connection.sql(
            "SELECT constraint_text FROM duckdb_constraints() WHERE constraint_type = 'FOREIGN KEY'"
        ).fetchall()
    assert "t1_upper" in text[0]
    clash = [(old, TableName("public", "T2")), (TableName("public", "t1"), TableName("public", "t2"))]
    with pytest.raises(PlanError, match=r"would both be public\.t2"):
        duck.restore(postgresql.store, filters=Filters(renaming=Renaming.of((), clash)))


def test_the_whole_snapshot_is_hashed_before_the_first_row(exported: Place, duck: Into) -> None:
    good = flip(victim := only(exported.folder, "data/6/main.readings*.parquet"))
    with pytest.raises(DamageError, match=r"nothing was restored.*data/6/main\.readings"):
        duck.restore(exported.store, verify_first=True)
    assert not Path(duck.uri.removeprefix("duckdb://")).exists()
    victim.write_bytes(good)
    assert duck.restore(exported.store, verify_first=True).finished


@pytest.mark.parametrize(
    ("start", "end", "warning"),
    [
        ((2025, 1, 2), (2025, 1, 3), ""),
        ((2025, 1, 1), (2025, 1, 7), ""),
        ((2026, 1, 1), (2026, 2, 1), "2026-01-01T00:00:00Z/2026-02-01T00:00:00Z lies outside the snapshot"),
        ((2024, 1, 1), (2025, 1, 1), "it has rows from 2025-01-01T00:00:00Z to 2025-01-07T00:00:00Z"),
        ((2024, 12, 31), (2025, 1, 2), "no window for a part of the time range, 2024-12-31T00:00:00Z/2025-01-01T00"),
        ((2025, 1, 6), (2025, 1, 9), "no window for a part of the time range, 2025-01-07T00:00:00Z/2025-01-09T00"),
    ],
)
def test_a_time_range_outside_the_snapshot_warns(
    exported_place: Place, duck: Into, start: tuple[int, int, int], end: tuple[int, int, int], warning: str
) -> None:
    filters = Filters(start=datetime(*start, tzinfo=UTC), end=datetime(*end, tzinfo=UTC))
    warnings = duck.run(exported_place.store, filters=filters).prepare().warnings
    assert len(warnings) == bool(warning)
    assert warning in "".join(warnings)


SHOP = """
CREATE TYPE mood AS ENUM ('good', 'bad');
CREATE TABLE customers (id serial PRIMARY KEY, name text NOT NULL, m mood DEFAULT 'good');
CREATE TABLE orders (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer int REFERENCES customers,
    at timestamptz NOT NULL, amount numeric(10,2) CHECK (amount > 0),
    double numeric GENERATED ALWAYS AS (amount * 2) STORED);
CREATE INDEX orders_at ON orders (at);
CREATE TABLE events (id int, at timestamptz, what text, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE events_early PARTITION OF events FOR VALUES FROM (MINVALUE) TO ('2025-01-03');
CREATE TABLE others PARTITION OF events DEFAULT;
CREATE VIEW totals AS SELECT c.name, sum(orders.amount) AS sum FROM orders JOIN customers c ON c.id = orders.customer
    GROUP BY c.name;
INSERT INTO customers (name) SELECT 'c' || n FROM generate_series(1, 5) n;
INSERT INTO orders (customer, at, amount)
    SELECT n % 5 + 1, timestamptz '2025-01-01 00:00:00Z' + n * interval '1 hour', n + 1 FROM generate_series(0, 99) n;
INSERT INTO events
    SELECT n, timestamptz '2025-01-01 00:00:00Z' + n * interval '1 hour', 'e' FROM generate_series(0, 99) n;
"""
TABLES = ("customers", "orders", "events")


@pytest.mark.parametrize(
    "renaming",
    [
        Renaming.of([("public", "restored")]),
        Renaming.of(
            (), [(TableName("public", name), TableName("public", f"{name}_2")) for name in (*TABLES, "totals")]
        ),
    ],
    ids=str,
)
def test_a_database_is_restored_beside_itself_and_both_go_on_alone(
    place: Place, postgresql_database: str, renaming: Renaming
) -> None:
    execute(postgresql_database, *(each for each in SHOP.split(";") if each.strip()))
    source = Place(postgresql_database, place.folder)
    source.export()
    into = Into(postgresql_database)
    done = into.restore(source.store, filters=Filters(renaming=renaming))
    assert (done.finished, done.plan.lost) == (True, ())
    assert [each for each in compare(done.run) if not each.equal] == []
    with client(postgresql_database) as run:
        for name in (*TABLES, "totals"):
            old, new = TableName("public", name), renaming.table(TableName("public", name))
            assert run(f"SELECT t::text FROM {old} t ORDER BY 1") == run(f"SELECT t::text FROM {new} t ORDER BY 1")
        copies = {name: renaming.table(TableName("public", name)) for name in TABLES}
        insert = "INSERT INTO {} (customer, at, amount) VALUES (1, now(), 1) RETURNING id"
        assert [run(insert.format(copies["orders"])) for _ in range(2)] == [[(101,)], [(102,)]]
        assert run(insert.format("public.orders")) == [(101,)]
        assert run(f"INSERT INTO {copies['customers']} (name) VALUES ('x') RETURNING id") == [(6,)]
        run(f"INSERT INTO {copies['events']} VALUES (1000, '2025-01-01', 'new')")
        assert run("SELECT count(*) FROM public.events") == [(100,)]
        run(f"DROP TABLE {copies['orders']}, {copies['customers']}, {copies['events']} CASCADE")
        assert run("SELECT count(*), max(sum) FROM public.totals") == [(5, "1050.00")]
        assert run("INSERT INTO public.customers (name) VALUES ('y') RETURNING id") == [(6,)]
