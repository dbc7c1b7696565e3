"""PostgreSQL as a target: one transaction loads a file's rows and its ledger row."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from types import SimpleNamespace

import pyarrow as pa
import pytest

from snapshot_assets.databases.definition import ObjectKey, Statement
from snapshot_assets.databases.postgresql.ddl.statements import before_version, from_version
from snapshot_assets.databases.postgresql.target import PostgresqlTarget
from snapshot_assets.databases.protocol import sql_steps
from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress, Rows, WindowRows
from snapshot_assets.databases.protocol.steps import steps_of
from snapshot_assets.databases.protocol.target import Load, LoadedFile, RestoreRecord
from snapshot_assets.errors import OtherImportError, RestoreError
from snapshot_assets.format.relations import Column, Table, TableName
from snapshot_assets.testing.restores import make
from snapshot_assets_tests.databases.postgresql.helpers import client, execute

T, P, V, W, CHILD = (TableName("public", name) for name in ("t", "p", "v", "w", "child"))
TABLE = Table(
    schema="public",
    name="t",
    time_index="ts",
    columns=(
        Column(name="ts", type="timestamp with time zone", arrow_type="timestamp[us, tz=UTC]"),
        Column(name='näme "x"', type="text", arrow_type="string"),
        Column(name="n", type="integer", arrow_type="int32"),
    ),
)
CREATE = Statement(
    ObjectKey("table", T), 'CREATE TABLE public.t (ts timestamptz, "näme ""x""" text, n integer)', table=T
)
DAY_1 = WindowRows(datetime(2025, 1, 1, tzinfo=UTC), datetime(2025, 1, 2, tzinfo=UTC))


@pytest.fixture
def target(postgresql_database: str) -> Iterator[PostgresqlTarget]:
    with closing(open_at(postgresql_database)) as opened:
        yield opened


@pytest.fixture
def started(target: PostgresqlTarget) -> PostgresqlTarget:
    """A target with table `t` and a started import into it."""
    begin(target, record(), CREATE)
    return target


def begin(target: PostgresqlTarget, record: RestoreRecord, *statements: Statement, newest: str = "") -> None:
    """Begin an import, and make steps before its rows."""
    target.begin(record, newest)
    make(target, record, statements)


def open_at(uri: str) -> PostgresqlTarget:
    return PostgresqlTarget(DatabaseAddress("there", uri))


def record(number: int = 1, tables: tuple[TableName, ...] = (T,)) -> RestoreRecord:
    return RestoreRecord(
        f"{number:032x}", "loc", "s3://b/p", number, "c" * 64, '{"start":null}', tables, tables, "import-x"
    )


def entry(path: str, chunk: int = 1, number: int = 1) -> LoadedFile:
    return LoadedFile("loc", T, path, chunk, "a" * 64, f"{number:032x}")


def rows(*numbers: int, day: int = 1) -> pa.RecordBatch:
    values = {
        "ts": [datetime(2025, 1, day, tzinfo=UTC)] * len(numbers),
        'näme "x"': [f"row {number}" for number in numbers],
        "n": list(numbers),
    }
    return pa.RecordBatch.from_pydict(values, schema=TABLE.arrow_schema())


def stored(uri: str) -> list[int]:
    with client(uri) as run:
        return sorted(row[0] for row in run("SELECT n FROM public.t"))


def replaced(
    target: PostgresqlTarget, batches: Iterable[pa.RecordBatch], rows: Rows = DAY_1, path: str = "data/1/b.parquet"
) -> int:
    """Replace rows of chunk 1 by one file."""
    return target.replace(1, [Load("loc", record().id, TABLE, rows, [(entry(path), TABLE, batches)])])


