"""A database of everything is exported and restored; pg_dump then prints the same for both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from snapshot_assets.databases.open import open_target
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets_tests.databases.postgresql.helpers import contents
from snapshot_assets_tests.databases.postgresql.whole import NOT_CARRIED, entries, make, make_code
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into
from snapshot_assets_tests.servers.postgresql import DEBIAN, PostgresqlServer, binaries, start_postgresql

PLAN = {"start_time": "2024-01-01T00:00:00Z", "end_time": "2027-01-01T00:00:00Z", "chunk_time_window": "1096d"}
METHODS = "SELECT amname FROM pg_am WHERE amtype = 'i'"
USED_METHODS = "SELECT DISTINCT a.amname FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE c.relnamespace > 16383"
ORDER = """
SELECT c.oid::regclass, a.attname, a.attislocal, a.attinhcount, a.attnotnull FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped AND n.oid > 16383
    ORDER BY c.oid::regclass::text COLLATE "C", a.attnum
"""
NAMED = [
    "Foreign data wrapper wrapper is not in a snapshot.",
    "Foreign server far is not in a snapshot.",
    "Foreign table code.far_away is not in a snapshot.",
    "Publication published is not in a snapshot.",
]
"""What is not restored."""
STANDS = "SELECT schemaname, sequencename, last_value FROM pg_sequences ORDER BY 1, 2"


@pytest.fixture(params=["18", pytest.param(DEBIAN, marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest, postgresql_server: PostgresqlServer) -> Iterator[PostgresqlServer]:
    """The server of all tests, or one of Debian's version."""
    if request.param == "18":
        yield postgresql_server
        return
    if not (binaries(15) / "initdb").exists():
        pytest.skip(f"PostgreSQL 15 is not installed in {binaries(15)}: apt-get install postgresql-15 on Debian 12")
    with start_postgresql(15) as debian:
        yield debian


@pytest.fixture
def databases(server: PostgresqlServer) -> Iterator[tuple[str, str]]:
    """A source and a target."""
    uris = server.create_database(), server.create_database()
    yield uris
    for uri in uris:
        server.drop_database(uri)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("create", "lost"), [(make, NAMED), (make_code, [])], ids=["everything", "code in every place"]
)
def test_pg_dump_prints_the_same_for_a_restored_database(
    server: PostgresqlServer,
    databases: tuple[str, str],
    tmp_path: Path,
    create: Callable[[PostgresqlServer, str], None],
    lost: list[str],
) -> None:
    source, target = databases
    create(server, source)
    if create is make:
        assert set(server.psql(source, USED_METHODS).split()) >= set(server.psql(source, METHODS).split())
    place = Place(source, tmp_path)
    place.export(chunks=[0, 1], **PLAN)
    done = Into(target).restore(place.store, filters=Filters(code=True))
    assert done.finished
    assert sorted(done.plan.lost) == lost
    # pg_dump then prints the same for both databases, and they have the same rows.
    with closing(open_target(Into(target).address)) as opened:
        opened.forget()
    assert entries(server, target, NOT_CARRIED) == entries(server, source, NOT_CARRIED)
    for query in (ORDER, STANDS):
        assert server.psql(target, query).splitlines() == server.psql(source, query).splitlines()
    assert contents(server, target) == contents(server, source)
