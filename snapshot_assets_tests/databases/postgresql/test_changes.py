"""Row counts and transaction ids show which rows changed since an export, for each way in which rows change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from snapshot_assets.databases.postgresql.changes import _is_newer, _unusable
from snapshot_assets.databases.protocol.query import Query
from snapshot_assets.databases.protocol.source import AllRows, ExportedRows, Selection, Verdict
from snapshot_assets.errors import ConsistencyLostError, DatabaseError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.postgresql.exported_rows import answers, export, verdicts
from snapshot_assets_tests.databases.postgresql.helpers import client, execute, opened, table_of
from snapshot_assets_tests.servers.postgresql import PostgresqlServer, start_postgresql

ROWS = """
SELECT i AS id, '2026-01-01Z'::timestamptz + (i - 1) / 3 * interval '1 day' AS at, 'old' AS x, i AS owner
FROM generate_series(1, 9) i
UNION ALL VALUES (10, NULL::timestamptz, 'old', 10), (11, 'infinity', 'old', 11)
"""
"""Three rows in each of three days, and two without a time."""

TABLES = f"""
CREATE TABLE owners AS SELECT i AS id FROM generate_series(1, 11) i; ALTER TABLE owners ADD PRIMARY KEY (id);
CREATE TABLE t (id int PRIMARY KEY, at timestamptz, x text, owner int REFERENCES owners ON UPDATE CASCADE);
INSERT INTO t {ROWS};
CREATE TABLE events (id int);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN UPDATE t SET x = 'noted' WHERE id = NEW.id; RETURN NULL; END $$;
CREATE TRIGGER noted AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION note();
"""

COPIED = "SELECT format('COPY t {} %L', current_setting('data_directory') || '/copied') \\gexec"

CHANGES = {
    "nothing": ("====", []),
    "update": ("=x==", ["UPDATE t SET x = 'new' WHERE id = 4"]),
    "update to the same": ("=x==", ["UPDATE t SET x = x WHERE id = 4"]),
    "delete": ("=x==", ["DELETE FROM t WHERE id = 4"]),
    "insert": ("=x==", ["INSERT INTO t VALUES (12, '2026-01-02Z', 'new')"]),
    "as many": ("=x==", ["DELETE FROM t WHERE id = 4", "INSERT INTO t VALUES (12, '2026-01-02Z', 'new')"]),
    "moved": ("=xx=", ["UPDATE t SET at = at + interval '1 day' WHERE id = 4"]),
    "exchanged": ("=xx=", ["UPDATE t SET at = CASE id WHEN 4 THEN '2026-01-03Z' ELSE '2026-01-02Z' END::timestamptz"
                           " WHERE id IN (4, 7)"]),
    "time lost": ("=x=x", ["UPDATE t SET at = NULL WHERE id = 4"]),
    "time found": ("x==x", ["UPDATE t SET at = '2026-01-01Z' WHERE id = 10"]),
    "savepoint": ("=x==", ["BEGIN; SAVEPOINT a; UPDATE t SET x = 'new' WHERE id = 4; RELEASE a; COMMIT"]),
    "exception block": ("=x==", ["DO $$ BEGIN BEGIN UPDATE t SET x = 'new' WHERE id = 4;"
                                 " EXCEPTION WHEN division_by_zero THEN NULL; END; END $$"]),
    "rollback": ("====", ["BEGIN; UPDATE t SET x = 'new'; DELETE FROM t; ROLLBACK"]),
    "rollback to a savepoint": ("====", ["BEGIN; SAVEPOINT a; UPDATE t SET x = 'new'; ROLLBACK TO a; COMMIT"]),
    "row locks": ("====", ["BEGIN; SELECT count(*) FROM (SELECT FROM t FOR UPDATE) l; COMMIT"]),
    "upsert": ("=x==", ["INSERT INTO t VALUES (4, NULL, 'new') ON CONFLICT (id) DO UPDATE SET x = excluded.x"]),
    "merge": ("=x==", ["MERGE INTO t USING (VALUES (4)) s (id) ON t.id = s.id WHEN MATCHED THEN UPDATE SET x = 'new'"]),
    "cascade": ("=x==", ["UPDATE owners SET id = 99 WHERE id = 4"]),
    "trigger": ("=x==", ["INSERT INTO events VALUES (4)"]),
    "truncate and reload": ("xxxx", ["CREATE TEMP TABLE c AS TABLE t", "TRUNCATE t", "INSERT INTO t TABLE c"]),
    "copy freeze": ("xxxx", [COPIED.format("TO"), "BEGIN", "TRUNCATE t",
                             COPIED.format("FROM").replace("%L", "%L FREEZE"), "COMMIT"]),
    "freeze": ("====", ["VACUUM (FREEZE, ANALYZE) t", "CREATE INDEX ON t (at)"]),
    "update and freeze": ("=x==", ["UPDATE t SET x = 'new' WHERE id = 4", "VACUUM FREEZE t"]),
    "vacuum full": ("????", ["VACUUM FULL t"]),
    "update and vacuum full": ("?x??", ["UPDATE t SET x = 'new' WHERE id = 4", "VACUUM FULL t"]),
    "cluster": ("????", ["CLUSTER t USING t_pkey"]),
    "rewrite": ("xxxx", ["ALTER TABLE t ALTER COLUMN x TYPE text USING upper(x)"]),
    "added column": ("????", ["ALTER TABLE t ADD COLUMN y int DEFAULT 1"]),
    "exchanged names of columns": ("????", ["ALTER TABLE t RENAME COLUMN id TO i", "ALTER TABLE t RENAME COLUMN owner"
                                            " TO id", "ALTER TABLE t RENAME COLUMN i TO owner"]),
    "another table": ("====", ["CREATE TABLE u (id int)", "INSERT INTO u VALUES (1)", "DROP TABLE u"]),
}  # fmt: skip
"""The answers for three days and the rows without a time, by a history of statements."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    """A server that can prepare transactions."""
    with start_postgresql() as server:
        server.psql(server.uri(), "ALTER SYSTEM SET max_prepared_transactions = 9")
        server.control("restart")
        yield server


@pytest.fixture
def shop(server: PostgresqlServer) -> Iterator[str]:
    """A database with the tables."""
    uri = server.create_database()
    server.psql_script(uri, TABLES)
    yield uri
    server.drop_database(uri)


def script(server: PostgresqlServer, uri: str, *statements: str) -> None:
    """Run statements, each in a transaction of its own unless they begin one."""
    server.psql_script(uri, "\n".join(each if "\\" in each else f"{each};" for each in statements))


@pytest.mark.parametrize(("expected", "statements"), CHANGES.values(), ids=CHANGES)
def test_sets_of_rows_with_changes_are_named(
    server: PostgresqlServer, shop: str, expected: str, statements: list[str]
) -> None:
    parts = export(shop, "t")
    script(server, shop, *statements)
    assert verdicts(shop, parts) == expected
    # One or two sets are read by another query.
    assert [verdicts(shop, [part]) for part in parts] == list(expected)
    parts = export(shop, "t")
    assert verdicts(shop, parts) == "===="


def test_answers_have_reasons_counts_and_the_order_of_the_question(shop: str) -> None:
    parts = [*export(shop, "t"), *export(shop, "owners", time=None)]
    execute(shop, "UPDATE t SET x = 'new' WHERE id = 1", "DELETE FROM t WHERE id = 4", "INSERT INTO t VALUES (12)")
    order = [4, 2, 1, 0, 3]
    found = answers(shop, [parts[number] for number in order])
    assert [(each.reason, each.found) for each in found] == [
        ("", 11), ("", 3), ("rows fewer", 2), ("rows newer", 3), ("rows added", 3),
    ]  # fmt: skip


def test_a_transaction_that_was_open_over_the_export_is_named_once_it_commits(shop: str) -> None:
    with client(shop) as run:
        run("BEGIN")
        run("UPDATE t SET x = 'new' WHERE id = 4")
        parts = export(shop, "t")
        assert verdicts(shop, parts) == "===="
        run("COMMIT")
    assert verdicts(shop, parts) == "=x=="


def test_what_committed_beside_an_older_open_transaction_is_named_although_it_was_exported(shop: str) -> None:
    with client(shop) as run:
        run("BEGIN")
        run("UPDATE t SET x = 'new' WHERE id = 4")
        execute(shop, "UPDATE t SET x = 'new' WHERE id = 7")
        parts = export(shop, "t")
        run("ROLLBACK")
    assert verdicts(shop, parts) == "==x="


@pytest.mark.parametrize(("end", "expected"), [("COMMIT", "=x=="), ("ROLLBACK", "====")])
def test_a_prepared_transaction_is_named_once_it_commits(shop: str, end: str, expected: str) -> None:
    with client(shop) as run:
        run("BEGIN")
        run("UPDATE t SET x = 'new' WHERE id = 4")
        run("PREPARE TRANSACTION 'a'")
        parts = export(shop, "t")
        assert verdicts(shop, parts) == "===="
        run(f"{end} PREPARED 'a'")
    assert verdicts(shop, parts) == expected


def test_a_column_of_another_type_is_refused_as_by_a_scan(shop: str) -> None:
    parts = export(shop, "t")
    execute(shop, "ALTER TABLE t ALTER COLUMN x TYPE varchar")
    with pytest.raises(DatabaseError, match=r"t\.x was text when the schema was extracted"):
        answers(shop, parts)


PARTITIONS = f"""
CREATE SCHEMA parts;
CREATE TABLE m (id int, at timestamptz, x text, owner int) PARTITION BY RANGE (at);
CREATE TABLE m1 PARTITION OF m FOR VALUES FROM ('2026-01-01Z') TO ('2026-01-02Z');
CREATE TABLE parts.m2 PARTITION OF m FOR VALUES FROM ('2026-01-02Z') TO ('2026-01-03Z') PARTITION BY LIST (id);
CREATE TABLE parts.m2_odd PARTITION OF parts.m2 FOR VALUES IN (4, 6);
CREATE TABLE parts.m2_rest PARTITION OF parts.m2 DEFAULT;
CREATE TABLE m_rest PARTITION OF m DEFAULT;
INSERT INTO m {ROWS};
CREATE TABLE other (LIKE m1); INSERT INTO other SELECT id, at, 'other' FROM m1;
CREATE TABLE odd (LIKE m1); INSERT INTO odd SELECT id, at, 'other' FROM parts.m2_odd;
"""


DAY = "FOR VALUES FROM ('2026-01-01Z') TO ('2026-01-02Z')"


@pytest.mark.parametrize(
    ("expected", "statements"),
    [
        ("====", ["VACUUM (FREEZE, ANALYZE) m"]),
        ("=x==", ["UPDATE parts.m2_odd SET x = 'new' WHERE id = 4"]),
        ("=x==", ["DELETE FROM parts.m2_odd WHERE id = 4", "INSERT INTO m VALUES (5, '2026-01-02Z')"]),
        ("x===", ["ALTER TABLE m DETACH PARTITION m1"]),
        # What changes a definition makes all windows of the table unknown that have not surely changed.
        ("????", ["ALTER TABLE m DETACH PARTITION m1", f"ALTER TABLE m ATTACH PARTITION other {DAY}"]),
        ("????", ["ALTER TABLE parts.m2 DETACH PARTITION parts.m2_odd",
                  "ALTER TABLE parts.m2 ATTACH PARTITION odd FOR VALUES IN (4, 6)"]),
        ("????", ["CREATE TABLE m4 PARTITION OF m FOR VALUES FROM ('2026-02-01Z') TO ('2026-03-01Z')"]),
        ("????", ["ALTER TABLE m1 RENAME TO m0", "ALTER TABLE other RENAME TO m1"]),
        ("????", ["ALTER SCHEMA parts RENAME TO divisions"]),
        ("xxxx", ["CREATE TABLE n AS TABLE m", "TRUNCATE m", "INSERT INTO m TABLE n"]),
    ],
)  # fmt: skip
def test_partitions_with_changes_are_named(
    server: PostgresqlServer, shop: str, expected: str, statements: list[str]
) -> None:
    server.psql_script(shop, PARTITIONS)
    parts = export(shop, "m")
    script(server, shop, *statements)
    assert verdicts(shop, parts) == expected


def test_a_partition_that_is_attached_while_rows_are_compared_is_detected(server: PostgresqlServer, shop: str) -> None:
    script(
        server,
        shop,
        "CREATE TABLE n (LIKE t) PARTITION BY RANGE (at)",
        f"CREATE TABLE n1 PARTITION OF n {DAY}",
        "CREATE TABLE spare (LIKE t)",
        "INSERT INTO n1 SELECT * FROM t WHERE id < 4",
        "INSERT INTO spare SELECT * FROM n1",
    )
    parts = export(shop, "n")
    execute(shop, "DROP TABLE n1")
    with opened(shop) as database:
        assert database.count_rows([(parts[0].table, [part.rows for part in parts])], thorough=False) == [[0, 0, 0, 0]]
        execute(shop, f"ALTER TABLE n ATTACH PARTITION spare {DAY}")
        with pytest.raises(ConsistencyLostError, match=r"Partition .*spare was attached to"):
            database.changes_since(parts)


TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE TYPE pair AS (a int, m mood);
CREATE TABLE place (a int, b int);
CREATE DOMAIN named AS regclass;
CREATE DOMAIN moods AS mood[];
CREATE TYPE holder AS (a int, named named);
CREATE TYPE other AS ENUM ('one');
CREATE TABLE counted (id int);
"""