def test_a_step_that_fails_keeps_no_other_from_being_made_and_is_recorded(target, postgresql_database):
    broken = Statement(ObjectKey("index", "public.x"), "CREATE INDEX x ON public.nowhere (n)")
    index = Statement(ObjectKey("index", "public.i"), "CREATE INDEX i ON public.t (n)", table=T)
    assert target.begin(record(), "") == record()
    results = target.make(record(), steps_of([broken, CREATE, index]))
    assert [(each.name, each.status) for each in results.values()] == [
        ("index public.x", "failed"),
        ("table public.t", "made"),
        ("index public.i", "made"),
    ]
    assert results["index public.x"].message == 'relation "public.nowhere" does not exist (SQLSTATE 42P01)'
    assert target.steps("loc") == results
    assert target.imports() == [record()]
    assert target.existing([T])[T].columns == ("ts", 'näme "x"', "n")
    assert not target.existing([T])[T].has_rows
    with client(postgresql_database) as run:
        assert run("SELECT indexname FROM pg_indexes WHERE schemaname = 'public'") == [("i",)]


def test_steps_of_a_relation_that_is_not_there_are_not_tried_and_light_steps_are_tried_again(target):
    steps = [
        Statement(ObjectKey("view", W), "CREATE VIEW public.w AS SELECT * FROM public.v", table=W),
        Statement(ObjectKey("view", V), "CREATE VIEW public.v AS SELECT 1 AS n", table=V),
        Statement(ObjectKey("table", T), "CREATE TABLE public.t (n nowhere)", table=T),
        Statement(ObjectKey("comment", of=ObjectKey("table", T)), "COMMENT ON TABLE public.t IS 'x'", table=T),
    ]
    target.begin(record(), "")
    results = target.make(record(), steps_of(steps))
    assert {name: each.status for name, each in results.items()} == {
        "view public.w": "made",
        "view public.v": "made",
        "table public.t": "failed",
        "comment on table public.t": "failed",
    }
    assert results["comment on table public.t"].message == "Not tried: public.t, or a partition of it, is not there."
    again = [steps[2], Statement(ObjectKey("index", "public.i"), "CREATE INDEX i ON public.t (n)", table=T)]
    assert target.make(record(), steps_of(again[1:]), absent=[T])["index public.i"].message.startswith("Not tried")


def test_what_a_user_made_by_hand_after_it_failed_counts_as_made_and_a_taken_name_does_not(target, postgresql_database):
    other = Statement(ObjectKey("index", "public.i"), "CREATE INDEX i ON public.t (n)", table=T)
    broken = Statement(ObjectKey("view", V), "CREATE VIEW public.v AS SELECT missing() AS n", table=V)
    target.begin(record(), "")
    execute(postgresql_database, "CREATE TABLE public.u (n integer)", "CREATE INDEX i ON public.u (n)")
    first = target.make(record(), steps_of([CREATE, other, broken]))
    assert [each.status for each in first.values()] == ["made", "taken", "failed"]
    execute(postgresql_database, "CREATE VIEW public.v AS SELECT 1 AS n")
    second = target.make(record(), steps_of([CREATE, other, broken]))
    assert [each.status for each in second.values()] == ["made", "taken", "made"]


def test_only_the_statements_for_this_version_of_the_server_are_to_be_run_by_hand(target):
    created = [
        Statement(ObjectKey("table", T), f"CREATE TABLE public.t (n {kind})", T, unless)
        for kind, unless in (("old", from_version(14)), ("new", before_version(14)))
    ]
    broken = Statement(ObjectKey("table", T), "ALTER TABLE public.t ADD missing()", T, "SELECT 1 FROM missing")
    assert target.by_hand(*steps_of([*created, broken])) == (created[1].sql, broken.sql)
    assert target.by_hand(*steps_of(created[:1])) == (created[0].sql,)


def test_consecutive_statements_of_one_name_are_made_together_or_not_at_all(target, postgresql_database):
    first = Statement(ObjectKey("partition", P), "CREATE TABLE public.p (n integer)")
    second = Statement(ObjectKey("partition", P), "ALTER TABLE public.nowhere ATTACH PARTITION public.p DEFAULT")
    target.begin(record(), "")
    results = target.make(record(), steps_of([CREATE, first, second]))
    assert [each.status for each in results.values()] == ["made", "failed"]
    assert target.existing([P]) == {}
    assert target.existing([T])


