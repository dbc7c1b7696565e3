"""Predicates: their text, JSON and messages, and their evaluation compared with a database."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_assets.engine.files.batches import evaluate
from snapshot_assets.errors import DocumentError, PlanError, UnsupportedVersionError
from snapshot_assets.format import log_pb2 as pb
from snapshot_assets.format.documents import canonical_json
from snapshot_assets.format.predicate_text import MAX_TEXT, parse_predicate
from snapshot_assets.format.predicates import (
    MAX_DEPTH,
    MAX_SIZE,
    And,
    Comparison,
    IsIn,
    IsNull,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    check_columns,
    check_predicate,
    columns_of,
    field_of,
    parse_predicate_json,
    predicate_json,
)
from snapshot_assets.format.transactions import decode_predicate, encode_predicate

SCHEMA = pa.schema(
    [
        ("level", pa.int8()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("ns")),
        ('net "fare"', pa.decimal128(9, 2)),
        ("ratio", pa.float32()),
        ("big", pa.uint64()),
        ("code", pa.binary(2)),
        ("born", pa.date32()),
        ("clock", pa.time64("us")),
        ("spent", pa.duration("ms")),
        ("tags", pa.list_(pa.int8())),
        ("ok", pa.bool_()),
    ]
)


def parse(text: str) -> Predicate:
    return parse_predicate(text, SCHEMA, "main.t")


def test_a_predicate_survives_its_json_and_its_message() -> None:
    predicate = parse(
        "level < 3 and (name = 'it''s' or name is null) and not (ratio in (0.5, 'NaN', '-Infinity') or code != x'00FF')"
        ' and big >= 18446744073709551615 and "net ""fare""" <= 1.5 and tags is not null and ok <> FALSE'
    )
    assert canonical_json(predicate_json(predicate)).decode() == (
        '{"all":[{"column":"level","operator":"<","type":"int8","value":3},'
        '{"any":[{"column":"name","operator":"=","type":"string","value":"it\'s"},{"is_null":"name"}]},'
        '{"not":{"any":[{"column":"ratio","in":[0.5,"NaN","-Infinity"],"type":"float"},'
        '{"column":"code","operator":"!=","type":"fixed_size_binary[2]","value":"00ff"}]}},'
        '{"column":"big","operator":">=","type":"uint64","value":18446744073709551615},'
        '{"column":"net \\"fare\\"","operator":"<=","type":"decimal128(9, 2)","value":"1.50"},'
        '{"not":{"is_null":"tags"}},'
        '{"column":"ok","operator":"!=","type":"bool","value":false}]}'
    )
    assert parse_predicate_json(json.loads(canonical_json(predicate_json(predicate)))) == predicate
    message = encode_predicate(predicate).SerializeToString(deterministic=True)
    assert decode_predicate(pb.Predicate.FromString(message)) == predicate


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("at = '2025-01-01T01:00:00.5+01:00'", "timestamp[us, tz=UTC]", 1_735_689_600_500_000),
        ("at = '1969-12-31t23:59:59.999999z'", "timestamp[us, tz=UTC]", -1),
        ("local = '2025-01-01 00:00:00.123456789'", "timestamp[ns]", 1_735_689_600_123_456_789),
        ("born = '1970-01-02'", "date32[day]", 1),
        ("clock = '12:00:00.000001'", "time64[us]", 43_200_000_001),
        ("spent = -5", "duration[ms]", -5),
        ("ratio = 0.1", "float", 0.10000000149011612),
        ("level = 1e1", "int8", 10),
        ('"net ""fare""" = \'-0.10\'', "decimal128(9, 2)", "-0.10"),
        ("NAME = 'x'", None, None),
    ],
)
def test_literals_have_the_type_of_their_column(text: str, kind: str | None, value: Any) -> None:
    if kind is None:
        with pytest.raises(PlanError, match="no column 'NAME'"):
            parse(text)
    else:
        found = parse(text)
        assert isinstance(found, Comparison)
        assert found.value == Literal(kind, value)


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", 1, "the text ends"),
        ("level", 6, "expected one of = != <"),
        ("level < 3 and", 14, "expected a column"),
        ("((level < 3)", 13, "expected '\\)'"),
        ("level < 3 name = 'x'", 11, "expected 'and', 'or' or the end, found the name name"),
        ("level < 3; drop table t", 10, "'; drop table t'"),
        ("name = 'x", 8, "is not a name, number, text"),
        ("name = null", 8, "to look for NULL write 'is null'"),
        ("1 = 1", 1, "expected a column"),
        ("level = level", 9, r"expected a value \(put text in single quotes\), found the name level"),
        ("level in ()", 11, "expected a value"),
        ("a b = 1", 1, "no column 'a'; it has level, name"),
        ("level < 300", 9, "int8, and the number 300"),
        ("level < 1.5", 9, "it is not whole"),
        ("level < 'x'", 9, "int8, and the text 'x'"),
        ("name < 3", 8, "string, and the number 3"),
        ("ratio < 1e40", 9, "too large"),
        ("at < '2025-01-01T00:00:00'", 6, "it has no zone"),
        ("local < '2025-01-01T00:00:00Z'", 9, "it has a zone"),
        ("at < '2025-01-01T00:00:00.0000001Z'", 6, "finer than us"),
        ("born < '2025-02-30'", 8, "born"),
        ("clock < '24:00:00'", 9, "not a time of day"),
        ('"net ""fare""" < 1.234', 18, "more digits than decimal128\\(9, 2\\)"),
        ("code = x'00'", 8, "fixed_size_binary\\[2\\], and the bytes x'00'"),
        ("tags = 3", 8, "only 'is null' works"),
        ("ok = 1", 6, "write true or false"),
        ("(" * (MAX_DEPTH + 1) + "level < 3", MAX_DEPTH + 1, f"nested more than {MAX_DEPTH} deep"),
        ("not " * 5000 + "level < 3", 4 * MAX_DEPTH + 1, f"nested more than {MAX_DEPTH} deep"),
    ],
)
def test_an_invalid_text_is_refused_with_its_position(text: str, position: int, message: str) -> None:
    with pytest.raises(PlanError, match=f"at position {position}: .*{message}"):
        parse(text)


