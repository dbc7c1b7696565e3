"""Types, sequences and code of a schema that is asked for are restored, although it has no table or no chosen one."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

SCRIPT = """
CREATE TABLE t (n int);
CREATE SCHEMA util; CREATE TYPE util.m AS ENUM ('a'); CREATE SEQUENCE util.s;
CREATE FUNCTION util.f() RETURNS int LANGUAGE sql AS 'SELECT 1';
"""
THERE = "SELECT to_regtype('util.m'), to_regclass('util.s'), to_regproc('util.f'), to_regclass('public.t')"


@pytest.mark.parametrize(
    ("schemas", "there"), [(("util",), "util.m|util.s|util.f|"), (("public", "util"), "util.m|util.s|util.f|t")]
)
def test_a_chosen_schema_without_tables_is_restored(
    schemas: tuple[str, ...],
    there: str,
    postgresql_server: PostgresqlServer,
    make_postgresql_database: MakeDatabase,
    tmp_path: Path,
) -> None:
    source, into = make_postgresql_database(), Into(make_postgresql_database())
    postgresql_server.psql_script(source, SCRIPT)
    place = Place(source, tmp_path)
    place.export()
    assert into.restore(place.store, filters=Filters(schemas=schemas, code=True)).finished
    assert postgresql_server.psql(into.uri, THERE) == there
