"""Functions, triggers and events of MariaDB are restored as they were, if the user asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.databases.definition import Definition
from snapshot_assets.databases.mysql import define, rename
from snapshot_assets.databases.protocol.source import DatabaseAddress, Selection
from snapshot_assets.databases.protocol.target import LEDGER_SCHEMA
from snapshot_assets.databases.selection.exclusions import uncarried, unshown
from snapshot_assets.engine.export.restore_needs import restore_warnings
from snapshot_assets.errors import DocumentError
from snapshot_assets.format.kinds import code_by_kind, kind_of_object, uncarried_by_kind
from snapshot_assets.format.relations import DatabaseSchema, TableName
from snapshot_assets.testing.restores import copy, make, record_of, source, target
from snapshot_assets_tests.databases.mysql.helpers import SHOP, described
from snapshot_assets_tests.servers.mariadb import MariadbServer

CODE = r"""
DELIMITER //
CREATE TABLE t (id int PRIMARY KEY, note text, noted int DEFAULT 0)//
CREATE TABLE log (id int AUTO_INCREMENT PRIMARY KEY, what text)//
SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'//
CREATE TRIGGER shop."it's b" before insert on "t" FOR EACH ROW set new.note = concat(new.note, '\b')//
SET sql_mode = ''//
CREATE OR REPLACE TRIGGER first BEFORE INSERT ON t FOR EACH ROW PRECEDES `it's b`
    SET NEW.note = CONCAT(NEW.note, "a;")//
CREATE TRIGGER last BEFORE INSERT ON shop.t FOR EACH ROW FOLLOWS `it's b` BEGIN SET NEW.note = f(NEW.note); END//
CREATE TRIGGER logged AFTER INSERT ON t FOR EACH ROW INSERT INTO log (what) VALUES (NEW.note)//
CREATE TRIGGER logged_again AFTER UPDATE ON t FOR EACH ROW CALL note(NEW.note)//
SET NAMES latin1 COLLATE latin1_german1_ci//
CREATE FUNCTION f(a text) RETURNS text CHARSET utf8mb4 DETERMINISTIC RETURN CONCAT(a, 'é')//
SET NAMES utf8mb4//
SET sql_mode = 'STRICT_ALL_TABLES'//
CREATE AGGREGATE FUNCTION ag(x int) RETURNS int
BEGIN DECLARE CONTINUE HANDLER FOR NOT FOUND RETURN 1; LOOP FETCH GROUP NEXT ROW; END LOOP; END//
CREATE PROCEDURE note(what text) MODIFIES SQL DATA SQL SECURITY INVOKER COMMENT 'it''s'
BEGIN INSERT INTO log (what) VALUES (what); END//
SET sql_mode = 'ORACLE'//
CREATE PACKAGE pk AS FUNCTION one RETURN INT; END//
CREATE PACKAGE BODY pk AS FUNCTION one RETURN INT AS BEGIN RETURN 1; END; END//
SET sql_mode = ''//
CREATE VIEW v AS SELECT f(note) AS x FROM t//
SET time_zone = '+02:00'//
CREATE EVENT odd ON SCHEDULE EVERY '1:2' HOUR_MINUTE DISABLE DO DELETE FROM log//
CREATE EVENT yearly ON SCHEDULE EVERY 1 YEAR STARTS '2020-01-01 00:00:00' ON COMPLETION PRESERVE ENABLE
    COMMENT 'ON COMPLETION PRESERVE ENABLE, it''s' DO DELETE FROM log//