def test_large_predicates_are_refused() -> None:
    with pytest.raises(PlanError, match=f"more than {MAX_SIZE} operators"):
        parse(f"level in ({', '.join(['1'] * MAX_SIZE)})")
    with pytest.raises(PlanError, match=f"at most {MAX_TEXT:,}"):
        parse("level < 3" + " " * MAX_TEXT)
    deep: Predicate = IsNull("name")
    for _ in range(5000):
        deep = Not(deep)
    with pytest.raises(DocumentError, match=f"more than {MAX_DEPTH} deep"):
        check_predicate(deep)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"is_null": 3},
        {"is_null": "name", "more": 1},
        {"all": {"is_null": "name"}},
        {"column": "level", "operator": "~", "type": "int8", "value": 3},
        {"column": "level", "operator": "<", "type": "int8", "value": 300},
        {"column": "level", "operator": "<", "type": "int8", "value": True},
        {"column": "level", "operator": "<", "type": "int8", "value": "3; drop"},
        {"column": "fare", "operator": "<", "type": "decimal128(9, 2)", "value": "1.5"},
        {"column": "tags", "operator": "<", "type": "list<int8>", "value": 3},
        {"column": "level", "in": [], "type": "int8"},
        {"any": [{"column": "c", "in": [1], "type": "int8"}, {"column": "c", "in": [1], "type": "int16"}]},
        [],
    ],
)
def test_invalid_json_is_damage(value: Any) -> None:
    with pytest.raises(DocumentError):
        parse_predicate_json(value)


def test_a_message_with_an_unknown_part_is_refused_not_skipped() -> None:
    for message in (
        pb.Predicate(),
        pb.Predicate(negated=pb.Predicate()),
        pb.Predicate(comparison=pb.Comparison(column="c", value=pb.Literal(type="int8", integer=1))),
        pb.Predicate(comparison=pb.Comparison(column="c", operator=1, value=pb.Literal(type="int8"))),
    ):
        with pytest.raises(UnsupportedVersionError):
            decode_predicate(message)


def test_a_predicate_must_fit_its_table() -> None:
    check_columns(parse("level < 3 and tags is null"), SCHEMA, "main.t")
    with pytest.raises(PlanError, match=r"main\.t\.level is int8, and the predicate compares it with int16"):
        check_columns(Comparison("level", Operator.LESS, Literal("int16", 3)), SCHEMA, "main.t")
    with pytest.raises(PlanError, match="no column 'lvl'"):
        check_columns(IsNull("lvl"), SCHEMA, "main.t")


