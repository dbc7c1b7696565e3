"""An export warns of what a restore will need, and of names that other targets cannot have."""

from __future__ import annotations

from snapshot_assets.engine.export.restore_needs import restore_warnings
from snapshot_assets.format.relations import DatabaseSchema, Table

NEED = {"kind": "function", "name": "public.f(integer)", "for": ["check c of public.t"], "sql": ["CREATE …"]}


def schema(*names: str, database: str = "postgresql", **options: object) -> DatabaseSchema:
    columns = [{"name": "a", "type": "integer", "arrow_type": "int32"}]
    tables = [
        Table.model_validate({"schema": "s", "name": each, "columns": columns, "options": options}) for each in names
    ]
    return DatabaseSchema(database=database, tables=tuple(tables))


def test_a_schema_that_every_target_can_have_has_no_warning() -> None:
    assert tuple(restore_warnings(schema("a", "b"))) == ()


def test_objects_that_a_snapshot_does_not_contain_are_named_once_with_a_user() -> None:
    [warning] = restore_warnings(schema("a", "b", needs=[NEED]))
    assert warning.count("function public.f(integer) (for check c of public.t)") == 1
    assert "snapshots import --dry-run" in warning


def test_names_are_compared_as_other_kinds_of_target_do() -> None:
    assert "A restore into DuckDB will be refused" in next(restore_warnings(schema("a", "A")))
    assert "A restore into DuckDB will be refused" in next(restore_warnings(schema("a", "A", database="spark")))
    assert tuple(restore_warnings(schema("a", "A", database="duckdb"))) == ()
    assert "A restore into PostgreSQL will be refused" in next(restore_warnings(schema("x" * 64, database="spark")))
