"""Exclusions that would let rows out by another way: as a partition of a table, or as large objects."""

from __future__ import annotations

import pytest

from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.errors import PlanError
from snapshot_assets.format.relations import TableName
from snapshot_assets_tests.databases.postgresql.helpers import execute, extracted, opened

FILES = TableName("public", "files")


def refused(uri: str, selection: Selection) -> str:
    with opened(uri) as database, pytest.raises(PlanError) as raised:
        database.extract(selection)
    return str(raised.value)


@pytest.mark.slow
def test_a_pattern_that_matches_a_partition_is_refused(postgresql_database: str) -> None:
    execute(
        postgresql_database,
        "CREATE TABLE p (a int) PARTITION BY LIST (a)",
        "CREATE TABLE p_mid PARTITION OF p DEFAULT PARTITION BY LIST (a)",
        "CREATE TABLE p_secret PARTITION OF p_mid DEFAULT",
        "CREATE TABLE q_secret (a int)",
    )
    message = refused(postgresql_database, Selection(exclude_tables=("public.*_secret",)))
    assert message.startswith("exclude_tables matches public.p_secret, a partition of public.p, with which")
    tables = extracted(postgresql_database, Selection(exclude_tables=("public.q_*",))).tables
    assert [table.name for table in tables] == ["p"]
    for patterns in (("public.*_secret", "public.p"), ("*.p*", "*.q*")):  # the whole table is left out
        assert extracted(postgresql_database, Selection(exclude_tables=patterns)).tables == ()


@pytest.mark.slow
def test_large_objects_of_a_hidden_column_must_be_asked_for(postgresql_database: str) -> None:
    execute(
        postgresql_database,
        "CREATE DOMAIN lo AS oid",
        "CREATE TABLE files (id int, content lo[], name text)",
        "CREATE TABLE other (content oid)",
        "SELECT lo_from_bytea(70001, 'secret')",
    )
    hiding = (
        {"exclude_columns": ((FILES, "content"),)},
        {"masks": {(FILES, "content"): "NULL"}},
        {"exclude_tables": ("*.files",)},
        {"exclude_tables": ("*.files",), "tables": (TableName("public", "other"),)},
    )
    for fields in hiding:
        message = refused(postgresql_database, Selection(**fields))  # type: ignore[arg-type]
        assert "hides public.files.content, which may hold the oids of large objects" in message
        for wanted in (True, False):
            schema = extracted(postgresql_database, Selection(large_objects=wanted, **fields))  # type: ignore[arg-type]
            assert ("large_objects" in [table.name for table in schema.tables]) is wanted
    named = extracted(postgresql_database, Selection(exclude_columns=((FILES, "name"),)))
    assert "large_objects" in [table.name for table in named.tables]
