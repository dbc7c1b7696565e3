"""Snapshots read without being restored: the data source `snapshot`, in Spark and by the calls that Spark makes."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.errors import (
    ChecksumMismatchError,
    DocumentError,
    IncompleteError,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from snapshot_assets.format.relations import Table
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import StoreOptions, open_store
from snapshot_assets_tests.cli.helpers import export, make_plan
from snapshot_assets_tests.databases.duckdb.test_types import CASES
from snapshot_assets_tests.databases.postgresql.helpers import client, opened, table_of
from snapshot_assets_tests.databases.postgresql.helpers import load as load_into_postgresql
from snapshot_assets_tests.databases.postgresql.values import DEFINITIONS, TYPES
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.reading.data_source import (
    RANGE,
    Load,
    Read,
    read,
    rows,
    source,
    source_rows,
    store_options,
)
from snapshot_assets_tests.faults.source import CHUNKS, add_rows
from snapshot_assets_tests.servers.s3 import S3Server

# By value


@pytest.mark.slow
def test_all_columns_of_a_duckdb_export_equal_the_source_on_every_store(
    load: Load, any_location: tuple[str, StoreOptions], tmp_path: Path
) -> None:
    uri, options = any_location
    # The others are compared by tests of their own, or hold what a Spark timestamp cannot.
    kinds = [kind for kind in CASES if not re.search("GEOMETRY|UNION|TIMESTAMP(TZ)?_NS", kind)]
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(kinds))
    database = str(tmp_path / "types.duckdb")
    with duckdb.connect(database) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE TABLE t (moment TIMESTAMPTZ, {columns})")
        for row in range(max(len(CASES[kind][2]) for kind in kinds)):
            values = [(CASES[kind][2] + ["NULL"] * 9)[row] for kind in kinds]
            connection.execute(f"INSERT INTO t VALUES ('2025-01-02 00:00:00Z', {', '.join(values)})")
        connection.execute("INSERT INTO t (moment) VALUES (NULL), ('2025-01-03 00:00:00Z')")
    plan = make_plan(f"duckdb://{database}", uri, storage=options, time_columns={"main.t": "moment"})
    export(plan, open_store(parse_location(uri), options))
    found = load(uri, "main.t", **store_options(options)).toArrow()
    assert found.num_rows > 9
    with duckdb.connect(database) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("found", found)
        back = ", ".join(f"CAST(c{number} AS {kind})" for number, kind in enumerate(kinds))
        ours = f"SELECT CAST(moment AS TIMESTAMPTZ), {back} FROM found"
        for one, other in ((ours, "FROM t"), ("FROM t", ours)):
            assert connection.sql(f"({one}) EXCEPT ALL ({other})").fetchall() == []


def _with_times(found: pa.Table, table: Table) -> pa.Table:
    """Return rows with the times of day that Spark returns as texts, because it has no such type, as in files."""
    for number, field in enumerate(table.arrow_schema()):
        if pa.types.is_time(field.type):
            texts = found.column(field.name).to_pylist()
            times = [None if text is None else time.fromisoformat(text) for text in texts]
            found = found.set_column(number, field, pa.array(times, field.type))
    return found


def test_all_columns_of_a_postgresql_export_equal_the_source(
    load: Load, postgresql_database: str, s3_server: S3Server, s3_location: str
) -> None:
    columns = ", ".join(f"c{number} {name}" for number, name in enumerate(TYPES))
    with client(postgresql_database) as run:
        for statement in filter(None, map(str.strip, DEFINITIONS.split(";\n"))):
            run(statement)
        run('CREATE TABLE "odd \'name" ()')
        run(f"CREATE TABLE t (at timestamptz, {columns})")
        for number in range(max(map(len, TYPES.values()))):
            values = [
                "NULL" if number >= len(texts) else "'" + texts[number].replace("'", "''") + "'::" + name
                for name, texts in TYPES.items()
            ]
            run(f"INSERT INTO t VALUES ('2025-01-02 00:00:00Z', {', '.join(values)})")
        run("CREATE TABLE restored (LIKE t)")
    options = s3_server.options
    plan = make_plan(
        postgresql_database, s3_location, storage=options, tables=["public.t"], time_columns={"public.t": "at"}
    )
    export(plan, open_store(parse_location(s3_location), options))
    found = load(s3_location, "public.t", **store_options(options)).toArrow()
    with opened(postgresql_database) as database:
        table = table_of(database, "t", time="at")
    load_into_postgresql(postgresql_database, table, _with_times(found, table), "restored")
    with client(postgresql_database) as run:
        [[count]] = run("SELECT count(*) FROM restored")
        assert count == max(map(len, TYPES.values()))
        for one, other in (("t", "restored"), ("restored", "t")):
            assert run(f"SELECT r::text FROM {one} r EXCEPT ALL SELECT r::text FROM {other} r") == []


def test_a_table_is_read_whole_with_the_rows_that_have_no_time(exported_place: Place, readings: Read) -> None:
    inside = "t IS NULL OR t >= '2025-01-01' AND t < '2025-01-07'"
    assert rows(readings()) == source_rows(exported_place, f"FROM readings WHERE {inside}")
    assert readings().num_rows == 82


def test_sql_reads_a_snapshot_through_a_view(registered: SparkSession, exported_place: Place) -> None:
    registered.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW places USING snapshot OPTIONS (path '{exported_place.store.uri}',"
        " table 'main.places', columns 'name', verify false)"
    )
    found = registered.sql("SELECT name FROM places WHERE name <> ''")
    assert rows(found) == source_rows(exported_place, "SELECT name FROM places WHERE name <> ''")


def test_columns_are_chosen_by_name_and_come_in_that_order(readings: Read, tmp_path: Path) -> None:
    assert readings(columns="value, sensor").column_names == ["value", "sensor"]
    place = Place(f"duckdb://{tmp_path}/odd.duckdb", tmp_path / "odd")
    place.sql('CREATE TABLE "a.b" (t TIMESTAMP, "x,y" INT, "q""q" INT, "Größe" INT, " z" INT, "x" INT)')
    place.sql("INSERT INTO \"a.b\" VALUES ('2025-01-01', 1, 2, 3, 4, 5)")
    place.export()
    found = read(place.store.uri, 'main."a.b"', columns='Größe,"x,y" , "q""q"," z"')
    assert (found.column_names, rows(found)) == (["Größe", "x,y", 'q"q', " z"], [(3, 1, 2, 4)])


# By time


def test_a_time_range_gives_exactly_its_rows(exported_place: Place, readings: Read) -> None:
    wanted = f"t >= '{RANGE['start']}' AND t < '{RANGE['end']}'"
    assert rows(readings(**RANGE)) == source_rows(exported_place, f"FROM readings WHERE {wanted}")
    without_time = readings(**RANGE, columns="sensor")
    assert rows(without_time) == source_rows(exported_place, f"SELECT sensor FROM readings WHERE {wanted}")


@pytest.mark.parametrize("end", ["start", "end"])
def test_a_range_with_an_open_end_leaves_out_the_rows_without_a_time(
    exported_place: Place, readings: Read, end: str
) -> None:
    moment = "2025-01-03T00:00:00Z"
    wanted = f"t >= '{moment}' AND t < '2025-01-07'" if end == "start" else f"t < '{moment}' AND t >= '2025-01-01'"
    assert rows(readings(**{end: moment})) == source_rows(exported_place, f"FROM readings WHERE {wanted}")


def test_a_range_without_rows_gives_none(readings: Read) -> None:
    assert rows(readings(start="2025-01-04T00:00:00Z", end="2025-01-05T00:00:00Z")) == []
    assert rows(readings(start="2031-01-04T00:00:00Z")) == []


def test_a_file_whose_statistics_exclude_the_range_is_not_opened(exported: Place) -> None:
    for file in (exported.folder / "data").rglob("*.parquet"):
        file.unlink()
    # The window of 22:00 to 24:00 overlaps; its file ends at 22:00.
    late = {"start": "2025-01-02T22:00:00.000001Z", "end": "2025-01-03T00:00:00Z"}
    assert rows(read(exported.store.uri, "main.readings", **late)) == []
    with pytest.raises(ObjectNotFoundError, match=r"data/2/main\.readings"):
        read(exported.store.uri, "main.readings", **(late | {"start": "2025-01-02T22:00:00Z"}))


# Versions and drift


def test_a_version_is_read_as_it_was_and_a_dataframe_keeps_its_own(exported: Place, load: Load) -> None:
    uri = exported.store.uri
    first = load(uri, "main.readings")
    [seal] = read(uri, "$snapshots").to_pylist()
    revision = seal["revision"]
    create_tag(Catalog(exported.store, read_state(exported.store)), "nightly", revision, timedelta(days=7))
    add_rows(exported.source)
    exported.export(chunks=[2], replace=True)
    assert read(uri, "main.readings").num_rows == 84
    assert first.count() == 82
    [tag] = read(uri, "$tags").to_pylist()
    assert (tag["tag_name"], tag["tagged_snapshot_id"], tag["time_retained"]) == ("nightly", revision, "7d")
    assert (tag["record_count"], tag["commit_time"], tag["expires_at"] - tag["create_time"]) == (
        seal["record_count"],
        seal["sealed_at"],
        timedelta(days=7),
    )
    moment = seal["sealed_at"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    for version in ("nightly", "tag:nightly", f"rev:{revision}", revision, moment):
        assert read(uri, "main.readings", version=version).num_rows == 82
    with pytest.raises(VersionNotFoundError, match="There is no tag ''; tags are 'nightly'"):
        read(uri, "main.readings", version="")
    changes = read(uri, "$diff", since="tag:nightly").to_pylist()
    assert [
        (row["chunk"], row["change"], row["rows_added"] - row["rows_removed"])
        for row in changes
        if (row["kind"], row["table"]) == ("chunk", "readings")
    ] == [(2, "rewritten", 2)]


def test_chunks_of_an_older_schema_are_read_in_the_newest(place: Place) -> None:
    place.export(chunks=[0, 1, 2], seal=False)
    place.sql("ALTER TABLE readings ADD COLUMN note VARCHAR; UPDATE readings SET note = 'new'")
    place.sql("ALTER TABLE readings DROP COLUMN value; ALTER TABLE events ALTER what TYPE INTEGER USING 1")
    place.export()
    uri = place.store.uri
    found = read(uri, "main.readings")
    assert found.column_names == ["t", "sensor", "note"]
    late = datetime(2025, 1, 3, tzinfo=UTC)
    notes = Counter((row["t"] and row["t"] >= late, row["note"]) for row in found.to_pylist())
    assert notes == {(None, None): 2, (False, None): 32, (True, "new"): 48}
    assert rows(read(uri, "main.readings", columns="note", end="2025-01-01T01:00:00Z")) == [(None,)]
    with pytest.raises(DocumentError, match=r"main\.events\.what is string in data/\d/.* read as int32 without"):
        read(uri, "main.events")


def test_what_is_not_sealed_is_read_by_nobody_but_shown_by_the_metadata_tables(place: Place) -> None:
    place.export(chunks=CHUNKS[:3], seal=False)
    with pytest.raises(IncompleteError, match="was not sealed yet"):
        read(place.store.uri, "main.readings")
    assert read(place.store.uri, "$snapshots").num_rows == 0
    status = {row["chunk"]: row["status"] for row in read(place.store.uri, "$chunks").to_pylist()}
    assert status == {n: "Completed" if n < 3 else "Pending" for n in CHUNKS}


def test_metadata_tables_show_what_the_manifest_says(exported_place: Place) -> None:
    uri, manifest = exported_place.store.uri, exported_place.manifest()
    [seal] = read(uri, "$snapshots").to_pylist()
    assert (seal["checksum"], seal["snapshot_id"]) == (manifest["checksum"], manifest["snapshot_id"])
    assert seal["rows_outside"] == 2
    files = read(uri, "$files", columns="path, sha256, rows, bytes, chunk")
    listed = [(f["path"], f["sha256"], f["rows"], f["bytes"], c["id"]) for c in manifest["chunks"] for f in c["files"]]
    assert rows(files) == sorted(listed, key=repr)
    chunks = [(c["chunk"], c["checksum"], c["files"]) for c in read(uri, "$chunks").to_pylist() if c["files"]]
    assert chunks == [(c["id"], c["checksum"], len(c["files"])) for c in manifest["chunks"] if c["files"]]


def test_the_columns_of_the_metadata_tables(exported_place: Place) -> None:
    def columns(name: str, **options: str) -> str:
        fields = source(exported_place.store.uri, table=name, **options).schema().fields
        return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in fields)

    assert columns("$snapshots") == (
        "revision bigint, snapshot_id string, sealed_at timestamp, checksum string, consistency string, "
        "rows_outside bigint, schema_id bigint, record_count bigint, files bigint, bytes bigint"
    )
    assert columns("$tags") == (
        "tag_name string, tagged_snapshot_id bigint, schema_id bigint, commit_time timestamp, record_count bigint, "
        "create_time timestamp, time_retained string, expires_at timestamp, automatic boolean, previous string, "
        "next string, held_since timestamp, held_by string, hold_reason string"
    )
    assert columns("$savepoints") == (
        "savepoint_id bigint, saved_snapshot_id bigint, schema_id bigint, commit_time timestamp, "
        "record_count bigint, create_time timestamp, automatic boolean, previous bigint, next bigint"
    )
    assert columns("$chunks") == (
        "chunk bigint, start timestamp, end timestamp, status string, rows bigint, files bigint, bytes bigint, "
        "checksum string, error string, revision bigint, run string"
    )
    assert columns("$files") == (
        "path string, chunk bigint, schema string, table string, rows bigint, bytes bigint, sha256 string, "
        "schema_id bigint, added bigint"
    )
    newest = f"rev:{exported_place.manifest()['revision']}"
    assert columns("$diff", since=newest) == (
        "kind string, change string, chunk bigint, schema string, table string, path string, detail string, "
        "files_added bigint, files_removed bigint, rows_added bigint, rows_removed bigint, bytes_added bigint, "
        "bytes_removed bigint"
    )


# Damage


def test_a_flipped_byte_fails_the_read_and_names_the_file(exported: Place, load: Load) -> None:
    uri = exported.store.uri
    [file] = exported.folder.glob("data/3/main.readings-*")
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(bytes(data))
    path = file.relative_to(exported.folder).as_posix()
    with pytest.raises(PythonException, match=rf"ChecksumMismatchError: {re.escape(path)} has SHA-256 \w+; expected"):
        load(uri, "main.readings").toArrow()
    assert read(uri, "main.readings", end="2025-01-03T00:00:00Z").num_rows == 32


def test_without_verification_the_hash_is_not_looked_at(exported: Place) -> None:
    uri = exported.store.uri
    [file] = exported.folder.glob("data/0/main.places-*")
    file.write_bytes(file.read_bytes().replace("Zürich".encode(), b"Zurich!"))
    with pytest.raises(ChecksumMismatchError):
        read(uri, "main.places")
    assert "Zurich!" in read(uri, "main.places", verify=False)["name"].to_pylist()
