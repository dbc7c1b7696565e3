"""`snapshots import` from a damaged location whose source is gone, and `snapshots catalog repair`."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets_tests.cli.helpers import Snapshots, differing, export, make_plan, store_of

WINDOW = "2025-01-02T00:00:00Z/2025-01-03T00:00:00Z"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target.duckdb"


@pytest.fixture
def call(exported: Path, target: Path) -> tuple[str, ...]:
    """The arguments that import the exported snapshot into the target."""
    return ("import", "--from", exported.as_uri(), "--target", f"duckdb://{target}")


def flip(path: Path) -> bytes:
    good = path.read_bytes()
    path.write_bytes(good[:-9] + bytes([good[-9] ^ 1]) + good[-8:])
    return good


@pytest.mark.usefixtures("spark")
def test_damage_elsewhere_warns_and_a_repair_ends_it(
    snapshots: Snapshots, call: tuple[str, ...], exported: Path, target: Path, tmp_path: Path
) -> None:
    [receipt] = exported.glob("data/2/chunk-*.json")
    damaged = [exported / "SHA256SUMS", exported / "manifest.json", receipt]
    for path in damaged:
        flip(path)
    location = ("--snapshot", exported.as_uri())
    assert snapshots("export", "verify", *location).status == 3
    done = snapshots(*call, "--json")
    assert done.status == 0, done.err
    command = f"`snapshots catalog repair {' '.join(location)}`"
    for path in damaged:
        [warning] = [each for each in done.json["warnings"] if path.name in each]
        assert "`snapshots catalog repair`" in warning
        assert any(path.name in line and command in line for line in done.err.splitlines())
    assert differing(tmp_path / "source.duckdb", target, "main.readings", "main.sensors") == {}

    planned = snapshots("catalog", "repair", *location, "--dry-run")
    assert (planned.status, planned.out.count("would be written again")) == (0, 3)
    assert snapshots("export", "verify", *location).status == 3
    repaired = snapshots("catalog", "repair", *location, "--json")
    names = {str(path.relative_to(exported)) for path in damaged}
    assert (repaired.status, set(repaired.json["written"])) == (0, names)
    assert snapshots("export", "verify", *location).status == 0
    assert "nothing to repair" in snapshots("catalog", "repair", *location).out


@pytest.mark.usefixtures("spark")
def test_keep_going_restores_the_rest_with_status_3_and_continues_later(
    snapshots: Snapshots, call: tuple[str, ...], exported: Path, target: Path, tmp_path: Path
) -> None:
    [missing] = exported.glob("data/2/main.readings*.parquet")
    good = missing.read_bytes()
    missing.unlink()
    refused = snapshots(*call)
    assert (refused.status, target.exists()) == (3, False)
    assert "--keep-going" in refused.err
    assert str(missing.relative_to(exported)) in refused.err
    planned = snapshots(*call, "--keep-going", "--dry-run")
    assert (planned.status, target.exists()) == (3, False)
    assert f"would leave out main.readings in {WINDOW}: 24 rows expected" in planned.out

    done = snapshots(*call, "--keep-going", "--json")
    assert (done.status, done.json["rows_loaded"]) == (3, 50), done.err
    [left] = done.json["left_out_by_damage"]
    assert (left["table"], left["window"], left["rows"]) == ("main.readings", WINDOW, 24)
    assert done.json["tables"] == {"main.readings": 48, "main.sensors": 2}
    assert done.json["error"]["exit_status"] == 3
    assert done.json["made"]["primary key"] == 1

    missing.write_bytes(good[::-1])  # only its hash shows this damage
    done = snapshots(*call, "--keep-going")
    assert done.status == 3, done.err
    assert f"main.readings in {WINDOW}: 24 rows expected. data/2/" in done.err

    missing.write_bytes(good)
    again = snapshots(*call, "--json")
    assert (again.status, again.json["rows_loaded"], again.json["left_out_by_damage"]) == (0, 24, []), again.err
    assert differing(tmp_path / "source.duckdb", target, "main.readings", "main.sensors") == {}
    assert snapshots(*call, "--json").json["rows_loaded"] == 0


@pytest.mark.usefixtures("spark")
def test_keep_going_restores_with_an_older_schema_with_status_3(
    snapshots: Snapshots, call: tuple[str, ...], exported: Path, source: str, target: Path
) -> None:
    with duckdb.connect(source.removeprefix("duckdb://")) as database:
        database.execute("CREATE VIEW main.newest AS SELECT max(moment) AS moment FROM main.readings")
    export(make_plan(source, exported.as_uri()), store_of(exported), chunks=[1], replace=True)
    state = read_state(store_of(exported))
    assert state.schema_id == 2
    flip(exported / state.schemas[2].folder / "views.json")
    refused = snapshots(*call)
    assert (refused.status, target.exists()) == (3, False)
    assert "--keep-going" in refused.err
    planned = snapshots(*call, "--keep-going", "--dry-run")
    assert (planned.status, target.exists()) == (3, False)
    done = snapshots(*call, "--keep-going", "--json")
    assert (done.status, done.json["rows_loaded"], done.json["left_out_by_damage"]) == (3, 74, []), done.err
    assert "Schema 2, the newest, is damaged: the import uses schema 1." in done.json["error"]["message"]
    assert snapshots(*call, "--keep-going").status == 3
