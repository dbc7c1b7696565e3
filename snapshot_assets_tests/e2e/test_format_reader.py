"""Compares every byte that the package writes with a reader written from FORMAT.md alone."""

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.operations.delete import delete_snapshot
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag, hold_tag, release_tag, rename_tag, replace_tag
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.export.run import ExportRun, OpenExport
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.errors import ExportFailedError
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.tags import delete_savepoint, save
from snapshot_assets_tests.e2e.format_reader import Reader, State, fold
from snapshot_assets_tests.engine.exports import show_progress

ODD = ("odd schema/Ä", 'tä"ble%.x-1')
ODD_TEXT = '"odd schema/Ä"."tä""ble%.x-1"'
LONG = "é" * 100
RANGE = {"start_time": "2025-01-01T00:00:00Z", "end_time": "2025-01-07T12:00:00Z"}
SOURCE = f"""
CREATE SCHEMA "{ODD[0]}";
CREATE TYPE mood AS ENUM ('sad', 'happy "quoted"');
CREATE TABLE readings (
    t TIMESTAMPTZ, device VARCHAR NOT NULL DEFAULT 'none', v DOUBLE, f FLOAT, n DECIMAL(38, 3), b BLOB, h HUGEINT,
    l INTEGER[], m mood, s STRUCT("a ""q" INTEGER, b VARCHAR), mp MAP(VARCHAR, INTEGER), d DATE, tm TIME, iv INTERVAL,
    u UUID, bo BOOLEAN, si SMALLINT, ub UBIGINT, CHECK (v < 1000)
);
INSERT INTO readings
    SELECT '2025-01-01T12:00:00.000001Z'::TIMESTAMPTZ + INTERVAL (x) HOUR, 'device ' || x, x / 3, -x, x,
        repeat('ab', x)::BLOB, x, [x, NULL], 'sad', {{'a "q': x, 'b': 'z'}}, MAP {{'k': x}}, '2025-01-01', '01:02:03',
        INTERVAL 3 DAY, uuid(), x % 2 = 0, x, 18446744073709551615 - x
    FROM range(20) AS r(x);
INSERT INTO readings (t, device)
    VALUES (NULL, 'no time'), ('2025-01-06T10:00:00.5Z', repeat('y', 100)), ('2026-01-01', 'outside');
COMMENT ON TABLE readings IS 'ünïcode ☃ "quoted" \\ and a
line feed';
CREATE TABLE {ODD_TEXT} (id INTEGER PRIMARY KEY, t TIMESTAMP, "c""ol" TEXT);
INSERT INTO {ODD_TEXT} VALUES (1, '2025-01-02 10:00', 'ä'), (2, NULL, 'b'), (3, 'infinity', 'c');
CREATE TABLE {LONG} (t DATE, UNIQUE (t));
INSERT INTO {LONG} VALUES ('2025-01-02'), ('2024-12-31');
CREATE SEQUENCE numbers;
CREATE TABLE untimed (id INTEGER PRIMARY KEY, name TEXT);
INSERT INTO untimed VALUES (1, 'a'), (2, NULL);
CREATE TABLE nothing (id INTEGER REFERENCES untimed (id), number INTEGER DEFAULT nextval('numbers'), t TIMESTAMP);
CREATE INDEX by_id ON nothing (id);
CREATE VIEW v AS SELECT device, count(*) AS c FROM readings GROUP BY device;
"""


