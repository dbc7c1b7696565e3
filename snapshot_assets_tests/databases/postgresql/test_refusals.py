from __future__ import annotations

import socket

import pytest

from snapshot_assets.databases.postgresql import open as open_postgresql
from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress, Scan, Selection
from snapshot_assets.errors import (
    AmbiguousTimeIndexError,
    DatabaseDeniedError,
    DatabaseError,
    DatabaseUnavailableError,
    UnknownRelationError,
)
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.postgresql.helpers import client, execute, opened, read, table_of
from snapshot_assets_tests.servers.postgresql import PASSWORD, PostgresqlServer

T = TableName("public", "t")


def refuse(uri: str, kind: type[Exception], match: str) -> str:
    with pytest.raises(kind, match=match) as caught:
        open_postgresql(DatabaseAddress("shop", uri))
    return str(caught.value)


def test_a_wrong_password_is_denied_and_not_in_the_message(postgresql_server: PostgresqlServer) -> None:
    uri = postgresql_server.uri(password="wr%20ng-secret")
    message = refuse(uri, DatabaseDeniedError, "PostgreSQL 'shop' refused the connection: .*password authentication")
    assert "secret" not in message
    assert "again" not in message


@pytest.mark.parametrize("change", ["database", "user"])
def test_an_unknown_database_or_user_is_denied(postgresql_server: PostgresqlServer, change: str) -> None:
    refuse(postgresql_server.uri(**{change: "nowhere"}), DatabaseDeniedError, "nowhere")


def test_an_unreachable_server_is_a_transient_error() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        uri = f"postgresql://me:{PASSWORD[:7]}@127.0.0.1:{bound.getsockname()[1]}/db"
        message = refuse(uri, DatabaseUnavailableError, "'shop' cannot be reached: .*Connection refused\\. Check host")
    assert PASSWORD[:7] not in message
    assert "?" not in message  # libpq's own question, on a line of its own


def test_options_of_the_uri_reach_the_driver(postgresql_server: PostgresqlServer) -> None:
    refuse(postgresql_server.uri() + "?sslmode=require", DatabaseUnavailableError, "SSL")
    with opened(postgresql_server.uri() + "?sslmode=disable&application_name=snap") as database:
        assert database.fence()["snapshot"]


@pytest.mark.parametrize(
    "uri", ["postgresql://me:s3cr/et@host/db", "postgresql://me:s3cr%ZZet@host/db", "postgresql://me:s3cret@h/db?bad=1"]
)
def test_a_malformed_uri_is_refused_without_its_password(uri: str) -> None:
    with pytest.raises(DatabaseError) as caught:
        open_postgresql(DatabaseAddress("shop", uri))
    assert "s3cr" not in str(caught.value)
    assert not isinstance(caught.value, DatabaseUnavailableError)


@pytest.fixture
def reader(postgresql_server: PostgresqlServer, postgresql_database: str) -> str:
    """The URI of a user who may read `t` and nothing else."""
    name = "reader_" + postgresql_database.rsplit("/", 1)[1]
    tables = ("CREATE TABLE t AS SELECT 1 AS id", "CREATE TABLE hidden (id serial, a int, b int)")
    execute(postgresql_database, *tables, f"CREATE ROLE {name} LOGIN PASSWORD 'pw'", f"GRANT SELECT ON t TO {name}")
    return postgresql_server.uri(postgresql_database.rsplit("/", 1)[1], name, "pw")


def test_tables_and_sequences_that_may_not_be_read_are_refused_when_planning(
    reader: str, postgresql_database: str
) -> None:
    grant = "GRANT SELECT ({}) ON hidden TO " + reader.partition("://")[2].partition(":")[0]
    with opened(reader) as database:
        with pytest.raises(DatabaseDeniedError, match=r"may not read 1 of the selected tables: public\.hidden; nor"):
            database.extract(Selection())
        assert read(database, table_of(database)).num_rows == 1
    execute(postgresql_database, grant.format("id, a"))
    with opened(reader) as database, pytest.raises(DatabaseDeniedError, match=r"tables: public\.hidden"):
        database.extract(Selection())
    execute(postgresql_database, grant.format("b"))
    with opened(reader) as database, pytest.raises(DatabaseDeniedError, match=r"sequence.*public\.hidden_id_seq"):
        database.extract(Selection())


def test_the_statements_of_a_refusal_grant_what_is_missing(reader: str, postgresql_database: str) -> None:
    role = reader.partition("://")[2].partition(":")[0]
    execute(
        postgresql_database,
        "DROP TABLE hidden",
        'CREATE TABLE "Order Items" (id serial, "select" text, secret text)',
        "CREATE SCHEMA app CREATE TABLE plain (id int)",
    )
    items = TableName("public", "Order Items")
    hiding = Selection(exclude_columns=((items, "secret"),))
    with opened(reader) as database, pytest.raises(DatabaseDeniedError) as refused:
        database.extract(hiding)
    what, _, statements = str(refused.value).partition("grant it: ")
    assert what == (
        'This user may not read 2 of the selected tables: app.plain, public."Order Items"; nor 1 sequence that'
        ' selected tables draw numbers from: public."Order Items_id_seq". Leave the tables out, or '
    )
    assert statements == (
        f'GRANT USAGE ON SCHEMA app TO {role}; GRANT SELECT ON app.plain, public."Order Items_id_seq" TO {role};'
        f' GRANT SELECT (id, "select") ON public."Order Items" TO {role};'
    )
    execute(postgresql_database, *filter(None, statements.split(";")))
    with opened(reader) as database:
        assert len(database.extract(hiding).tables) == 3


