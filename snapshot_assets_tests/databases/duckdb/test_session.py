from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from snapshot_assets.databases.duckdb.session import DuckDBSession
from snapshot_assets.databases.open import open_database
from snapshot_assets.databases.protocol.source import DatabaseAddress, Selection
from snapshot_assets.errors import (
    ConsistencyLostError,
    DatabaseDeniedError,
    DatabaseError,
    DatabaseLockedError,
    TransientError,
    UnknownSourceError,
)
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.duckdb.files import documented, hold_elsewhere, make_file, opened, path_of, rows_of


@pytest.fixture
def shop(tmp_path: Path) -> DatabaseAddress:
    return make_file(tmp_path / "shop.duckdb", "CREATE TABLE t AS SELECT range AS id FROM range(10)")


def try_to_write(address: DatabaseAddress) -> str:
    """Return the error of another process that opens the file for writing, or `written`."""
    code = "import sys, duckdb; duckdb.connect(sys.argv[1]).execute('CREATE TABLE other (x INTEGER)')"
    done = subprocess.run([sys.executable, "-c", code, path_of(address)], capture_output=True, text=True, check=False)
    return done.stderr.strip().splitlines()[-1] if done.returncode else "written"


def test_a_file_held_by_a_writer_names_that_process(shop: DatabaseAddress) -> None:
    with hold_elsewhere(shop) as holder:
        with pytest.raises(DatabaseLockedError, match=rf"PID {holder.pid}\b.*Stop that process") as caught:
            open_database(shop)
        holder.communicate()
    assert not isinstance(caught.value, TransientError)
    with opened(shop) as database:
        assert rows_of(database, documented(database)).num_rows == 10


def test_a_held_file_cannot_be_written_until_the_hold_ends_and_is_refused_then(shop: DatabaseAddress) -> None:
    with opened(shop) as database, database.hold(lambda: 1) as held:
        database.close()
        # A second reader of this process that comes and goes must not take the lock away with it.
        with opened(DatabaseAddress("shop", shop.uri, held.token)) as reader:
            reader.extract(Selection())
        held.check()
        assert "Could not set lock" in try_to_write(shop)
    assert try_to_write(shop) == "written"
    with pytest.raises(ConsistencyLostError, match="is not in the state that this run reads"):
        open_database(DatabaseAddress("shop", shop.uri, held.token))


def test_a_file_replaced_while_it_is_held_is_noticed(shop: DatabaseAddress, tmp_path: Path) -> None:
    with opened(shop) as database, database.hold(lambda: 1) as held:
        shutil.copy(path_of(shop), tmp_path / "copy")
        os.replace(tmp_path / "copy", path_of(shop))
        with pytest.raises(ConsistencyLostError, match="replaced"):
            held.check()


def test_rows_of_a_write_ahead_log_are_read_and_belong_to_the_state(shop: DatabaseAddress) -> None:
    code = """if True:
        import os, sys, duckdb
        connection = duckdb.connect(sys.argv[1])
        connection.execute("SET wal_autocheckpoint = '1GB'")
        connection.execute("INSERT INTO t VALUES (99)")
        os._exit(0)"""
    with opened(shop) as database:
        before = database.fence()
    subprocess.run([sys.executable, "-c", code, path_of(shop)], check=True)
    assert Path(f"{path_of(shop)}.wal").exists()
    with opened(shop) as database:
        assert rows_of(database, documented(database)).num_rows == 11
        assert database.fence()["duckdb_file"].startswith(before["duckdb_file"] + "+")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone.duckdb", r"gone\.duckdb' is not a database file: it does not exist"),
        ("folder", "it is a folder"),
        ("empty", "not a valid DuckDB database file"),
        ("other", "not a valid DuckDB database file"),
    ],
)
def test_a_path_that_is_no_database_is_refused(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "other").write_bytes(b"not a database " * 1000)
    with pytest.raises(DatabaseError, match=message) as caught:
        open_database(DatabaseAddress("shop", f"duckdb://{tmp_path}/{name}"))
    assert not isinstance(caught.value, TransientError)


def test_a_damaged_file_is_an_error_of_its_own(tmp_path: Path) -> None:
    address = make_file(tmp_path / "x.duckdb", "CREATE TABLE t AS SELECT range AS id FROM range(100000)")
    with (tmp_path / "x.duckdb").open("r+b") as file:
        file.seek(12_288)
        file.write(os.urandom(200_000))
    with pytest.raises(DatabaseError, match=r"(?i)corrupt|checksum"), opened(address) as database:
        rows_of(database, documented(database))


def test_a_view_of_files_outside_is_denied(tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    address = make_file(tmp_path / "x.duckdb", f"CREATE VIEW t AS SELECT * FROM read_csv('{tmp_path}/secret.csv')")
    with opened(address) as database, pytest.raises(DatabaseDeniedError, match="outside the database file"):
        database.extract(Selection(tables=(TableName("main", "t"),)))


@pytest.mark.parametrize(("query", "memory"), [("", "192.0 MiB"), ("?memory_limit=2GiB", "2.0 GiB")])
def test_the_session_is_pinned_and_a_uri_may_allow_more_memory(shop: DatabaseAddress, query: str, memory: str) -> None:
    settings = ("TimeZone", "threads", "enable_external_access", "autoload_known_extensions", "memory_limit")
    with closing(DuckDBSession(DatabaseAddress("shop", f"{shop.uri}{query}"))) as session:
        found = [session.rows(f"SELECT current_setting('{name}')")[0][0] for name in settings]
    assert found == ["UTC", 2, False, False, memory]


def test_special_characters_in_a_path(tmp_path: Path) -> None:
    address = make_file(tmp_path / "we ird %41 'ü#.duckdb", "CREATE TABLE t AS SELECT 1 AS id")
    assert "%2541" in address.uri
    with opened(address) as database:
        assert rows_of(database, documented(database)).num_rows == 1


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("duckdb://user:secret@host/x.duckdb", "names a host"),
        ("duckdb:relative.duckdb", "not the absolute path"),
        ("duckdb://", "not the absolute path"),
        ("duckdb:///x.duckdb?a=b", "its query"),
        ("duckdb:///x.duckdb?memory_limit=lots", "its query"),
        ("duckdb:///x.duckdb#a", "a fragment"),
        ("duckdb:///x%3F.duckdb", "rename the file"),
        ("duckdb:///%ff.duckdb", "not UTF-8"),
        ("duckdb:///a%00b.duckdb", "NUL"),
    ],
)
def test_uris_that_name_no_file_are_refused_without_showing_them(uri: str, words: str) -> None:
    with pytest.raises(UnknownSourceError, match=words) as caught:
        open_database(DatabaseAddress("shop", uri))
    assert "secret" not in str(caught.value)
    assert "duckdb:///absolute/path.duckdb" in str(caught.value)
