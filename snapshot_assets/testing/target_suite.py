"""The tests that every database passes as the target of a restore."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa
import pytest

from snapshot_assets.databases.definition import ObjectKey, Statement
from snapshot_assets.databases.open import scratch_database
from snapshot_assets.databases.protocol.source import AllRows, Rows, Scan, TimelessRows, WindowRows
from snapshot_assets.databases.protocol.sql_target import SqlTarget
from snapshot_assets.databases.protocol.steps import steps_of
from snapshot_assets.databases.protocol.target import Load, LoadedFile, RestoreRecord
from snapshot_assets.errors import DatabaseError, OtherImportError, UnknownSourceError
from snapshot_assets.format.relations import DatabaseSchema, Table, TableName
from snapshot_assets.testing.example import ExampleDatabase
from snapshot_assets.testing.restores import (
    copy,
    definition_of,
    entry,
    extracted,
    make,
    read_scan,
    record_of,
    source,
    target,
)

DAY_1 = WindowRows(datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC))


class TornError(Exception):
    """An error of the batches."""


class Started(NamedTuple):
    """An open target with a table `t (n, ts)`, into which an import was started.

    Attributes:
        target: The target.
        table: The table, with `ts` as its time index.
        record: The import.
    """

    target: SqlTarget
    table: Table
    record: RestoreRecord

    def rows(self, *numbers: int, day: int | None = 1) -> pa.RecordBatch:
        """Return rows of one day of January 2024, or without a time."""
        times = [None if day is None else datetime(2024, 1, day)] * len(numbers)
        table = pa.table({"n": numbers, "ts": pa.array(times, pa.timestamp("us"))})
        return table.cast(self.table.arrow_schema()).to_batches()[0]

    def file(self, path: str, chunk: int = 1) -> LoadedFile:
        """Return the ledger row of a file."""
        return replace(entry(self.table.table_name, self.record, path), chunk=chunk)

    def load(self, path: str, batches: Iterable[pa.RecordBatch], chunk: int = 1) -> int | None:
        """Load batches as a file."""
        return self.target.load(self.file(path, chunk), self.table, batches)

    def replace_by(self, path: str, batches: Iterable[pa.RecordBatch], rows: Rows = DAY_1) -> int:
        """Replace rows of chunk 1 by one file."""
        files = [(self.file(path), self.table, batches)]
        return self.target.replace(1, [Load(self.record.location_id, self.record.id, self.table, rows, files)])

    def counted(self, *wanted: Rows) -> list[int]:
        """Return how many rows of each set the target counts."""
        return list(self.target.counts([(self.table, each) for each in wanted]))

    def torn(self, *numbers: int) -> Iterator[pa.RecordBatch]:
        """Yield rows, and fail."""
        yield self.rows(*numbers)
        raise TornError


class TargetSuite:
    """Inherit from it, and define a fixture `example` that yields an empty `ExampleDatabase` for each test."""

    @contextmanager
    def start(self, example: ExampleDatabase) -> Iterator[Started]:
        """Make a table `t (n, ts)` in the database, and start an import into it."""
        example.execute(f"CREATE TABLE t (n INTEGER, ts {example.times[0].name})")
        [table] = extracted(example.address).tables
        with target(example.address) as opened:
            record = record_of(definition_of(DatabaseSchema(database=opened.kind, tables=(table,)), example.address))
            opened.begin(record, "")
            yield Started(opened, table.model_copy(update={"time_index": "ts"}), record)

    def making(self, example: ExampleDatabase, kind: str, name: str, sql: str) -> Statement:
        """Return a statement that makes an object, in the database's SQL."""
        return Statement(ObjectKey(kind, name), example.sql(sql))

    def stored(self, example: ExampleDatabase) -> list[int]:
        """Return the sorted numbers that table `t` holds."""
        [table] = extracted(example.address).tables
        with source(example.address) as database:
            return sorted(read_scan(database, Scan(table, AllRows()))["n"].to_pylist())

    def test_looking_into_an_empty_database_changes_nothing(self, example: ExampleDatabase) -> None:
        with target(example.address) as opened:
            assert (opened.imports(), opened.loaded("x")) == ([], [])
            opened.forget()
            assert opened.imports() == []

    def test_a_file_is_loaded_once_and_recorded_with_its_rows(self, example: ExampleDatabase) -> None:
        with self.start(example) as started:
            batches = [started.rows(1, 2), started.rows(3, day=2), started.rows(4, day=None)]
            assert started.load("data/1/a.parquet", batches) == 4
            assert started.load("data/1/a.parquet", iter(lambda: pytest.fail("read again"), None)) is None
            file, location = replace(started.file("data/1/a.parquet"), rows=4), started.record.location_id
            assert (started.target.imports(), started.target.loaded(location)) == ([started.record], [file])
            assert started.target.loaded_rows(file) == 4
            assert started.counted(AllRows(), DAY_1, TimelessRows()) == [4, 2, 1]
            compacted = replace(file, path="data/1/b.parquet")
            started.target.renew(started.record, [file], [compacted])
            assert started.target.loaded(location) == [compacted]
        assert self.stored(example) == [1, 2, 3, 4]
        example.execute("DELETE FROM t WHERE n = 1")
        with target(example.address) as opened:
            assert Started(opened, started.table, started.record).counted(AllRows(), DAY_1) == [3, 1]

    def test_rows_and_types_that_the_target_has_are_seen(self, example: ExampleDatabase) -> None:
        with self.start(example) as started:
            name, opened = started.table.table_name, started.target
            there = opened.existing([name, TableName(example.schema, "nowhere")])
            found = {each: (table.columns, table.has_rows, table.what) for each, table in there.items()}
            assert found == {name: (("n", "ts"), False, "table")}
            started.load("data/1/a.parquet", [started.rows(1)])
            assert opened.existing([name])[name].has_rows
            [made] = definition_of(
                DatabaseSchema(database=opened.kind, tables=(started.table,)), example.address
            ).tables
            assert opened.other_types([made]) == []
            number, time = made.columns
            other = made.model_copy(update={"columns": (number.model_copy(update={"type": time.type}), time)})
            assert [(each.table, each.column) for each in opened.other_types([other])] == [(name, "n")]

    def test_a_scratch_database_is_empty_and_leaves_the_other_one_as_it_is(self, example: ExampleDatabase) -> None:
        example.execute("CREATE TABLE t (n INTEGER)")
        name = TableName(example.schema, "t")
        with ExitStack() as stack:
            try:
                scratch = stack.enter_context(scratch_database(example.address, "snapshots_scratch"))
            except UnknownSourceError as error:
                pytest.skip(str(error))
            assert stack.enter_context(target(scratch)).existing([name]) == {}
        with target(example.address) as opened:
            assert list(opened.existing([name])) == [name]

    def test_an_error_of_the_batches_leaves_no_row_and_is_raised_as_it_is(self, example: ExampleDatabase) -> None:
        with self.start(example) as started:
            with pytest.raises(TornError):
                started.load("data/1/a.parquet", started.torn(1, 2))
            assert started.target.loaded(started.record.location_id) == []
            assert started.load("data/1/a.parquet", [started.rows(1, 2)]) == 2
        assert self.stored(example) == [1, 2]

    def test_a_chunk_is_replaced_in_one_transaction(self, example: ExampleDatabase) -> None:
        with self.start(example) as started:
            started.load("data/1/a.parquet", [started.rows(1, 2)])
            started.load("data/2/a.parquet", [started.rows(20, day=2), started.rows(30, day=None)], chunk=2)
            with pytest.raises(TornError):
                started.replace_by("data/1/b.parquet", started.torn(3))
            assert started.counted(DAY_1) == [2]
            assert started.replace_by("data/1/b.parquet", [started.rows(1, 3, 4)]) == 3
            loaded = started.target.loaded(started.record.location_id)
            assert [each.path for each in loaded] == ["data/1/b.parquet", "data/2/a.parquet"]
            timeless = Load(started.record.location_id, started.record.id, started.table, TimelessRows(), [])
            assert started.target.replace(9, [timeless]) == 0
        assert self.stored(example) == [1, 3, 4, 20]

    def test_keys_and_indexes_survive_a_replacement_by_rows_with_the_same_keys(self, example: ExampleDatabase) -> None:
        with self.start(example) as started:
            started.load("data/1/a.parquet", [started.rows(1, 2)])
            unique = [self.making(example, "index", "i", f"CREATE UNIQUE INDEX i ON {example.schema}.t (n)")]
            make(started.target, started.record, unique)
            assert started.replace_by("data/1/b.parquet", [started.rows(1, 2)]) == 2
            with pytest.raises(DatabaseError, match=r"(?i)duplicate"):
                started.load("data/1/c.parquet", [started.rows(2)])
        assert self.stored(example) == [1, 2]

    def test_another_import_cannot_begin_unseen_and_ends_the_loads_of_the_first(self, example: ExampleDatabase) -> None:
        with self.start(example) as started:
            opened, record = started.target, started.record
            opened.finish(record)
            opened.finish(record)
            assert opened.imports()[0].finished
            opened.finish(record, finished=False)
            assert opened.imports() == [record]
            opened.finish(record)
            other = replace(record, id="b" * 32)
            assert opened.begin(other, "").id == record.id
            assert opened.begin(other, record.id).id == other.id
            with pytest.raises(OtherImportError, match="loads nothing more"):
                started.load("data/1/a.parquet", [started.rows(1)])
            with pytest.raises(OtherImportError, match="loads nothing more"):
                started.replace_by("data/1/a.parquet", [started.rows(1)])
            opened.forget()
            assert opened.imports() == []
        assert self.stored(example) == []

    def test_a_step_that_fails_keeps_no_other_from_being_made_and_is_tried_again(
        self, example: ExampleDatabase
    ) -> None:
        view = "CREATE VIEW {0}.{1} AS SELECT n FROM {0}.{2}"
        broken = self.making(example, "view", "v", view.format(example.schema, "v", "nowhere"))
        good = self.making(example, "view", "w", view.format(example.schema, "w", "t"))
        with self.start(example) as started:
            results = started.target.make(started.record, steps_of([broken, good]))
            assert [(each.name, each.status) for each in results.values()] == [("view v", "failed"), ("view w", "made")]
            assert "nowhere" in results["view v"].message
            table = f"CREATE TABLE {example.schema}.nowhere (n INTEGER)"
            nowhere = self.making(example, "table", "nowhere", table)
            results = started.target.make(started.record, steps_of([nowhere, broken, good]))
            assert [each.status for each in results.values()] == ["made"] * 3
            assert started.target.steps(started.record.location_id) == results

    def test_a_key_that_rows_violate_fails_alone(self, example: ExampleDatabase) -> None:
        with self.start(example) as started:
            started.load("data/1/a.parquet", [started.rows(1, 1)])
            key = self.making(example, "index", "i", f"CREATE UNIQUE INDEX i ON {example.schema}.t (n)")
            view = self.making(
                example, "view", "v", f"CREATE VIEW {example.schema}.v AS SELECT n FROM {example.schema}.t"
            )
            results = started.target.make(started.record, steps_of([key, view]))
            assert [(each.status, each.violated) for each in results.values()] == [("failed", True), ("made", False)]

    def test_a_database_comes_back_with_equal_documents_and_equal_values(self, example: ExampleDatabase) -> None:
        for number, (kind, values) in enumerate(example.types.items()):
            rows = ", ".join(f"({each}, {value})" for each, (value, _) in enumerate([*values, ("NULL", None)]))
            example.execute(
                f"CREATE TABLE t{number} (id INTEGER PRIMARY KEY, c {kind})", f"INSERT INTO t{number} VALUES {rows}"
            )
        origin, into = example.address, example.another()
        schema = extracted(origin)
        assert copy(schema, origin, into).lost == ()
        assert extracted(into) == schema
        with source(origin) as one, source(into) as other:
            for table in schema.tables:
                left, right = (read_scan(each, Scan(table, AllRows())).sort_by("id") for each in (one, other))
                assert list(map(repr, left["c"].to_pylist())) == list(map(repr, right["c"].to_pylist())), table
