"""Steps of the schema that fail: the others are made, rows are loaded, and the next run tries only what is missing."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.databases.open import open_target
from snapshot_assets.databases.protocol.sql_steps import SqlSteps
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import OtherImportError, SchemaIncompleteError, TargetNotEmptyError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.postgresql.helpers import client
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into, execute, finished, incomplete, numbers
from snapshot_assets_tests.servers.postgresql import MakeDatabase

SOURCE = (
    "CREATE SCHEMA s",
    "CREATE FUNCTION s.one() RETURNS integer LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1; END'",
    "CREATE TABLE s.good (t timestamptz NOT NULL, n integer PRIMARY KEY)",
    "CREATE TABLE s.broken (t timestamptz, n integer DEFAULT s.one(),"
    " g integer GENERATED ALWAYS AS (n * 2 * s.one()) STORED)",
    "COMMENT ON TABLE s.broken IS 'a comment'",
    "CREATE INDEX broken_n ON s.broken (n)",
    "CREATE INDEX good_n ON s.good ((n + s.one()))",
    "CREATE VIEW s.seen AS SELECT n FROM s.good",
    "INSERT INTO s.good SELECT '2025-01-02 00:00:00Z', n FROM generate_series(1, 5) n",
    "INSERT INTO s.broken (t, n) SELECT '2025-01-02 01:00:00Z', n FROM generate_series(1, 3) n",
)
FUNCTION = SOURCE[1]
CHANGED, MENDED = "ALTER FUNCTION s.one() VOLATILE", "ALTER FUNCTION s.one() IMMUTABLE"
"""What another user does between plan and import: generated columns and indexes call no volatile function."""

FAILED = ["table s.broken", "comment on table s.broken", "index broken_n of s.broken", "index good_n of s.good"]
BROKEN, GOOD = TableName("s", "broken"), TableName("s", "good")


@pytest.fixture
def place(place: Place) -> Place:
    """An export of a database whose function no snapshot carries; the target has it."""
    execute(place.source, *SOURCE)
    place.export()
    return place


@pytest.fixture
def into(into: Into) -> Into:
    execute(into, "CREATE SCHEMA s", FUNCTION)
    return into


def test_what_fails_is_listed_the_rest_is_made_and_rows_are_loaded_where_their_table_is(
    place: Place, into: Into
) -> None:
    run, failed = incomplete(place, into, meanwhile=[CHANGED])
    assert [each["object"] for each in failed] == FAILED
    table, comment, index, other = failed
    assert table["kind"] == "table"
    assert table["message"].startswith("generation expression is not immutable")
    assert table["statements"][0].startswith('CREATE TABLE "s"."broken" (')
    assert comment["message"] == index["message"] == "Not tried: s.broken, or a partition of it, is not there."
    assert other["message"].startswith("functions in index expression must be marked IMMUTABLE")
    assert set(into.tables()) == {"good"}
    assert numbers(into, "good") == [1, 2, 3, 4, 5]
    with client(into.uri) as sql:
        assert sql("SELECT count(*) FROM s.seen") == [(5,)]
        assert sql("SELECT count(*) FROM pg_constraint WHERE contype = 'p' AND conrelid = 's.good'::regclass") == [(1,)]
    plan = run.current()
    assert (plan.record.finished, plan.finished, plan.ended) == (True, False, True)
    assert run.check_counts() == {GOOD: (5, 5), BROKEN: (3, 0)}
    assert read_state(place.store).tags == {}


def test_the_next_run_tries_only_what_is_missing(place: Place, into: Into, monkeypatch: pytest.MonkeyPatch) -> None:
    incomplete(place, into, meanwhile=[CHANGED])
    tried: list[str] = []
    made = SqlSteps._made

    def recorded(self: SqlSteps, record: Any, step: Any, *others: Any) -> Any:
        tried.append(step.name)
        return made(self, record, step, *others)

    monkeypatch.setattr(SqlSteps, "_made", recorded)
    _, again = incomplete(place, into)
    assert [each["object"] for each in again] == FAILED
    assert set(tried) == {"table s.broken", "index good_n of s.good"}
    assert numbers(into, "good") == [1, 2, 3, 4, 5]
    tried.clear()
    execute(into.uri, MENDED)
    finished(place, into)
    assert sorted(set(tried)) == sorted(FAILED)
    assert (numbers(into, "good"), numbers(into, "broken")) == ([1, 2, 3, 4, 5], [1, 2, 3])
    tried.clear()
    run = finished(place, into)
    assert (tried, run.changed) == ([], False)
    execute(into.uri, "INSERT INTO s.broken (t) VALUES (NULL)")
    assert into.tables()["broken"]["g"].to_pylist()[-1] == 2  # default and generated column are there


@pytest.mark.slow
def test_what_is_run_by_hand_is_not_missing_any_more(place: Place, into: Into) -> None:
    _, failed = incomplete(place, into, meanwhile=[CHANGED])
    execute(into.uri, MENDED, *(sql for each in failed for sql in each["statements"]))
    finished(place, into)
    assert (numbers(into, "good"), numbers(into, "broken")) == ([1, 2, 3, 4, 5], [1, 2, 3])


@pytest.mark.slow
def test_expressions_can_be_left_out_later_and_rows_stay_exact(place: Place, into: Into) -> None:
    incomplete(place, into, meanwhile=[CHANGED])
    plain = Filters(expressions=False)
    run = finished(place, into, filters=plain)
    lost = " ".join(run.current().lost)
    assert "Default of column s.broken.n is left out" in lost
    assert "Index good_n of s.good is left out" in lost
    broken = into.tables()["broken"]
    assert sorted(zip(broken["n"].to_pylist(), broken["g"].to_pylist(), strict=True)) == [(1, 2), (2, 4), (3, 6)]
    finished(place, into, filters=plain)
    # A later export, restored with and without expressions: each table is filled as it was made.
    execute(place.source, "INSERT INTO s.broken (t, n) VALUES ('2025-01-05 00:00:00Z', 9)")
    place.export(chunks=[5], replace=True)
    with suppress(SchemaIncompleteError):  # the index is tried again with expressions
        run = into.run(place.store)
        run.begin()
        list(run.restore())
        run.finish()
    broken = into.tables()["broken"]
    assert max(zip(broken["n"].to_pylist(), broken["g"].to_pylist(), strict=True)) == (9, 18)
    assert numbers(into, "good") == [1, 2, 3, 4, 5]


def test_expressions_cannot_be_added_later(place: Place, into: Into) -> None:
    finished(place, into, filters=Filters(expressions=False))
    with pytest.raises(OtherImportError, match="no expressions"):
        into.run(place.store).prepare()


@pytest.mark.slow
def test_a_table_whose_partition_cannot_be_made_gets_no_rows_until_it_is(
    make_postgresql_database: MakeDatabase, tmp_path: Path
) -> None:
    place, into = Place(make_postgresql_database(), tmp_path / "location"), Into(make_postgresql_database())
    execute(
        place.source,
        "CREATE TABLE p (n integer) PARTITION BY LIST (n)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1)",
        "CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2)",
        "CREATE INDEX p_n ON p (n)",
        "COMMENT ON TABLE p2 IS 'a part'",
        "CREATE TABLE q (n integer)",
        "CREATE INDEX q_n ON q (n)",
        "COMMENT ON INDEX q_n IS 'an index'",
        "INSERT INTO p VALUES (1), (2)",
        "INSERT INTO q VALUES (7)",
    )
    place.export()
    others = ["CREATE TABLE p2 (n integer)", "CREATE TABLE r (n integer)", "CREATE INDEX q_n ON r (n)"]
    run, failed = incomplete(place, into, meanwhile=others)
    tried = {each["object"]: each["message"] for each in failed if not each["message"].startswith("Not tried: ")}
    assert set(tried) == {"partition public.p2", "index q_n of public.q"}
    assert "comment on index q_n of public.q" in {each["object"] for each in failed}
    with client(into.uri) as sql:  # what others have of the same name is left as it is
        assert sql("SELECT obj_description('p2'::regclass), obj_description('q_n'::regclass)") == [(None, None)]
        assert sql("SELECT count(*) FROM pg_index WHERE indrelid = 'p2'::regclass") == [(0,)]
    assert "already exists" in failed[0]["message"]
    assert len(failed[0]["statements"]) == 2
    assert run.current().absent == {TableName("public", "p")}
    assert into.tables()["p"].num_rows == 0
    execute(into.uri, "DROP TABLE p2", "DROP TABLE r")
    finished(place, into)
    with client(into.uri) as sql:
        assert sql("SELECT obj_description('p2'::regclass), obj_description('q_n'::regclass)") == [
            ("a part", "an index")
        ]
        assert sql("SELECT count(*) FROM pg_index WHERE indrelid = 'p2'::regclass AND indisvalid") == [(1,)]
    assert (numbers(into, "p"), numbers(into, "q")) == ([1, 2], [7])


def test_rows_that_violate_a_key_say_so_and_the_key_is_made_once_they_are_gone(place: Place, into: Into) -> None:
    execute(place.source, "CREATE TABLE s.parent (id integer PRIMARY KEY)")
    execute(place.source, "ALTER TABLE s.good ADD FOREIGN KEY (n) REFERENCES s.parent NOT VALID")
    execute(into.uri, "CREATE TABLE s.good (t timestamptz, n integer)")
    execute(into.uri, "INSERT INTO s.good VALUES (NULL, 1)")
    with pytest.raises(TargetNotEmptyError):
        into.run(place.store).begin()
    execute(into.uri, "DROP TABLE s.good")
    run = into.run(place.store)
    run.begin()
    list(run.restore())
    execute(into.uri, "INSERT INTO s.good VALUES ('2025-01-02 00:00:00Z', 1)")
    message = r"primary key good_pkey of s\.good could not be made: .*--dedupe .*; then import again with --replace\.$"
    with pytest.raises(SchemaIncompleteError, match=message):
        run.finish()
    execute(into.uri, "DELETE FROM s.good WHERE ctid = (SELECT max(ctid) FROM s.good)")
    finished(place, into)


@pytest.mark.slow
def test_a_run_that_is_killed_among_the_steps_is_continued(
    place: Place, into: Into, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = SqlSteps._made

    for target in ("table s.broken", "index broken_n of s.broken"):

        def killed(self: SqlSteps, record: Any, step: Any, *others: Any, at: str = target) -> Any:
            if step.name == at:
                raise KeyboardInterrupt
            return made(self, record, step, *others)

        with monkeypatch.context() as patch:
            patch.setattr(SqlSteps, "_made", killed)
            with pytest.raises(KeyboardInterrupt):
                into.restore(place.store)
        assert not into.imports()[0].finished
    finished(place, into)
    assert (numbers(into, "good"), numbers(into, "broken")) == ([1, 2, 3, 4, 5], [1, 2, 3])


def test_a_table_that_a_user_dropped_is_not_taken_for_one_that_failed(place: Place, into: Into) -> None:
    incomplete(place, into, meanwhile=[CHANGED])
    execute(into.uri, "DROP TABLE s.good CASCADE")
    with pytest.raises(Exception, match=r"s\.good is not there any more"):
        into.run(place.store).prepare()


def test_an_import_that_an_earlier_version_recorded_is_continued(place: Place, into: Into) -> None:
    """That one made all its tables when it began, and its ledger has neither steps nor the column for them."""
    run = into.run(place.store)
    run.begin()
    execute(
        into.uri,
        "DROP TABLE snapshot_assets_ledger.steps",
        "ALTER TABLE snapshot_assets_ledger.imports DROP COLUMN stepwise",
    )
    with closing(open_target(into.address)) as target:
        [record] = target.imports()
    assert not record.stepwise
    finished(place, into)
    assert (numbers(into, "good"), numbers(into, "broken")) == ([1, 2, 3, 4, 5], [1, 2, 3])
