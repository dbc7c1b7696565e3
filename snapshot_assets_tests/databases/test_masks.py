from __future__ import annotations

import pytest

from snapshot_assets.databases.selection.hidden import masked, parse_mask
from snapshot_assets.errors import PlanError


@pytest.mark.parametrize(
    "sql", ["md5(email)", "'a;(b'", '"odd)"', "left(x, 2) || '***'", "x -- ) ;", "$$;($$", "[1, 2][1]"]
)
def test_an_expression_is_a_mask(sql: str) -> None:
    assert parse_mask(f" {sql} ") == sql
    assert masked(sql, "text") == f"CAST((\n{sql}\n) AS text)"  # a comment ends with its line


def test_a_null_of_yaml_is_the_null_of_sql() -> None:
    assert parse_mask(None) == "NULL"


@pytest.mark.parametrize("sql", ["", "  ", "a; b", "md5(a", "a) FROM x WHERE (1 = 1", "(a]", "'a", 3, ["a"]])
def test_what_is_no_expression_is_refused(sql: object) -> None:
    with pytest.raises(PlanError):
        parse_mask(sql)