# Evaluation

_ROWS = pa.table(
    {
        "i": pa.array([None, -1, 0, 1], pa.int32()),
        "f": pa.array([None, math.nan, 0.0, -0.0, 1.5, -math.inf], pa.float64()).slice(0, 4),
        "s": pa.array([None, "", "a", "é"], pa.string()),
        "d": pa.array([None, Decimal("-0.01"), Decimal("0.00"), Decimal("9.99")], pa.decimal128(9, 2)),
        "b": pa.array([None, False, True, True], pa.bool_()),
        "k": pa.array([None, date(1969, 12, 31), date(1970, 1, 1), date(1970, 1, 2)], pa.date32()),
    }
)
_FLOATS = pa.array([None, math.nan, 0.0, -0.0, 1.5, -math.inf], pa.float64())
_LITERALS = {
    "i": ["-1", "0", "1", "2"],
    "f": ["'NaN'", "0.0", "1.5", "'-Infinity'", "'Infinity'"],
    "s": ["''", "'a'", "'é'", "'b'"],
    "d": ["-0.01", "0", "9.99"],
    "b": ["true", "false"],
    "k": ["'1969-12-31'", "'1970-01-01'"],
}


def product(rows: pa.Table) -> pa.Table:
    """Return rows with every combination of two columns' values: each column is shuffled differently."""
    count = 12
    return pa.table(
        {
            name: pa.concat_arrays([column.combine_chunks()] * (count // len(column)))
            if name != "f"
            else pa.concat_arrays([_FLOATS] * (count // len(_FLOATS)))
            for name, column in zip(rows.column_names, rows.columns, strict=True)
        }
    )


ROWS = product(_ROWS)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.register("arrow_rows", ROWS)
        connection.execute("CREATE TABLE numbered AS SELECT * FROM arrow_rows")
        yield connection


@st.composite
def texts(draw: st.DrawFn) -> str:
    def condition() -> str:
        column = draw(st.sampled_from(list(_LITERALS)))
        literals = st.sampled_from(_LITERALS[column])
        match draw(st.integers(0, 3)):
            case 0:
                return f"{column} {draw(st.sampled_from(['in', 'not in']))} ({draw(literals)}, {draw(literals)})"
            case 1:
                return f"{column} {draw(st.sampled_from(['is null', 'is not null']))}"
        return f"{column} {draw(st.sampled_from(['=', '!=', '<>', '<', '<=', '>', '>=']))} {draw(literals)}"

    text = condition()
    for _ in range(draw(st.integers(0, 4))):
        form = draw(st.sampled_from(["{} and {}", "{} or {}", "not ({}) and {}", "({}) or not {}", "({} and {})"]))
        text = form.format(text, condition())
    return text


@given(text=texts())
def test_evaluation_agrees_with_a_database(database: duckdb.DuckDBPyConnection, text: str) -> None:
    predicate = parse_predicate(text, ROWS.schema, "main.t")
    columns = {name: ROWS[name].combine_chunks() for name in columns_of(predicate)}
    wanted = [answer for (answer,) in database.execute(f"SELECT ({text}) FROM numbered ORDER BY rowid").fetchall()]
    assert evaluate(predicate, columns, ROWS.num_rows).to_pylist() == wanted


def test_an_empty_and_is_true_and_an_empty_or_is_false() -> None:
    assert evaluate(And(()), {}, 2).to_pylist() == [True, True]
    assert evaluate(Or(()), {}, 2).to_pylist() == [False, False]
    assert evaluate(Not(IsIn("c", (Literal("int8", 1),))), {"c": pa.array([None, 1, 2], pa.int8())}, 3).to_pylist() == [
        None,
        False,
        True,
    ]


def test_a_column_that_only_looks_identical_is_shown_with_escapes():
    """A Cyrillic letter looks like the Latin one: the message shows the difference."""
    schema = pa.schema([("carrier", pa.string())])
    with pytest.raises(PlanError, match=r"no column '\u0441arrier' \('\\u0441arrier'\); it has carrier$"):
        field_of("\u0441arrier", schema, "main.t")


def test_a_duplicate_column_is_not_reported_missing():
    schema = pa.schema([("carrier", pa.string()), ("carrier", pa.string())])
    with pytest.raises(PlanError, match="has 2 columns 'carrier'"):
        field_of("carrier", schema, "main.t")