def test_partitions_that_are_read_beside_foreign_ones_need_a_grant_too(reader: str, postgresql_database: str) -> None:
    role = reader.partition("://")[2].partition(":")[0]
    execute(
        postgresql_database,
        "CREATE TABLE parted (id int) PARTITION BY LIST (id)",
        "CREATE TABLE near PARTITION OF parted FOR VALUES IN (1)",
        f"GRANT SELECT ON parted TO {role}",
        "DROP TABLE hidden",
    )
    with opened(reader) as database:
        assert read(database, table_of(database, "parted")).num_rows == 0
    execute(
        postgresql_database,
        "CREATE FOREIGN DATA WRAPPER w",
        "CREATE SERVER s FOREIGN DATA WRAPPER w",
        "CREATE FOREIGN TABLE far PARTITION OF parted DEFAULT SERVER s",
    )
    with opened(reader) as database, pytest.raises(DatabaseDeniedError) as refused:
        database.extract(Selection())
    assert str(refused.value).endswith(f"grant it: GRANT SELECT ON public.near TO {role};")
    execute(postgresql_database, f"GRANT SELECT ON near TO {role}")
    with opened(reader) as database:
        assert read(database, table_of(database, "parted")).num_rows == 0


def test_rows_hidden_by_a_policy_are_refused_when_planning_and_when_reading(
    reader: str, postgresql_database: str
) -> None:
    with opened(reader) as database:
        table = table_of(database)
    execute(postgresql_database, "CREATE POLICY p ON t USING (id > 100)", "ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    with opened(reader) as database:
        with pytest.raises(
            DatabaseDeniedError, match=r"hide rows of public\.t from .* unless their row security is forced"
        ):
            table_of(database)
        with pytest.raises(DatabaseDeniedError, match="row-level security"):
            read(database, table)


def test_a_selected_partition_is_refused_with_the_name_of_its_table(postgresql_database: str) -> None:
    parted = "CREATE TABLE t (id int) PARTITION BY RANGE (id)"
    execute(postgresql_database, parted, "CREATE TABLE part PARTITION OF t DEFAULT")
    with (
        opened(postgresql_database) as database,
        pytest.raises(UnknownRelationError, match=r"'public\.part' is a partition of 'public\.t'"),
    ):
        database.extract(Selection(tables=(TableName("public", "part"),)))


def test_a_table_with_several_timestamps_needs_a_choice_of_the_plan(postgresql_database: str) -> None:
    table = "CREATE TABLE t (created timestamp, paid moment, day date)"
    execute(postgresql_database, "CREATE DOMAIN moment AS timestamptz", table)
    with opened(postgresql_database) as database:
        with pytest.raises(AmbiguousTimeIndexError, match="'created', 'paid'"):
            database.extract(Selection())
        assert table_of(database, time="day").time_index == "day"
        assert database.extract(Selection(time_columns={T: None})).table(T).time_index is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("ALTER TABLE t DROP COLUMN b", r"public\.t\.b was text .* and is now gone"),
        ("ALTER TABLE t ALTER COLUMN b TYPE varchar(9)", r"public\.t\.b was text .* is now character varying\(9\)"),
        ("DROP TABLE t", r"'public\.t' no longer exists"),
    ],
)
def test_a_table_changed_since_its_document_was_made_is_refused(
    postgresql_database: str, change: str, message: str
) -> None:
    with client(postgresql_database) as run:
        run("CREATE TABLE t (a int, b text)")
        with opened(postgresql_database) as database:
            table = table_of(database)
        run(change)
    with opened(postgresql_database) as database, pytest.raises((DatabaseError, UnknownRelationError), match=message):
        read(database, table)


STRANGE = ('with "quotes"', "a.b/c\\d", "..", "it's", "中" * 20, "Überschrift; DROP TABLE t; --", "%s {x} $1", " ")


def test_strange_names_are_quoted(postgresql_database: str) -> None:
    for name in STRANGE:
        quoted = '"' + name.replace('"', '""') + '"'
        execute(
            postgresql_database,
            f"CREATE SCHEMA {quoted}",
            f"CREATE TYPE {quoted} AS ENUM ('a')",
            f"CREATE TABLE {quoted}.{quoted} ({quoted} public.{quoted}, n serial, at timestamp)",
            f"INSERT INTO {quoted}.{quoted} VALUES ('a', 1, '2025-01-01')",
            f"CREATE VIEW {quoted}.v AS SELECT * FROM {quoted}.{quoted}",
        )
    with opened(postgresql_database) as database:
        for name in STRANGE:
            document = database.extract(Selection(schemas=(name,)))
            table = document.table(TableName(name, name))
            assert read(database, table).to_pydict()[name] == ["a"]
            assert document.views[0].depends_on == (TableName(name, name),)
            assert table.types[0].name == name
            bounds = database.time_bounds((table,))
            assert bounds is not None
            assert database.count_outside(table, *bounds) == 1, "the end of a range is outside"
            assert len(database.split(Scan(table, AllRows()), 3)) == 1