def test_steps_that_another_run_of_the_import_made_meanwhile_are_not_made_twice(target, postgresql_database):
    target.begin(record(), "")
    with closing(open_at(postgresql_database)) as other:
        make(other, record(), [CREATE])
    results = target.make(record(), steps_of([CREATE]))
    assert [each.status for each in results.values()] == ["made"]


def test_many_steps_of_which_some_fail_are_each_made_once(target, postgresql_database):
    insert = [
        Statement(ObjectKey("row", str(number)), f"INSERT INTO public.t (n) VALUES ({number})") for number in range(230)
    ]
    for number in (0, 57, 58, 99, 100, 229):
        insert[number] = Statement(ObjectKey("row", str(number)), "INSERT INTO public.t (n) VALUES (1 / (1 - 1))")
    begin(target, record(), CREATE)
    results = target.make(record(), steps_of(insert))
    assert [name for name, each in results.items() if each.failed] == [f"row {n}" for n in (0, 57, 58, 99, 100, 229)]
    assert stored(postgresql_database) == [n for n in range(230) if n not in (0, 57, 58, 99, 100, 229)]


def test_two_connections_that_load_one_file_at_once_insert_it_once(started, postgresql_database):
    entered, go = threading.Event(), threading.Event()

    def slow() -> Iterator[pa.RecordBatch]:
        entered.set()
        assert go.wait(30)
        yield rows(1, 2)

    results: list[int | None] = []

    def load(batches: Iterator[pa.RecordBatch]) -> None:
        with closing(open_at(postgresql_database)) as own:
            results.append(own.load(entry("data/1/a.parquet"), TABLE, batches))

    first = threading.Thread(target=load, args=(slow(),))
    first.start()
    assert entered.wait(30)
    second = threading.Thread(target=load, args=(iter([rows(1, 2)]),))
    second.start()
    second.join(0.5)
    assert second.is_alive()  # it waits for the first one's end
    go.set()
    first.join(30)
    second.join(30)
    assert sorted(results, key=str) == [2, None]
    assert stored(postgresql_database) == [1, 2]


@pytest.mark.parametrize("action", ["NO ACTION", "CASCADE", "SET NULL"])
def test_rows_to_which_other_tables_refer_are_not_deleted(started, postgresql_database, action):
    started.load(entry("data/1/a.parquet"), TABLE, [rows(1)])
    started.load(entry("data/2/a.parquet", chunk=2), TABLE, [rows(2, day=2)])
    with client(postgresql_database) as run:
        run("ALTER TABLE public.t ADD UNIQUE (n)")
        run("CREATE TABLE public.theirs (day date, n integer) PARTITION BY RANGE (day)")
        run("CREATE TABLE public.part PARTITION OF public.theirs DEFAULT")
        run(f"ALTER TABLE public.part ADD FOREIGN KEY (n) REFERENCES public.t (n) ON DELETE {action}")
        run("INSERT INTO public.theirs VALUES ('2025-01-01', 2), ('2025-01-01', NULL)")
    assert replaced(started, [rows(1)]) == 1  # no row refers to that window
    execute(postgresql_database, "INSERT INTO public.theirs VALUES ('2025-01-01', 1)")
    with pytest.raises(RestoreError, match=r"foreign key part_n_fkey of public\.theirs refers to rows of public\.t"):
        replaced(started, [rows(1)], path="data/1/c.parquet")
    with client(postgresql_database) as run:
        assert run("SELECT n FROM public.theirs ORDER BY n") == [(1,), (2,), (None,)]


def test_a_row_of_another_chunk_that_refers_to_its_own_table_keeps_its_parent(started, postgresql_database):
    started.load(entry("data/1/a.parquet"), TABLE, [rows(1)])
    with client(postgresql_database) as run:
        run("ALTER TABLE public.t ADD UNIQUE (n), ADD up integer REFERENCES public.t (n) ON DELETE CASCADE")
        run("UPDATE public.t SET up = 1")
        assert replaced(started, [rows(1)]) == 1
        run("INSERT INTO public.t (ts, n, up) VALUES (NULL, 2, 1)")
    with pytest.raises(RestoreError, match=r"foreign key t_up_fkey of public\.t refers to rows of public\.t"):
        replaced(started, [rows(1)], path="data/1/c.parquet")
    assert stored(postgresql_database) == [1, 2]


