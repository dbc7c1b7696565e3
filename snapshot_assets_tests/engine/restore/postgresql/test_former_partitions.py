"""Restores of tables whose partitions changed after windows were exported: every exported row finds a place."""

from __future__ import annotations

from datetime import timedelta

import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.engine.restore.drill import compare
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import RestoreFailedError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.postgresql.helpers import client
from snapshot_assets_tests.engine.compact.compactions import compact, scatter
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.continuous import FIRST, PLAN
from snapshot_assets_tests.engine.restore.imports import Into, Restored, execute

pytestmark = pytest.mark.slow

DAYS = (1, 2, 3, 4)


def at(day: int, hour: int = 0) -> str:
    return f"'{(FIRST + timedelta(days=day - 1, hours=hour)).isoformat()}'"


def by_day(day: int, end: int | None = None) -> str:
    return f"FOR VALUES FROM ({at(day)}) TO ({at(end or day + 1)})"


ROWS = f"INSERT INTO events SELECT n, timestamptz {at(1, 6)} + n * interval '6 hours', 'k' || n % 4 FROM "
SERIES = "generate_series(0, 14) n"


EVENTS = (
    "CREATE TABLE events (id int, t timestamptz NOT NULL, k text, PRIMARY KEY (id, t), CHECK (id >= 0))"
    " PARTITION BY RANGE (t)",
    "CREATE INDEX ON events (k)",
    *(f"CREATE TABLE events_{day} PARTITION OF events {by_day(day)}" for day in DAYS),
    f"{ROWS}{SERIES}",
)


def changed_after_two_days(place: Place, *changes: str, table: tuple[str, ...] = EVENTS) -> None:
    """Export two windows, change the database, and export the rest."""
    execute(place.source, *table)
    place.export(chunks=[0, 1, 2], seal=False, **PLAN)
    execute(place.source, *changes)
    place.export(**PLAN)


def check(done: Restored, into: Into, rows: int = 15) -> dict[str, int]:
    """Check that a restore is whole, and return the rows of each leaf."""
    assert done.finished
    assert [each for each in compare(done.run) if not each.equal] == []
    with client(into.uri) as run:
        assert run("SELECT count(*) FROM events") == [(rows,)]
        assert run("SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid") == []
        return dict(run("SELECT tableoid::regclass::text, count(*) FROM events GROUP BY 1 ORDER BY 1"))


@pytest.mark.parametrize(
    ("changes", "leaves", "former"),
    [
        (["DROP TABLE events_1"], {"events_1": 3, "events_2": 4, "events_3": 4, "events_4": 4}, "events_1"),
        (
            ["ALTER TABLE events DETACH PARTITION events_1"],
            {"events_1_2": 3, "events_2": 4, "events_3": 4, "events_4": 4},
            "events_1_2",
        ),
        (
            [
                "DROP TABLE events_1, events_2",
                "CREATE TABLE events_default (id int)",
                f"CREATE TABLE events_a PARTITION OF events FOR VALUES FROM ({at(1, 12)}) TO ({at(3)})",
            ],
            {"events_a": 6, "events_default_2": 1, "events_3": 4, "events_4": 4},
            "events_default_2",
        ),
        (
            [
                "ALTER TABLE events RENAME TO events_before",
                "ALTER INDEX events_pkey RENAME TO before_pkey",
                EVENTS[0],
                f"CREATE TABLE events_of_3 PARTITION OF events {by_day(3, 5)}",
                f"INSERT INTO events SELECT * FROM events_before WHERE t >= {at(3)}",
                "DROP TABLE events_before",
            ],
            {"events_1": 3, "events_2": 4, "events_of_3": 8},
            "events_1",
        ),
        (["CREATE TABLE rest PARTITION OF events DEFAULT", "DROP TABLE events_2"], {"rest": 4}, ""),
    ],
)
def test_rows_of_a_partition_that_went_find_a_place_which_the_dry_run_names(
    place: Place, into: Into, changes: list[str], leaves: dict[str, int], former: str
) -> None:
    changed_after_two_days(place, *changes)
    plan = into.run(place.store).prepare(rehearse=True)
    made = [step.name for step in plan.to_create()]
    assert not former or f"partition public.{former}" in made
    assert any(f"Partition public.{former} " in warning for warning in plan.warnings) is bool(former)
    found = check(into.restore(place.store), into)
    assert found | leaves == found


