"""A dry run counts what the import then makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets.errors import SchemaIncompleteError
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into, execute
from snapshot_assets_tests.servers.postgresql import MakeDatabase


def test_a_dry_run_counts_what_the_import_makes(make_postgresql_database: MakeDatabase, tmp_path: Path) -> None:
    place, into = Place(make_postgresql_database(), tmp_path / "location"), Into(make_postgresql_database())
    execute(
        place.source,
        "CREATE SCHEMA own",
        "COMMENT ON SCHEMA own IS 'of the snapshot'",
        "CREATE TABLE base (a int, c int)",
        "CREATE TABLE heir () INHERITS (base)",
        "ALTER TABLE ONLY heir ALTER c SET NOT NULL",
        "CREATE INDEX taken ON base (a)",
        "COMMENT ON INDEX taken IS 'x'",
        "CREATE INDEX good ON base (a)",
        "COMMENT ON INDEX good IS 'y'",
        "CREATE TABLE parts (a int) PARTITION BY LIST (a)",
        "CREATE TABLE part PARTITION OF parts DEFAULT",
        "COMMENT ON TABLE part IS 'z'",
    )
    place.export([])
    execute(into, "CREATE SCHEMA own", "CREATE VIEW taken AS SELECT 1 AS one")
    planned = into.run(place.store).prepare(rehearse=True)
    names = [step.name for step in planned.to_create()]
    with pytest.raises(SchemaIncompleteError, match=r"index taken of public\.base"):
        into.restore(place.store)
    made = [step.name for step in into.run(place.store).current().steps.made()]
    assert names == made
