"""The tests that every database passes as the source of an export."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from snapshot_assets.databases.contract import CONTRACT
from snapshot_assets.databases.open import default_alias, kind_named, kind_of
from snapshot_assets.databases.protocol.query import ColumnRange
from snapshot_assets.databases.protocol.source import AllRows, Database, Rows, Scan, Selection, TimelessRows, WindowRows
from snapshot_assets.errors import DatabaseError, PlanError, UnknownRelationError
from snapshot_assets.format.names import rule_of
from snapshot_assets.format.relations import Carrier, Table, TableName
from snapshot_assets.testing.example import ExampleDatabase
from snapshot_assets.testing.restores import read_scan, source, utc


def read_ids(
    database: Database, table: Table, rows: Rows | None = None, part: ColumnRange | str | None = None
) -> list[int]:
    """Return the sorted ids of a scan's rows; fails if one is yielded twice."""
    ids = read_scan(database, Scan(table, rows or AllRows(), part))["id"].to_pylist()
    assert len(set(ids)) == len(ids), "scan() yields a row twice"
    return sorted(ids)


class SourceSuite:
    """Inherit from it, and define a fixture `example` that yields an empty `ExampleDatabase` for each test."""

    def table(self, database: Database, example: ExampleDatabase, name: str = "t", time: str | None = None) -> Table:
        """Return the document of a table; its time index travels as text, so that it may have any value."""
        named = TableName(example.schema, name)
        carriers = {(named, time): Carrier.TEXT} if time else {}
        return database.extract(Selection(tables=(named,), time_columns={named: time}, carriers=carriers)).table(named)

    def fill(self, example: ExampleDatabase, kind: str, times: list[str]) -> None:
        """Make a table `t` of ids from 1, with a time each, and a last row without one."""
        values = ", ".join(f"({number}, {time})" for number, time in enumerate([*times, "NULL"], 1))
        example.execute(f"CREATE TABLE t (id INTEGER, ts {kind})", f"INSERT INTO t VALUES {values}")

    def number(self, example: ExampleDatabase, count: int) -> None:
        """Make a table `t` of ids from 1."""
        example.execute("CREATE TABLE t (id BIGINT)", f"INSERT INTO t SELECT i FROM {example.numbers(count)}")

    def check_counts(
        self, database: Database, example: ExampleDatabase, table: Table, sets: Sequence[Rows], rows: list[int]
    ) -> None:
        """Check that a count of disjoint sets of a table's rows returns what scans of them do."""
        expected = [rows if example.counts_rows else None]
        assert database.count_rows([(table, sets)], thorough=True) == expected, "count_rows() and scan() differ"

    def test_the_kind_is_of_this_contract_and_documents_record_it(self, example: ExampleDatabase) -> None:
        example.execute("CREATE TABLE t (id INTEGER)")
        kind = kind_of(example.address.uri)
        with source(example.address) as database:
            schema = database.extract(Selection())
            assert (kind.contract, schema.database, database.kind) == (CONTRACT, kind.name, kind.name)
            database.fence()
        assert kind_named(kind.name) is kind
        assert rule_of(schema) is kind.names
        assert kind.form.lower().startswith(f"{kind.name}:")
        assert default_alias(example.address.uri)

    def test_a_window_includes_its_start_and_not_its_end(self, example: ExampleDatabase) -> None:
        for time in example.times:
            times = ["2023-12-31", "2024-01-01", "2024-01-02", "2024-01-03"]
            zone = f" 00:00:00{time.zone}" if time.zoned else ""
            self.fill(example, time.name, [*(f"'{day}{zone}'" for day in times), *time.infinite])
            start, end, instant = utc(2024, 1, 1), utc(2024, 1, 3), timedelta(microseconds=1)
            timeless = list(range(5, 6 + len(time.infinite)))
            with source(example.address) as database:
                table = self.table(database, example, time="ts")
                assert read_ids(database, table, WindowRows(start, end)) == [2, 3], time
                assert read_ids(database, table, WindowRows(start + instant, end + instant)) == [3, 4], time
                assert read_ids(database, table, TimelessRows()) == timeless, time
                assert read_ids(database, table) == [1, 2, 3, 4, *timeless], time
                assert database.count_outside(table, start, end) == 2, time
                assert database.time_bounds((table,)) == (utc(2023, 12, 31), utc(2024, 1, 3)), time
                within = database.time_bounds((table,), within=(start, end))
                assert within == (utc(2024, 1, 1), utc(2024, 1, 2)), time
            example.execute("DROP TABLE t")

    def test_a_date_is_its_midnight_in_the_plans_zone(self, example: ExampleDatabase) -> None:
        if example.midnights is None:
            pytest.skip("no type of time index has days only")
        self.fill(example, example.midnights, [f"'2024-06-0{day}'" for day in (1, 2, 3)])
        with source(example.address) as database:
            table = self.table(database, example, time="ts")
            midnight, second = utc(2024, 5, 31, 22), timedelta(seconds=1)
            day = WindowRows(midnight, midnight + timedelta(days=1), "Europe/Berlin")
            assert read_ids(database, table, day) == [1]
            assert read_ids(database, table, WindowRows(midnight + second, midnight + 2 * second, day.zone)) == []
            assert read_ids(database, table, WindowRows(day.start, day.end)) == [1]
            assert database.count_outside(table, day.start, day.end, day.zone) == 2
            assert database.time_bounds((table,), day.zone) == (midnight, midnight + timedelta(days=2))
            assert database.time_bounds((table,), day.zone, (day.start, day.end)) == (midnight, midnight)

    @pytest.mark.parametrize(
        ("zone", "first"),
        [
            ("Europe/Madrid", datetime(2025, 3, 29)),
            ("Europe/Madrid", datetime(2025, 10, 25)),
            ("Pacific/Apia", datetime(2011, 12, 28)),
            ("Australia/Lord_Howe", datetime(2025, 4, 4)),
        ],
    )
    def test_windows_neither_gap_nor_overlap_when_clocks_change(
        self, example: ExampleDatabase, zone: str, first: datetime
    ) -> None:
        times = [f"'{first + timedelta(minutes=10) * step}'" for step in range(600)]
        self.fill(example, next(each.name for each in example.times if not each.zoned), times)
        edges = [first.replace(tzinfo=UTC) + timedelta(minutes=90) * step for step in range(-20, 90)]
        with source(example.address) as database:
            table = self.table(database, example, time="ts")
            found = [read_ids(database, table, WindowRows(low, high, zone)) for low, high in pairwise(edges)]
            middle = [len(ids) for ids in found[30:60]]
            assert sorted(id_ for ids in found for id_ in ids) == list(range(1, 601))
            assert database.count_outside(table, edges[30], edges[60], zone) == 600 - sum(middle)
            sets = [WindowRows(low, high, zone) for low, high in pairwise(edges[30:61])]
            self.check_counts(database, example, table, sets, middle)

    def test_parts_are_disjoint_and_together_yield_all_rows(self, example: ExampleDatabase) -> None:
        every = f"FROM {example.numbers(100_000)}"
        days = (f"INSERT INTO t SELECT i, '2024-01-0{1 + n}' {every} WHERE i % 9 = {n}" for n in range(9))
        example.execute(
            f"CREATE TABLE t (id INTEGER, ts {example.times[0].name})", *days, "DELETE FROM t WHERE id % 7 = 0"
        )
        with source(example.address) as database:
            table = self.table(database, example, time="ts")
            for rows_read in (AllRows(), WindowRows(utc(2024, 1, 2), utc(2024, 1, 6))):
                scan = Scan(table, rows_read)
                whole = read_ids(database, table, rows_read)
                for parts in (1, 3):
                    scans = database.split(scan, parts)
                    assert 1 <= len(scans) <= parts, "split() returns more scans than it was asked for"
                    found = sorted(i for each in scans for i in read_ids(database, table, each.rows, each.part))
                    assert found == whole, "the scans of split() overlap, or leave out rows"
                self.check_counts(database, example, table, [rows_read], [len(whole)])
                assert 0 < database.estimate(scan) < 100 * len(whole) * len(table.columns)

    def test_an_empty_table_has_no_bounds_and_no_rows(self, example: ExampleDatabase) -> None:
        example.execute(f"CREATE TABLE t (id INTEGER, ts {example.times[0].name})")
        with source(example.address) as database:
            table = self.table(database, example, time="ts")
            assert database.split(Scan(table, AllRows()), 4) == [Scan(table, AllRows())]
            assert (read_ids(database, table), database.time_bounds((table,))) == ([], None)
            self.check_counts(database, example, table, [AllRows()], [0])

    def test_an_unknown_table_and_column_are_refused_with_similar_names(self, example: ExampleDatabase) -> None:
        example.execute(f"CREATE TABLE orders (id INTEGER, ts {example.times[0].name})")
        orders = TableName(example.schema, "orders")
        with source(example.address) as database:
            with pytest.raises(UnknownRelationError, match="orders"):
                database.extract(Selection(tables=(TableName(example.schema, "order"),)))
            with pytest.raises(PlanError, match="'tss'"):
                database.extract(Selection(time_columns={orders: "tss"}))

    def test_a_scan_left_early_leaves_the_connection_usable(self, example: ExampleDatabase) -> None:
        self.number(example, 200_000)
        with source(example.address) as database:
            table = self.table(database, example)
            with database.scan(Scan(table, AllRows())) as batches:
                next(batches)
            assert len(read_ids(database, table)) == 200_000

    def test_a_table_that_is_gone_is_named(self, example: ExampleDatabase) -> None:
        example.execute("CREATE TABLE t (id INTEGER)")
        with source(example.address) as database:
            table = self.table(database, example)
        example.execute("DROP TABLE t")
        with source(example.address) as database, pytest.raises((DatabaseError, UnknownRelationError), match=r"\bt\b"):
            read_ids(database, table)

    def test_a_held_state_is_read_by_other_connections_and_nothing_later(self, example: ExampleDatabase) -> None:
        self.number(example, 10)
        address = example.address
        with source(address) as holder, holder.hold(lambda: 1) as held:
            if example.locked_while_read is not None:
                with pytest.raises(example.locked_while_read):
                    example.execute("INSERT INTO t VALUES (11)")
                present_ids = list(range(1, 11))
            else:
                example.execute("INSERT INTO t VALUES (11)", "DELETE FROM t WHERE id = 1")
                present_ids = list(range(2, 12))
            at = replace(address, consistency=held.token)
            with source(at) as one, source(at) as other:
                table = self.table(one, example)
                assert read_ids(one, table) == read_ids(other, table) == list(range(1, 11))
                assert one.fence() == other.fence()
            held.check()
        with source(address) as present:
            assert read_ids(present, table) == present_ids

    def test_every_value_of_every_type_is_read_exactly(self, example: ExampleDatabase) -> None:
        for kind, values in example.types.items():
            rows = ", ".join(f"({number}, {value})" for number, (value, _) in enumerate([*values, ("NULL", None)]))
            example.execute(f"CREATE TABLE t (id INTEGER, c {kind})", f"INSERT INTO t VALUES {rows}")
            with source(example.address) as database:
                found = read_scan(database, Scan(self.table(database, example), AllRows())).sort_by("id")
            assert list(map(repr, found["c"].to_pylist())) == [repr(value) for _, value in [*values, ("", None)]], kind
            example.execute("DROP TABLE t")
