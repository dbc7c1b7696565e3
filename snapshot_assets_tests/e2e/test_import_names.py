"""`snapshots import` under other names, after a verification, and with a time range that the snapshot lacks."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.engine.restore.settings import Filters
from snapshot_assets_tests.cli.helpers import Snapshots, store_of
from snapshot_assets_tests.engine.restore.imports import Into


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A file that does not exist yet."""
    return tmp_path / "target.duckdb"


@pytest.fixture
def call(exported: Path, target: Path) -> tuple[str, ...]:
    """The arguments that import the exported snapshot into the target."""
    return ("import", "--from", exported.as_uri(), "--target", f"duckdb://{target}")


def test_a_dry_run_shows_the_new_names_and_changes_nothing(
    snapshots: Snapshots, call: tuple[str, ...], target: Path
) -> None:
    names = ("--map-schema", "main=shop", "--map-table", 'main.readings="a=b"."of ""May"""')
    done = snapshots(*call, *names, "--dry-run", "--json")
    assert done.status == 0, done.err
    assert set(done.json["types"]) == {"shop.sensors", '"a=b"."of ""May"""'.replace('"a=b"', "a=b")}
    assert (done.json["rows_of_files"], done.json["warnings"]) == (74, [])
    assert "table shop.sensors" in done.json["makes"]
    assert not target.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--map-schema", "main"), "--map-schema 'main' is not OLD=NEW"),
        (("--map-table", "readings=r"), "'readings' is not a schema and a table"),
        (("--map-table", "main.reading=main.r"), "Table 'main.reading' is mapped, but is not in the snapshot"),
        (("--map-schema", "mian=x"), "Schema 'mian' is mapped, but is not in the snapshot. Did you mean 'main'?"),
        (
            ("--map-table", "main.readings=x.y", "--map-table", "main.sensors=x.y"),
            "tables main.readings and main.sensors are both mapped to x.y",
        ),
        (("--map-table", "main.readings=main.sensors"), "would both be main.sensors"),
        (("--tables", "main.sensors", "--map-table", "main.readings=x.y"), "is not among the selected tables"),
    ],
)
def test_wrong_names_are_refused_before_anything_is_made(
    snapshots: Snapshots, call: tuple[str, ...], target: Path, options: tuple[str, ...], message: str
) -> None:
    for more in ((), ("--dry-run",)):
        refused = snapshots(*call, *options, *more)
        assert (refused.status, refused.out) == (2, "")
        assert message in refused.err
    assert not target.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_an_import_under_other_names_is_one_of_its_own_and_exactly_once(
    snapshots: Snapshots, call: tuple[str, ...], exported: Path, target: Path
) -> None:
    names = ("--map-schema", "main=shop", "--map-table", "main.readings=main.readings2")
    first = snapshots(*call, *names, "--verify-first", "--json")
    assert first.status == 0, first.err
    assert first.json["tables"] == {"main.readings2": 72, "shop.sensors": 2}
    again = snapshots(*call, *names, "--json")
    assert (again.status, again.json["run_id"], again.json["import"]) == (0, None, first.json["import"])
    plain = Into(f"duckdb://{target}").restore(store_of(exported))
    assert (plain.finished, plain.rows) == (True, 74)
    only_readings = Filters(renaming=Renaming.parse({"tables": [[["main", "readings"], ["main", "third"]]]}))
    assert Into(f"duckdb://{target}").restore(store_of(exported), filters=only_readings).rows == 72
    with duckdb.connect(str(target), read_only=True) as connection:
        for table in ("main.readings", "main.readings2", "main.third"):
            assert connection.sql(f"SELECT count(*) FROM {table}").fetchall() == [(72,)]
    refused = snapshots(*call, "--map-table", "main.readings=shop.sensors", "--map-table", "main.sensors=shop.x")
    assert refused.status == 2
    assert "shop.sensors was restored with schema main as shop" in refused.err


def test_a_damaged_file_stops_a_verified_import_before_its_first_row(
    snapshots: Snapshots, call: tuple[str, ...], exported: Path, target: Path
) -> None:
    victim = max(exported.glob("data/3/*.parquet"))
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")
    refused = snapshots(*call, "--verify-first")
    assert refused.status == 3
    assert "nothing was restored" in refused.err
    assert victim.name in refused.err
    assert not target.exists()


def test_a_time_range_outside_the_snapshot_warns_on_stderr_and_in_json(
    snapshots: Snapshots, call: tuple[str, ...]
) -> None:
    done = snapshots(*call, "--time-range", "2030-01-01T00:00:00Z/2030-02-01T00:00:00Z", "--dry-run", "--json")
    [warning] = done.json["warnings"]
    assert "lies outside the snapshot" in warning
    assert f"warning: {warning}" in done.err
    part = snapshots(*call, "--time-range", "2025-01-03T00:00:00Z/2025-01-09T00:00:00Z", "--dry-run")
    assert "no window for a part of the time range, 2025-01-04T00:00:00Z/2025-01-09T00:00:00Z" in part.err


def test_a_plans_names_are_used_and_those_of_the_call_replace_them(
    snapshots: Snapshots, exported: Path, source: str, target: Path, tmp_path: Path
) -> None:
    config = tmp_path / "snapshots.yaml"
    config.write_text(
        f"sources: {{live: '{source}', copy: 'duckdb://{target}'}}\n"
        f"plans:\n  good: {{source: live, to: '{exported.as_uri()}', start_time: 2025-01-01T00:00:00Z, target: copy,"
        " map_schemas: {main: shop}, map_tables: {main.readings: main.r2}, verify_first: true}\n"
    )
    plan = ("--config", str(config), "import", "--plan", "good", "--dry-run", "--json")
    assert set(snapshots(*plan).json["types"]) == {"shop.sensors", "main.r2"}
    assert set(snapshots(*plan, "--map-schema", "main=m").json["types"]) == {"m.sensors", "m.readings"}
