"""SQL in every text of a snapshot's documents: it stays a name or a comment, or is refused; none of it runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import DocumentError, RestoreError, SchemaIncompleteError, SnapshotError
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.databases.postgresql.helpers import client
from snapshot_assets_tests.engine.forged import Forged, column, table
from snapshot_assets_tests.engine.restore.imports import Into

pytestmark = pytest.mark.slow

Place = Callable[[str, str], dict[str, Any]]
SEQUENCE = {"start": 1, "increment": 1, "minimum": 1, "maximum": 9}


def made(name: str, *columns: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return {"tables": (table("main", name, columns, **facts),)}


def enum(name: str, schema: str, type_: str, label: str, **facts: Any) -> dict[str, Any]:
    """An enum, where each kind of database has its enums."""
    kind = {"schema": schema, "name": type_, "kind": "enum", "labels": [label], **facts}
    return {"schemas": ({"name": "main", "options": {"types": [kind]}},), **made(name, types=[kind])}


NAMES: dict[str, Place] = {
    "schema": lambda evil, name: {"schemas": ({"name": evil},), "tables": (table(evil, name),)},
    "table": lambda evil, name: made(f"{name}{evil}"),
    "column": lambda evil, name: made(name, column(evil)),
    "primary key": lambda evil, name: made(name, primary_key={"name": f"{name}{evil}", "columns": ["a"]}),
    "key on a column": lambda evil, name: made(name, column(evil), primary_key={"columns": [evil]}),
    "unique constraint": lambda evil, name: made(name, unique=[{"name": f"{name}{evil}", "columns": ["a"]}]),
    "check": lambda evil, name: made(name, checks=[{"name": f"{name}{evil}", "definition": "CHECK ((a > 0))"}]),
    "enum": lambda evil, name: enum(name, "main", f"{name}{evil}", "x"),
    "label": lambda evil, name: enum(name, "main", f"{name}_type", evil),
    "comment on a table": lambda evil, name: made(name, comment=evil),
    "comment on a column": lambda evil, name: made(name, column(comment=evil)),
    "comment on a type": lambda evil, name: enum(name, "main", f"{name}_type", "x", comment=evil),
    "comment on a schema": lambda evil, name: {"schemas": ({"name": name, "comment": evil},), **made(name)},
    "sequence": lambda evil, name: made(name, sequences=[{"schema": "main", "name": f"{name}{evil}", **SEQUENCE}]),
    "view": lambda evil, name: {
        "views": ({"schema": "main", "name": f"{name}{evil}", "definition": "SELECT 1 AS a", "columns": [column()]},)
    },
}
"""Texts that are names, labels and comments: whatever they hold, they are that."""

TEXTS: dict[str, Place] = {
    "type": lambda evil, name: made(name, column(type=evil)),
    "collation": lambda evil, name: made(name, column("a", "varchar", "string", collation=evil)),
    "default": lambda evil, name: made(name, column(default=evil)),
    "generated column": lambda evil, name: made(name, column(), column("b", generated=evil, generated_kind="virtual")),
    "definition of a check": lambda evil, name: made(name, checks=[{"name": name, "definition": f"CHECK ({evil})"}]),
    "all of a check": lambda evil, name: made(name, checks=[{"name": name, "definition": evil}]),
    "keys of an index": lambda evil, name: made(
        name, indexes=[{"name": name, "definition": f"CREATE INDEX {name} ON main.{name} USING btree ({evil})"}]
    ),
    "all of an index": lambda evil, name: made(name, indexes=[{"name": name, "definition": evil}]),
    "query of a view": lambda evil, name: {
        "views": ({"schema": "main", "name": name, "definition": evil, "columns": [column()]},)
    },
    "end of a view's query": lambda evil, name: {
        "views": ({"schema": "main", "name": name, "definition": f"SELECT 1 AS a {evil}", "columns": [column()]},)
    },
}
"""Texts that are SQL: one type, one expression, one definition, one query."""

OPTIONAL = {"definition of a check", "all of a check", "keys of an index", "all of an index"}
OPTIONAL |= {"query of a view", "end of a view's query"}
"""Texts without which rows can be loaded."""

EXPRESSIONS = {"default", "generated column", "definition of a check", "all of a check", "query of a view"}
EXPRESSIONS |= {"end of a view's query", "keys of an index", "all of an index"}


class Canary:
    """A target with a table that hostile SQL would drop and a file that it would write."""

    def __init__(self, into: Into, folder: Path) -> None:
        self.into = into
        self.file = folder / "written by a snapshot"
        self.run("CREATE SCHEMA IF NOT EXISTS main")
        self.run("CREATE TABLE main.canary AS SELECT 1 AS alive")

    @property
    def is_duckdb(self) -> bool:
        return self.into.uri.startswith("duckdb")

    def run(self, sql: str) -> list[Any]:
        if self.is_duckdb:
            with duckdb.connect(self.into.uri.removeprefix("duckdb://")) as connection:
                return connection.execute(sql).fetchall()
        with client(self.into.uri) as run:
            found = run(sql)
        return [] if found is None else found

    @property
    def evil(self) -> tuple[str, ...]:
        """Statements that a text might smuggle in, in the ways in which it might end what it stands in."""
        if self.is_duckdb:
            own = [f"COPY (SELECT 1) TO '{self.file}'", f"ATTACH '{self.file}' AS evil", "INSTALL httpfs"]
        else:
            own = [f"COPY (SELECT 1) TO PROGRAM 'cat > \"{self.file}\"'", f"COPY (SELECT 1) TO '{self.file}'"]
        all_ = "; ".join(["DROP TABLE main.canary", *own])
        return (f"'\")]; {all_}; --", f"1); {all_}; --", own[0])

    def lives(self) -> bool:
        return len(self.run("SELECT alive FROM main.canary")) == 1 and not self.file.exists()

    def relations(self) -> list[Any]:
        return self.run("SELECT table_schema, table_name, column_name FROM information_schema.columns ORDER BY 1, 2, 3")


@pytest.fixture(params=["duckdb", "postgresql"])
def canary(request: pytest.FixtureRequest, tmp_path: Path) -> Canary:
    if request.param == "duckdb":
        return Canary(Into(f"duckdb://{tmp_path}/target.duckdb"), tmp_path)
    return Canary(Into(request.getfixturevalue("postgresql_database")), tmp_path)


def imported(canary: Canary, folder: Path, number: int, forged: dict[str, Any], expressions: bool) -> tuple[str, ...]:
    """Import a forged snapshot to its end; returns what was lost."""
    store = open_store(parse_location(f"file://{folder}/location-{number}"))
    Forged(database="duckdb" if canary.is_duckdb else "postgresql", **forged).write(store)
    done = canary.into.restore(store, filters=Filters(expressions=expressions))
    assert done.finished
    return done.run.begin().lost


@contextmanager
def naming(place: str, evil: str) -> Iterator[None]:
    """Name the SQL text in an error."""
    try:
        yield
    except (AssertionError, SnapshotError) as error:
        error.add_note(f"as {place}: {evil!r}")
        raise


@pytest.mark.parametrize("expressions", [True, False])
def test_sql_in_names_labels_and_comments_is_a_name_a_label_or_a_comment(
    expressions: bool, canary: Canary, tmp_path: Path
) -> None:
    evil = "'\")]; DROP TABLE main.canary; --"
    forged: dict[str, Any] = {"schemas": (), "tables": (), "views": ()}
    types = []
    for number, forge in enumerate(NAMES.values()):
        for what, documents in forge(evil, f"t{number}").items():
            forged[what] += documents
    for each in forged["schemas"]:
        types += each.get("options", {}).get("types", ())
    named = {each["name"]: each for each in forged["schemas"]}
    forged["schemas"] = (*(named | {"main": {"name": "main", "options": {"types": types}}}).values(),)
    imported(canary, tmp_path, 0, forged, expressions)
    assert canary.lives()
    found = {name for row in canary.relations() for name in row if evil in name}
    assert found >= {evil, f"t{list(NAMES).index('table')}{evil}"}
    assert (f"t{list(NAMES).index('view')}{evil}" in found) == expressions


@pytest.mark.parametrize("place", TEXTS)
def test_sql_that_leaves_its_place_is_refused_and_changes_nothing(place: str, canary: Canary, tmp_path: Path) -> None:
    before = canary.relations()
    for number, evil in enumerate(canary.evil):
        with naming(place, evil):
            forged = TEXTS[place](evil, f"t{number}")
            with pytest.raises((DocumentError, RestoreError), match=r"is refused|syntax error") as error:
                imported(canary, tmp_path, number, forged, True)
            if isinstance(error.value, SchemaIncompleteError) and "is refused" in str(error.value):
                assert place in OPTIONAL  # it alone is not made
                assert not canary.is_duckdb
                before = canary.relations()
            elif "is refused" in str(error.value):
                assert canary.relations() == before
            else:  # a text that only PostgreSQL can refuse fails in its own transaction
                assert not canary.is_duckdb
                assert re.search(rf"\bt{number} .*could not be made|could not be made.*\bt{number}\b", str(error.value))
                before = canary.relations()
    assert canary.lives()


@pytest.mark.parametrize("place", sorted(EXPRESSIONS))
def test_without_expressions_such_text_is_refused_too_or_left_out(place: str, canary: Canary, tmp_path: Path) -> None:
    for number, evil in enumerate(canary.evil[1:2]):
        with naming(place, evil):
            try:
                lost = imported(canary, tmp_path, number, TEXTS[place](evil, f"t{number}"), False)
            except (DocumentError, RestoreError) as error:
                lost = (str(error),)
            assert any(re.search(r"is refused|left out|no longer generated|not generated", each) for each in lost)
    assert canary.lives()
