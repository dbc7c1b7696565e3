"""The rules of `compare`: which parts are due, and what differing rows prove."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from snapshot_assets.catalog.verify.objects import Rotation
from snapshot_assets.databases.protocol.source import AllRows, Answer, Scan, Verdict
from snapshot_assets.engine.export.compare import Choice, Comparison, _Differences, _judged
from snapshot_assets.engine.export.parts import Part, Values
from snapshot_assets.engine.files.row_differences import RowDifference
from snapshot_assets.format.relations import Table, TableName

_, CHANGED, DIFFERENT, UNKNOWN = Comparison
SCAN = Scan(Table(schema="s", name="t", columns=()), AllRows())
MISSING, EXTRA = RowDifference({}, source={}), RowDifference({}, snapshot={})
PAIR = RowDifference({}, ("a",), {"a": "1"}, {"a": "2"})


@pytest.mark.parametrize(
    ("exported", "erased", "rows", "only_masked", "expected"),
    [
        (2, 0, (PAIR,), False, DIFFERENT),
        (2, 0, (PAIR,), True, UNKNOWN),
        (1, 0, (MISSING,), False, DIFFERENT),  # the log's own number explains nothing
        (3, 0, (EXTRA,), False, CHANGED),
        (3, 0, (EXTRA, MISSING), False, DIFFERENT),
        (3, 0, (EXTRA, PAIR), True, UNKNOWN),
        (2, 1, (MISSING,), False, UNKNOWN),
        (2, 1, (MISSING, PAIR), False, DIFFERENT),
        (2, 1, (MISSING, EXTRA), False, DIFFERENT),
    ],
)
def test_how_differing_rows_are_judged_if_none_is_newer(
    exported: int, erased: int, rows: tuple[RowDifference, ...], only_masked: bool, expected: Comparison
) -> None:
    part = Part(1, TableName("s", "t"), SCAN, (), exported, erased=erased)
    by_count = Answer(Verdict.UNCHANGED) if exported == 2 else Answer(Verdict.CHANGED, "rows fewer")
    judged = _judged(part, Values(2, 0, equal=False), by_count, _Differences(rows, only_masked=only_masked))
    assert judged.comparison is expected
    assert bool(judged.rows) is (expected is DIFFERENT)


def test_only_the_first_rows_are_named() -> None:
    part = Part(1, TableName("s", "t"), SCAN, (), 2)
    values, answer = Values(2, 0, equal=False), Answer(Verdict.UNCHANGED)
    judged = _judged(part, values, answer, _Differences((*[MISSING] * 20, PAIR)))
    assert (len(judged.rows), judged.rows[0], judged.more) == (20, PAIR, True)
    assert not _judged(part, values, answer, _Differences((PAIR,))).more


def test_a_sample_is_another_part_each_day_and_all_within_its_days() -> None:
    parts = [Part(chunk, TableName("s", table), None, (), 0) for chunk in range(20) for table in "ab"]
    start = datetime(2025, 1, 1, tzinfo=UTC)
    rotations = [Rotation(5, start + day * timedelta(days=1)) for day in range(9)]
    due = [[part.place for part in Choice(rotation=each).due(parts)] for each in rotations]
    assert all(0 < len(each) < len(parts) for each in due)
    assert {place for each in due for place in each} == {part.place for part in parts}
    assert due[0] != due[1]
    assert Choice().due(parts) == parts
    assert Choice(rotation=rotations[0]).due([]) == []