@pytest.mark.parametrize(
    ("column", "value", "expected", "statement"),
    [
        ("mood", "'sad'", "?", "ALTER TYPE mood RENAME VALUE 'sad' TO 'happy'"),
        ("mood", "'sad'", "=", "ALTER TYPE other RENAME VALUE 'one' TO 'two'"),
        ("moods", "'{sad}'", "?", "ALTER TYPE mood RENAME VALUE 'sad' TO 'happy'"),
        ("pair", "ROW(1, 'sad')", "?", "ALTER TYPE mood RENAME VALUE 'sad' TO 'happy'"),
        ("pair[]", "ARRAY[ROW(1, 'sad')::pair]", "?", "ALTER TYPE mood RENAME VALUE 'sad' TO 'happy'"),
        ("place", "ROW(1, 2)", "?", "ALTER TABLE place ADD COLUMN c int"),
        ("int", "1", "=", "ALTER TABLE place ADD COLUMN c int"),
        # A column that shows names of other objects is always unknown.
        ("regclass", "'counted'", "?", "ALTER TABLE counted RENAME TO renamed"),
        ("regclass[]", "'{counted}'", "?", "ALTER TABLE counted RENAME TO renamed"),
        ("named", "'counted'", "?", "ALTER TABLE counted RENAME TO renamed"),
        ("holder", "ROW(1, 'counted')", "?", "ALTER TABLE counted RENAME TO renamed"),
        ("aclitem", "'postgres=r/postgres'", "?", "SELECT 1"),
    ],
)
def test_rows_are_unknown_once_what_their_types_show_was_changed(
    shop: str, column: str, value: str, expected: str, statement: str
) -> None:
    execute(
        shop, *filter(str.strip, TYPES.split(";")), f"CREATE TABLE v (c {column})", f"INSERT INTO v VALUES ({value})"
    )
    parts = export(shop, "v", time=None)
    execute(shop, statement)
    [answer] = answers(shop, parts)
    shows_names = column.startswith(("reg", "named", "holder", "aclitem"))
    assert (verdicts(shop, parts), answer.lasting) == (expected, shows_names)


