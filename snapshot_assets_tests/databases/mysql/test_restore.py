"""A database of everything comes back from MariaDB to MariaDB as it was, by what the server itself prints and sums."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress, Selection
from snapshot_assets.format.relations import Carrier, DatabaseSchema, TableName
from snapshot_assets.testing.restores import copy, source
from snapshot_assets_tests.databases.mysql.helpers import described
from snapshot_assets_tests.servers.mariadb import MariadbServer, start_mariadb

TABLES = r"""
CREATE TABLE parent (
    id int unsigned NOT NULL AUTO_INCREMENT COMMENT 'it''s \\ a "number"',
    code varchar(20) COLLATE utf8mb4_bin NOT NULL DEFAULT 'a\\b''c"d',
    PRIMARY KEY (id), UNIQUE KEY code (code)
) AUTO_INCREMENT=1000 COMMENT='it''s \\ a table';
INSERT INTO parent (code) VALUES ('x'), ('it''s'), ('ba\\ck');
DELETE FROM parent WHERE id = 1002;
CREATE TABLE everything (
    id bigint NOT NULL, number int NOT NULL AUTO_INCREMENT, parent_id int unsigned DEFAULT NULL,
    a varchar(40) CHARACTER SET latin1 DEFAULT 'é', b int DEFAULT (1 + 2), t tinytext,
    length int GENERATED ALWAYS AS (char_length(a) + 1) STORED,
    shown varchar(60) GENERATED ALWAYS AS (concat(a, '\\x"y\n')) VIRTUAL,
    at datetime(3) DEFAULT current_timestamp(3) ON UPDATE current_timestamp(3),
    stamp timestamp NULL DEFAULT NULL, zero datetime NOT NULL DEFAULT '0000-00-00 00:00:00',
    e enum('a''b','c\\d','x,y') DEFAULT 'x,y', s set('p','q') DEFAULT 'p,q', flags bit(3) DEFAULT b'101',
    hidden int INVISIBLE DEFAULT 3, j json, g geometry NOT NULL, small tinyint(1) CHECK (small < 9),
    raw varbinary(10) DEFAULT 'ab', dec_ decimal(10,2) unsigned zerofill, f float, ip inet6, u uuid DEFAULT uuid(),
    PRIMARY KEY (id, a), UNIQUE KEY uk (b, e), UNIQUE KEY part (t(5)), KEY number (number), KEY d (a(5) DESC, b),
    FULLTEXT KEY words (t), SPATIAL KEY place (g), KEY parent (parent_id), KEY ignored (b) IGNORED,
    CONSTRAINT positive CHECK (b > 0 AND a <> 'q\\r"' AND a NOT LIKE '%\\%'),
    CONSTRAINT child FOREIGN KEY (parent_id) REFERENCES parent (id) ON DELETE SET NULL ON UPDATE CASCADE
) AUTO_INCREMENT=77 ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8;
INSERT INTO everything (id, parent_id, a, b, t, at, stamp, e, s, flags, hidden, j, g, small, raw, dec_, f, ip) VALUES
    (1, 1000, 'größe', 1, 'it''s', '2024-01-01 00:00:00.123', '2024-01-01', 'a''b', 'q', b'1', 8, '{"a": 1}',
        ST_GeomFromText('POINT(1 2)', 4326), 1, x'00ff275c', 1.5, 0.1, '::1'),
    (2, NULL, '', 2, NULL, '2024-01-01 00:00:00.123', NULL, NULL, '', NULL, NULL, NULL,
        ST_GeomFromText('LINESTRING(0 0, 1 1)'), NULL, NULL, NULL, NULL, NULL),
    (0, 1001, 'a\\''b', 3, '\\', NULL, '2024-06-01', 'c\\d', 'p,q', b'111', 0, '[]',
        ST_GeomFromText('POINT(0 0)'), -5, x'', 0, 3.4028234e38, '::ffff:1.2.3.4');
CREATE TABLE months (id int NOT NULL, day date NOT NULL, KEY day (day)) ENGINE=InnoDB
    PARTITION BY RANGE (year(day)) (PARTITION p0 VALUES LESS THAN (2024), PARTITION p1 VALUES LESS THAN MAXVALUE);
