"""`snapshots iceberg`: other engines read the same rows as this package, of every version that they may read."""

from __future__ import annotations

import builtins
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import StaticTable

from snapshot_assets.catalog.iceberg import publish_iceberg
from snapshot_assets.catalog.iceberg.columns import NotHeldError, held_types
from snapshot_assets.catalog.iceberg.register import registration
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.files.read import read_batches
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.errors import ConflictError, IcebergError
from snapshot_assets.format.layout import ICEBERG, in_layout
from snapshot_assets.format.names import parse_table
from snapshot_assets.format.relations import Column, Table
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.cli.helpers import Snapshots, contents, export, make_plan, make_source, store_of
from snapshot_assets_tests.golden.test_golden import copied
from snapshot_assets_tests.odd_names import ODD
from snapshot_assets_tests.servers.postgresql import PostgresqlServer
from snapshot_assets_tests.servers.s3 import S3Server, variables_of

Rows = list[dict[str, Any]]


TYPES = (
    "CREATE TABLE types (bo BOOLEAN, i1 TINYINT, i2 SMALLINT, i4 INTEGER, i8 BIGINT, u1 UTINYINT, u2 USMALLINT,"
    " f4 FLOAT, f8 DOUBLE, de DECIMAL(38, 10), da DATE, ti TIME, ts TIMESTAMP, tz TIMESTAMPTZ,"
    " ms TIMESTAMP_MS, se TIMESTAMP_S, te VARCHAR, bl BLOB, id UUID, li INTEGER[], st STRUCT(a INTEGER, b VARCHAR),"
    " ma MAP(VARCHAR, INTEGER))",
    "INSERT INTO types VALUES (true, -1, -2, -3, -4, 255, 65535, 1.5, 'nan', -1.5, '1969-12-31',"
    " '23:59:59.5', '1960-01-01 00:00:01', '2025-01-01 00:00:00Z', '1960-01-01 00:00:01', '2025-01-01 00:00:00',"
    " 'ä', '\\xFF'::BLOB, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', [1, NULL], {'a': 1, 'b': 'x'}, MAP {'k': 1})",
    "INSERT INTO types (i4) VALUES (NULL)",
)
"""A table with every type that Iceberg has natively."""


def ordered(table: pa.Table) -> Rows:
    return sorted(table.to_pylist(), key=repr)


def own_rows(store: ObjectStore, table: str, revision: int) -> Rows:
    """The rows of a table at a revision, read by this package."""
    state, name = read_state(store).at(revision), parse_table(table)
    schema = read_schema(store, state.schemas[state.schema_id]).table(name).arrow_schema()
    files = [known.file for known in state.live_files() if (known.file.schema, known.file.table) == name]
    batches = [batch for file in files for batch in read_batches(store, file, schema)]
    return ordered(pa.Table.from_batches(batches, schema))


def iceberg_rows(folder: str, *, tag: str | None = None, **properties: str) -> Rows:
    """The rows of a table, read by PyIceberg from its folder alone."""
    table = StaticTable.from_metadata(folder, properties)
    scan = table.scan() if tag is None else table.scan().use_ref(tag)
    return ordered(scan.to_arrow())


def publish(snapshots: Snapshots, location: Path, *arguments: str) -> dict[str, Any]:
    """Call `snapshots iceberg`, and return the tables that it published by name."""
    done = snapshots("iceberg", "--snapshot", location.as_uri(), "--json", *arguments)
    assert done.status == 0, done.err
    return {each["table"]: each for each in done.json["tables"]}


def change(source: str, *statements: str) -> None:
    with duckdb.connect(source.removeprefix("duckdb://")) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for statement in statements:
            connection.execute(statement)


def export_again(source: str, location: Path, chunks: Sequence[int]) -> None:
    export(make_plan(source, location.as_uri()), store_of(location), chunks=chunks, replace=True)


def newest(location: Path) -> int:
    return read_state(store_of(location)).seals[-1].revision


