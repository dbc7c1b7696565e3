from __future__ import annotations

import pytest

from snapshot_assets.errors import PlanError
from snapshot_assets.format.names import check_pattern, is_wild, matches
from snapshot_assets.format.relations import TableName


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("public.audit", TableName("public", "audit"), True),
        ("public.audit", TableName("public", "audits"), False),
        ("public.audit", TableName("public", "Audit"), False),
        ("public.tmp_*", TableName("public", "tmp_"), True),
        ("public.tmp_*", TableName("publix", "tmp_1"), False),
        ("*.log_?", TableName("a.b", "log_1"), True),
        ("*.log_?", TableName("a", "log_12"), False),
        ('"a.b".t', TableName("a.b", "t"), True),
        ('a."what*"', TableName("a", "what*"), True),
        ('a."what*"', TableName("a", "whatever"), False),
        ("a.x+y[1]", TableName("a", "x+y[1]"), True),
        ("a.*", TableName("a", "two\nlines"), True),
    ],
)
def test_a_pattern_matches_names(pattern: str, name: TableName, expected: bool) -> None:
    assert matches(check_pattern(pattern), name) is expected


def test_quoted_stars_are_no_wildcards() -> None:
    assert is_wild("a.b*")
    assert is_wild("?.b")
    assert not is_wild('a."b*"')


@pytest.mark.parametrize("pattern", ["audit", "", "a.b.c", 'a."b', None, 3, "a."])
def test_what_names_no_schema_and_table_is_refused(pattern: object) -> None:
    with pytest.raises(PlanError, match=r"not a pattern.*public\.tmp_\*"):
        check_pattern(pattern)
