from __future__ import annotations

import pytest

from snapshot_assets.databases.partitions import former_partitions
from snapshot_assets.databases.postgresql.former_partitions import with_former_partitions
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import Table, TableName


def table(key: str | None, **bounds: str) -> Table:
    parts = [{"schema": "s", "name": name, "of": ["s", "t"], "bounds": each} for name, each in bounds.items()]
    return Table(schema_name="s", name="t", columns=(), options={"partition_by": key, "partitions": parts})


def between(start: str, end: str) -> str:
    return f"FOR VALUES FROM ({start}) TO ({end})"


@pytest.mark.parametrize(
    ("old", "new", "alike"),
    [
        (between("1", "10"), between("10", "20"), True),
        (between("2", "9"), between("10", "20"), True),
        (between("1", "11"), between("10", "20"), False),
        (between("'-5'", "0"), between("'-10'", "'-5'"), True),
        (between("MINVALUE", "5"), between("5", "MAXVALUE"), True),
        (between("MINVALUE", "6"), between("5", "MAXVALUE"), False),
        (between("'2024-01-01'", "'2024-02-01'"), between("'2024-03-01'", "'2024-04-01'"), True),
        (between("'2024-01-01'", "'2024-02-02'"), between("'2024-02-01'", "'2024-04-01'"), False),
        (between("'0044-01-01 BC'", "'0043-01-01 BC'"), between("'2024-02-01'", "'2024-04-01'"), False),
        (between("'a'", "'b'"), between("'b'", "'c'"), True),
        (between("'a'", "'b'"), between("'c'", "'d'"), False),  # the order of text depends on its collation
        (between("1, MINVALUE", "2, MINVALUE"), between("2, MINVALUE", "3, MINVALUE"), True),
        (between("1, 5", "1, 8"), between("1, 8", "2, 0"), True),
        (between("1, 5", "1, 9"), between("1, 8", "2, 0"), False),
    ],
)
def test_a_range_comes_back_if_it_certainly_overlaps_no_other(old: str, new: str, alike: bool) -> None:
    found = with_former_partitions(table("RANGE (a)", new=new), [table("RANGE (a)", old=old)], set())
    assert [name.table for name in former_partitions(found)] == ["old" if alike else "t_default"]


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("(modulus 4, remainder 1)", ["(modulus 2, remainder 0)"], ["old"]),
        ("(modulus 2, remainder 1)", ["(modulus 2, remainder 0)", "(modulus 4, remainder 1)"], ["t_3"]),
        ("(modulus 3, remainder 1)", ["(modulus 1, remainder 0)"], []),
    ],
)
def test_missing_hash_partitions_come_back(old: str, new: list[str], names: list[str]) -> None:
    now = table("HASH (a)", **{f"new_{number}": f"FOR VALUES WITH {each}" for number, each in enumerate(new)})
    found = with_former_partitions(now, [table("HASH (a)", old=f"FOR VALUES WITH {old}")], set())
    assert [name.table for name in former_partitions(found)] == names


def test_no_two_tables_bring_back_one_partition() -> None:
    """It was detached from one, attached to the other, and dropped."""
    both, taken = [], set[TableName]()
    for name in ("t", "u"):
        older = table("RANGE (a)", p1=between("1", "2")).model_copy(update={"name": name})
        older.options["partitions"][0]["of"][1] = name
        now = older.model_copy(update={"options": {"partition_by": "RANGE (a)", "partitions": []}})
        both += former_partitions(with_former_partitions(now, [older], taken))
    assert [name.table for name in both] == ["p1", "p1_2"]


def test_another_key_or_a_table_without_one_needs_a_default_partition() -> None:
    now = table("LIST (a)", one="FOR VALUES IN (1)")
    for older in (table(None), table("RANGE (a)", old=between("1", "2"))):
        [name] = former_partitions(with_former_partitions(now, [older, older], set()))
        assert name.table == "t_default"
    assert with_former_partitions(table(None), [now], set()) == table(None)


def test_documents_of_another_form_are_refused() -> None:
    with pytest.raises(RestoreError, match="which is not a hash partition's bounds"):
        with_former_partitions(
            table("HASH (a)", one="FOR VALUES WITH (modulus 2, remainder 0)"),
            [table("HASH (a)", old="FOR VALUES WITH (modulus)")],
            set(),
        )