def test_rows_of_an_import_that_is_not_the_newest_one_are_refused(started, postgresql_database):
    started.begin(record(2, tables=(T, TableName("public", "new"))), record().id)
    started.begin(record(3, tables=(TableName("public", "other"),)), "")
    with pytest.raises(OtherImportError, match=f"loads nothing more into public.t: import {record(2).id} was started"):
        started.load(entry("data/1/a.parquet"), TABLE, [rows(1)])
    with pytest.raises(OtherImportError, match="loads nothing more"):
        replaced(started, [rows(1)])
    assert started.load(entry("data/1/a.parquet", number=2), TABLE, [rows(1)]) == 1
    assert stored(postgresql_database) == [1]


def test_an_import_waits_for_a_running_load(started, postgresql_database):
    recorded: list[RestoreRecord] = []

    def begin() -> None:
        with closing(open_at(postgresql_database)) as own:
            recorded.append(own.begin(record(2), record().id))

    thread = threading.Thread(target=begin)

    def batches() -> Iterator[pa.RecordBatch]:
        thread.start()
        thread.join(0.3)
        assert recorded == []
        yield rows(1)

    assert started.load(entry("data/1/a.parquet"), TABLE, batches()) == 1
    thread.join(30)
    assert recorded == [record(2)]


def test_rows_of_a_table_that_inherits_do_not_belong_to_its_parent(target, postgresql_database):
    create_child = Statement(ObjectKey("table", CHILD), "CREATE TABLE public.child () INHERITS (public.t)", table=CHILD)
    begin(target, record(tables=(T, CHILD)), CREATE, create_child)
    child_table = TABLE.model_copy(update={"name": "child"})
    target.load(LoadedFile("loc", CHILD, "data/1/h.parquet", 1, "a" * 64, record().id), child_table, [rows(8, 9)])
    assert [each.has_rows for each in target.existing([T, CHILD]).values()] == [True, False]  # sorted by name
    target.load(entry("data/1/a.parquet"), TABLE, [rows(1)])
    assert target.counts([(TABLE, AllRows()), (child_table, AllRows())]) == [1, 2]
    assert replaced(target, [rows(2)], AllRows()) == 1
    assert stored(postgresql_database) == [2, 8, 9]


def test_rows_of_partitions_belong_to_their_table(target, postgresql_database):
    parted = Statement(ObjectKey("table", T), CREATE.sql + " PARTITION BY RANGE (ts)", table=T)
    part = Statement(ObjectKey("table", P), "CREATE TABLE public.p PARTITION OF public.t DEFAULT")
    begin(target, record(), parted, part)
    target.load(entry("data/1/a.parquet"), TABLE, [rows(1, 2)])
    assert target.counts([(TABLE, AllRows())]) == [2]
    assert target.existing([T])[T].has_rows
    assert target.replace(1, [Load("loc", record().id, TABLE, AllRows(), [])]) == 0
    assert stored(postgresql_database) == []


def test_a_key_that_rows_violate_fails_alone_and_is_tried_again(started, postgresql_database):
    started.load(entry("data/1/a.parquet"), TABLE, [rows(1, 1)])
    index = Statement(ObjectKey("index", "public.i"), "CREATE INDEX i ON public.t (n)", table=T)
    key = Statement(ObjectKey("primary key", of=T), "ALTER TABLE public.t ADD PRIMARY KEY (n)", table=T)
    results = started.make(record(), steps_of([key, index]))
    assert [(each.status, each.violated) for each in results.values()] == [("failed", True), ("made", False)]
    assert "duplicated" in results[str(key.key)].message
    started.finish(record())
    assert started.imports()[0].finished
    execute(postgresql_database, "DELETE FROM public.t WHERE ctid = (SELECT min(ctid) FROM public.t)")
    make(started, record(), [key, index])  # nothing is made twice
    assert stored(postgresql_database) == [1]