INSERT INTO months VALUES (1, '2023-01-01'), (2, '2025-01-01');
CREATE TABLE aria (a int, b char(5)) ENGINE=Aria DEFAULT CHARSET=latin1 PAGE_CHECKSUM=1 TRANSACTIONAL=1;
INSERT INTO aria VALUES (1, 'x'), (NULL, NULL);
CREATE TABLE booked (
    id int NOT NULL, since date NOT NULL, until date NOT NULL,
    PERIOD FOR valid (since, until), PRIMARY KEY (id, valid WITHOUT OVERLAPS)
);
INSERT INTO booked VALUES (1, '2024-01-01', '2024-02-01'), (1, '2024-02-01', '2024-03-01');
CREATE TABLE grouped (number int NOT NULL AUTO_INCREMENT, kind char(5) NOT NULL, PRIMARY KEY (kind, number))
    ENGINE=MyISAM;
INSERT INTO grouped (kind) VALUES ('a'), ('a'), ('b');
CREATE TABLE heaps (id int NOT NULL, v char(5)) ENGINE=MyISAM
    PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10) COMMENT = 'in TABLESPACE `x`',
    PARTITION p1 VALUES LESS THAN MAXVALUE COMMENT = 'its ENGINE = x');
INSERT INTO heaps VALUES (1, 'x'), (11, NULL);
CREATE TABLE keyed (number int NOT NULL AUTO_INCREMENT, kind char(5) NOT NULL, KEY kind (kind), KEY k (kind, number))
    ENGINE=Aria;
INSERT INTO keyed (kind) VALUES ('a'), ('a'), ('b');
CREATE SEQUENCE numbers START WITH 5 INCREMENT BY 2 MAXVALUE 99 CACHE 3 CYCLE;
CREATE TABLE drawn (id int NOT NULL DEFAULT nextval(numbers), v varchar(9));
INSERT INTO drawn (v) VALUES ('x');
CREATE TABLE self (id int PRIMARY KEY, up int, KEY up (up), CONSTRAINT up FOREIGN KEY (up) REFERENCES self (id));
SET foreign_key_checks = 0; INSERT INTO self VALUES (1, 3), (2, 1), (3, NULL); SET foreign_key_checks = 1
"""
VIEWS = r"""
CREATE SQL SECURITY INVOKER VIEW first AS SELECT p.id, concat(p.code, '\\''"') AS text FROM parent p WHERE p.id > 5;
CREATE ALGORITHM=MERGE VIEW second AS SELECT id FROM first WITH CASCADED CHECK OPTION
"""


@pytest.fixture
def pair(
    mariadb_server: MariadbServer, second_mariadb_server: MariadbServer, mariadb_database: str
) -> tuple[MariadbServer, MariadbServer]:
    """A server with a database `shop` of everything, and an empty server, whose databases are dropped."""
    mariadb_server.sql(TABLES, VIEWS, database="shop")
    return mariadb_server, second_mariadb_server


def extracted(uri: str) -> DatabaseSchema:
    """Return the documents of all tables, untimed; zero dates are texts."""
    everything = TableName("shop", "everything")
    untimed = dict.fromkeys((everything, TableName("shop", "months")))
    with source(DatabaseAddress("shop", uri)) as database:
        return database.extract(Selection(time_columns=untimed, carriers={(everything, "zero"): Carrier.TEXT}))


def printed(server: MariadbServer, database: str = "shop") -> dict[str, list[str]]:
    """Return the lines that the server prints of all tables and views; a view's user may come from either address."""
    names = server.sql("SHOW TABLES", database=database).split("\n")
    shown = {name: server.sql(f"SHOW CREATE TABLE `{name}`", database=database).partition("\t")[2] for name in names}
    return {name: text.replace("`root`@`127.0.0.1`", "`root`@`localhost`").split("\n") for name, text in shown.items()}


def sums(server: MariadbServer, database: str = "shop") -> str:
    """Return the server's own checksums of the tables."""
    query = "SELECT table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' AND table_schema ="
    names = server.sql(f"{query} '{database}' ORDER BY 1").split("\n")
    return server.sql(f"CHECKSUM TABLE {', '.join(names)} EXTENDED", database=database).replace(database, "shop")


