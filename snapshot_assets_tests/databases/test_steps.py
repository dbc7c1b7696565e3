"""Steps of a definition, their places in its order, and the kinds of objects that texts begin with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from snapshot_assets.databases.convert import converted
from snapshot_assets.databases.kinds import OTHER, counts_by_kind, counts_text, kind_of_object
from snapshot_assets.databases.open import target_module
from snapshot_assets.databases.source import DatabaseAddress
from snapshot_assets.databases.steps import Place, placed, steps_of
from snapshot_assets.databases.target import Definition, Statement
from snapshot_assets.format.relations import DatabaseSchema

EVERYTHING = Path(__file__).parent / "postgresql" / "everything.json"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("index public.i of public.t", "index"),
        ("Index i of t is left out: …", "index"),
        ("Foreign keys of a to b are left out", "foreign key"),
        ("The comment of schema s is left out.", "comment"),
        ("Materialized view s.v is created empty", "materialized view"),
        ("Statistics target of column s.t.c", "statistics target"),
        ("Of s.t, partitions are left out", "table option"),
        ("Chunks of s.t cannot be replaced", "time index"),
        ("function public.index(integer) is not in a snapshot.", "function"),
        ("persistence of sequence s.q", "sequence setting"),
        ("indexes", OTHER),
        ("tables.of public.t", OTHER),
    ],
)
def test_the_kind_of_an_object_is_what_its_text_begins_with(text: str, kind: str) -> None:
    assert kind_of_object(text) == kind


def test_counts_name_the_most_frequent_kind_first() -> None:
    counts = counts_by_kind(["view a", "policy b", "policy c", "index d", "index e", "?"])
    assert counts_text(counts) == "2 indexes, 2 policies, 1 other object, 1 view"
    assert counts_text({"table": 1234}) == "1,234 tables"


@pytest.mark.parametrize("kind", ["postgresql", "duckdb"])
@pytest.mark.parametrize("expressions", [True, False])
def test_everything_that_a_restore_makes_or_loses_has_a_kind(kind: str, expressions: bool) -> None:
    schema = DatabaseSchema.model_validate(json.loads(EVERYTHING.read_text()))
    module = target_module(DatabaseAddress("target", {"postgresql": "postgresql://h/d", "duckdb": "duckdb:///d"}[kind]))
    mapped, lost = converted(schema, kind, module.type_for) if kind != "postgresql" else (schema, ())
    definition = module.define(mapped, expressions=expressions)
    statements = (*definition.before, *definition.after)
    texts = [*(each.makes for each in statements), *lost, *definition.lost]
    assert [text for text in texts if kind_of_object(text) == OTHER] == []


def test_statements_of_one_name_that_follow_each_other_are_one_step_and_others_get_a_number() -> None:
    names = ("partition p", "partition p", "index i", "comment on index i", "index i")
    steps = steps_of(Statement(name, f"SQL {number}") for number, name in enumerate(names))
    assert [step.name for step in steps] == ["partition p", "index i", "comment on index i", "index i (2)"]
    assert [step.sql for step in steps] == [("SQL 0", "SQL 1"), ("SQL 2",), ("SQL 3",), ("SQL 4",)]
    assert [step.kind for step in steps] == ["partition", "index", "comment", "index"]


@pytest.mark.parametrize(
    ("place", "order"),
    [
        (Place.BEFORE_TABLES, "schema s|new|type s.t|table s.a|primary key of s.a|view s.v"),
        (Place.BEFORE_ROWS, "schema s|type s.t|table s.a|new|primary key of s.a|view s.v"),
        (Place.AFTER_ROWS, "schema s|type s.t|table s.a|new|primary key of s.a|view s.v"),
        (Place.BEFORE_VIEWS, "schema s|type s.t|table s.a|primary key of s.a|new|view s.v"),
        (Place.LAST, "schema s|type s.t|table s.a|primary key of s.a|view s.v|new"),
    ],
)
def test_other_modules_put_statements_at_a_place(place: Place, order: str) -> None:
    before = tuple(Statement(name, "") for name in ("schema s", "type s.t", "table s.a"))
    after = tuple(Statement(name, "") for name in ("primary key of s.a", "view s.v"))
    found = placed(Definition((), before, after), place, [Statement("new", "")])
    assert "|".join(each.makes for each in (*found.before, *found.after)) == order
    assert len(found.before) == 3 + (place in (Place.BEFORE_TABLES, Place.BEFORE_ROWS))
