"""What surrounds an export: full disks, locked databases, passwords."""

import os
import subprocess
import sys
from contextlib import suppress
from urllib.parse import unquote

import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.errors import DatabaseDeniedError, DatabaseLockedError, ExportFailedError, StoreFullError
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.faults.source import CHUNKS
from snapshot_assets_tests.servers.disks import files_limited_to

_HOLD = """
import duckdb, sys
with duckdb.connect(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def large_window(place) -> Place:
    """Window 3 needs a file larger than all others."""
    place.sql(
        "INSERT INTO readings SELECT TIMESTAMPTZ '2025-01-03 00:00:00Z' + to_seconds(i), md5(i::VARCHAR), random() "
        "FROM range(0, 20000) r(i)"
    )
    return place


@pytest.mark.slow
def test_a_disk_that_fills_up_fails_its_chunk_and_shows_nothing_of_it(large_window):
    with files_limited_to(100_000), pytest.raises(ExportFailedError, match="chunk 3") as raised:
        large_window.export()
    assert list(raised.value.attributes["chunks"]) == [3]
    assert read_state(large_window.store).missing() == [3]
    assert not [path for path in (large_window.folder / "data" / "3").glob("*readings*") if path.is_file()]
    assert list(large_window.store.temporaries()) == []
    assert not [fault for fault in verify(large_window.store).faults if fault.is_damage]
    large_window.export()
    assert large_window.differences() == {}


def test_a_disk_that_is_full_from_the_start_is_said_to_be_full(place):
    with files_limited_to(0), pytest.raises(StoreFullError):
        place.export()
    assert [path for path in place.folder.rglob("*") if path.is_file()] == []
    place.export()
    assert place.differences() == {}


def test_a_disk_that_has_no_room_for_the_log_ends_the_run_with_that_error(place):
    with place.run().open() as export, files_limited_to(0), pytest.raises(StoreFullError):
        list(export.export(CHUNKS))
    assert not [fault for fault in verify(place.store).faults if fault.is_damage]
    place.export()
    assert place.differences() == {}


def test_failures_that_a_full_disk_keeps_from_the_log_are_said_once(tiny_disk, place, caplog):
    full, path = Place(place.source, tiny_disk.folder / "location"), tiny_disk.folder / "filler"
    with full.run().open() as export:
        with suppress(OSError), open(path, "wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        os.truncate(path, path.stat().st_size - 4096)  # room for the transaction that begins the chunks
        with pytest.raises(ExportFailedError, match="No space left") as raised:
            list(export.export([1, 2, 3]))
    assert len(raised.value.attributes["chunks"]) == 3
    [said] = [text for text in caplog.messages if "recorded" in text]
    assert "No space left" in said


def test_a_file_that_another_process_writes_to_is_refused_before_anything_is_written(place):
    command = [sys.executable, "-c", _HOLD, place.source.removeprefix("duckdb://")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "held\n"
        with pytest.raises(DatabaseLockedError, match=str(writer.pid)):
            place.export()
        writer.stdin.close()
    assert not place.folder.exists()
    place.export()
    assert place.differences() == {}


def test_no_password_of_the_source_lies_on_storage(postgresql_server, postgresql_database, tmp_path):
    server, uri = postgresql_server, postgresql_database
    server.psql(uri, "CREATE TABLE m (t timestamptz, v int)", "INSERT INTO m VALUES ('2025-01-02', 1), ('infinity', 2)")
    password = uri.split("://", 1)[1].split("@")[0].split(":")[1]
    place = Place(uri, tmp_path / "location")
    with pytest.raises(ExportFailedError, match="chunk 0") as raised:
        place.export()
    written = [path.read_bytes() for path in place.folder.rglob("*") if path.is_file()]
    assert any(b"Failed" in content for content in written)
    for secret in (password, unquote(password)):
        assert not [content for content in written if secret.encode() in content]
        assert secret not in str(raised.value)


def test_a_refused_password_leaves_nothing_behind(postgresql_server, tmp_path):
    uri = postgresql_server.uri(password="wrong-secret")
    place = Place(uri, tmp_path / "location")
    with pytest.raises(DatabaseDeniedError) as raised:
        place.export()
    assert "wrong-secret" not in str(raised.value)
    assert not place.folder.exists()
