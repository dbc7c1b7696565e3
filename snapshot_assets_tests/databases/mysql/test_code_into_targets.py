"""What a target's server refuses of code, or lacks for views, is found before the first change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.databases.mysql import define, rename
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.protocol.target import LEDGER_SCHEMA
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import RefusedImportError
from snapshot_assets.plan.plan import Plan
from snapshot_assets.testing.restores import make, record_of, target
from snapshot_assets_tests.cli.helpers import export, store_of
from snapshot_assets_tests.databases.mysql.helpers import described
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into, finished
from snapshot_assets_tests.servers.mariadb import MariadbServer, start_mariadb

CODE = (
    "CREATE TABLE t (id int PRIMARY KEY)",
    "INSERT INTO t VALUES (1)",
    "CREATE FUNCTION plain(a int) RETURNS int RETURN a + 1",
    "CREATE FUNCTION declared(a int) RETURNS int\n    READS SQL DATA\nRETURN a",
    "CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.id = NEW.id",
    "CREATE PROCEDURE p() SELECT 1",
    "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DISABLE DO DO 1",
)
PLAIN, DECLARED, TRIGGER = "function shop.plain", "function shop.declared", "trigger tr of shop.t"


@pytest.fixture(scope="module")
def logging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariadbServer]:
    """A server with a binary log, and a user who may do anything with `shop` and the ledger."""
    with start_mariadb(tmp_path_factory.mktemp("logging") / "server", log_bin="1") as server:
        grants = (f"GRANT ALL ON {name}.* TO writer" for name in ("shop", LEDGER_SCHEMA))
        server.sql("CREATE USER writer IDENTIFIED BY 'x'", *grants)
        yield server


@pytest.fixture
def place(mariadb_server: MariadbServer, mariadb_database: str, tmp_path: Path) -> Place:
    """A snapshot of a database with code."""
    mariadb_server.sql(*CODE, database="shop")
    export(Plan(name="shop", source=mariadb_database, to=tmp_path.as_uri()), store_of(tmp_path))
    return Place(mariadb_database, tmp_path)


@pytest.mark.parametrize(
    ("user", "refused"),
    [("writer", (DECLARED, PLAIN, TRIGGER)), ("root", (PLAIN,))],
)
def test_code_that_the_binary_log_forbids_is_refused_before_anything_is_made(
    logging: MariadbServer, place: Place, user: str, refused: tuple[str, ...]
) -> None:
    into = Into(logging.uri("", "writer", "x") if user == "writer" else logging.uri())
    settings = {"filters": Filters(code=True)}
    for rehearse in (True, False):
        with pytest.raises(RefusedImportError, match=r"log_bin_trust_function_creators = 1") as raised:
            into.run(place.store, **settings).prepare(rehearse=rehearse)
        found = (DECLARED, PLAIN, TRIGGER, "procedure shop.p", "event shop.e")
        assert tuple(each for each in found if each in str(raised.value)) == refused
    assert logging.databases() == []
    try:
        logging.sql("SET GLOBAL log_bin_trust_function_creators = 1")
        finished(place, into, **settings)
        logging.sql("SET GLOBAL log_bin_trust_function_creators = 0")
        finished(place, into, **settings)  # all is there
        assert logging.sql("SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = 'shop'") == "3"
    finally:
        logging.sql("SET GLOBAL log_bin_trust_function_creators = 0")
        logging.drop_databases()


def test_functions_that_the_target_has_are_not_refused(logging: MariadbServer, place: Place) -> None:
    try:
        made = "SET GLOBAL log_bin_trust_function_creators = {}"
        logging.sql("CREATE DATABASE shop", made.format(1), "USE shop", CODE[2], CODE[3], made.format(0))
        with pytest.raises(RefusedImportError, match=TRIGGER) as raised:
            Into(logging.uri("", "writer", "x")).run(place.store, filters=Filters(code=True)).prepare()
        assert "function shop" not in str(raised.value)
        assert "or grant the user SUPER" in str(raised.value)
        finished(place, Into(logging.uri()), filters=Filters(code=True))
    finally:
        logging.drop_databases()


def test_a_view_whose_function_only_the_old_schema_has_is_left_out_under_a_new_name(
    mariadb_server: MariadbServer, mariadb_database: str, second_mariadb_server: MariadbServer
) -> None:
    mariadb_server.sql(
        *CODE[:3],
        "CREATE VIEW near AS SELECT plain(id) AS x FROM t",
        "CREATE VIEW far AS SELECT shop.plain(id) AS x FROM t",
        database="shop",
    )
    renamed, _ = rename(described(mariadb_database), Renaming.of([("shop", "store")]))
    definition, into = define(renamed), second_mariadb_server
    assert [each.partition(",")[0] for each in definition.lost if each.startswith("View ")] == [
        "View store.far calls function shop.plain",
        "View store.near calls function store.plain",
    ]
    into.sql("CREATE DATABASE shop", "USE shop", CODE[2])
    try:
        with target(DatabaseAddress("into", into.uri())) as opened:
            opened.begin(record_of(definition), "")
            make(opened, record_of(definition), [*definition.before, *definition.after])
        assert into.sql("SELECT table_name FROM information_schema.views WHERE table_schema = 'store'") == "far"
    finally:
        into.drop_databases()