def test_exchanged_tables_and_schemas_are_unknown(server: PostgresqlServer, shop: str) -> None:
    execute(shop, "CREATE TABLE u AS TABLE t", "CREATE SCHEMA other", "CREATE TABLE other.owners AS TABLE owners")
    parts = export(shop, "t") + export(shop, "owners", time=None)
    script(server, shop, "BEGIN", "ALTER TABLE t RENAME TO v", "ALTER TABLE u RENAME TO t", "COMMIT")
    assert verdicts(shop, parts) == "????="
    script(server, shop, "BEGIN", "ALTER SCHEMA public RENAME TO x", "ALTER SCHEMA other RENAME TO public", "COMMIT")
    assert verdicts(shop, parts[4:]) == "?"


def test_another_database_under_the_name_is_unknown(server: PostgresqlServer, shop: str) -> None:
    parts, name = export(shop, "t"), shop.rsplit("/", 1)[1]
    [oid] = server.psql(shop, "SELECT oid FROM pg_database WHERE datname = current_database()").splitlines()
    server.psql(server.uri(), f"CREATE DATABASE {name}_copy TEMPLATE {name}")
    execute(f"{shop}_copy", "UPDATE t SET x = 'new' WHERE id = 1")
    for statement in (f"ALTER DATABASE {name} RENAME TO {name}_old", f"ALTER DATABASE {name}_copy RENAME TO {name}"):
        server.psql(server.uri(), statement)
    assert verdicts(shop, parts) == "????"
    # The number of a database can be chosen.
    server.psql(server.uri(), f"DROP DATABASE {name}_old", f"CREATE DATABASE {name}_copy TEMPLATE {name} OID {oid}")
    server.psql(server.uri(), f"DROP DATABASE {name}", f"ALTER DATABASE {name}_copy RENAME TO {name}")
    assert verdicts(shop, parts) == "x???"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"snapshot": ""}, "the export recorded no state"),
        ({"system_identifier": "1"}, "the cluster is another one"),
        ({"timeline": "7"}, "the timeline of the cluster is another one"),
        ({"database": "7"}, "the database is another one"),
        ({"snapshot": "99999999:99999999:"}, "a later state"),
        ({"lsn": "FFFFFFF/0"}, "a later state"),
    ],
)
def test_a_fence_of_another_history_proves_nothing(shop: str, change: dict[str, str], reason: str) -> None:
    parts = [replace(part, fence=dict(part.fence) | change) for part in export(shop, "t")]
    parts[0] = replace(parts[0], count=99)
    found = answers(shop, parts)
    assert [each.verdict for each in found] == [Verdict.CHANGED] + [Verdict.UNKNOWN] * 3
    assert reason in found[1].reason
    assert not any(each.lasting for each in found)