def test_the_newest_seal_has_the_rows_of_a_restore(snapshots: Snapshots, exported: Path) -> None:
    published = publish(snapshots, exported)
    assert sorted(published) == ["main.readings", "main.sensors"]
    for name, each in published.items():
        assert iceberg_rows(each["folder"]) == own_rows(store_of(exported), name, each["revision"]) != []
    assert snapshots("export", "verify", "--snapshot", exported.as_uri()).out.splitlines()[:-1] == []


def test_a_time_filter_plans_only_the_files_whose_bounds_overlap_it(snapshots: Snapshots, exported: Path) -> None:
    table = StaticTable.from_metadata(publish(snapshots, exported)["main.readings"]["folder"])
    assert len(list(table.scan().plan_files())) == 3
    filtered = table.scan(row_filter="moment >= '2025-01-02T03:00:00+00:00' and moment < '2025-01-02T05:00:00+00:00'")
    assert len(list(filtered.plan_files())) == 1
    assert [row["value"] for row in ordered(filtered.to_arrow())] == [27, 28]


def test_a_second_call_writes_nothing_and_one_more_seal_only_what_is_new(
    snapshots: Snapshots, source: str, exported: Path
) -> None:
    publish(snapshots, exported)
    before = contents(exported / "iceberg")
    assert not any(each["written"] for each in publish(snapshots, exported).values())
    assert contents(exported / "iceberg") == before
    export_again(source, exported, [2])
    publish(snapshots, exported)
    export_again(source, exported, [2])
    [first, second, third] = [seal.revision for seal in read_state(store_of(exported)).seals]
    published = publish(snapshots, exported)["main.readings"]
    assert published["revision"] == third
    table = StaticTable.from_metadata(published["folder"])
    _, kept, new = (snapshot.manifests(table.io) for snapshot in table.snapshots())
    assert [snapshot.snapshot_id for snapshot in table.snapshots()] == [first, second, third]
    assert {each.manifest_path for each in kept} & {each.manifest_path for each in new}
    lists = [Path(path).name for path in before if "snap-" in path]
    assert sorted(lists) == sorted(path.name for path in exported.rglob(f"iceberg/**/snap-{first}-*"))


def test_a_tag_stays_readable_after_its_revision_expired_and_garbage_was_collected(
    snapshots: Snapshots, source: str, exported: Path
) -> None:
    here, store = ("--snapshot", exported.as_uri()), store_of(exported)
    assert snapshots("tag", "create", "january", *here).status == 0
    old = own_rows(store, "main.readings", newest(exported))
    for value in (1, 2):
        change(source, f"UPDATE readings SET value = {value}")
        export_again(source, exported, [1, 2, 3])
        publish(snapshots, exported)
    assert snapshots("catalog", "expire", *here, "--keep-last", "1", "--unsafe", "--yes").status == 0
    published = publish(snapshots, exported)["main.readings"]
    collected = snapshots("catalog", "gc", *here, "--grace", "0s", "--unsafe", "--yes", "--json")
    assert collected.status == 0, collected.err
    assert iceberg_rows(published["folder"], tag="january") == old
    assert {row["value"] for row in iceberg_rows(published["folder"])} == {2.0}
    metadata = {path.name for path in (exported / "iceberg/main/readings/metadata").iterdir()}
    assert {name for name in metadata if name.endswith(".json")} == {Path(published["metadata"]).name}
    assert len([name for name in metadata if name.startswith("snap-")]) == 2
    assert snapshots("export", "verify", *here).out.splitlines()[:-1] == []


def test_readers_see_the_version_that_was_asked_for(snapshots: Snapshots, source: str, exported: Path) -> None:
    first = newest(exported)
    change(source, "UPDATE sensors SET name = 'new'")
    export_again(source, exported, [0])
    published = publish(snapshots, exported, "--at", str(first))["main.sensors"]
    assert [row["name"] for row in iceberg_rows(published["folder"])] == ["roof", "cellar"]
    assert [row["name"] for row in iceberg_rows(publish(snapshots, exported)["main.sensors"]["folder"])] == ["new"] * 2


