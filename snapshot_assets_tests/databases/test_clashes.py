"""Names that a target cannot tell apart, or would cut."""

from __future__ import annotations

import pytest

from snapshot_assets.databases.convert.renaming import clashes, too_long
from snapshot_assets.databases.duckdb import KIND as DUCKDB
from snapshot_assets.format.relations import DatabaseSchema, Table, View


def table(schema: str, name: str, *columns: str, **more: object) -> Table:
    described = [{"name": each, "type": "INTEGER", "arrow_type": "int32"} for each in columns]
    return Table.model_validate({"schema": schema, "name": name, "columns": described, **more})


def test_each_group_of_names_that_differ_only_in_case_is_one_sentence() -> None:
    schema = DatabaseSchema(
        database="postgresql",
        tables=(
            table("s", "T1", "a", "A", "b"),
            table("s", "t1", "a"),
            table("s", "other", "Ä", "ä"),
            table("S", "alone", "a"),
        ),
        views=(View(schema_name="s", name="OTHER", definition=""),),
    )
    found = [sentence.partition(" would be one in DuckDB")[0] for sentence in clashes(schema, "DuckDB", DUCKDB.names)]
    assert found == [
        "Schemas s and S",
        "Tables s.T1 and s.t1",
        "Tables s.other and s.OTHER",
        "Columns a and A of s.T1",
    ]


@pytest.mark.parametrize(
    "tables",
    [(table("s", "t", "Ä", "ä"),), (table("s", "a", "x", "y"), table("t", "a", "x"))],
    ids=["letters that are not of ASCII keep their case", "other names"],
)
def test_different_names_do_not_clash(tables: tuple[Table, ...]) -> None:
    assert not list(clashes(DatabaseSchema(database="postgresql", tables=tables), "DuckDB", DUCKDB.names))


def test_names_of_more_than_63_bytes_are_too_long_for_postgresql() -> None:
    schema = DatabaseSchema(database="duckdb", tables=(table("s", "x" * 63, "ü" * 32), table("s", "y" * 64, "a")))
    found = [sentence.partition("; ")[0] for sentence in too_long(schema, "PostgreSQL", 63)]
    assert found == [
        f"Column s.{'x' * 63}.{'ü' * 32} has a name of 64 bytes",
        f"Table s.{'y' * 64} has a name of 64 bytes",
    ]


def test_names_that_hold_dots_show_which_part_does() -> None:
    one, other = table("a", "b.c"), table("a", "B.c")

    [sentence] = clashes(DatabaseSchema(database="postgresql", tables=(one, other)), "DuckDB", DUCKDB.names)

    assert 'Tables a."b.c" and a."B.c" would be one' in sentence
