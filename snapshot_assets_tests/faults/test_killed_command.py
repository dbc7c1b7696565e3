"""The whole command, Dagster, Spark and its workers included, killed from outside and run again."""

from pathlib import Path

import duckdb
import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.verify.verify import verify
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.cli.helpers import in_own_process
from snapshot_assets_tests.faults.held import start_held

ROWS, DAYS = 12_000, 12


@pytest.fixture
def export(project: Path) -> list[str]:
    """Arguments of the command."""
    return [
        *("export", "create", "--json"),
        *("--source", f"duckdb://{project}/source.duckdb", "--to", f"file://{project}/snapshots/m"),
        *("--start-time", "2025-01-01T00:00:00Z", "--end-time", "2025-01-13T00:00:00Z"),
    ]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    with duckdb.connect(str(tmp_path / "source.duckdb")) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(
            "CREATE TABLE m AS SELECT i, "
            f"timestamptz '2025-01-01T00:00:00Z' + to_seconds(i * {DAYS * 86400 // ROWS}) AS t "
            f"FROM range({ROWS}) AS r(i)"
        )
        connection.execute("CREATE TABLE untimed AS SELECT 1 AS a")
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("pattern", ["data/*/chunk-*.json", "transactions/*03.txn"])
def test_the_next_command_finishes_and_reads_no_finished_chunk_again(project, export, monkeypatch, pattern):
    location = project / "snapshots" / "m"
    monkeypatch.setenv("DAGSTER_HOME", str(project / "dagster"))
    start_held(project, location / pattern, *export).kill()
    store = open_store(parse_location(f"file://{location}"))
    before = read_state(store)
    finished = {path.parent.name: path.name for path in location.glob("data/*/chunk-*.json")}

    finishing = in_own_process(*export)
    assert finishing.status == 0, finishing.err
    report = finishing.json
    assert (report["rows"], report["chunks"]) == (ROWS + 1, DAYS + 1)
    after = read_state(store)
    assert verify(store).damaged is False
    for chunk, receipt in finished.items():
        assert [ref.path for ref in after.chunks[int(chunk)].chunk.receipts] == [f"data/{chunk}/{receipt}"]
    for chunk in before.chunks:
        assert after.files.chunk(chunk) == before.files.chunk(chunk)
    files = ", ".join(f"'{location}/{known.file.path}'" for known in after.live_files() if known.file.table == "m")
    with duckdb.connect(str(project / "source.duckdb"), read_only=True) as connection:
        for query in (
            f"SELECT i, t FROM m EXCEPT ALL SELECT i, t FROM read_parquet([{files}])",
            f"SELECT i, t FROM read_parquet([{files}]) EXCEPT ALL SELECT i, t FROM m",
        ):
            assert connection.execute(query).fetchall() == []
