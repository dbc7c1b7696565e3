"""`restored` and the drill under the other names of a plan or of a run's config."""

from __future__ import annotations

import duckdb
import pytest

from snapshot_assets.errors import PlanError
from snapshot_assets.plan.plan import Plan
from snapshot_assets_tests.pipeline.project import ROWS, Make, Project, job

pytestmark = pytest.mark.slow

NAMES = {"map_schemas": {"main": "shop"}, "map_tables": {"main.readings": "main.r2"}}


def counts(project: Project, *tables: str) -> list[int]:
    with duckdb.connect(str(project.target), read_only=True) as connection:
        return [connection.sql(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in tables]


def test_a_plans_names_and_those_of_a_run_are_restores_of_their_own(copied: Make) -> None:
    project = copied(target="copy", **NAMES, verify_first=True, tables=["main.readings", "main.sensors"])
    assert project.run("restored", keys=project.keys).success
    assert counts(project, "main.r2", "shop.sensors") == [sum(ROWS), 2]
    assert project.checks("restored", "row_counts") == dict.fromkeys(project.keys, True)
    found = project.materialized("target")[None]["dagster/column_lineage"].deps_by_column
    [source] = found["main.r2.value"]
    assert (source.asset_key.path, source.column_name) == (["demo", "main", "readings"], "value")
    other = {"restored": {"map_tables": {"main.readings": "main.r3"}, "map_schemas": {"main": "other"}}}
    assert project.run("restored", keys=project.keys, config=other).success
    assert counts(project, "main.r2", "main.r3", "shop.sensors", "other.sensors") == [sum(ROWS)] * 2 + [2, 2]
    assert project.run("restored", keys=project.keys[:1], config={"restored": {"replace": True}}).success
    assert counts(project, "main.r2", "main.r3") == [sum(ROWS)] * 2


def test_a_drill_restores_under_the_plans_names(copied: Make) -> None:
    facts = job(copied(target="copy", **NAMES, scratch="copy"), "demo_restore_drill", "demo_drill")
    assert (facts["compared"], facts["rows_compared"]) == ("values", sum(ROWS) + 2)
    assert [row.data["table"] for row in facts["tables"].records] == ["main.r2", "shop.sensors"]


def test_names_need_a_database_to_be_names_in_and_may_not_coincide() -> None:
    plan = {"name": "p", "source": "db", "to": "file:///srv/snapshots/x", "schema_only": True}
    with pytest.raises(PlanError, match=r"map_schemas.*has no effect without a target or scratch"):
        Plan(**plan, map_schemas={"a": "b"})
    with pytest.raises(PlanError, match=r"tables s\.a and s\.b are both mapped to s\.c"):
        Plan(**plan, target="copy", map_tables={"s.a": "s.c", "s.b": "s.c"})
    made = Plan(**plan, target="copy", map_tables={"s.a": "s.c"})
    assert Plan.model_validate_json(made.model_dump_json(exclude_defaults=True)).renaming == made.renaming