def test_late_and_wider_columns_are_read_in_old_files_and_keep_their_ids(
    snapshots: Snapshots, source: str, exported: Path
) -> None:
    change(source, "ALTER TABLE readings ADD COLUMN small INTEGER DEFAULT 7")
    export_again(source, exported, [1])
    before = StaticTable.from_metadata(publish(snapshots, exported)["main.readings"]["folder"]).schema()
    change(
        source,
        "ALTER TABLE readings ALTER COLUMN small TYPE BIGINT",
        "UPDATE readings SET small = 5000000000",
        "ALTER TABLE readings ADD COLUMN late VARCHAR DEFAULT 'x'",
    )
    export_again(source, exported, [2])
    published = publish(snapshots, exported)["main.readings"]
    rows = iceberg_rows(published["folder"])
    assert rows == own_rows(store_of(exported), "main.readings", published["revision"])
    assert {(row["small"], row["late"]) for row in rows} == {(7, None), (5_000_000_000, "x"), (None, None)}
    after = StaticTable.from_metadata(published["folder"]).schema()
    assert {field.name: field.field_id for field in before.fields}.items() <= {
        field.name: field.field_id for field in after.fields
    }.items()
    assert str(after.find_type("small")) == "long"
    large = StaticTable.from_metadata(published["folder"]).scan(row_filter="small > 7")
    assert len(list(large.plan_files())) == 2  # not that of the first day, whose greatest value is 7


def test_a_column_whose_older_files_have_another_type_is_refused_until_they_are_exported_again(
    snapshots: Snapshots, source: str, exported: Path
) -> None:
    first = newest(exported)
    change(source, "ALTER TABLE readings ALTER COLUMN value TYPE VARCHAR")
    export_again(source, exported, [2])
    refused = snapshots("iceberg", "--snapshot", exported.as_uri())
    assert (refused.status, (exported / "iceberg").exists()) == (2, False)
    assert "Column main.readings.value is string, but older windows have double" in refused.err
    assert "by --replace" in refused.err
    assert "Iceberg can hold main.sensors" in refused.err
    assert list(publish(snapshots, exported, "--tables", "main.sensors")) == ["main.sensors"]
    export_again(source, exported, [1, 3])
    published = publish(snapshots, exported)["main.readings"]
    assert iceberg_rows(published["folder"]) == own_rows(store_of(exported), "main.readings", published["revision"])
    assert f"Revision {first} is left out. Column main.readings.value is double" in " ".join(published["left_out"])


@pytest.mark.parametrize(
    ("column", "stored"),
    [
        ("UBIGINT", "uint64"),
        ("UINTEGER", "uint32"),
        ("HUGEINT", None),
        ("INTERVAL", None),
        ("TIMESTAMP_NS", "timestamp[ns]"),
        ("BIT", None),
    ],
)
def test_a_type_is_refused_by_name_or_carried_as_text(
    snapshots: Snapshots, tmp_path: Path, location: Path, column: str, stored: str | None
) -> None:
    source = make_source(tmp_path / "source.duckdb", f"ALTER TABLE sensors ADD COLUMN odd {column}")
    export(make_plan(source, location.as_uri()), store_of(location))
    if stored is None:
        schema = StaticTable.from_metadata(publish(snapshots, location)["main.sensors"]["folder"]).schema()
        assert (str(schema.find_type("odd")), schema.find_field("odd").doc) == ("string", f"{column}, as text")
        return
    refused = snapshots("iceberg", "--snapshot", location.as_uri())
    assert (refused.status, (location / "iceberg").exists()) == (2, False)
    assert f"Column main.sensors.odd is {column}, stored as {stored}, which Iceberg v2 lacks" in refused.err
    assert "carry it as text" in refused.err


