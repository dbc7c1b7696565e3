"""The schema documents of a MariaDB."""

from __future__ import annotations

import pytest

from snapshot_assets.databases.protocol.source import DatabaseAddress, Selection
from snapshot_assets.databases.selection.exclusions import unshown
from snapshot_assets.errors import AmbiguousTimeIndexError, DatabaseDeniedError, PlanError
from snapshot_assets.format.kinds import uncarried_by_kind
from snapshot_assets.format.relations import TableName
from snapshot_assets.testing.restores import source
from snapshot_assets_tests.databases.mysql.helpers import described
from snapshot_assets_tests.servers.mariadb import MariadbServer

PARENT = r"""
CREATE TABLE parent (
  id int unsigned NOT NULL,
  code varchar(20) CHARACTER SET latin1 NOT NULL DEFAULT 'a\'b\\c' COMMENT 'it''s',
  at datetime(3) DEFAULT current_timestamp(3) ON UPDATE current_timestamp(3),
  twice bigint AS (id * 2) VIRTUAL INVISIBLE,
  thrice bigint AS (id * 3) STORED,
  note text, data json,
  PRIMARY KEY (id), UNIQUE KEY by_code (code), UNIQUE KEY by_note (note(10)), KEY by_both (code, at DESC),
  FULLTEXT KEY words (note), CONSTRAINT named CHECK (code <> 'x\\')
) COMMENT='a ''table'''
"""
CHILD = """
CREATE TABLE child (id bigint, parent int unsigned, KEY (id), CONSTRAINT up FOREIGN KEY (parent) REFERENCES top (id)
  ON DELETE CASCADE) ENGINE=InnoDB ROW_FORMAT=COMPRESSED
"""
TOP = "CREATE TABLE top (id int unsigned AUTO_INCREMENT PRIMARY KEY)"


