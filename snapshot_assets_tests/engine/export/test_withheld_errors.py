"""A mask that fails on a row: the value is in no file of the location and in no message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.engine.export.hidden_values import hide_values, hiding_values
from snapshot_assets.errors import DatabaseError, ExportFailedError, SnapshotError, TaskFailedError, TaskLostError
from snapshot_assets.plan.plan import Plan
from snapshot_assets_tests.cli.helpers import contents, export, store_of
from snapshot_assets_tests.databases.duckdb.files import make_file
from snapshot_assets_tests.databases.postgresql.helpers import execute

SECRET = "LEAKME-kestrel"
STATEMENTS = ("CREATE TABLE users (n int, phone text)", f"INSERT INTO users VALUES (1, '{SECRET}')")


@pytest.fixture(params=["duckdb", "postgresql"])
def people(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with a value that no number can be made of."""
    if request.param == "duckdb":
        return make_file(tmp_path / "source.duckdb", *STATEMENTS).uri
    uri: str = request.getfixturevalue("postgresql_database")
    execute(uri, *STATEMENTS)
    return uri


@pytest.mark.parametrize("mask", ["phone::int", "(phone || '!')::int"])
def test_a_mask_that_fails_on_a_row_shows_no_value(
    people: str, tmp_path: Path, mask: str, caplog: pytest.LogCaptureFixture
) -> None:
    location, schema = tmp_path / "location", "main" if people.startswith("duckdb") else "public"
    fields: dict[str, Any] = {"mask": {f"{schema}.users.n": mask}}
    with pytest.raises(ExportFailedError, match=rf"reading {schema}\.users failed.*may hold values") as raised:
        export(Plan(name="p", source=people, to=location.as_uri(), **fields), store_of(location))
    assert SECRET not in str(raised.value)
    assert SECRET not in caplog.text
    assert not [path for path, data in contents(location).items() if SECRET.encode() in data]


def test_errors_keep_their_kind_and_state() -> None:
    error = hide_values(DatabaseError(f"reading t failed: {SECRET}", sqlstate="22P02", doing="reading t"))
    assert (type(error), error.attributes) == (DatabaseError, {"sqlstate": "22P02"})
    assert str(error).startswith("reading t failed with SQLSTATE 22P02.")
    numbered = hide_values(DatabaseError(f"reading t failed: {SECRET}", errno=1242, doing="reading t"))
    assert str(numbered).startswith("reading t failed with error 1242.")
    assert numbered.attributes == {"errno": 1242}
    for foreign in (TaskFailedError(f"ArrowInvalid: {SECRET}", chunk=1), TaskLostError(f"A job was lost: {SECRET}")):
        assert SECRET not in str(hide_values(foreign))
        assert type(hide_values(foreign)) is type(foreign)
    own = SnapshotError("Write something else.")
    assert hide_values(own) is own


@pytest.mark.parametrize("hidden", [True, False])
def test_only_plans_that_hide_something_lose_the_text(hidden: bool) -> None:
    with pytest.raises(DatabaseError) as raised, hiding_values(hidden):
        raise DatabaseError(f"reading t failed: {SECRET}", doing="reading t")
    assert (SECRET in str(raised.value)) is not hidden
