"""Servers that speak PostgreSQL's protocol and lack COPY, shared snapshots or catalogs: read all the same, or named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from snapshot_assets.databases.postgresql.partial_servers import NO_COPY, NO_SOURCE, NOT_SHARED
from snapshot_assets.databases.protocol.source import AllRows, DatabaseAddress, Scan, Selection
from snapshot_assets.errors import DatabaseError, PlanError, SnapshotError
from snapshot_assets.format.kinds import uncarried_by_kind
from snapshot_assets.format.relations import TableName
from snapshot_assets.plan.read_configuration import parse_configuration
from snapshot_assets.testing.restores import copy, extracted, read_scan, source
from snapshot_assets_tests.databases.postgresql.helpers import execute
from snapshot_assets_tests.servers.partial_postgresql import COPY, COPY_BINARY, SNAPSHOTS, lacking
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

TABLE = (
    "CREATE TABLE t (id int PRIMARY KEY, name text)",
    "INSERT INTO t SELECT n, repeat('größe', n % 100) FROM generate_series(1, 20000) n",
)


def partial_address(uri: str, *, copy: bool = False, shares_states: bool = False) -> DatabaseAddress:
    return DatabaseAddress("other", uri, copy=copy, shares_states=shares_states)


def test_values_of_every_type_are_read_by_a_cursor_as_by_copy(every_type: str) -> None:
    whole = DatabaseAddress("shop", every_type)
    [table] = extracted(whole, TableName("public", "t")).tables
    scan = Scan(table, AllRows(), order_by=("n",))
    with lacking(every_type, COPY) as uri, source(partial_address(uri)) as other, source(whole) as database:
        found, expected = read_scan(other, scan), read_scan(database, scan)
    assert found.num_rows
    for one, other_one in zip(found.columns, expected.columns, strict=True):
        bits = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}.get(one.type, one.type)  # NaN equals nothing
        assert one.combine_chunks().view(bits).equals(other_one.combine_chunks().view(bits))


def test_a_cursor_reads_batches_of_bounded_size(postgresql_database: str) -> None:
    execute(
        postgresql_database,
        "CREATE TABLE t AS SELECT n, repeat(md5(n::text), n % 800) AS t FROM generate_series(1, 4000) n",
    )
    with source(partial_address(postgresql_database)) as database:
        [table] = database.extract(Selection()).tables
        with database.scan(Scan(table, AllRows())) as batches:
            sizes = [(batch.num_rows, batch.nbytes) for batch in batches]
    assert sum(rows for rows, _ in sizes) == 4000
    assert len(sizes) > 5
    assert max(size for _, size in sizes) < 16 << 20


def test_a_server_without_copy_and_shared_snapshots_is_restored_equal(
    postgresql_database: str, make_postgresql_database: MakeDatabase
) -> None:
    execute(postgresql_database, *TABLE)
    into = DatabaseAddress("into", make_postgresql_database())
    with lacking(postgresql_database, COPY_BINARY, "pg_export_snapshot") as uri:
        address = partial_address(uri)
        with source(address) as database, database.hold(lambda: 1) as held:
            assert held.token is None
            held.check()
            assert database.fence() == {}
        copy(extracted(address), address, into)
    both = DatabaseAddress("whole", postgresql_database), into
    one, other = (read_all(address) for address in both)
    assert one.num_rows == 20000
    assert one.equals(other)


UNDESCRIBED = {
    "pg_get_statisticsobjdef": {"statistics"},
    "pg_policy": {"code", "triggers, policies and rules"},
    "pg_operator": {"functions and operators"},
    "pg_publication": {"objects of the database"},
    "pg_largeobject_metadata": {"large objects"},
    "pg_language": {"what tables depend on"},
    "pg_encoding_to_char": {"the database's locale"},
    "pg_stats": set(),
}
"""What is left out of a snapshot where the server lacks a catalog or function."""

NEEDED = (
    "pg_is_in_recovery",
    "pg_statistic_ext",
    "pg_depend",
    "pg_sequence",
    "pg_get_expr",
    "pg_relation_size",
    "pg_relation_filenode",
)


@pytest.fixture(scope="module")
def filled(postgresql_server: PostgresqlServer) -> Iterator[str]:
    uri = postgresql_server.create_database()
    execute(uri, *TABLE)
    yield uri
    postgresql_server.drop_database(uri)


@pytest.mark.parametrize("word", UNDESCRIBED)
def test_kinds_of_objects_that_a_server_does_not_describe_are_named_and_rows_exported(filled: str, word: str) -> None:
    with lacking(filled, word) as uri, source(partial_address(uri)) as database:
        schema = database.extract(Selection())
        scan = Scan(schema.tables[0], AllRows())
        assert database.divide(scan, 4) == []
        assert read_scan(database, scan).num_rows == 20000
    found = uncarried_by_kind(schema).get("undescribed", [])
    assert {each.partition(" (")[0] for each in found} >= UNDESCRIBED[word]
    assert all(f"{word}" in each and "does not exist" in each for each in found)


@pytest.mark.parametrize("word", NEEDED)
def test_a_server_without_what_every_source_needs_is_refused_with_a_way_round(filled: str, word: str) -> None:
    with lacking(filled, word) as uri, pytest.raises(SnapshotError) as caught, source(partial_address(uri)) as database:
        read_scan(database, Scan(database.extract(Selection()).tables[0], AllRows()))
    assert word in str(caught.value)
    assert NO_SOURCE["42P01"] in str(caught.value)


def test_a_server_whose_types_the_driver_cannot_read_is_named(filled: str) -> None:
    refused = pytest.raises(DatabaseError, match=r"pg_type.* is no source\.$")
    with lacking(filled, "pg_type") as uri, refused, source(partial_address(uri)):
        pass


def read_all(address: DatabaseAddress) -> pa.Table:
    with source(address) as database:
        [table] = database.extract(Selection()).tables
        return read_scan(database, Scan(table, AllRows())).sort_by("id")


REFUSED = {COPY: NO_COPY, COPY_BINARY: NO_COPY, "pg_export_snapshot": NOT_SHARED["42883"]}


@pytest.mark.parametrize("word", REFUSED)
def test_what_a_server_lacks_is_named_with_the_field_to_write(postgresql_database: str, word: str) -> None:
    with lacking(postgresql_database, word) as uri:
        whole = source(DatabaseAddress("other", uri))
        with whole as database, pytest.raises(DatabaseError) as caught, database.hold(lambda: 1):
            pass
        assert REFUSED[word] in str(caught.value)
        with source(partial_address(uri)) as database, database.hold(lambda: 1):
            pass


def test_a_server_that_cannot_join_a_snapshot_is_named(postgresql_database: str) -> None:
    with lacking(postgresql_database, SNAPSHOTS) as uri, source(DatabaseAddress("other", uri)) as database:
        refused = pytest.raises(DatabaseError, match="Write `consistency: chunk` for the source")
        with database.hold(lambda: 1) as held, refused, source(DatabaseAddress("other", uri, held.token)):
            pass


def test_sources_are_written_with_what_their_servers_lack() -> None:
    def parsed(written: str) -> DatabaseAddress:
        return parse_configuration(f"sources: {{other: {written}}}", Path("s.yaml"), {}).source("other")

    uri = "uri: 'postgresql://h/db'"
    assert parsed(f"{{{uri}, copy: false, consistency: chunk}}") == partial_address("postgresql://h/db")
    assert parsed(f"{{{uri}, copy: true, consistency: run}}") == DatabaseAddress("other", "postgresql://h/db")
    for wrong, message in (
        (f"{{{uri}, copy: text}}", "copy: is 'text'; write true or false"),
        (f"{{{uri}, consistency: snapshot}}", "consistency: is 'snapshot'; write run .* or chunk"),
        ("{uri: 'mysql://h/db', copy: false}", "is of kind mysql, and `copy` is for PostgreSQL; remove"),
    ):
        with pytest.raises(PlanError, match=message):
            parsed(wrong)
