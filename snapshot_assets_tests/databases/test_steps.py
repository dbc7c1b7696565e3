"""Steps of a definition, and the kinds of objects that texts begin with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from snapshot_assets.databases.convert.schema import converted
from snapshot_assets.databases.definition import ObjectKey, Statement
from snapshot_assets.databases.open import target_module
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.protocol.steps import steps_of
from snapshot_assets.format.kinds import counts_by_kind, counts_text, kind_of_object
from snapshot_assets.format.relations import DatabaseSchema, TableName

KINDS = {
    *("check", "collation", "column", "comment", "constraint", "default", "extension", "foreign key", "function"),
    *("index", "length", "materialized view", "not null", "policy", "precision", "primary key", "rule", "sequence"),
    *("statistics", "table", "table option", "time index", "trigger", "type", "unique constraint", "view"),
}
"""The kinds of what is lost of `everything.json`."""

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
        ("Table s.t was stored as delta", "table"),
        ("Foreign data wrapper far is not in a snapshot.", "foreign data wrapper"),
        ("Grant on table s.t is not in a snapshot.", "grant"),
    ],
)
def test_the_kind_of_an_object_is_what_its_text_begins_with(text: str, kind: str) -> None:
    assert kind_of_object(text) == kind


def test_counts_name_the_most_frequent_kind_first() -> None:
    counts = counts_by_kind(["view", "policy", "policy", "index", "index", "operator class"])
    assert counts_text(counts) == "2 indexes, 2 policies, 1 operator class, 1 view"
    assert counts_text({"table": 1234}) == "1,234 tables"
    many = {"operator class": 2, "statistics": 2, "place of sequence": 2, "foreign key": 2, "range of fields": 2}
    assert counts_text(many) == (
        "2 operator classes, 2 statistics, 2 places of sequences, 2 foreign keys, 2 ranges of fields"
    )


@pytest.mark.parametrize("kind", ["postgresql", "duckdb"])
@pytest.mark.parametrize("expressions", [True, False])
def test_everything_that_a_restore_loses_begins_with_its_kind(kind: str, expressions: bool) -> None:
    schema = DatabaseSchema.model_validate(json.loads(EVERYTHING.read_text()))
    module = target_module(DatabaseAddress("target", {"postgresql": "postgresql://h/d", "duckdb": "duckdb:///d"}[kind]))
    mapped, lost = converted(schema, kind, module) if kind != "postgresql" else (schema, ())
    every = (*lost, *module.define(mapped, expressions=expressions).lost)
    assert set(map(kind_of_object, every)) <= KINDS


T = TableName("s", "t")
COLUMN = ObjectKey("column", "s.t.c")
INDEX = ObjectKey("index", "i", T)
DOMAIN = ObjectKey("domain", TableName("s", "d"))
SEQUENCE = ObjectKey("sequence", TableName("s", "q"))


@pytest.mark.parametrize(
    ("key", "name", "kind"),
    [
        (ObjectKey("table", T), "table s.t", "table"),
        (INDEX, "index i of s.t", "index"),
        (ObjectKey("primary key", of=T), "primary key of s.t", "primary key"),
        (ObjectKey("foreign keys", of=T), "foreign keys of s.t", "foreign key"),
        (ObjectKey("comment", of=INDEX), "comment on index i of s.t", "comment"),
        (ObjectKey("comment", of=T), "comment on s.t", "comment"),
        (ObjectKey("comment", of=ObjectKey("attribute", "a", ObjectKey("type", T))), "comment on s.t.a", "comment"),
        (ObjectKey("statistics target", of=INDEX), "statistics target of index i of s.t", "statistics target"),
        (ObjectKey("default", of=COLUMN), "default of column s.t.c", "default"),
        (ObjectKey("options", of=COLUMN), "options of column s.t.c", "column option"),
        (ObjectKey("identity", of=COLUMN), "identity of column s.t.c", "column setting"),
        (ObjectKey("check", "c", DOMAIN), "check c of domain s.d", "check"),
        (ObjectKey("place", of=SEQUENCE), "place of sequence s.q", "place of sequence"),
        (ObjectKey("persistence", of=SEQUENCE), "persistence of sequence s.q", "sequence setting"),
    ],
)
def test_a_key_prints_as_ledgers_name_its_step_and_is_counted_by_its_kind(key: ObjectKey, name: str, kind: str) -> None:
    [step] = steps_of([Statement(key, "")])
    assert (step.name, step.kind) == (name, kind)


def test_a_part_belongs_to_all_that_holds_it_and_a_domain_is_a_type() -> None:
    of_check = ObjectKey("comment", of=ObjectKey("check", "c", DOMAIN))
    assert [str(each) for each in of_check.owners] == ["check c of domain s.d", "type s.d"]
    assert INDEX.owners == ()


def test_statements_of_one_name_that_follow_each_other_are_one_step_and_others_get_a_number() -> None:
    partition, index = ObjectKey("partition", "p"), ObjectKey("index", "i")
    keys = (partition, partition, index, ObjectKey("comment", of=index), index)
    steps = steps_of(Statement(key, f"SQL {number}") for number, key in enumerate(keys))
    assert [step.name for step in steps] == ["partition p", "index i", "comment on index i", "index i (2)"]
    assert [step.sql for step in steps] == [("SQL 0", "SQL 1"), ("SQL 2",), ("SQL 3",), ("SQL 4",)]
    assert [step.kind for step in steps] == ["partition", "index", "comment", "index"]
