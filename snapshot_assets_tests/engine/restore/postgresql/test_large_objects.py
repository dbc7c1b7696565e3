"""Large objects of PostgreSQL are rows of chunk 0, and a restore creates them under their own oids."""

from __future__ import annotations

import duckdb
import pytest

from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets.errors import DatabaseDeniedError, RestoreFailedError, TargetNotEmptyError
from snapshot_assets.format.kinds import uncarried_by_kind
from snapshot_assets_tests.databases.postgresql.helpers import extracted
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into, execute
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

pytestmark = pytest.mark.slow

OBJECTS = (
    "CREATE TABLE files (id int PRIMARY KEY, content oid)",
    "SELECT lo_from_bytea(70001, '')",
    "SELECT lo_from_bytea(70002, '\\x00ff61')",
    "SELECT lo_from_bytea(70003, decode(repeat('0123456789abcdef', 131072), 'hex'))",  # exactly one page
    "SELECT lo_from_bytea(70004, convert_to(repeat('xyz', 900000), 'UTF8'))",
    "SELECT lo_create(70005)",
    "SELECT lo_put(70005, 5000000, '\\x7a')",  # nothing before
    "COMMENT ON LARGE OBJECT 70002 IS 'it''s small'",
    "INSERT INTO files SELECT oid::int8 - 70000, oid FROM pg_largeobject_metadata",
)
CONTENTS = """
SELECT oid, length(lo_get(oid)), md5(lo_get(oid)), obj_description(oid, 'pg_largeobject')
FROM pg_largeobject_metadata ORDER BY oid
"""


@pytest.fixture
def place(place: Place, postgresql_server: PostgresqlServer) -> Place:
    """A database with large objects, which is not exported yet."""
    execute(place.source, *OBJECTS)
    assert len(postgresql_server.psql(place.source, CONTENTS).splitlines()) == 5
    return place


def test_large_objects_are_restored_with_their_oids_contents_and_comments(
    place: Place, into: Into, postgresql_server: PostgresqlServer
) -> None:
    place.export()
    assert into.restore(place.store).finished
    assert postgresql_server.psql(into.uri, CONTENTS) == postgresql_server.psql(place.source, CONTENTS)
    broken = "SELECT count(*) FROM files WHERE content NOT IN (SELECT oid FROM pg_largeobject_metadata)"
    assert postgresql_server.psql(into.uri, "SELECT count(*) FROM files", broken) == "5\n0"
    again = into.restore(place.store)
    assert again.rows == 0
    assert again.finished


def test_large_objects_that_are_not_chosen_are_named_and_can_be_chosen(
    place: Place, into: Into, postgresql_server: PostgresqlServer, postgresql_database: str
) -> None:
    place.export()
    without = Into(postgresql_database).restore(place.store, filters=Filters(schemas=("public",)))
    named = "Large objects are left out: to restore them, add snapshot_assets to --schemas."
    assert named in without.run.current().lost
    done = into.restore(place.store, filters=Filters(schemas=("public", "snapshot_assets")))
    assert not any("arge objects" in each for each in done.run.current().lost)
    assert postgresql_server.psql(into.uri, CONTENTS) == postgresql_server.psql(place.source, CONTENTS)


def test_pages_of_one_object_may_lie_in_several_files(
    place: Place, into: Into, postgresql_server: PostgresqlServer
) -> None:
    random = "SELECT string_agg(sha512(n::text::bytea), '') FROM generate_series(1, 400000) n"  # 25 MB
    execute(place.source, f"SELECT lo_from_bytea(70010, ({random}))")
    outcomes = place.export(max_file_size="16MB")
    assert len(outcomes[0].files) > 1
    assert into.restore(place.store).finished
    assert postgresql_server.psql(into.uri, CONTENTS) == postgresql_server.psql(place.source, CONTENTS)


def test_a_changed_chunk_replaces_the_large_objects_that_imports_made_and_no_others(
    place: Place, into: Into, postgresql_server: PostgresqlServer
) -> None:
    place.export()
    into.restore(place.store)
    execute(into, "SELECT lo_from_bytea(90001, 'of the application')")
    execute(
        place.source, "SELECT lo_unlink(70001)", "SELECT lo_put(70002, 1, 'new')", "SELECT lo_from_bytea(80001, 'x')"
    )
    place.export(chunks=(0,), replace=True)
    replaced = into.restore(place.store, replace=True)
    assert replaced.finished
    assert all(loaded == found for loaded, found in replaced.run.check_counts().values())
    execute(place.source, "SELECT lo_from_bytea(90001, 'of the application')")
    assert postgresql_server.psql(into.uri, CONTENTS) == postgresql_server.psql(place.source, CONTENTS)