def test_a_database_comes_back_as_the_server_prints_it(pair: tuple[MariadbServer, MariadbServer]) -> None:
    origin, into = pair
    try:
        schema = extracted(origin.uri("shop"))
        definition = copy(schema, DatabaseAddress("shop", origin.uri("shop")), DatabaseAddress("into", into.uri()))
        assert definition.lost == (
            "Definer root@localhost is lost: its views act with the rights of the user who restores them.",
        )
        left, right = printed(origin), printed(into)
        assert left.keys() == right.keys()
        for name, lines in left.items():
            assert right[name] == lines
        assert sums(into) == sums(origin)
        for server in (origin, into):  # numbers go on within each group
            server.sql(
                "INSERT INTO grouped (kind) VALUES ('b')", "INSERT INTO keyed (kind) VALUES ('c')", database="shop"
            )
        assert sums(into) == sums(origin)
        assert into.sql("SELECT NEXTVAL(shop.numbers)") == "11"  # the first that the source's server had not cached
        assert extracted(into.uri("shop")).tables == schema.tables
    finally:
        into.drop_databases()


@pytest.mark.parametrize("expressions", [True, False])
def test_columns_of_system_time_come_back_and_count_from_the_restore(
    mariadb_server: MariadbServer, second_mariadb_server: MariadbServer, mariadb_database: str, expressions: bool
) -> None:
    mariadb_server.sql(
        "CREATE TABLE v (id int PRIMARY KEY, x int, `from` timestamp(6) GENERATED ALWAYS AS ROW START INVISIBLE,"
        " `to` timestamp(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (`from`, `to`)) WITH SYSTEM VERSIONING",
        "INSERT INTO v (id, x) VALUES (1, 1), (2, 2)",
        "UPDATE v SET x = 3 WHERE id = 2",
        database="shop",
    )
    addresses = DatabaseAddress("shop", mariadb_database), DatabaseAddress("into", second_mariadb_server.uri())
    try:
        schema = described(mariadb_database, Selection(time_columns={TableName("shop", "v"): None}))
        definition = copy(schema, *addresses, expressions=expressions)
        assert definition.lost == ("Earlier versions of rows of shop.v are not in a snapshot.",)
        assert printed(second_mariadb_server) == printed(mariadb_server)
        assert second_mariadb_server.sql("SELECT id, x FROM shop.v ORDER BY 1") == "1\t1\n2\t3"
    finally:
        second_mariadb_server.drop_databases()