@pytest.mark.parametrize("key", ["system_identifier", "timeline", "database", "started"])
def test_a_fence_of_an_older_location_proves_nothing(shop: str, key: str) -> None:
    parts = export(shop, "t")
    parts = [replace(part, fence={name: part.fence[name] for name in part.fence if name != key}) for part in parts]
    assert verdicts(shop, parts) == "????"
    assert "did not record" in answers(shop, parts)[0].reason


def test_a_state_before_that_of_the_export_proves_nothing(shop: str) -> None:
    with client(shop) as run:
        run("BEGIN")
        run("UPDATE owners SET id = id WHERE id = 1")
        with opened(shop) as before:
            before.fence()
            execute(shop, "UPDATE t SET x = 'new' WHERE id = 4")
            parts = export(shop, "t")
            found = before.changes_since(parts)
        run("ROLLBACK")
    assert [each.verdict for each in found] == [Verdict.UNKNOWN] * 4


def test_a_server_that_was_restarted_may_have_another_history(server: PostgresqlServer, shop: str) -> None:
    parts = export(shop, "t")
    server.control("restart")
    assert verdicts(shop, parts) == "????"


def test_rows_without_versions_are_always_unknown(server: PostgresqlServer, shop: str) -> None:
    script(
        server,
        shop,
        "CREATE VIEW v AS TABLE t",
        "CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER far FOREIGN DATA WRAPPER nothing",
        "CREATE TABLE p (LIKE t) PARTITION BY RANGE (at)",
        f"CREATE FOREIGN TABLE f PARTITION OF p {DAY} SERVER far",
        "SELECT lo_from_bytea(0, 'x')",
    )
    fence = export(shop, "t")[0].fence
    with opened(shop) as database:
        tables = [table_of(database, name) for name in "vp"]
        tables += database.extract(Selection(query=Query("copied", "SELECT count(*) AS rows FROM t"))).tables
        tables += [each for each in database.extract(Selection()).tables if each.name == "large_objects"]
        assert len(tables) == 4
        found = database.changes_since([ExportedRows(each, AllRows(), 1, fence) for each in tables])
    assert [(each.verdict, each.lasting) for each in found] == [(Verdict.UNKNOWN, True)] * 4