LISTED = (
    "CREATE TABLE events (id int, t timestamptz, k text) PARTITION BY LIST (k)",
    "CREATE INDEX ON events (id)",
    "CREATE TABLE events_a PARTITION OF events FOR VALUES IN ('k0', 'k1') PARTITION BY HASH (id)",
    "CREATE TABLE events_a0 PARTITION OF events_a FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
    "CREATE TABLE events_a1 PARTITION OF events_a FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
    "CREATE TABLE events_b PARTITION OF events FOR VALUES IN ('k2', NULL)",
    "CREATE TABLE events_c PARTITION OF events FOR VALUES IN ('k3')",
    f"{ROWS}{SERIES}",
)


@pytest.mark.parametrize(
    ("changes", "former"),
    [
        (["DROP TABLE events_a"], {"events_a", "events_a0", "events_a1"}),
        (["ALTER TABLE events_a DETACH PARTITION events_a0"], {"events_a0_2"}),
        (
            ["DROP TABLE events_a0", "CREATE TABLE a0 PARTITION OF events_a FOR VALUES WITH (MODULUS 4, REMAINDER 0)"],
            {"events_a_2"},
        ),
        (
            [
                "DROP TABLE events_a",
                "CREATE TABLE events_a PARTITION OF events FOR VALUES IN ('k0') PARTITION BY LIST (id)",
            ],
            {"events_default", "events_a_default"},
        ),
        (["CREATE TABLE rest PARTITION OF events DEFAULT", "DROP TABLE events_a1"], {"events_a1"}),
        (
            [
                "DROP TABLE events_b",
                "CREATE TABLE events_b PARTITION OF events FOR VALUES IN ('k2', NULL) PARTITION BY LIST (id)",
            ],
            {"events_b_default"},
        ),
    ],
)
def test_rows_of_lists_hashes_and_partitions_of_partitions_find_a_place(
    place: Place, into: Into, changes: list[str], former: set[str]
) -> None:
    changed_after_two_days(place, *changes, f"DELETE FROM events WHERE t >= {at(3)}", table=LISTED)
    done = into.restore(place.store)
    warnings = "".join(done.plan.warnings)
    assert {each for each in former if f"Partition public.{each} " in warnings} == former
    check(done, into, rows=7)


def test_a_plain_table_that_became_partitioned_gets_a_default_partition(place: Place, into: Into) -> None:
    plain = ("CREATE TABLE events (id int, t timestamptz NOT NULL, k text)", f"{ROWS}{SERIES}")
    changes = ["ALTER TABLE events RENAME TO plain", EVENTS[0], *EVENTS[4:6], "DROP TABLE plain"]
    changed_after_two_days(place, *changes, table=plain)
    assert check(into.restore(place.store), into, rows=7) == {"events_default": 7}


def test_a_later_import_makes_the_partitions_that_the_table_has_got_since(place: Place, into: Into) -> None:
    execute(place.source, *EVENTS)
    place.export(**PLAN)
    assert into.restore(place.store).finished
    execute(
        place.source,
        f"CREATE TABLE events_5 PARTITION OF events {by_day(5)}",
        f"INSERT INTO events VALUES (20, {at(5, 1)}, 'k')",
        "DROP TABLE events_1",
    )
    place.export(chunks=[5], replace=True, **PLAN)
    plan = into.run(place.store, replace=True).prepare(rehearse=True)
    assert [step.name for step in plan.to_create() if step.kind == "partition"] == ["partition public.events_5"]
    done = into.restore(place.store, replace=True)
    assert check(done, into, rows=16)["events_5"] == 1
    with client(into.uri) as run:
        assert run("SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass") == [(5,)]