@dataclass(frozen=True)
class Dataset:
    """A source, and the location that its runs export to."""

    folder: Path

    @property
    def location(self) -> Path:
        return self.folder / "a location"

    def sql(self, text: str) -> None:
        with duckdb.connect(str(self.folder / "source.duckdb")) as connection:
            connection.execute(text)

    @contextmanager
    def export(
        self, *, runner: InlineRunner | None = None, run_id: str = "run-1", force: bool = False, **changes: Any
    ) -> Iterator[OpenExport]:
        values = RANGE | {"name": "demo", "source": "shop", "to": f"file://{self.location}"} | changes
        address = DatabaseAddress("shop", f"duckdb://{self.folder}/source.duckdb")
        store = open_store(parse_location(str(values["to"])))
        run = ExportRun(Plan(**values), address, store, runner or InlineRunner(), run_id, force=force)
        with run.open() as export:
            yield export


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A sealed export of all of the source; tests only read it."""
    dataset = Dataset(tmp_path_factory.mktemp("sealed"))
    dataset.sql(SOURCE)
    columns: dict[str, Any] = {"time_columns": {f"main.{LONG}": "t"}, "carriers": {f"{ODD_TEXT}.t": "text"}}
    with dataset.export(catalog="kätälog", **columns) as export:
        list(export.export(range(8)))
        export.seal()
    return dataset


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    dataset = Dataset(tmp_path)
    dataset.sql("CREATE TABLE m (t TIMESTAMP, x INTEGER); INSERT INTO m VALUES ('2025-01-01 10:00', 1)")
    return dataset


def sound(dataset: Dataset) -> State:
    reader = Reader(dataset.location)
    assert reader.faults == []
    return fold(reader.log)


def manifest(dataset: Dataset) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((dataset.location / "manifest.json").read_bytes())
    return found


def test_the_reader_agrees_with_a_sealed_snapshot_and_finds_all_of_its_rows(sealed: Dataset) -> None:
    state = sound(sealed)
    assert manifest(sealed)["revision"] == state.head.revision
    assert state.seal.checksum == manifest(sealed)["checksum"]
    rows = {(t["schema"], t["table"]): (t["rows"], t["rows_outside"]) for t in manifest(sealed)["tables"]}
    assert rows == {
        ("main", "readings"): (22, 1),
        ("main", "untimed"): (2, 0),
        ("main", LONG): (1, 1),
        ODD: (3, 0),
    }
    assert {chunk["id"] for chunk in manifest(sealed)["chunks"]} == {0, 1, 2, 6}
    assert manifest(sealed)["empty_windows"] == [
        {"start": "2025-01-03T00:00:00Z", "end": "2025-01-06T00:00:00Z"},
        {"start": "2025-01-07T00:00:00Z", "end": "2025-01-07T12:00:00Z"},
    ]


def test_every_row_lies_in_the_window_of_its_chunk(sealed: Dataset) -> None:
    state = sound(sealed)
    for file in state.files.values():
        if file.table == "readings":
            [column] = pq.ParquetFile(sealed.location / file.path).read(["t"]).columns
            times = column.cast("int64").drop_null().to_pylist()
            window = state.chunks[file.chunk].window
            assert all(window.start <= time < window.end for time in times)
            assert len(times) == (file.rows if file.chunk else 0)


def test_one_flipped_byte_in_any_object_and_a_missing_one_are_noticed(sealed: Dataset, tmp_path: Path) -> None:
    location = tmp_path / "copy"
    shutil.copytree(sealed.location, location)
    objects = sorted(path for path in location.rglob("*") if path.is_file())
    unnoticed = [f"{path}, byte {at}" for path in objects for at in places(path) if not noticed(location, path, at)]
    assert unnoticed == []
    for pattern in ("transactions/*3.txn", "data/1/*.parquet", "data/1/chunk-*.json", "schema/*/views.json"):
        assert Reader(location).faults == []
        path = next(location.glob(pattern))
        hidden = path.rename(tmp_path / "hidden")
        assert Reader(location).faults, pattern
        hidden.rename(path)


def places(path: Path) -> list[int]:
    return [0, path.stat().st_size // 2, path.stat().st_size - 1]


def noticed(location: Path, path: Path, at: int) -> bool:
    content = path.read_bytes()
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    faults = Reader(location).faults
    path.write_bytes(content)
    return bool(faults)


def test_the_reader_agrees_with_work_in_progress_and_with_a_failed_chunk(dataset: Dataset) -> None:
    dataset.sql("INSERT INTO m VALUES ('infinity', 2), ('2025-01-03', 3)")
    with dataset.export() as export:
        assert {chunk["status"] for chunk in manifest(dataset)["chunks"]} == {"Pending"}
        sound(dataset)
        with pytest.raises(ExportFailedError):
            list(export.export([0, 1]))
        export.catalog.commit(rules.in_progress(export.catalog.token(), [1, 2, 3], "run-2"))
        show_progress(export.catalog)
    state = sound(dataset)
    assert manifest(dataset)["revision"] == state.head.revision
    statuses = {chunk["id"]: chunk["status"] for chunk in manifest(dataset)["chunks"]}
    assert statuses == {0: "Failed", 1: "Completed", 2: "InProgress", 3: "InProgress"} | dict.fromkeys(
        range(4, 8), "Pending"
    )
    assert "infinite" in manifest(dataset)["chunks"][0]["error"]


class DyingRunner(InlineRunner):
    """Ends the run when its tasks have written everything and nothing is committed."""

    def map(self, function: Any, items: Sequence[Any]) -> Iterable[Any]:
        list(super().map(function, items))
        raise KeyboardInterrupt


def test_the_reader_agrees_with_files_that_a_later_run_adopts(dataset: Dataset) -> None:
    with dataset.export(runner=DyingRunner()) as export, pytest.raises(KeyboardInterrupt):
        list(export.export([1]))
    assert sound(dataset).files == {}
    with dataset.export(run_id="run-2") as export:
        assert [outcome.status for outcome in export.export([1])] == ["adopted"]
        show_progress(export.catalog)
    state = sound(dataset)
    receipt = json.loads((dataset.location / state.chunks[1].receipts[0].path).read_bytes())
    assert (receipt["run"], state.chunks[1].run) == ("run-1", "run-2")


def test_the_reader_agrees_after_replacing_chunks_a_new_schema_and_a_new_snapshot(dataset: Dataset) -> None:
    with dataset.export() as export:
        list(export.export(range(8)))
        export.seal()
    first = sound(dataset)
    dataset.sql(
        "ALTER TABLE m ADD COLUMN y TEXT; INSERT INTO m VALUES ('2025-01-01 11:00', 2, 'z'), ('2025-01-02', 3, 'z')"
    )
    with dataset.export() as export:
        list(export.export([2], replace_completed=True))
        assert manifest(dataset)["revision"] == first.head.revision, "hints show the newest seal"
        sound(dataset)
        export.seal()
    second = sound(dataset)
    assert {f.schema_id for f in second.files.values()} == {1, 2}
    assert fold(Reader(dataset.location).log[: first.head.revision]).files == first.files
    dataset.sql("ALTER TABLE m DROP COLUMN y")
    with dataset.export() as export:
        list(export.export([3], replace_completed=True))
        export.seal()
        export.catalog.commit(rules.in_progress(export.catalog.token(), [4], "run-2"))
        show_progress(export.catalog)
    third = sound(dataset)
    assert [third.schemas[i].sha256 == third.schemas[1].sha256 for i in (1, 2, 3)] == [True, False, True]
    assert manifest(dataset)["revision"] == third.head.revision - 1
    with dataset.export(force=True, end_time="2025-01-02T00:00:00Z") as export:
        list(export.export([0, 1]))
        export.seal()
    fourth = sound(dataset)
    assert fourth.begin.snapshot_id != third.begin.snapshot_id
    assert [f.rows for f in fourth.files.values()] == [2]
    delete_snapshot(open_store(parse_location(f"file://{dataset.location}")))
    assert not any(path.is_file() for path in dataset.location.rglob("*"))


def test_the_reader_agrees_with_tags_and_savepoints_and_notices_what_they_lack(dataset: Dataset) -> None:
    with dataset.export() as export:
        list(export.export(range(8)))
        export.seal()
        first = export.catalog.state.seals[-1].revision
        save(export.catalog)
        create_tag(export.catalog, "a", first, timedelta(days=7), automatic=True)
        rename_tag(export.catalog, "a", "b")
        create_tag(export.catalog, "for.ever-1", first)
        create_tag(export.catalog, "gone", first)
        delete_tag(export.catalog, "gone")
    assert manifest(dataset)["revision"] == sound(dataset).sealed_at.revision == first
    dataset.sql("INSERT INTO m VALUES ('2025-01-02', 2)")
    with dataset.export(force=True, end_time="2025-01-03T00:00:00Z") as export:
        list(export.export([0, 1, 2]))
        export.seal()
        second = export.catalog.state.seals[-1].revision
        create_tag(export.catalog, "gone", second)
        replace_tag(export.catalog, "for.ever-1", second, timedelta(hours=1))
        for name in ("gone", "b"):
            hold_tag(export.catalog, name, 'case "12" of ünïcode', "counsel")
        release_tag(export.catalog, "b", "settled")
        delete_savepoint(export.catalog, save(export.catalog).pin.id)
        save(export.catalog, automatic=True)
    state = sound(dataset)
    assert {name: tag.revision for name, (tag, _) in state.tags.items()} == {
        "b": first,
        "for.ever-1": second,
        "gone": second,
    }
    assert {number: each.revision for number, (each, _) in state.savepoints.items()} == {1: first, 3: second}
    objects = sorted([*(dataset.location / "tag").iterdir(), *(dataset.location / "savepoint").iterdir()])
    assert len(objects) == 5
    assert [at for path in objects for at in places(path) if not noticed(dataset.location, path, at)] == []
    objects[0].unlink()
    assert Reader(dataset.location).faults


def test_the_reader_agrees_with_a_continuous_snapshot_whose_end_moves(dataset: Dataset) -> None:
    with dataset.export(kind="continuous", end_time=None, chunk_time_window="100d", untimed_tables="skip") as export:
        windows = len(export.catalog.state.windows())
        list(export.export(range(windows + 1)))
        export.seal()
        sound(dataset)
        end = export.catalog.state.windows()[-1].end
        export.catalog.commit(rules.extend(export.catalog.token(), end + timedelta(days=150)))
        sound(dataset)
        list(export.export([windows + 1, windows + 2]))
        export.seal()
    assert (
        sound(dataset).begin.header.time_range.end == fold(Reader(dataset.location).log).chunks[windows + 2].window.end
    )


def test_the_reader_agrees_with_a_schema_only_snapshot(dataset: Dataset) -> None:
    with dataset.export(schema_only=True, start_time=None, end_time=None) as export:
        export.seal()
    assert sound(dataset).windows() == {}
    assert manifest(dataset)["chunks"] == []