@pytest.mark.parametrize("how", ["", "CONCURRENTLY"])
def test_materialized_views_have_versions(server: PostgresqlServer, shop: str, how: str) -> None:
    script(server, shop, "CREATE MATERIALIZED VIEW v AS TABLE t", "CREATE UNIQUE INDEX ON v (id)")
    parts = export(shop, "v")
    execute(shop, "UPDATE t SET x = 'new' WHERE id = 4")
    assert verdicts(shop, parts) == "===="
    execute(shop, f"REFRESH MATERIALIZED VIEW {how} v")
    assert verdicts(shop, parts) == ("?x??" if how else "xxxx")


def test_rows_of_tables_that_inherit_do_not_count(server: PostgresqlServer, shop: str) -> None:
    script(server, shop, "CREATE TABLE child () INHERITS (t)")
    parts = export(shop, "t", "child")
    execute(shop, "INSERT INTO child VALUES (4, '2026-01-02Z')")
    assert verdicts(shop, parts) == "=====x=="


def test_masked_rows_are_always_unknown(server: PostgresqlServer, shop: str) -> None:
    """A mask may call a function that was replaced, or read another table."""
    fence = export(shop, "t")[0].fence
    name = TableName("public", "owners")
    with opened(shop) as database:
        [table] = database.extract(Selection(tables=(name,), masks={(name, "id"): "1 + 1"})).tables
        [answer] = database.changes_since([ExportedRows(table, AllRows(), 11, fence)])
    assert (answer.verdict, answer.lasting) == (Verdict.UNKNOWN, True)


