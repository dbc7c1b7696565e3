"""Every value of every type comes back under other names, into a database that has the original too."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.engine.restore.compare import compare
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets_tests.databases.postgresql.helpers import EVERYTHING, ROWS
from snapshot_assets_tests.databases.postgresql.values import every_type_script
from snapshot_assets_tests.engine.restore.imports import Into
from snapshot_assets_tests.engine.restore.test_compare import exported_from
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

SCRIPTS = {"everything": EVERYTHING + ROWS, "every type": every_type_script()}


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_every_value_is_equal_in_a_renamed_schema_of_the_same_database(
    postgresql_server: PostgresqlServer, make_postgresql_database: MakeDatabase, tmp_path: Path, script: str
) -> None:
    uri = make_postgresql_database()
    postgresql_server.psql_script(uri, SCRIPTS[script])
    untimed = {"time_columns": {"public.t": None}} if script == "every type" else {}
    store = exported_from(uri, tmp_path / "location", **untimed)
    schemas = ("public", "sales", 'Größe "X"') if script == "everything" else ("public",)
    for new in ("Its {}", "{}_2"):
        renaming = Renaming.of([(name, new.format(name)) for name in schemas])
        done = Into(uri).restore(store, filters=Filters(renaming=renaming))
        assert done.finished
        compared = list(compare(done.run))
        assert [each for each in compared if not each.equal] == []
        assert sum(each.found for each in compared) > 0
        assert {each.table.schema for each in compared} <= {new.format(name) for name in schemas}
