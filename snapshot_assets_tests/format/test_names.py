import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_assets.errors import PlanError
from snapshot_assets.format.names import ColumnPath, check_tag_name, column_text, parse_column, parse_table, table_text
from snapshot_assets.format.relations import TableName

_PARTS = st.one_of(st.text("a.\"' é,", min_size=1, max_size=8), st.text(min_size=1, max_size=8))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("public.trips", TableName("public", "trips")),
        ('"my.schema"."my.table"', TableName("my.schema", "my.table")),
        ('public."a ""b"""', TableName("public", 'a "b"')),
        ("Public.Big Table", TableName("Public", "Big Table")),
        ({"schema": "a.b", "table": "c"}, TableName("a.b", "c")),
        (TableName("a", "b"), TableName("a", "b")),
    ],
)
def test_tables_are_read(value, expected):
    assert parse_table(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        *("", ".", "trips", "a.b.c", "a..b", ".a", "a.", 'a."b', '"a"b.c', 'a."b"c', 'a."".b', '"".a'),
        *(
            {"schema": "a"},
            {"schema": "a", "table": ""},
            {"schema": "a", "table": 1},
            {"schema": "a", "x": "b"},
            3,
            None,
        ),
    ],
)
def test_an_invalid_table_name_is_refused(value):
    with pytest.raises(PlanError, match=r"is not a schema and a table; write one such as public\.trips"):
        parse_table(value)


@given(_PARTS, _PARTS)
def test_table_text_is_the_inverse_of_parsing(schema, table):
    assert parse_table(table_text(TableName(schema, table))) == (schema, table)


@given(_PARTS, _PARTS, _PARTS)
def test_column_text_is_the_inverse_of_parsing(schema, table, column):
    path = ColumnPath(TableName(schema, table), column)
    assert parse_column(column_text(path)) == path


@pytest.mark.parametrize("value", ["", "a.b", "a.b.c.d", 'a.b."c', 3])
def test_an_invalid_column_name_is_refused(value):
    with pytest.raises(PlanError, match="is not a schema, a table and a column"):
        parse_column(value)


@pytest.mark.parametrize("name", ["x", "_", "V1.2-rc_3", "x" * 100])
def test_names_of_tags_are_accepted(name):
    assert check_tag_name(name) == name


@pytest.mark.parametrize("name", ["", "1st", "2025", "-x", ".x", "a/b", "a b", "ts:x", "é", "x" * 101, "x\n"])
def test_an_invalid_tag_name_is_refused(name):
    with pytest.raises(PlanError, match="cannot name a tag; a name starts with a letter or _"):
        check_tag_name(name)