def test_a_target_that_is_divided_otherwise_keeps_its_partitions(place: Place, into: Into) -> None:
    changed_after_two_days(place, "DROP TABLE events_1")
    execute(into, *EVENTS[:2], f"CREATE TABLE all_of_it PARTITION OF events {by_day(1, 9)}")
    done = into.restore(place.store)
    assert done.finished
    assert check(done, into) == {"all_of_it": 15}


@pytest.fixture
def writer(into: Into, role: tuple[str, Into]) -> Into:
    """The target of `into`, for a role that may write to its tables, and owns none of them."""
    name, as_role = role
    execute(into, *EVENTS[:2], f"GRANT CREATE ON DATABASE {into.uri.rsplit('/', 1)[1]} TO {name}")
    execute(into, f"GRANT ALL ON events TO {name}")
    return as_role


def test_a_role_that_may_make_no_partition_fills_those_of_the_target(place: Place, into: Into, writer: Into) -> None:
    """The server refuses the statement before it compares bounds, so only rows show whether a partition is missing."""
    changed_after_two_days(place, "DROP TABLE events_1")
    execute(into, f"CREATE TABLE from_2 PARTITION OF events {by_day(2, 9)}")
    with pytest.raises(RestoreFailedError, match="no partition of relation"):
        writer.restore(place.store)
    execute(into, f"CREATE TABLE first PARTITION OF events {by_day(1)}")
    assert check(writer.restore(place.store), into) == {"first": 3, "from_2": 12}


def test_a_partition_comes_back_with_its_schema(place: Place, into: Into) -> None:
    older = (*EVENTS[:-1], "CREATE SCHEMA old", "ALTER TABLE events_1 SET SCHEMA old", EVENTS[-1])
    changed_after_two_days(place, "DROP SCHEMA old CASCADE", table=older)
    chosen = Filters(tables=(TableName("public", "events"),))
    assert check(into.restore(place.store, filters=chosen), into)["old.events_1"] == 3


def test_windows_are_restored_one_after_the_other_with_the_former_partition(place: Place, into: Into) -> None:
    changed_after_two_days(place, "DROP TABLE events_1")
    for chunk in (2, 1):
        assert into.restore(place.store, [chunk], finish=False).outcomes[chunk].status == "loaded"
    done = into.restore(place.store)
    assert check(done, into)["events_1"] == 3


def test_compacted_rows_find_a_place_too(place: Place, into: Into) -> None:
    execute(place.source, *EVENTS)
    place.export(chunks=[0, 1, 2], seal=False, **PLAN)
    scatter(place.store, sealed=False)
    execute(place.source, "DROP TABLE events_1")
    place.export(**PLAN)
    assert compact(place.store)
    state = read_state(place.store)
    assert {known.file.schema_id for known in state.live_files()} == {state.schema_id}
    assert check(into.restore(place.store), into)["events_1"] == 3


def test_former_partitions_follow_the_names_of_their_table(place: Place, into: Into) -> None:
    changed_after_two_days(place, "ALTER TABLE events DETACH PARTITION events_1")
    renaming = Renaming.of((), [(TableName("public", "events"), TableName("public", "history"))])
    done = into.restore(place.store, filters=Filters(renaming=renaming))
    assert done.finished
    assert [each for each in compare(done.run) if not each.equal] == []
    assert "Partition public.history_1_2 " in "".join(done.plan.warnings)


def test_a_duckdb_file_needs_no_partitions(place: Place, duck: Into) -> None:
    changed_after_two_days(place, "DROP TABLE events_1")
    done = duck.restore(place.store)
    assert (done.finished, done.plan.warnings) == (True, ())
    assert duck.tables()["events"].num_rows == 15
