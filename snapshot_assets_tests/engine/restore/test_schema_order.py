"""Steps that fail because of their place in the order are tried again, and what is left out is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import SchemaIncompleteError
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into, execute
from snapshot_assets_tests.servers.postgresql import MakeDatabase

CIRCLE = (
    "CREATE VIEW one AS SELECT 1 AS a, 'x'::text AS b",
    "CREATE FUNCTION read_one() RETURNS SETOF one LANGUAGE plpgsql AS 'BEGIN END'",
    "CREATE OR REPLACE VIEW one AS SELECT a, b FROM read_one() UNION ALL SELECT 3, 'three'",
    "CREATE VIEW over AS SELECT * FROM one",
    "CREATE TABLE t (t timestamptz)",
    "INSERT INTO t VALUES ('2025-01-02 00:00:00Z')",
)


@pytest.fixture
def place(make_postgresql_database: MakeDatabase, tmp_path: Path) -> Place:
    return Place(make_postgresql_database(), tmp_path / "location")


@pytest.fixture
def into(make_postgresql_database: MakeDatabase) -> Into:
    return Into(make_postgresql_database())


def test_every_view_that_is_not_made_is_named(place: Place, into: Into, make_postgresql_database: MakeDatabase) -> None:
    execute(place.source, *CIRCLE)
    place.export()
    with pytest.raises(SchemaIncompleteError) as error:
        into.restore(place.store, filters=Filters(code=True))
    names = {each["object"] for each in error.value.attributes["steps"]}
    assert names == {"function public.read_one()", "view public.one", "view public.over"}
    plain = Into(make_postgresql_database()).restore(place.store)
    assert plain.finished
    lost = [each for each in plain.run.current().lost if "was left out" in each]
    assert lost == [
        "View public.one was left out: the target lacks a function that it needs.",
        "View public.over was left out: the target lacks a function that it needs.",
    ]