def test_odd_names(server: PostgresqlServer, shop: str) -> None:
    name = """O'Neil "x" \\ Ü%s{0}"""
    quoted = '"' + name.replace('"', '""') + '"'
    execute(shop, f"CREATE TABLE {quoted} ({quoted} int)", f"INSERT INTO {quoted} VALUES (1)")
    parts = export(shop, name, time=None)
    assert verdicts(shop, parts) == "="
    execute(shop, f"UPDATE {quoted} SET {quoted} = 2")
    assert verdicts(shop, parts) == "x"


@pytest.fixture
def reader(server: PostgresqlServer, shop: str) -> Iterator[str]:
    """The database as a user may read it who owns nothing."""
    server.psql(shop, "CREATE ROLE reader LOGIN PASSWORD 'x'")
    yield server.uri(shop.rsplit("/", 1)[1], "reader", "x")
    server.psql(shop, "DROP OWNED BY reader", "DROP ROLE reader")


def test_select_on_the_table_suffices(shop: str, reader: str) -> None:
    execute(shop, "GRANT SELECT ON t TO reader")
    parts = export(reader, "t")
    execute(shop, "UPDATE t SET x = 'new' WHERE id = 4")
    assert verdicts(reader, parts) == "=x=="


def test_a_user_who_may_only_read_columns_does_not_read_the_transactions(shop: str, reader: str) -> None:
    execute(shop, "GRANT SELECT (id, at, x, owner) ON t TO reader")
    assert [(each.verdict, each.lasting) for each in answers(reader, export(reader, "t"))] == [
        (Verdict.UNKNOWN, True)
    ] * 4


def test_a_user_who_may_not_read_the_control_file_knows_nothing(
    server: PostgresqlServer, shop: str, reader: str
) -> None:
    execute(shop, "GRANT SELECT ON t TO reader")
    parts = export(shop, "t")
    execute(shop, "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    assert "system_identifier" not in export(reader, "t")[0].fence
    found = answers(reader, parts)
    assert {each.verdict for each in found} == {Verdict.UNKNOWN}
    assert "pg_control_system" in found[0].reason


def test_transactions_are_compared_across_the_end_of_their_32_bits() -> None:
    for cut in (3, 1000, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 32) + 3, (7 << 32) - 1, (7 << 32) + 100):
        for distance in (0, 1, 1000, (1 << 30) - 1):
            present = cut + distance
            base = (present - 3 + (1 << 31)) % (1 << 32) - (1 << 31)  # age() has 32 bits with a sign
            now = {"snapshot": f"{present}:{present}:", "lsn": "0/2"} | dict.fromkeys(HISTORY, "1")
            fence = {"snapshot": f"{cut}:{cut}:", "lsn": "0/1"} | dict.fromkeys(HISTORY, "1")
            assert _unusable(fence, now) == ""
            # Written by the first transaction that the export did not see:
            assert _is_newer({"newest": distance, "base": base}, fence)
            assert not _is_newer({"newest": distance + 1, "base": base}, fence)
            assert not _is_newer({"newest": None, "base": base}, fence)
        now["snapshot"] = f"{cut + (1 << 31)}:{cut + (1 << 31)}:"
        assert "transactions ran" in _unusable(fence, now)


HISTORY = ("system_identifier", "timeline", "database", "started")
"""The keys of a fence that tell its history."""