def test_rows_without_columns_are_loaded(target):
    nothing = Table(schema="public", name="t", columns=())
    begin(target, record(), Statement(ObjectKey("table", T), "CREATE TABLE public.t ()", table=T))
    batch = pa.RecordBatch.from_pydict({"x": [1, 2, 3]}).select([])
    assert target.load(entry("data/0/a.parquet", chunk=0), nothing, [batch]) == 3
    assert target.counts([(nothing, AllRows())]) == [3]


def test_loads_do_not_wait_for_the_disk_but_a_flush_and_the_end_do(started, postgresql_database):
    """A default records the setting of the transaction that inserts a row."""
    execute(postgresql_database, "ALTER TABLE t ADD waits text DEFAULT current_setting('synchronous_commit')")
    started.load(entry("data/1/a.parquet"), TABLE, [rows(1)])
    assert replaced(started, [rows(2)], DAY_1) == 1
    started.load(entry("data/2/a.parquet", chunk=2), TABLE, [rows(3, day=2)])
    written = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn AS n"
    flushed = "SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn AS n"
    [before] = started.rows(written, "")
    started.flush()
    [after] = started.rows(flushed, "")
    assert int(after["n"]) >= int(before["n"])
    insert = "INSERT INTO public.t (n, waits) SELECT 4, current_setting('synchronous_commit')"
    [before] = started.rows(written, "")
    make(started, record(), [Statement(ObjectKey("row"), insert)])
    [after] = started.rows(flushed, "")
    assert int(after["n"]) >= int(before["n"])  # `make` flushes what its steps committed early
    with client(postgresql_database) as run:
        assert run("SELECT n, waits FROM t ORDER BY n") == [(2, "on"), (3, "off"), (4, "off")]


def test_a_flush_waits_for_the_disk_whatever_the_role_or_database_is_set_to(postgresql_database):
    alter = "EXECUTE pg_catalog.format('ALTER DATABASE %I SET synchronous_commit = off', pg_catalog.current_database())"
    execute(postgresql_database, f"DO $$ BEGIN {alter}; END $$")
    with closing(open_at(postgresql_database)) as target:
        begin(target, record(), CREATE)
        target.load(entry("data/1/a.parquet"), TABLE, [rows(1)])
        [before] = target.rows("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn AS n", "")
        target.flush()
        [after] = target.rows("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn AS n", "")
        [setting] = target.rows("SHOW synchronous_commit", "")
    assert int(after["n"]) >= int(before["n"])
    assert setting["synchronous_commit"] == "on"


def test_indexes_get_memory_unless_the_server_has_more(started, postgresql_database):
    def memory(setting: str) -> str:
        execute(postgresql_database, "DROP TABLE IF EXISTS seen")
        started.rows(f"SELECT set_config('maintenance_work_mem', '{setting}', false)", "")
        create = "CREATE TABLE public.seen AS SELECT current_setting('maintenance_work_mem') AS memory"
        with started._transaction():
            started._prepare_indexes()
            started._execute(create, "looking")
        with client(postgresql_database) as run:
            return str(run("SELECT memory FROM seen")[0][0])

    assert [memory("64MB"), memory("1GB")] == ["256MB", "1GB"]


def test_a_step_that_takes_long_is_committed_before_the_next_one_is_tried(started, postgresql_database, monkeypatch):
    insert = "INSERT INTO public.t (n) SELECT {}"
    steps = [Statement(ObjectKey("row", str(number)), insert.format(number)) for number in (1, 2, 3, 4)]
    steps[2] = Statement(ObjectKey("row", "3"), insert.format("count(*) FROM public.nowhere"))
    seconds, make_step = [0], started._run

    def slow(statement):
        make_step(statement)
        seconds[0] += 10 * (statement == steps[1])

    monkeypatch.setattr(started, "_run", slow)
    monkeypatch.setattr(sql_steps, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    results = started.make(record(), steps_of(steps))
    assert [each.status for each in results.values()] == ["made", "made", "failed", "made"]
    with client(postgresql_database) as run:
        assert run("SELECT count(DISTINCT xmin::text), count(*) FROM public.t") == [(2, 3)]