def test_a_table_has_its_columns_keys_and_checks(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql(PARENT.strip(), database="shop")
    [table] = described(mariadb_database).tables
    assert table.time_index == "at"
    code, at, twice, thrice = (table.column(name) for name in ("code", "at", "twice", "thrice"))
    assert (code.type, code.default, code.nullable) == ("varchar(20)", r"'a''b\\c'", False)
    assert (code.collation, code.comment) == ("latin1_swedish_ci", "it's")
    assert (at.default, at.type) == ("current_timestamp(3)", "datetime(3)")
    assert [(each.generated, each.generated_kind) for each in (twice, thrice)] == [
        ("`id` * 2", "virtual"),
        ("`id` * 3", "stored"),
    ]
    assert table.primary_key is not None
    assert table.primary_key.definition == "PRIMARY KEY (`id`)"
    assert [(each.name, each.definition) for each in table.unique] == [("by_code", "UNIQUE KEY `by_code` (`code`)")]
    assert {each.name: (each.unique, each.definition) for each in table.indexes} == {
        "by_both": (False, "KEY `by_both` (`code`,`at` DESC)"),
        "by_note": (True, "UNIQUE KEY `by_note` (`note`(10))"),
        "words": (False, "FULLTEXT KEY `words` (`note`)"),
    }
    assert {each.name: each.definition for each in table.checks} == {
        "data": "CHECK (json_valid(`data`))",
        "named": r"CONSTRAINT `named` CHECK (`code` <> 'x\\')",
    }
    assert table.options["column_options"] == {
        "at": {"on_update": "current_timestamp(3)"},
        "data": {"check": True},
        "twice": {"invisible": True},
    }
    assert table.options["table_options"] == "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci"
    assert table.comment == "a 'table'"


def test_numbers_of_a_column_are_a_sequence_that_it_owns(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql(TOP + " AUTO_INCREMENT=100", "CREATE SEQUENCE s START 7 INCREMENT 2", database="shop")
    schema = described(mariadb_database)
    [table] = schema.tables
    assert table.column("id").identity == "by default"
    [own] = table.sequences
    assert (own.name, own.column, own.owned, own.last_value, own.maximum) == ("top_id_seq", "id", True, 99, 2**32 - 1)
    [sequence] = schema.schemas[0].options["sequences"]
    assert (sequence["name"], sequence["start"], sequence["increment"], sequence["last_value"]) == ("s", 7, 2, None)
    mariadb_server.sql("SELECT NEXTVAL(s)", database="shop")
    [sequence] = described(mariadb_database).schemas[0].options["sequences"]
    assert sequence["last_value"] == 7 + 2 * 999  # the server took a thousand numbers at once


def test_partitions_foreign_keys_and_row_formats_are_carried(
    mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    partitioned = "CREATE TABLE parts (id int, PRIMARY KEY (id)) PARTITION BY KEY (id) PARTITIONS 2"
    mariadb_server.sql(TOP, CHILD.strip(), partitioned, database="shop")
    tables = {table.name: table for table in described(mariadb_database).tables}
    [key] = tables["child"].foreign_keys
    assert (key.columns, str(key.referenced), key.referenced_columns) == (("parent",), "shop.top", ("id",))
    assert key.definition == "CONSTRAINT `up` FOREIGN KEY (`parent`) REFERENCES `top` (`id`) ON DELETE CASCADE"
    assert "ROW_FORMAT=COMPRESSED" in tables["child"].options["table_options"]
    assert tables["parts"].options["partitions_by"] == "PARTITION BY KEY (`id`)\nPARTITIONS 2"
    assert "PARTITION" not in tables["parts"].options["table_options"]


def test_a_view_names_what_it_reads_and_whose_rights_it_has(
    mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql(TOP, CHILD.strip(), database="shop")
    query = "SELECT c.id AS `from` FROM child c, top WHERE c.parent = top.id"
    mariadb_server.sql(f"CREATE SQL SECURITY INVOKER VIEW v AS {query}", database="shop")
    [view] = described(mariadb_database).views
    assert view.depends_on == (TableName("shop", "child"), TableName("shop", "top"))
    assert view.definition.startswith("select `c`.`id` AS `from` from (`shop`.`child` `c` join `shop`.`top`) where")
    assert (view.options["security"], view.options["check_option"]) == ("INVOKER", "NONE")
    assert [column.name for column in view.columns] == ["from"]
    exported = described(mariadb_database, Selection(tables=(TableName("shop", "v"),)))
    assert exported.tables[0].options == {"view": True}


def test_a_uri_without_a_database_means_all_but_the_servers_own(
    mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.create_database("größe x.y")
    mariadb_server.sql(TOP, database="größe x.y")
    found = described(mariadb_server.uri())
    assert [schema.name for schema in found.schemas] == ["größe x.y", "shop"]
    assert [str(table.table_name) for table in found.tables] == ['"größe x.y".top']
    assert [schema.name for schema in described(mariadb_database).schemas] == ["shop"]


def test_a_hidden_column_is_neither_read_by_views_nor_by_generated_columns(
    mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql(PARENT.strip(), "CREATE VIEW v AS SELECT code FROM parent", database="shop")
    parent, view = TableName("shop", "parent"), TableName("shop", "v")
    found = described(mariadb_database, Selection(exclude_columns=((parent, "code"),)))
    assert found.views == ()
    lost = [each.partition(" (")[0] for each in found.table(parent).options["not_carried"]]
    assert {'column "code"', 'unique constraint "by_code"', 'check "named"', 'index "by_both"'} == set(lost)
    with pytest.raises(PlanError, match=r"is a view whose rows are exported, and it reads shop.parent"):
        described(mariadb_database, Selection(tables=(parent, view), exclude_columns=((parent, "code"),)))
    with pytest.raises(PlanError, match=r"is generated from shop.parent.id and would reveal"):
        described(mariadb_database, Selection(masks={(parent, "id"): "0"}))


def test_a_period_of_a_hidden_column_is_left_out_with_its_key(
    mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    booked = "id int NOT NULL, since date NOT NULL, until date NOT NULL, PERIOD FOR valid (since, until)"
    mariadb_server.sql(f"CREATE TABLE t ({booked}, PRIMARY KEY (id, valid WITHOUT OVERLAPS))", database="shop")
    name = TableName("shop", "t")
    [table] = described(
        mariadb_database, Selection(exclude_columns=((name, "until"),), time_columns={name: None})
    ).tables
    lost = [each.partition(" (")[0] for each in table.options["not_carried"]]
    assert (table.primary_key, table.options["periods"]) == (None, [])
    assert sorted(lost) == ['column "until"', "period", "primary key"]


def test_several_times_need_a_choice(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql("CREATE TABLE t (a datetime, b timestamp NULL, c date)", database="shop")
    with pytest.raises(AmbiguousTimeIndexError, match=r"2 timestamp columns \('a', 'b'\)"):
        described(mariadb_database)
    table = TableName("shop", "t")
    assert described(mariadb_database, Selection(time_columns={table: "c"})).tables[0].time_index == "c"


def test_a_view_whose_query_is_secret_is_refused(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql(TOP, "CREATE VIEW v AS SELECT id FROM top", database="shop")
    mariadb_server.sql("CREATE USER IF NOT EXISTS clerk IDENTIFIED BY 'x'", "GRANT SELECT ON shop.* TO clerk")
    with pytest.raises(DatabaseDeniedError, match=r"does not show the query of view shop.v .* Grant SHOW VIEW"):
        described(mariadb_server.uri("shop", "clerk", "x"))
    mariadb_server.sql("DROP USER clerk")


def test_a_view_whose_function_the_user_may_not_call_is_named_and_with_the_right_kept(
    mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql(
        TOP,
        "CREATE FUNCTION f(a int) RETURNS int DETERMINISTIC RETURN a + 1",
        "CREATE VIEW v AS SELECT f(id) AS x FROM top",
        "CREATE OR REPLACE USER reader@'%' IDENTIFIED BY 'x'",
        "GRANT SELECT, SHOW VIEW ON shop.* TO reader@'%'",
        database="shop",
    )
    uri, chosen = mariadb_server.uri("shop", "reader", "x"), Selection(tables=(TableName("shop", "v"),))
    with source(DatabaseAddress("shop", uri)) as database:
        assert any(each.startswith("View shop.v (the server") for each in unshown(database.extract(Selection())))
    found = described(uri)
    assert found.views == ()
    [named] = uncarried_by_kind(found)["view"]
    assert named.startswith("shop.v (the server shows this user no columns of it: it is broken, or calls a function")
    with pytest.raises(DatabaseDeniedError, match=r"no columns of view shop\.v\. Grant EXECUTE"):
        described(uri, chosen)
    mariadb_server.sql("GRANT EXECUTE ON FUNCTION shop.f TO reader@'%'")
    assert [column.name for column in described(uri).views[0].columns] == ["x"]
    assert [column.name for column in described(uri, chosen).tables[0].columns] == ["x"]


@pytest.mark.parametrize(
    ("grants", "denied"),
    [
        (("SELECT (id) ON shop.t",), "all of shop.t (SHOW command denied to user"),
        (("SELECT (id) ON shop.t", "CREATE VIEW ON shop.t"), "columns secret, more of shop.t."),
        (("SELECT (id, more) ON shop.t", "INSERT ON shop.t"), "column secret of shop.t."),
        (("SELECT ON shop.t", "SELECT (id) ON shop.v"), "all of shop.v (SELECT command denied to user"),
    ],
)
def test_a_table_of_which_the_user_may_read_some_columns_is_refused(
    mariadb_server: MariadbServer, mariadb_database: str, grants: tuple[str, ...], denied: str
) -> None:
    tables = ("CREATE TABLE t (id int PRIMARY KEY, secret int, more int)", "CREATE VIEW v AS SELECT * FROM t")
    users = ("CREATE OR REPLACE USER reader IDENTIFIED BY 'x'", *(f"GRANT {each} TO reader" for each in grants))
    mariadb_server.sql(*tables, *users, database="shop")
    names = tuple(TableName("shop", name) for name in ("t", "v") if any(f".{name}" in each for each in grants))
    with pytest.raises(DatabaseDeniedError) as refused:
        described(mariadb_server.uri("shop", "reader", "x"), Selection(tables=names))
    assert f"this user may not read {denied}" in str(refused.value)
    assert "GRANT SELECT ON `shop`.`" in str(refused.value)
    mariadb_server.sql("DROP USER reader")


def test_one_error_names_all_that_the_user_lacks(mariadb_server: MariadbServer, mariadb_database: str) -> None:
    mariadb_server.sql(
        "CREATE TABLE t (id int, x int)",
        "CREATE TABLE u (id int, x int)",
        "CREATE VIEW v AS SELECT 1 AS one",
        "CREATE VIEW w AS SELECT 1 AS one",
        "CREATE SEQUENCE s",
        "CREATE OR REPLACE USER reader IDENTIFIED BY 'x'",
        "GRANT SELECT (id) ON t TO reader",
        "GRANT SELECT (id) ON u TO reader",
        "GRANT SELECT ON v TO reader",
        "GRANT SELECT ON w TO reader",
        "GRANT INSERT ON s TO reader",
        database="shop",
    )
    with pytest.raises(DatabaseDeniedError) as refused:
        described(mariadb_server.uri("shop", "reader", "x"))
    mariadb_server.sql("DROP USER reader")
    for name in ("all of shop.t", "all of shop.u", "view shop.v", "view shop.w", "sequence shop.s"):
        assert name in str(refused.value)