def test_large_objects_of_others_are_neither_written_to_nor_deleted(
    place: Place, into: Into, postgresql_server: PostgresqlServer
) -> None:
    place.export()
    into.restore(place.store)
    execute(into, "SELECT lo_from_bytea(80001, 'of the application')")
    before = postgresql_server.psql(into.uri, CONTENTS)
    execute(place.source, "SELECT lo_from_bytea(80001, 'x')")
    place.export(chunks=(0,), replace=True)
    with pytest.raises(RestoreFailedError, match=r"both have large objects 80001, and no import of this snapshot made"):
        into.restore(place.store, replace=True)
    execute(into, "DROP TABLE snapshot_assets_ledger.large_objects")  # as an earlier version left it
    with pytest.raises(RestoreFailedError, match="cannot be told from others and none was replaced"):
        into.restore(place.store, replace=True)
    assert postgresql_server.psql(into.uri, CONTENTS) == before


def test_no_superuser_is_needed_only_the_right_to_read_each_object(
    place: Place, into: Into, role: tuple[str, Into], postgresql_server: PostgresqlServer
) -> None:
    name, as_role = role
    source, target = (uri.rsplit("/", 1)[1] for uri in (place.source, into.uri))
    execute(place.source, "GRANT SELECT ON files TO PUBLIC")
    execute(into, f"GRANT ALL ON SCHEMA public TO {name}", f"ALTER DATABASE {target} OWNER TO {name}")
    try:
        reading = Place(postgresql_server.uri(source, name, "x"), place.folder)
        with pytest.raises(DatabaseDeniedError, match=r"may not read 5 of 5 large objects\. .*--skip-large-objects"):
            reading.export()
        for number in range(70001, 70006):
            execute(place.source, f"GRANT SELECT ON LARGE OBJECT {number} TO {name}")
        reading.export()
        assert as_role.restore(place.store).finished
        assert postgresql_server.psql(into.uri, CONTENTS) == postgresql_server.psql(place.source, CONTENTS)
    finally:
        execute(place.source, f"DROP OWNED BY {name}")


def test_a_target_with_large_objects_of_others_is_refused(
    place: Place, into: Into, postgresql_server: PostgresqlServer
) -> None:
    place.export()
    execute(into, "SELECT lo_from_bytea(70002, 'mine')")
    for settings in ({}, {"into_nonempty": True}):
        with pytest.raises(TargetNotEmptyError, match=r"snapshot_assets\.large_objects"):
            into.restore(place.store, **settings)
    assert postgresql_server.psql(into.uri, "SELECT convert_from(lo_get(70002), 'UTF8')") == "mine"


def test_large_objects_that_are_left_out_are_named(place: Place) -> None:
    source = place.source
    execute(source, "CREATE SCHEMA apart", "CREATE TABLE apart.t (a int)")
    skipped = extracted(source, Selection(large_objects=False))
    elsewhere = extracted(source, Selection(schemas=("apart",)))
    for schema in (skipped, elsewhere):
        assert "large_objects" not in [table.name for table in schema.tables]
        assert uncarried_by_kind(schema) == {"large objects": ["(5 of them)"]}
    referring = extracted(source, Selection(schemas=("public",)))
    assert [table.name for table in referring.tables] == ["files", "large_objects"]
    place.export(large_objects="skip")
    assert "large_objects" not in (place.folder / "manifest.json").read_text()


def test_another_kind_of_database_gets_large_objects_as_rows(place: Place, duck: Into) -> None:
    place.export()
    restored = duck.restore(place.store)
    assert "Large objects become rows of table snapshot_assets.large_objects: only postgresql has them." in (
        restored.plan.lost
    )
    with duckdb.connect(duck.uri.removeprefix("duckdb://")) as connection:
        rows = connection.sql(
            "SELECT oid, count(*), sum(octet_length(data)) FROM snapshot_assets.large_objects GROUP BY 1"
        )
        assert sorted(rows.fetchall()) == [
            *((70001, 1, 0), (70002, 1, 3), (70003, 1, 1 << 20), (70004, 3, 2700000), (70005, 5, 5000001))
        ]