def test_what_only_older_windows_have_is_exported_again(snapshots: Snapshots, tmp_path: Path, location: Path) -> None:
    source = make_source(tmp_path / "source.duckdb", "ALTER TABLE readings ADD COLUMN odd UINTEGER DEFAULT 1")
    export(make_plan(source, location.as_uri()), store_of(location))
    first = newest(location)
    change(source, "ALTER TABLE readings DROP COLUMN odd")
    export_again(source, location, [2])
    refused = snapshots("iceberg", "--snapshot", location.as_uri())
    assert (refused.status, "exclude_columns" in refused.err, "carriers" in refused.err) == (2, False, False)
    assert "which Iceberg v2 lacks, in older windows: export the older windows again by --replace" in refused.err
    older = snapshots("iceberg", "--snapshot", location.as_uri(), "--at", str(first))
    assert (older.status, "--replace" in older.err, "carriers" in older.err) == (2, False, False)
    assert "A revision stays as it is: publish a newer one by --at." in older.err
    export_again(source, location, [1, 3])
    published = publish(snapshots, location)["main.readings"]
    assert iceberg_rows(published["folder"]) == own_rows(store_of(location), "main.readings", published["revision"])


def test_names_that_differ_only_in_case_in_older_windows_are_exported_again(
    snapshots: Snapshots, location: Path, postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    times = "SELECT timestamptz '2025-01-01Z' + n * interval '1 day', n FROM generate_series(0, 2) n"
    postgresql_server.psql(
        postgresql_database,
        'CREATE TABLE readings (moment timestamptz NOT NULL, value int, "Value" int)',
        f"INSERT INTO readings {times}",
    )
    export(make_plan(postgresql_database, location.as_uri()), store_of(location))
    postgresql_server.psql(postgresql_database, 'ALTER TABLE readings DROP COLUMN "Value"')
    export_again(postgresql_database, location, [2])
    refused = snapshots("iceberg", "--snapshot", location.as_uri())
    assert (refused.status, "exclude_columns" in refused.err) == (2, False)
    assert "which readers that ignore case confuse, in older windows: export the older windows again" in refused.err
    export_again(postgresql_database, location, [1, 3])
    assert len(iceberg_rows(publish(snapshots, location)["public.readings"]["folder"])) == 3


def test_deleted_rows_that_are_not_compacted_are_refused(snapshots: Snapshots, exported: Path) -> None:
    here = ("--snapshot", exported.as_uri())
    publish(snapshots, exported)
    before = contents(exported / "iceberg")
    deleted = snapshots("catalog", "tombstone", *here, "--table", "main.readings", "--where", "value < 3", "--yes")
    assert deleted.status == 0, deleted.err
    refused = snapshots("iceberg", *here)
    assert (refused.status, contents(exported / "iceberg")) == (2, before)
    assert "main.readings has deleted rows that its files still contain: run `snapshots catalog compact`" in refused.err


def test_odd_names_and_every_type_are_read(snapshots: Snapshots, tmp_path: Path, location: Path) -> None:
    quoted = [name.replace('"', '""') for name in dict.fromkeys(name.lower() for name in ODD)]
    columns = ", ".join(f'"{name}" INTEGER' for name in quoted)
    source = make_source(
        tmp_path / "source.duckdb",
        f"CREATE TABLE odd ({columns})",
        f"INSERT INTO odd VALUES ({', '.join(map(str, range(len(quoted))))})",
        'CREATE SCHEMA "Über: x/y.z"; CREATE TABLE "Über: x/y.z"."it\'s a ""t%20ble""" (a INTEGER)',
        'INSERT INTO "Über: x/y.z"."it\'s a ""t%20ble""" VALUES (1), (NULL)',
        *TYPES,
    )
    plan = make_plan(source, location.as_uri(), time_columns={"main.types": None})
    export(plan, store_of(location))
    published = publish(snapshots, location)
    assert len(published) == 5
    for name, each in published.items():
        assert repr(iceberg_rows(each["folder"])) == repr(own_rows(store_of(location), name, each["revision"])) != "[]"
    assert all(in_layout(info.path) for info in store_of(location).list(ICEBERG))


def test_columns_that_differ_only_in_case_are_refused() -> None:
    columns = [Column(name=name, type="int", arrow_type="int32") for name in ("a", "A", "b")]
    with pytest.raises(NotHeldError, match="has the columns 'a', 'A', which readers that ignore case confuse"):
        held_types(Table(schema="main", name="m", columns=columns))


@pytest.mark.parametrize("name", ["history", "rebuilt", "travelled", "held"])
def test_golden_locations_have_the_same_rows_in_each_snapshot(snapshots: Snapshots, name: str, tmp_path: Path) -> None:
    store = copied(f"version_1/{name}", tmp_path)
    location = parse_location(store.uri).local_path
    published = publish(snapshots, location, "--tables", "main.sensors")["main.sensors"]
    table = StaticTable.from_metadata(published["folder"])
    readable = [seal.revision for seal in read_state(store).readable()]
    assert [each.snapshot_id for each in table.snapshots()] == readable
    for revision in readable:
        rows = ordered(table.scan(snapshot_id=revision).to_arrow())
        assert rows == own_rows(store, "main.sensors", revision)
    tags = {name: tag.pin.revision for name, tag in read_state(store).tags.items()}
    assert {name: ref.snapshot_id for name, ref in table.refs().items() if name != "main"} == tags


@pytest.mark.parametrize("name", ["csv", "json"])
def test_text_files_are_refused(snapshots: Snapshots, name: str, tmp_path: Path) -> None:
    location = parse_location(copied(f"version_1/{name}", tmp_path).uri).local_path
    refused = snapshots("iceberg", "--snapshot", location.as_uri())
    assert (refused.status, (location / "iceberg").exists()) == (2, False)
    assert f"data files are {name}, and Iceberg reads Parquet: export as parquet" in refused.err


def test_a_replica_gets_its_own_paths_and_a_deletion_leaves_nothing(
    snapshots: Snapshots, exported: Path, tmp_path: Path
) -> None:
    publish(snapshots, exported)
    replica = tmp_path / "replica"
    copied = snapshots("replicate", "--snapshot", exported.as_uri(), "--to", replica.as_uri())
    assert (copied.status, (replica / "iceberg").exists()) == (0, False)
    published = publish(snapshots, replica)["main.readings"]
    rows = own_rows(store_of(exported), "main.readings", published["revision"])
    assert snapshots("export", "delete", "--snapshot", exported.as_uri(), "--yes").status == 0
    assert not contents(exported)
    assert iceberg_rows(published["folder"]) == rows
    assert snapshots("replicate", "--snapshot", replica.as_uri(), "--to", (tmp_path / "third").as_uri()).status == 0


def test_a_moved_location_is_published_under_its_new_paths(
    snapshots: Snapshots, exported: Path, tmp_path: Path
) -> None:
    publish(snapshots, exported)
    moved = shutil.move(exported, tmp_path / "moved")
    published = publish(snapshots, moved)["main.readings"]
    assert iceberg_rows(published["folder"]) == own_rows(store_of(moved), "main.readings", published["revision"])


def test_s3_is_read_by_pyiceberg(
    snapshots: Snapshots, source: str, s3_server: S3Server, s3_location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables_of(s3_server.options).items():
        monkeypatch.setenv(name, value)
    store = open_store(parse_location(s3_location), s3_server.options)
    export(make_plan(source, s3_location), store)
    done = snapshots("iceberg", "--snapshot", s3_location, "--json")
    assert done.status == 0, done.err
    options = s3_server.options
    properties = {
        "s3.endpoint": str(options.endpoint),
        "s3.access-key-id": str(options.access_key_id),
        "s3.secret-access-key": str(options.secret_access_key),
        "s3.region": str(options.region),
    }
    for each in done.json["tables"]:
        assert iceberg_rows(each["folder"], **properties) == own_rows(store, each["table"], each["revision"]) != []


def test_a_plan_publishes_after_each_seal_and_registers_its_tables_in_a_catalog(
    source: str, location: Path, tmp_path: Path
) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/iceberg.db"}
    plan = make_plan(source, location.as_uri(), iceberg={"tables": ["main.readings"], "catalog": catalog})
    store = store_of(location)
    opened = load_catalog("default", **catalog)
    for value in (1.0, 2.0):
        change(source, f"UPDATE readings SET value = {value}")
        export(plan, store, chunks=[0, 1, 2, 3], replace=True)
        rows = ordered(opened.load_table("main.readings").scan().to_arrow())
        assert rows == own_rows(store, "main.readings", newest(location))
        assert {row["value"] for row in rows} == {value}
    assert [path.name for path in (location / "iceberg/main").iterdir()] == ["readings"]
    assert "iceberg.db" not in repr(plan) + plan.model_dump_json()
    opened.engine.dispose()


def test_another_table_of_a_catalog_stays_as_it_is(
    snapshots: Snapshots, source: str, exported: Path, tmp_path: Path
) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/iceberg.db", "warehouse": (tmp_path / "other").as_uri()}
    opened = load_catalog("default", **catalog)
    opened.create_namespace("main")
    other = opened.create_table("main.readings", pa.schema([("a", pa.int32())])).metadata_location
    configuration = tmp_path / "snapshots.yaml"
    fields = {"source": source, "to": exported.as_uri(), "kind": "continuous", "start_time": "2025-01-01T00:00:00Z"}
    configuration.write_text(json.dumps({"plans": {"shop": {**fields, "iceberg": {"catalog": catalog}}}}))
    refused = snapshots("iceberg", "--config", str(configuration), "--plan", "shop")
    assert (refused.status, "The catalog has another table main.readings" in refused.err) == (2, True)
    assert opened.load_table("main.readings").metadata_location == other
    assert not (exported / "iceberg").exists()
    opened.engine.dispose()


def test_a_slow_publisher_does_not_register_older_metadata(source: str, location: Path, tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/iceberg.db"}
    store, opened = store_of(location), load_catalog("default", **catalog)
    export(make_plan(source, location.as_uri()), store)
    [old] = publish_iceberg(store, tables=[parse_table("main.readings")])
    slow = registration(catalog, {parse_table("main.readings"): old["metadata"]})
    export_again(source, location, [1])
    [new] = publish_iceberg(store, tables=[parse_table("main.readings")], catalog=catalog)
    slow({parse_table("main.readings"): old["metadata"]})
    assert opened.load_table("main.readings").metadata_location == new["metadata"] != old["metadata"]
    opened.engine.dispose()


def test_metadata_that_another_engine_wrote_into_the_folder_is_replaced(
    source: str, location: Path, tmp_path: Path
) -> None:
    catalog, name = {"type": "sql", "uri": f"sqlite:///{tmp_path}/iceberg.db"}, parse_table("main.readings")
    store, opened = store_of(location), load_catalog("default", **catalog)
    export(make_plan(source, location.as_uri()), store)
    [first] = publish_iceberg(store, tables=[name], catalog=catalog)
    other = f"{first['metadata'].rpartition('/')[0]}/00013-0b1f.metadata.json"
    shutil.copy(first["metadata"].removeprefix("file://"), other.removeprefix("file://"))
    opened.drop_table("main.readings")
    opened.register_table("main.readings", other)
    export_again(source, location, [1])
    [new] = publish_iceberg(store, tables=[name], catalog=catalog)
    assert opened.load_table("main.readings").metadata_location == new["metadata"]
    opened.engine.dispose()


def test_publishers_that_always_meet_others_stop(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, create = store_of(exported), type(store_of(exported)).create

    def lose(self: ObjectStore, path: str, data: bytes, *more: Any) -> None:
        if path.endswith(".metadata.json"):
            create(self, path, b"{}")
        create(self, path, data, *more)

    monkeypatch.setattr(type(store), "create", lose)
    with pytest.raises(ConflictError, match="10 times at the same time"):
        publish_iceberg(store)


def test_a_seal_that_iceberg_cannot_hold_is_reported(source: str, location: Path) -> None:
    plan, store = make_plan(source, location.as_uri(), iceberg=True), store_of(location)
    export(plan, store)
    change(source, "ALTER TABLE readings ALTER COLUMN value TYPE VARCHAR")
    with pytest.raises(IcebergError, match=r"Revision \d+ is sealed; only its Iceberg tables were not .*older windows"):
        export(plan, store, chunks=[2], replace=True)
    assert read_state(store).sealed


def test_without_the_extra_nothing_is_written(
    snapshots: Snapshots, source: str, exported: Path, location: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    imported = builtins.__import__

    def lacking(name: str, *arguments: Any) -> Any:
        if name.partition(".")[0] == "pyiceberg":
            raise ImportError(name)
        return imported(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", lacking)
    before = contents(exported)
    refused = snapshots("iceberg", "--snapshot", exported.as_uri())
    assert (refused.status, "pip install 'snapshot-assets[iceberg]'" in refused.err) == (2, True)
    assert contents(exported) == before
    other = tmp_path / "other"
    with pytest.raises(Exception, match="needs the extra iceberg"):
        export(make_plan(source, other.as_uri(), iceberg=True), store_of(other))
    assert not contents(other)


def test_a_tag_with_the_name_of_the_default_branch_is_refused(snapshots: Snapshots, exported: Path) -> None:
    assert snapshots("tag", "create", "main", "--snapshot", exported.as_uri()).status == 0
    refused = snapshots("iceberg", "--snapshot", exported.as_uri())
    assert (refused.status, "rename it by `snapshots tag rename`" in refused.err) == (2, True)
    assert not (exported / "iceberg").exists()


def test_an_unknown_table_is_refused(snapshots: Snapshots, exported: Path) -> None:
    refused = snapshots("iceberg", "--snapshot", exported.as_uri(), "--tables", "main.reading")
    assert (refused.status, "has no table main.reading; it has main.readings, main.sensors" in refused.err) == (2, True)


def test_of_two_writers_the_second_starts_again_from_the_newest_head(
    source: str, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(exported)
    create, other = type(store).create, [True]

    def meeting(self: ObjectStore, path: str, data: bytes) -> None:
        if path.startswith(ICEBERG) and other and other.pop():
            change(source, "UPDATE sensors SET name = 'other'")
            export_again(source, exported, [0])
            publish_iceberg(store_of(exported))
        create(self, path, data)

    monkeypatch.setattr(type(store), "create", meeting)
    published = {each["table"]: each for each in publish_iceberg(store)}
    assert {each["revision"] for each in published.values()} == {newest(exported)}
    assert {row["name"] for row in iceberg_rows(published["main.sensors"]["folder"])} == {"other"}
    assert not any(path.name == "v2.metadata.json" for path in exported.rglob("iceberg/**/*.json"))


def test_an_older_seal_with_deleted_rows_is_left_out_and_named(
    snapshots: Snapshots, source: str, exported: Path
) -> None:
    here = ("--snapshot", exported.as_uri())
    assert (
        snapshots("catalog", "tombstone", *here, "--table", "main.readings", "--where", "value = 3", "--yes").status
        == 0
    )
    between = newest(exported)
    export_again(source, exported, [1, 2, 3])
    published = publish(snapshots, exported)
    assert published["main.readings"]["left_out"] == [
        f"Revision {between} is left out. main.readings has deleted rows that its files still contain."
    ]
    kept = [each.snapshot_id for each in StaticTable.from_metadata(published["main.readings"]["folder"]).snapshots()]
    assert between not in kept
    assert len(kept) == 2
    assert published["main.sensors"]["left_out"] == []


def test_damaged_metadata_is_kept_by_garbage_collection_and_written_again_by_the_next_call(
    snapshots: Snapshots, exported: Path
) -> None:
    metadata = Path(publish(snapshots, exported)["main.readings"]["metadata"].removeprefix("file://"))
    metadata.write_bytes(b"torn")
    before = contents(exported / "iceberg")
    assert snapshots("catalog", "gc", "--snapshot", exported.as_uri(), "--grace", "0s", "--unsafe", "--yes").status == 0
    assert contents(exported / "iceberg") == before
    published = publish(snapshots, exported)["main.readings"]
    assert iceberg_rows(published["folder"]) == own_rows(store_of(exported), "main.readings", published["revision"])


def test_a_table_that_was_dropped_is_read_by_its_tag(snapshots: Snapshots, source: str, exported: Path) -> None:
    assert snapshots("tag", "create", "january", "--snapshot", exported.as_uri()).status == 0
    old = own_rows(store_of(exported), "main.sensors", newest(exported))
    change(source, "DROP TABLE sensors")
    plan, store = make_plan(source, exported.as_uri()), store_of(exported)
    with ExportRun(
        plan, Configuration().source(plan.source), store, InlineRunner(), "test", force=True
    ).open() as opened:
        list(opened.export([0, 1, 2, 3]))
        opened.seal()
    published = publish(snapshots, exported)["main.sensors"]
    assert published["revision"] is None
    assert iceberg_rows(published["folder"], tag="january") == old


def test_duckdb_reads_the_folder(snapshots: Snapshots, exported: Path) -> None:
    published = publish(snapshots, exported)
    with duckdb.connect() as connection:
        try:
            connection.execute("LOAD iceberg")
        except duckdb.Error as error:
            pytest.skip(f"DuckDB's extension is not installed: {error}")
        for name, each in published.items():
            rows = connection.sql(f"FROM iceberg_scan('{each['folder'].removeprefix('file://')}')").to_arrow_table()
            assert ordered(rows) == own_rows(store_of(exported), name, each["revision"])


def test_many_seals_share_few_manifests(snapshots: Snapshots, source: str, exported: Path) -> None:
    for number in range(12):
        export_again(source, exported, [1 + number % 3])
    table = StaticTable.from_metadata(publish(snapshots, exported)["main.readings"]["folder"])
    assert [each.snapshot_id for each in table.snapshots()] == [
        seal.revision for seal in read_state(store_of(exported)).seals
    ]
    for snapshot in table.snapshots():
        manifests = snapshot.manifests(table.io)
        assert len(manifests) <= 3
        files = [entry.data_file.file_path for each in manifests for entry in each.fetch_manifest_entry(table.io)]
        assert len(files) == len(set(files)) == 3
        added = [
            entry.data_file.file_path
            for each in manifests
            if each.added_snapshot_id == snapshot.snapshot_id
            for entry in each.fetch_manifest_entry(table.io)
            if entry.status == ManifestEntryStatus.ADDED
        ]
        assert len(added) == int(snapshot.summary["added-data-files"])


@pytest.mark.parametrize(
    ("hit", "miss"),
    [
        ("bo = true", "bo = false"),
        ("i1 = -1", "i1 = 1"),
        ("i8 = -4", "i8 < -4"),
        ("u1 = 255", "u1 = 255 and i4 = 1"),
        ("f4 = 1.5", "f4 > 1.5"),
        ("da = '1969-12-31'", "da > '1969-12-31'"),
        ("ti = '23:59:59.5'", "ti < '23:59:59'"),
        ("ts = '1960-01-01T00:00:01'", "ts > '1960-01-01T00:00:01'"),
        ("tz = '2025-01-01T00:00:00+00:00'", "tz > '2025-01-01T00:00:00+00:00'"),
        ("ms = '1960-01-01T00:00:01'", "ms > '1960-01-01T00:00:01'"),
        ("se = '2025-01-01T00:00:00'", "se < '2025-01-01T00:00:00'"),
        ("te = 'ä'", "te < 'ä'"),
        ("de = -1.5000000000", "de = -1.5000000000 and i4 = 1"),
        ("i4 is null", "i1 = -1 and i4 = 7"),
    ],
)
def test_bounds_keep_files_with_a_value_and_leave_out_the_others(typed: StaticTable, hit: str, miss: str) -> None:
    assert typed.scan(row_filter=hit).to_arrow().num_rows == 1
    assert list(typed.scan(row_filter=miss).plan_files()) == []


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> StaticTable:
    """The table of every type."""
    folder = tmp_path_factory.mktemp("typed")
    source = make_source(folder / "source.duckdb", *TYPES)
    store = store_of(folder / "location")
    export(make_plan(source, store.uri, time_columns={"main.types": None}), store)
    [published] = publish_iceberg(store, tables=[parse_table("main.types")])
    return StaticTable.from_metadata(published["folder"])