def test_reference_systems_come_back_and_places_of_rows_are_named(
    mariadb_server: MariadbServer, second_mariadb_server: MariadbServer, mariadb_database: str, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    mariadb_server.sql(
        "CREATE TABLE places (g point REF_SYSTEM_ID=4326 NOT NULL, h geometry)",
        f"CREATE TABLE t (id int PRIMARY KEY) PARTITION BY HASH (id) (PARTITION p0 DATA DIRECTORY = '{tmp_path}')",
        database="shop",
    )
    origin, into = DatabaseAddress("shop", mariadb_database), DatabaseAddress("into", second_mariadb_server.uri())
    schema, name = described(mariadb_database), TableName("shop", "t")
    options = schema.table(name).options
    options |= {"table_options": f"/*!50100 TABLESPACE `fast``ts` STORAGE DISK */ {options['table_options']}"}  # MySQL
    changed = schema.table(name).model_copy(update={"options": options})
    tables = tuple(changed if each.table_name == name else each for each in schema.tables)
    try:
        lost = copy(schema.model_copy(update={"tables": tables}), origin, into).lost
        assert [
            each.partition(" of shop.t is left out: its rows are stored by the server itself.")[0] for each in lost
        ] == [
            "/*!50100 TABLESPACE `fast``ts` STORAGE DISK */",
            f"DATA DIRECTORY = '{tmp_path}'",
        ]
        srids = "SELECT g_geometry_column, srid FROM information_schema.geometry_columns ORDER BY 1"
        assert second_mariadb_server.sql(srids) == "g\t4326\nh\t0" == mariadb_server.sql(srids)
    finally:
        second_mariadb_server.drop_databases()


def test_a_server_that_ignores_the_case_of_names_comes_back(
    tmp_path: Path, second_mariadb_server: MariadbServer
) -> None:
    with start_mariadb(tmp_path / "server", lower_case_table_names="1") as server:
        uri = server.create_database("Shop")
        server.sql(
            "CREATE TABLE Shop.Parent (Id int PRIMARY KEY)",
            "CREATE TABLE Shop.Child (id int, p int, FOREIGN KEY (p) REFERENCES Parent (Id))",
            "CREATE VIEW Shop.V AS SELECT Id FROM Shop.Parent",
            "INSERT INTO Shop.Parent VALUES (1)",
        )
        try:
            schema = described(uri)
            copy(schema, DatabaseAddress("shop", uri), DatabaseAddress("into", second_mariadb_server.uri()))
            assert second_mariadb_server.sql("SELECT * FROM shop.v") == "1"
        finally:
            second_mariadb_server.drop_databases()


def test_a_default_whose_bytes_are_no_text_is_exact(
    mariadb_server: MariadbServer,
    second_mariadb_server: MariadbServer,
    mariadb_database: str,
    second_mariadb_database: str,
) -> None:
    default = "005CFF2727C30A"
    columns = f"id int, b varbinary(9) NOT NULL DEFAULT x'{default}' COMMENT 'it''s', c binary(2) DEFAULT '\\0\\0'"
    mariadb_server.sql(f"CREATE TABLE `a'b` ({columns})", database="shop")
    origin, into = DatabaseAddress("shop", mariadb_database), DatabaseAddress("shop", second_mariadb_database)
    with source(origin) as database:
        documents = database.extract(Selection())
    copy(documents, origin, into)
    second_mariadb_server.sql("INSERT INTO `a'b` () VALUES ()", database="shop")
    assert second_mariadb_server.sql("SELECT hex(b), hex(c) FROM shop.`a'b`") == f"{default}\t0000"
    with source(into) as database:
        assert database.extract(Selection()).tables == documents.tables


LEGACY = """
e (id int PRIMARY KEY, e enum('a','b') NOT NULL DEFAULT 'a', KEY e (e)); INSERT INTO e VALUES (1, 'x'), (2, 'a')
e (id int PRIMARY KEY, e enum('a','it''s')) ENGINE=MyISAM; INSERT INTO e VALUES (1, 'x'), (2, NULL), (3, 'it''s')
e (id int PRIMARY KEY, e enum('','0','b')); INSERT INTO e VALUES (2, ''), (3, '0')
e (id int PRIMARY KEY, e enum('a','a'), s set('b','b')); INSERT INTO e VALUES (1, 'a', 'b')
e (id int PRIMARY KEY, g tinyint AS (id * 1000) VIRTUAL, KEY g (g)); INSERT INTO e (id) VALUES (1)
e (id int PRIMARY KEY, d date DEFAULT '0000-00-00', t datetime DEFAULT 0); INSERT INTO e (id) VALUES (0)
"""


@pytest.mark.parametrize("table", LEGACY.strip().split("\n"))
@pytest.mark.parametrize("files", [True, False])
def test_what_a_server_without_strict_modes_made_comes_back_on_one_with_them(
    mariadb_server: MariadbServer,
    second_mariadb_server: MariadbServer,
    mariadb_database: str,
    second_mariadb_database: str,
    table: str,
    files: bool,
) -> None:
    mariadb_server.sql("SET sql_mode = ''", f"CREATE TABLE {table}", database="shop")
    strict = "STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO"
    [before, took] = second_mariadb_server.sql("SELECT @@global.sql_mode, @@global.local_infile").split("\t")
    second_mariadb_server.sql(f"SET GLOBAL sql_mode = '{strict}', GLOBAL local_infile = {int(files)}")
    name = TableName("shop", "e")
    origin, into = DatabaseAddress("shop", mariadb_database), DatabaseAddress("shop", second_mariadb_database)
    with source(origin) as database:
        times = {(name, column): Carrier.TEXT for column in "dt" if f" {column} date" in table}
        schema = database.extract(Selection(time_columns={name: None}, carriers=times))
        assert database.unfit(schema.tables[0], [AllRows()]) == []
    try:
        assert copy(schema, origin, into).lost == ()
    finally:
        second_mariadb_server.sql(f"SET GLOBAL sql_mode = '{before}', GLOBAL local_infile = {took}")
    assert printed(second_mariadb_server) == printed(mariadb_server)
    assert sums(second_mariadb_server) == sums(mariadb_server)
