"""MySQL's own ways as a target: steps that end transactions, locks of imports, limits of statements, and new names."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import cast

import pyarrow as pa
import pytest

from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.databases.definition import ObjectKey, Statement
from snapshot_assets.databases.mysql.target import MysqlTarget
from snapshot_assets.databases.mysql.texts import check_text
from snapshot_assets.databases.open import open_target, scratch_database, target_module
from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress
from snapshot_assets.databases.protocol.steps import StepResult, steps_of
from snapshot_assets.databases.protocol.target import Load, LoadedFile, RestoreRecord
from snapshot_assets.errors import DatabaseDeniedError, DatabaseError, DocumentError, UnknownSourceError
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets.testing.restores import LOCATION, copy, definition_of, entry, extracted
from snapshot_assets_tests.servers.mariadb import MariadbServer
from snapshot_assets_tests.waiting import until

T = TableName("shop", "t")
ID = pa.schema({"id": pa.int32()})


@contextmanager
def opened(uri: str) -> Iterator[MysqlTarget]:
    with closing(open_target(DatabaseAddress("shop", uri))) as target:
        yield cast("MysqlTarget", target)


def record_of(*tables: TableName, id_: str = "a" * 32) -> RestoreRecord:
    return RestoreRecord(id_, LOCATION, "file:///snapshots/x", 1, "c" * 64, "{}", tables)


def table_of(uri: str, name: str = "t") -> Table:
    return next(each for each in extracted(DatabaseAddress("shop", uri)).tables if each.name == name)


def ids(*numbers: int) -> list[pa.RecordBatch]:
    return [pa.record_batch([pa.array(numbers, pa.int32())], schema=ID)]


def waiting(server: MariadbServer, text: str) -> bool:
    """Return whether a session of the server waits in a statement with a text."""
    return text in server.sql("SELECT info FROM information_schema.processlist WHERE info NOT LIKE '%processlist%'")


def test_a_step_whose_record_was_lost_is_found_made(mariadb_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    statement = Statement(ObjectKey("table", T), "CREATE TABLE shop.t (id int)", T)
    record = record_of(T)
    with opened(mariadb_database) as target:
        target.begin(record, "")

        def lose(self: MysqlTarget, results: Sequence[StepResult]) -> None:
            if any(each.made for each in results):
                raise KeyboardInterrupt
            write(self, results)

        write = MysqlTarget._write
        with monkeypatch.context() as patched:
            patched.setattr(MysqlTarget, "_write", lose)
            with pytest.raises(KeyboardInterrupt):
                target.make(record, steps_of([statement]))
    with opened(mariadb_database) as target:
        assert T in target.existing([T])
        [result] = target.make(record, steps_of([statement])).values()
        assert (result.status, result.message) == ("made", "")  # a message would be how it differs from the snapshot


def test_a_table_of_others_is_not_taken_for_one_of_the_import(
    mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql("CREATE TABLE t (other int)", database="shop")
    with opened(mariadb_database) as target:
        target.begin(record_of(T), "")
        statement = Statement(ObjectKey("table", T), "CREATE TABLE shop.t (id int)", T)
        [result] = target.make(record_of(T), steps_of([statement])).values()
        assert (result.status, "already exists" in result.message) == ("taken", True)


def test_a_lookup_of_a_table_reads_the_definitions_of_no_others(
    mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql(*(f"CREATE TABLE t{number} (id int)" for number in range(30)), database="shop")
    opened_tables = "SHOW GLOBAL STATUS LIKE 'Opened_table_definitions'"
    with opened(mariadb_database) as target:
        target.existing([T])
        before = mariadb_server.sql("FLUSH TABLES", opened_tables)
        assert target.existing([TableName("shop", "t7")])[TableName("shop", "t7")].columns == ("id",)
        after = mariadb_server.sql(opened_tables)
    assert int(after.split("\t")[1]) - int(before.split("\t")[1]) < 5


def test_an_import_begins_only_after_the_loads_that_run(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql("CREATE TABLE t (id int)", database="shop")
    table, record, seen = table_of(mariadb_database), record_of(T), []
    with opened(mariadb_database) as loading, opened(mariadb_database) as other:
        loading.begin(record, "")
        newer = replace(record, id="b" * 32)
        beginning = threading.Thread(target=lambda: seen.append(other.begin(newer, record.id)))

        def batches() -> Iterator[pa.RecordBatch]:
            yield from ids(1)
            beginning.start()
            until(lambda: waiting(mariadb_server, "FOR UPDATE"))
            assert seen == []
            yield from ids(2)

        assert loading.load(entry(T, record), table, batches()) == 2
        beginning.join()
        assert seen == [newer]
    assert mariadb_server.sql("SELECT COUNT(*) FROM shop.t") == "2"


def test_a_file_that_two_runs_load_is_loaded_once(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql("CREATE TABLE t (id int)", database="shop")
    table, record, seen = table_of(mariadb_database), record_of(T), []
    with opened(mariadb_database) as first, opened(mariadb_database) as second:
        first.begin(record, "")
        file = entry(T, record)
        loading = threading.Thread(target=lambda: seen.append(second.load(file, table, ids(1, 2))))

        def batches() -> Iterator[pa.RecordBatch]:
            loading.start()
            until(lambda: waiting(mariadb_server, "ON DUPLICATE KEY"))
            yield from ids(1, 2)

        assert first.load(file, table, batches()) == 2
        loading.join()
    assert seen == [None]
    assert mariadb_server.sql("SELECT COUNT(*) FROM shop.t") == "2"


def test_rows_larger_than_a_statement_are_refused_by_name(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql("CREATE TABLE t (b longblob)", database="shop")
    table, record = table_of(mariadb_database), record_of(T)
    [limit] = mariadb_server.sql("SELECT @@max_allowed_packet").split()

    def batch(size: int) -> list[pa.RecordBatch]:
        return [pa.record_batch({"b": pa.array([b"'" * size, None, b"\0"], pa.binary())})]

    with opened(mariadb_database) as target:
        target.begin(record, "")
        with pytest.raises(DatabaseError, match=r"loading shop\.t failed: a row has \d+ bytes.*max_allowed_packet"):
            target.load(entry(T, record), table, batch(int(limit)))
        [column] = table.columns
        unfit = target.unfit_values(column)
        half = pa.array([b"\\" * (int(limit) // 2 - 2000), b"\\" * (int(limit) // 2 + 1), None], pa.binary())
        assert unfit is not None
        assert unfit.count(half) == 1  # a backslash takes two bytes in a statement
        assert target.load(entry(T, record), table, batch(int(limit) // 2 - 2000)) == 3
    assert mariadb_server.sql("SELECT MAX(LENGTH(b)), COUNT(*) FROM shop.t") == f"{int(limit) // 2 - 2000}\t3"


def test_a_value_that_a_column_cannot_hold_undoes_the_load(
    mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql("CREATE TABLE t (id int)", "CREATE TABLE u (id tinyint)", database="shop")
    table = table_of(mariadb_database).model_copy(update={"name": "u"})
    name = TableName("shop", "u")
    with opened(mariadb_database) as target:
        target.begin(record_of(name), "")
        assert [each.column for each in target.other_types([table])] == ["id"]
        with pytest.raises(DatabaseError, match="Out of range value for column 'id'"):
            target.load(entry(name, record_of(name)), table, ids(1, 1000))
    assert mariadb_server.sql("SELECT COUNT(*) FROM shop.u") == "0"


@pytest.mark.parametrize(
    ("found", "wanted", "differs", "limit"),
    [
        ("int(11)", "int(5)", False, None),
        ("int(10) unsigned", "int(11)", True, None),
        ("varchar(40)", "varchar(20)", False, None),
        ("varchar(20)", "varchar(40)", True, 20),
        ("decimal(10,2)", "decimal(8,2)", False, None),
        ("decimal(8,2)", "decimal(10,2)", True, None),
        ("decimal(12,3)", "decimal(10,2)", True, None),
        ("datetime", "datetime(6)", True, None),
        ("datetime(6)", "datetime", False, None),
        ("text", "longtext", True, None),
        ("enum('a')", "enum('a','b')", True, None),
    ],
)
def test_a_type_of_the_target_holds_the_values_of_another(
    found: str, wanted: str, differs: bool, limit: int | None, mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql(f"CREATE TABLE t (c {found})", database="shop")
    table = table_of(mariadb_database)
    column = table.columns[0].model_copy(update={"type": wanted})
    with opened(mariadb_database) as target:
        others = target.other_types([table.model_copy(update={"columns": (column,)})])
    assert [each.limit for each in others] == ([limit] if differs else [])


def test_triggers_of_tables_are_reported(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql(
        "CREATE TABLE t (id int)", "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW SET NEW.id = 0", database="shop"
    )
    with opened(mariadb_database) as target:
        [acting] = target.acting([T], deletes=False)
        assert acting.startswith(
            "Trigger g of shop.t acts on each INSERT. Drop it until the import ends; with --with-code"
        )
        assert target.acting([TableName("shop", "u")], deletes=True) == []


def test_a_table_without_transactions_is_refused(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql("CREATE TABLE t (id int) ENGINE=Aria", "CREATE TABLE u (id int)", database="shop")
    with opened(mariadb_database) as target:
        assert target.acting([T, TableName("shop", "u")], deletes=False) == [
            "The rows of shop.t have no transactions, so a load that fails would leave some: its engine is Aria. Alter"
            " it to InnoDB until the import ends."
        ]


def test_a_table_gets_an_engine_without_transactions_after_its_rows(
    mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql("CREATE TABLE t (id int) ENGINE=MyISAM DEFAULT CHARSET=latin1", database="shop")
    definition = definition_of(
        DatabaseSchema(database="mysql", tables=(table_of(mariadb_database),)),
        DatabaseAddress("shop", mariadb_database),
    )
    mariadb_server.sql("DROP TABLE shop.t")
    engine = "SELECT engine FROM information_schema.tables WHERE table_name = 't'"
    with opened(mariadb_database) as target:
        target.begin(record_of(T), "")
        target.make(record_of(T), steps_of(definition.before))
        assert mariadb_server.sql(engine) == "InnoDB"
        [result] = target.make(record_of(T), steps_of(definition.after)).values()
        assert (result.name, result.status) == ("engine of shop.t", "made")
    assert mariadb_server.sql(engine) == "MyISAM"


def test_a_chunk_of_rows_that_refer_to_each_other_is_replaced(
    mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql(
        "CREATE TABLE t (id int PRIMARY KEY, up int, CONSTRAINT up FOREIGN KEY (up) REFERENCES t (id))",
        database="shop",
    )
    table, record = table_of(mariadb_database), record_of(T)

    def rows(*pairs: tuple[int, int | None]) -> list[pa.RecordBatch]:
        columns = [pa.array(each, pa.int32()) for each in zip(*pairs, strict=True)]
        return [pa.record_batch(columns, names=["id", "up"])]

    def file(path: str) -> LoadedFile:
        return replace(entry(T, record, path), chunk=1)

    with opened(mariadb_database) as target:
        target.begin(record, "")
        target.load(file("a"), table, rows((1, None), (2, 1)))
        assert target.replace(
            1, [Load(LOCATION, record.id, table, AllRows(), [(file("b"), table, rows((1, 2), (2, 1)))])]
        )
        with pytest.raises(DatabaseError, match="foreign key up"):
            target.replace(1, [Load(LOCATION, record.id, table, AllRows(), [(file("c"), table, rows((1, 9)))])])
    assert mariadb_server.sql("SELECT id, up FROM shop.t ORDER BY id") == "1\t2\n2\t1"


def test_views_keep_reading_what_was_renamed(
    mariadb_server: MariadbServer, second_mariadb_server: MariadbServer, mariadb_database: str,
    second_mariadb_database: str,
) -> None:  # fmt: skip
    mariadb_server.sql(
        "CREATE TABLE t (id int, shop int)", "INSERT INTO t VALUES (1, 2)",
        "CREATE VIEW v AS SELECT id, `t`.`shop`, '`shop`.`t`' AS text FROM t",
        "CREATE VIEW w AS SELECT shop.id FROM t shop",
        "CREATE TABLE c (id int, t_id int, KEY t_id (t_id))",
        database="shop",
    )  # fmt: skip
    schema = extracted(DatabaseAddress("shop", mariadb_database))
    into = DatabaseAddress("into", second_mariadb_database)
    renaming = Renaming.of([("shop", "new")], [(T, TableName("new", "other"))])
    renamed, lost = target_module(into).rename(schema, renaming)
    assert lost == ()
    copy(DatabaseSchema(database="mysql"), DatabaseAddress("shop", mariadb_database), into)
    with opened(into.uri) as target:
        definition = definition_of(renamed, into)
        results = target.make(target.imports()[0], steps_of([*definition.before, *definition.after]))
        assert [each.name for each in results.values() if not each.made] == []
    second_mariadb_server.sql("INSERT INTO new.other VALUES (1, 2)")
    assert second_mariadb_server.sql("SELECT * FROM new.v", "SELECT * FROM new.w") == "1\t2\t`shop`.`t`\n1"


@pytest.mark.parametrize(
    "default",
    ["1) ENGINE=CSV; --", "1, x int", "1) SELECT 1", "'a", "1 /* x", "(1", "1 -- x", "1 # x", '"x"', "`a"],
)
def test_a_text_that_would_end_its_place_in_a_statement_is_refused(
    default: str, mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql("CREATE TABLE t (id int)", database="shop")
    table = table_of(mariadb_database)
    column = table.columns[0].model_copy(update={"default": default})
    schema = DatabaseSchema(database="mysql", tables=(table.model_copy(update={"columns": (column,)}),))
    with pytest.raises(DocumentError, match=r"the default of column shop\.t\.id has|lacks"):
        definition_of(schema, DatabaseAddress("shop", mariadb_database))


def test_what_mysql_prints_for_newer_servers_only_is_kept() -> None:
    text = "FULLTEXT KEY `k` (`a`) /*!50100 WITH PARSER `ngram` */  /*!80000 INVISIBLE */"
    assert check_text(text, "a key") == "FULLTEXT KEY `k` (`a`) WITH PARSER `ngram`  INVISIBLE"
    assert check_text("'/*!80000 x */'", "a default") == "'/*!80000 x */'"
    with pytest.raises(DocumentError, match="has '/"):
        check_text("1 /*!80000 /* */", "a default")


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (r"concat(`a`,_utf8mb4\' \',`b`)", "concat(`a`,_utf8mb4' ',`b`)"),
        (r"_utf8mb4\'it\\\'s\'", r"_utf8mb4'it\'s'"),
        (r"_utf8mb4\'a\\\\b\\n\'", r"_utf8mb4'a\\b\n'"),
        (r"_utf8mb4'a\'b'", r"_utf8mb4'a\'b'"),
    ],
)
def test_an_expression_that_mysql_escapes_a_second_time_is_read(shown: str, printed: str) -> None:
    assert check_text(shown, "an expression") == printed
    with pytest.raises(DocumentError, match="has ';'"):
        check_text(f"{shown};", "an expression")


def test_a_user_without_rights_is_told_which(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql("CREATE OR REPLACE USER reader@'%' IDENTIFIED BY 'x'", "GRANT SELECT ON shop.* TO reader@'%'")
    uri = mariadb_server.uri("shop", "reader", "x")
    with opened(uri) as target, pytest.raises(DatabaseDeniedError, match=r"the ledger's schema failed: Access denied"):
        target.begin(record_of(T), "")


def test_a_server_has_no_scratch_databases(mariadb_database: str) -> None:
    address = DatabaseAddress("shop", mariadb_database)
    with (
        pytest.raises(UnknownSourceError, match="can have no scratch database drill"),
        scratch_database(address, "drill"),
    ):
        pass


def test_a_server_that_must_not_write_is_refused_before_anything_is_planned(
    mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql(
        "CREATE OR REPLACE USER writer@'%' IDENTIFIED BY 'x'", "GRANT ALL ON *.* TO writer@'%'",
        "REVOKE READ_ONLY ADMIN ON *.* FROM writer@'%'", "SET GLOBAL read_only = 1",
    )  # fmt: skip
    try:
        refused = pytest.raises(DatabaseError, match=r"read-only.* \(error 1290\)\. Use the address of a server that")
        with opened(mariadb_server.uri("shop", "writer", "x")) as target, refused:
            target.acting([T], deletes=False)
    finally:
        mariadb_server.sql("SET GLOBAL read_only = 0")
    with opened(mariadb_server.uri("shop", "writer", "x")) as target:
        assert target.acting([T], deletes=False) == []
