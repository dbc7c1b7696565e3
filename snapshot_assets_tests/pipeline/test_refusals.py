"""What a source refuses fails the first step of a run, before anything is written, and hidden columns stay hidden."""

from __future__ import annotations

from typing import Any

import duckdb

from snapshot_assets_tests.pipeline.project import START, Make, Project, run_job


def export(project: Project) -> Any:
    return run_job(project, "demo_export", {}, raise_on_error=False)


def test_values_and_rows_outside_fail_the_schema_step(make_project: Make) -> None:
    project = make_project(fail_on_rows_outside=True)
    with duckdb.connect(str(project.database)) as connection:
        connection.execute("ALTER TABLE readings ADD COLUMN day DATE")
        connection.execute("UPDATE readings SET day = 'infinity' WHERE value = 5")
        connection.execute("CREATE TABLE two (a TIMESTAMP, b TIMESTAMP)")
        connection.execute("INSERT INTO readings (moment) VALUES ('1999-01-01 00:00:00+00')")
    result = export(project)
    failure = project.failure(result)
    assert "3 things prevent the export" in failure.description
    for text in (
        "main.readings.day (DATE) holds an infinite time",
        "'main.two' has 2 timestamp columns",
        "1 row outside",
    ):
        assert text in failure.description
    assert "Correct what the message names" in failure.metadata["remedy"].value
    assert not project.location.exists()


def test_a_manifest_reports_rows_outside_in_one_line(make_project: Make) -> None:
    project = make_project(end_time=START.replace(day=2), exclude_columns=["main.readings.value"])
    assert export(project).success
    [metadata] = project.materialized("manifest").values()
    outside = "96 rows outside 2013-01-01T00:00:00Z … 2013-01-02T00:00:00Z were not exported (main.readings 96)"
    assert (metadata["rows_outside"], metadata["not_exported"]) == (96, outside)
    [row] = metadata["rows_outside_by_table"].records
    assert row.data == {"schema": "main", "table": "readings", "rows": 96}
    assert any(outside in line for line in project.log())
    [metadata] = project.materialized("schema").values()
    assert metadata["hidden"] == ["excluded column main.readings.value"]
