"""The examples that read a snapshot without Spark: a question in DuckDB and Polars, and assets of another project."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import dagster as dg
import duckdb
import pytest

from snapshot_assets_tests.engine.exports import Place

EXAMPLES = Path(__file__).parents[2] / "examples"
FLIGHTS = """
CREATE TABLE airlines (carrier VARCHAR, name VARCHAR);
INSERT INTO airlines VALUES ('A', 'Airline A'), ('B', 'Airline B');
CREATE TABLE planes (tailnum VARCHAR, manufacturer VARCHAR);
INSERT INTO planes SELECT 'N' || i, CASE WHEN i < 3 THEN 'BOEING' ELSE 'AIRBUS' END FROM range(10) r(i);
CREATE TABLE flights (carrier VARCHAR, dest VARCHAR, arr_delay BIGINT, time_hour TIMESTAMPTZ);
INSERT INTO flights SELECT CASE WHEN i < 30 THEN 'A' ELSE 'B' END, CASE WHEN i % 2 = 0 THEN 'ATL' ELSE 'BOS' END, i,
    TIMESTAMPTZ '2013-11-20' + to_days(i::INT) FROM range(42) r(i);
"""


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URI of a snapshot with tables of the demo's names and columns."""
    folder = tmp_path_factory.mktemp("flights")
    with duckdb.connect(folder / "flights.duckdb") as connection:
        connection.execute(f"SET TimeZone = 'UTC'; {FLIGHTS}")
    place = Place(f"duckdb://{folder}/flights.duckdb", folder / "location")
    place.export(
        chunks=range(4), start_time="2013-11-20T00:00:00Z", end_time="2014-01-04T00:00:00Z", chunk_time_window="15d"
    )
    return place.store.uri


def test_a_question_is_answered_by_duckdb_and_polars_without_spark(flights: str) -> None:
    code = f"import runpy, sys; runpy.run_path({str(EXAMPLES / 'ask_snapshot.py')!r}); print('pyspark' in sys.modules)"
    environment = os.environ | {"SNAPSHOTS": flights}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    shown = [[cell.strip() for cell in line[1:-1].replace("┆", "│").split("│")] for line in done.stdout.splitlines()]
    # In December, flights 11 to 29 are those of A, and 30 to 41 those of B; of all flights, 0 to 29 are those of A.
    for row in (["Airline B", "35.5", "12"], ["Airline A", "20.0", "19"], ["Airline A", "14.5", "30"]):
        assert row in shown, done.stdout
    assert done.stdout.splitlines()[-1] == "False"


@pytest.fixture
def project(flights: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("SNAPSHOTS", flights)
    specification = importlib.util.spec_from_file_location("snapshot_reader", EXAMPLES / "snapshot_reader.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_assets_of_another_project_take_tables_as_polars_frames_and_duckdb_streams(project: ModuleType) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        job = project.defs.resolve_implicit_global_asset_job_def()
        done = job.execute_in_process(instance=instance)
    events = {event.asset_key.path[-1]: event.materialization for event in done.get_asset_materialization_events()}
    assert events["makers"].metadata["makers"].value == {"AIRBUS": 7, "BOEING": 3}
    assert "│ BOS  ┆ 21.0" in str(events["late_airports"].metadata["airports"].value)
    loaded = [event.event_specific_data for event in done.all_events if event.event_type_value == "LOADED_INPUT"]
    assert {each.input_name: each.metadata["rows"].value for each in loaded} == {"flights": 42, "planes": 10}


def test_assets_of_another_project_cannot_write_a_snapshot(project: ModuleType) -> None:
    @dg.asset(key=["flights", "main", "planes"], io_manager_key="snapshot")
    def planes() -> int:
        return 1

    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(dg.DagsterError, match="read-only"):
        dg.materialize([planes], instance=instance, resources=project.defs.resources)
