"""PostgreSQL's own reader takes CSV files back, of every type of the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets.format.header import FileFormat
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.databases.postgresql.helpers import execute, load, opened, read, table_of, texts
from snapshot_assets_tests.engine.files.text.files import read as read_files
from snapshot_assets_tests.engine.files.text.files import write
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

CSV = {
    "FORMAT csv": FileFormat("csv"),
    "FORMAT csv, HEADER, DELIMITER E'\\t', NULL 'NULL'": FileFormat("csv", header=True, delimiter="\t", null="NULL"),
    "FORMAT csv, DELIMITER ';', QUOTE '|', ESCAPE '\\'": FileFormat("csv", delimiter=";", quote="|", escape="\\"),
}
COMPRESSED = [FileFormat("csv", compression="zstd"), FileFormat("json", compression="gzip")]


@pytest.mark.parametrize("options", CSV)
def test_copy_reads_every_type_back(
    postgresql_server: PostgresqlServer, every_type: str, tmp_path: Path, options: str
) -> None:
    with opened(every_type) as database:
        rows = read(database, table_of(database))
    files = write(open_store(parse_location(f"file://{tmp_path}/location")), rows, CSV[options], max_file_size=4096)
    assert len(files) > 1
    execute(every_type, "DROP TABLE IF EXISTS copied", "CREATE TABLE copied (LIKE t)")
    for file in files:
        command = f"\\copy copied FROM '{tmp_path}/location/{file.path}' WITH ({options})"
        postgresql_server.psql(every_type, command)
    assert texts(every_type, "copied") == texts(every_type, "t")


@pytest.mark.parametrize("written", COMPRESSED, ids=FileFormat.text)
def test_a_restore_reads_every_type_back(every_type: str, tmp_path: Path, written: FileFormat) -> None:
    store = open_store(parse_location(f"file://{tmp_path}/location"))
    with opened(every_type) as database:
        table = table_of(database)
        rows = read(database, table)
    files = write(store, rows, written, max_file_size=4096)
    execute(every_type, "DROP TABLE IF EXISTS copied", "CREATE TABLE copied (LIKE t)")
    load(every_type, table, read_files(store, files, rows.schema, written), "copied")
    assert texts(every_type, "copied") == texts(every_type, "t")
