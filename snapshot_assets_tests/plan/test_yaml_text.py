import pytest

from snapshot_assets.errors import PlanError
from snapshot_assets.plan.yaml_text import parse_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2013-01-01T00:00:00Z", "2013-01-01T00:00:00Z"),
        ("2013-01-01", "2013-01-01"),
        ("no", "no"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("010", "010"),
        ("1_000", "1_000"),
        ("true", True),
        ("False", False),
        ("17", 17),
        ("-0.5", -0.5),
        ("1.5e3", 1500.0),
        ("null", None),
        ("~", None),
        ("''", ""),
        ("", None),
        ("a:\nb: []", {"a": None, "b": []}),
        ("'17'", "17"),
    ],
)
def test_scalars_are_read_as_people_expect(text, value):
    found = parse_yaml(text, "x.yaml")
    assert found == value
    assert type(found) is type(value)


def test_a_repeated_key_is_refused_with_both_lines():
    with pytest.raises(PlanError) as caught:
        parse_yaml("plans:\n  a: 1\n  b: 2\n  a: 3\n", "x.yaml")
    assert str(caught.value) == "x.yaml, line 4: the key 'a' is repeated, first in line 2; mend it there"


def test_a_merged_key_may_be_overridden():
    text = "base: &base {a: 1, b: 2}\nplan:\n  <<: *base\n  b: 3\n"
    assert parse_yaml(text, "x.yaml") == {"base": {"a": 1, "b": 2}, "plan": {"a": 1, "b": 3}}


@pytest.mark.parametrize("text", ["a: [1\nb: 2", "a: b: c", "\tb: 1", "!!python/object:os.system {}", "a: *nowhere"])
def test_what_is_no_plain_yaml_is_refused_with_its_line(text):
    with pytest.raises(PlanError, match=r"x\.yaml, line \d: "):
        parse_yaml(text, "x.yaml")


@pytest.mark.parametrize("text", ["\x00", "[" * 100_000, "a: 1\n---\nb: 2\n", "{[1]: 2}"])
def test_hostile_yaml_is_refused(text):
    with pytest.raises(PlanError, match=r"x\.yaml"):
        parse_yaml(text, "x.yaml")