SET timestamp = UNIX_TIMESTAMP('2020-01-01')//
CREATE EVENT missed ON SCHEDULE AT '2020-01-02 00:00:00' DO DELETE FROM log//
INSERT INTO t (id, note) VALUES (1, '')//
DELIMITER ;
"""
OBJECTS = {
    "event": ["shop.missed", "shop.odd", "shop.yearly"],
    "function": ["shop.ag", "shop.f"],
    "package": ["shop.pk"],
    "package body": ["shop.pk"],
    "procedure": ["shop.note"],
    "trigger": [f"{name} of shop.t" for name in ("first", "it's b", "last", "logged", "logged_again")],
}
ORDER = (
    "SELECT trigger_name, action_order FROM information_schema.triggers ORDER BY action_timing, event_manipulation, 2"
)
DISABLED = {
    f"Event shop.{name} is created disabled, so that a copy does not run it. To start it: ALTER EVENT `shop`.`{name}`"
    " ENABLE."
    for name in ("missed", "yearly")
}
DEFINER = "Definer root@localhost is lost: its views and code act with the rights of the user who restores them."

CALLS = (
    "View shop.v calls function shop.f, which is not restored. If the target does not have it, the view and those that"
    " read it are left out."
)


@pytest.fixture
def coded(mariadb_server: MariadbServer, mariadb_database: str, second_mariadb_server: MariadbServer) -> Iterator[str]:
    """A database with code of every kind; both servers are emptied at the end."""
    mariadb_server.sql(CODE.strip(), database="shop")
    yield mariadb_database
    second_mariadb_server.drop_databases()


def restored(schema: DatabaseSchema, origin: str, into: MariadbServer, *, code: bool = True) -> Definition:
    """Restore a database into another server, and return how."""
    return copy(schema, DatabaseAddress("shop", origin), DatabaseAddress("into", into.uri()), code=code)


def printed(server: MariadbServer) -> dict[str, str]:
    """Return what the server prints of its code, with the settings that it kept; definers have another address."""
    found = {}
    for kind, names in OBJECTS.items():
        for name in names:
            own = name.removeprefix("shop.").partition(" of ")[0]
            text = server.sql(f"SHOW CREATE {kind} `{own}`", database="shop")
            text = text.rpartition("\t")[0] if kind == "trigger" else text  # when it was created
            found[f"{kind} {name}"] = text.replace("127.0.0.1", "localhost")
    return found


def test_code_comes_back_as_the_server_prints_it_and_events_are_disabled(
    mariadb_server: MariadbServer, second_mariadb_server: MariadbServer, coded: str
) -> None:
    schema, into = described(coded), second_mariadb_server
    assert code_by_kind(schema) == OBJECTS
    assert uncarried_by_kind(schema) == {}
    definition = restored(schema, coded, into)
    assert set(definition.lost) == {DEFINER, *DISABLED}
    left, right = printed(mariadb_server), printed(into)
    for name in left:
        wanted = (
            left[name] if name == "event shop.odd" else left[name].replace("PRESERVE ENABLE", "PRESERVE DISABLE", 1)
        )
        assert right[name] == wanted.replace("latin1\tlatin1", "utf8mb4\tlatin1")  # sent in another character set
    assert into.sql(ORDER) == mariadb_server.sql(ORDER)
    assert into.sql("SELECT COUNT(*) FROM shop.log") == "1"  # no trigger ran while rows were loaded
    for server in (mariadb_server, into):
        server.sql("INSERT INTO t (id, note) VALUES (2, '')", "UPDATE t SET noted = 1", database="shop")
    read = "SELECT what FROM shop.log UNION ALL SELECT x FROM shop.v"
    assert into.sql(read) == mariadb_server.sql(read)
    whens = [described(uri).schemas[0].options["code"][-1]["created"] for uri in (coded, into.uri("shop"))]
    assert whens[0] == whens[1]


def test_without_the_option_code_is_named_and_nothing_is_created(
    second_mariadb_server: MariadbServer, coded: str
) -> None:
    second_mariadb_server.sql("CREATE DATABASE shop")
    second_mariadb_server.sql(
        "CREATE FUNCTION f(a text) RETURNS text RETURN a", database="shop"
    )  # which the view calls
    lost = restored(described(coded), coded, second_mariadb_server, code=False).lost
    left = {each.partition(" is not restored: it is code of the snapshot. Give --with-code.")[0] for each in lost[:-2]}
    assert left == {f"{kind.capitalize()} {name}" for kind, names in OBJECTS.items() for name in names}
    assert lost[-2:] == (DEFINER.replace(" and code", ""), CALLS)
    assert "shop\tv" in second_mariadb_server.sql("SELECT table_schema, table_name FROM information_schema.views")
    assert second_mariadb_server.sql("SELECT COUNT(*) FROM information_schema.triggers") == "0"
    assert kind_of_object("Package body shop.pk is not restored") == "package body"


def test_a_view_without_its_function_is_left_out_with_those_that_read_it_and_the_export_warns(
    mariadb_server: MariadbServer, second_mariadb_server: MariadbServer, coded: str
) -> None:
    mariadb_server.sql("CREATE VIEW reading AS SELECT x FROM v", "CREATE VIEW plain AS SELECT 1 AS x", database="shop")
    schema = described(coded)
    [warning] = [each for each in restore_warnings(schema) if "View shop.v calls function shop.f" in each]
    assert "only with --with-code" in warning
    assert CALLS in restored(schema, coded, second_mariadb_server, code=False).lost
    made = "SELECT table_name FROM information_schema.views WHERE table_schema = 'shop'"
    assert second_mariadb_server.sql(made) == "plain"


def test_triggers_of_renamed_tables_are_named(coded: str) -> None:
    renaming = Renaming.of([("shop", "store")])
    renamed, _ = rename(described(coded), renaming)
    lost = define(renamed).lost
    assert "Trigger last of store.t is not restored: it is code of the snapshot. Give --with-code." in lost


def test_what_the_target_has_stays_and_triggers_of_chosen_tables_come_alone(
    second_mariadb_server: MariadbServer, coded: str
) -> None:
    second_mariadb_server.sql("CREATE DATABASE shop")
    second_mariadb_server.sql("CREATE FUNCTION f(a text) RETURNS text RETURN 'mine'", database="shop")
    schema = described(coded)
    chosen = schema.model_copy(update={"tables": (schema.table(TableName("shop", "log")),), "views": ()})
    definition, into = define(chosen, code=True), DatabaseAddress("into", second_mariadb_server.uri())
    with target(into) as opened:
        record = record_of(definition)
        opened.begin(record, "")
        make(opened, record, [*definition.before, *definition.after])
        assert opened.steps(record.location_id)["function shop.f"].kept
    assert second_mariadb_server.sql("SELECT shop.f('x')") == "mine"
    assert second_mariadb_server.sql("SELECT COUNT(*) FROM information_schema.triggers") == "0"


def test_a_user_who_may_not_see_texts_gets_them_named(mariadb_server: MariadbServer, coded: str) -> None:
    mariadb_server.sql(
        "CREATE OR REPLACE USER clerk IDENTIFIED BY 'x'",
        "GRANT SELECT, SHOW VIEW, EXECUTE ON shop.* TO clerk",
        database="shop",
    )
    with source(DatabaseAddress("shop", mariadb_server.uri("shop", "clerk", "x"))) as database:
        extracted = database.extract(Selection(tables=(TableName("shop", "t"),)))
    assert list(unshown(extracted)) == list(uncarried(extracted))
    schema = described(mariadb_server.uri("shop", "clerk", "x"))
    mariadb_server.sql("DROP USER clerk")
    assert code_by_kind(schema) == {}
    hidden = uncarried_by_kind(schema)
    assert set(hidden) == {"function", "procedure", "package", "package body", "trigger", "event"}
    assert hidden["event"] == [
        "of shop, if it has any (the server may hide it from this user: GRANT EVENT ON `shop`.*)"
    ]
    assert hidden["procedure"] == [
        "shop.note (the server does not show its text to this user: grant SELECT on mysql.proc in MariaDB, SHOW_ROUTINE"
        " in MySQL)"
    ]


@pytest.mark.parametrize(
    ("grants", "unseen"),
    [
        (("SELECT, TRIGGER, EVENT ON shop.*",), set()),
        (("SELECT ON shop.*", r"TRIGGER ON `s\_op`.*", "EVENT ON `s_o%`.*"), {"trigger"}),
        (("ALL ON *.*",), set()),
        (("SELECT ON shop.*", "unused_role"), {"trigger", "event"}),
    ],
)
def test_the_rights_to_see_code_are_those_on_all_databases_of_a_pattern_and_of_roles(
    mariadb_server: MariadbServer, mariadb_database: str, grants: tuple[str, ...], unseen: set[str]
) -> None:
    mariadb_server.sql("CREATE TABLE t (id int)", "CREATE OR REPLACE ROLE unused_role", database="shop")
    mariadb_server.sql(
        "GRANT TRIGGER, EVENT ON shop.* TO unused_role", "CREATE OR REPLACE USER clerk IDENTIFIED BY 'x'"
    )
    mariadb_server.sql(*(f"GRANT {each} TO clerk" for each in grants))
    try:
        assert set(uncarried_by_kind(described(mariadb_server.uri("shop", "clerk", "x")))) == unseen
        if "unused_role" in grants:
            mariadb_server.sql("SET DEFAULT ROLE unused_role FOR clerk")
            assert not uncarried_by_kind(described(mariadb_server.uri("shop", "clerk", "x")))
    finally:
        mariadb_server.sql("DROP USER clerk", "DROP ROLE unused_role")


def test_code_that_names_what_the_plan_hides_is_left_out(coded: str) -> None:
    schema = described(coded, Selection(exclude_columns=((SHOP, "noted"),), exclude_tables=("shop.log",)))
    assert uncarried_by_kind(schema)["trigger"] == ["logged of shop.t (it names log, which the plan hides)"]
    assert code_by_kind(schema)["trigger"] == [each for each in OBJECTS["trigger"] if not each.startswith("logged of")]
    assert code_by_kind(described(coded, Selection(tables=(TableName("shop", "log"),)))).get("trigger") is None


def test_other_statements_are_refused(coded: str) -> None:
    schema = described(coded)
    code = schema.schemas[0].options["code"]
    other = schema.schemas[0].model_copy(update={"options": {"code": [code[0] | {"sql": "DROP TABLE t"}]}})
    with pytest.raises(DocumentError, match=r"the SQL of function shop.ag is 'DROP TABLE t'; expected CREATE FUNCTION"):
        define(schema.model_copy(update={"schemas": (other,)}), code=True)
    unknown = code[-1] | {"sql": code[-1]["sql"].replace(" ENABLE ", " ON ", 1)}
    other = schema.schemas[0].model_copy(update={"options": {"code": [unknown]}})
    with pytest.raises(DocumentError, match=r"the SQL of event shop.yearly is .CREATE EVENT .*; expected CREATE EVENT"):
        define(schema.model_copy(update={"schemas": (other,)}), code=True)
    other = schema.schemas[0].model_copy(update={"options": {"code": [{"kind": "event", "name": "shop.e", "sql": ""}]}})
    with pytest.raises(DocumentError, match=r"options.code.collation_connection of event shop.e of shop is missing"):
        define(schema.model_copy(update={"schemas": (other,)}), code=True)


def test_the_rights_of_operations_md_suffice(
    mariadb_server: MariadbServer, second_mariadb_server: MariadbServer, coded: str
) -> None:
    made = ("CREATE OR REPLACE USER reader IDENTIFIED BY 'x'", "CREATE OR REPLACE USER writer IDENTIFIED BY 'x'")
    for server in (mariadb_server, second_mariadb_server):
        server.sql(*made)
    mariadb_server.sql(
        "GRANT SELECT, SHOW VIEW, EXECUTE, TRIGGER, EVENT ON shop.* TO reader",
        "GRANT SELECT ON mysql.proc TO reader",
        "GRANT RELOAD ON *.* TO reader",
    )
    second_mariadb_server.sql("GRANT ALL ON shop.* TO writer", f"GRANT ALL ON {LEDGER_SCHEMA}.* TO writer")
    reader = DatabaseAddress("shop", mariadb_server.uri("shop", "reader", "x"))
    try:
        schema = described(reader.uri)
        assert schema == described(coded)
        with source(reader) as database, database.hold(lambda: 1) as held:
            assert not held.unshared
        into = DatabaseAddress("into", second_mariadb_server.uri("", "writer", "x"))
        copy(schema, reader, into, code=True)
        assert second_mariadb_server.sql("SELECT x FROM shop.v") == mariadb_server.sql("SELECT x FROM shop.v")
    finally:
        for server in (mariadb_server, second_mariadb_server):
            server.sql("DROP USER reader", "DROP USER writer")
