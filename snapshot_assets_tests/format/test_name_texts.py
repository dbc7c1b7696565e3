"""Names as people read them, and as YAML and a shell take them back."""

from __future__ import annotations

import shlex
import subprocess
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_assets.format.name_texts import printed_name, quoted_name, shell_word, written_name, yaml_key, yaml_value
from snapshot_assets.format.names import ColumnPath, parse_column, parse_table, table_of_pattern
from snapshot_assets.format.relations import TableName
from snapshot_assets.plan.yaml_text import References, parse_yaml
from snapshot_assets_tests.odd_names import ODD, names


@given(names, names)
def test_a_written_table_is_the_table_of_a_plan_and_the_only_one_of_a_pattern(schema: str, table: str) -> None:
    written = written_name(schema, table)

    assert parse_table(written) == (schema, table)
    assert table_of_pattern(written) == (schema, table)


@given(names, names, names)
def test_a_written_column_is_the_column_of_a_plan(schema: str, table: str, column: str) -> None:
    path = ColumnPath(TableName(schema, table), column)

    assert parse_column(path.written) == path


@given(names, names)
def test_yaml_gives_back_the_name_as_a_key_and_as_a_value(key: str, value: str) -> None:
    line = f"mapping: {{{yaml_key(key)}: {yaml_value(value)}, other: [{yaml_value(value)}]}}"

    parsed = References({}).resolve((), parse_yaml(line, "a line"))

    assert parsed == {"mapping": {key: value, "other": [value]}}
    assert "`" not in line
    assert line.isprintable()


@settings(max_examples=50)
@given(st.lists(names, min_size=1, max_size=8))
def test_a_shell_gives_back_each_word(values: list[str]) -> None:
    line = " ".join(map(shell_word, values))
    read = f"for word in {line}; do printf '%s\\0' \"$word\"; done"

    words = subprocess.run(["bash", "-c", read], capture_output=True, check=True).stdout.decode().split("\0")[:-1]

    assert words == values
    assert line.isprintable()
    if all(map(str.isprintable, values)) and "$'" not in line:
        assert shlex.split(line) == values


@given(names, names)
def test_a_written_name_looks_like_no_option(schema: str, table: str) -> None:
    assert not written_name(schema, table).startswith("-")


@given(names, names, names, names)
def test_different_names_print_differently(one: str, other: str, third: str, fourth: str) -> None:
    first, second = printed_name(one, other), printed_name(third, fourth)

    assert (first == second) is ((one, other) == (third, fourth))
    assert (quoted_name(one) == quoted_name(third)) is (one == third)
    assert (first + quoted_name(one)).isprintable()


@pytest.mark.parametrize("name", ["orders", "Orders", "ORDERS_2", "größe", "заказы", "id_заказа", "用户ID", "a-b"])
def test_a_plain_name_prints_as_it_is(name: str) -> None:
    assert str(TableName("public", name)) == f"public.{name}"


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        pytest.param("a.b", '"a.b"', id="a dot"),
        pytest.param("a ", '"a "', id="a space at the end"),
        pytest.param('a"b', '"a""b"', id="a quotation mark"),
        pytest.param("", '""', id="nothing"),
        pytest.param("what*", '"what*"', id="a star that is meant"),
        pytest.param("a\u00a0b", r'U&"a\00A0b"', id="a no-break space"),
        pytest.param("a\u200bb", r'U&"a\200Bb"', id="a character without width"),
        pytest.param("a\x1b[31m", r'U&"a\001B[31m"', id="a control character"),
        pytest.param("a\nb", r'U&"a\000Ab"', id="a line feed"),
        pytest.param("\u202eabc", r'U&"\202Eabc"', id="a change of direction"),
        pytest.param("t\u0430ble", r'U&"t\0430ble"', id="a Cyrillic letter in a Latin word"),
        pytest.param("\u0441\u043e", r'U&"\0441\043E"', id="Cyrillic letters that all look Latin"),
        pytest.param("cafe\u0301", r'U&"cafe\0301"', id="a loose accent"),
        pytest.param("\uff41", r'U&"\FF41"', id="a wide letter"),
        pytest.param("a\u2013b", r'U&"a\2013b"', id="a dash like a hyphen"),
        pytest.param("a\u3164", r'U&"a\3164"', id="a letter that shows nothing"),
        pytest.param("\U000e0061", r'U&"\+0E0061"', id="a character beyond the first plane"),
        pytest.param("\\\u200b", r'U&"\\\200B"', id="a backslash beside an escape"),
        pytest.param("\\200B", r"\200B", id="a backslash by itself"),
    ],
)
def test_a_name_that_would_deceive_prints_quoted_as_in_sql(name: str, printed: str) -> None:
    assert str(TableName("public", name)) == f"public.{printed}"


def test_a_dot_shows_which_part_holds_it() -> None:
    assert [str(TableName("a.b", "c")), str(TableName("a", "b.c"))] == ['"a.b".c', 'a."b.c"']


@pytest.mark.parametrize("name", ODD)
def test_equal_names_in_another_form_of_unicode_print_differently(name: str) -> None:
    for form in ("NFC", "NFD", "NFKC"):
        other = unicodedata.normalize(form, name)
        assert (printed_name(name) == printed_name(other)) is (name == other)
