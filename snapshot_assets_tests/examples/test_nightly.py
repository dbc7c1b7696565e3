"""`examples/nightly.yaml` in Dagster's daemon: its schedule exports PostgreSQL to S3, tags the seal, copies it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from snapshot_assets.format.units import time_text
from snapshot_assets_tests.pipeline.project import ROOT
from snapshot_assets_tests.servers.dagster import start_dagster
from snapshot_assets_tests.servers.postgresql import PostgresqlServer
from snapshot_assets_tests.servers.s3 import BACKUPS, S3Server
from snapshot_assets_tests.waiting import until

SNAPSHOTS = Path(sys.executable).parent / "snapshots"
DAYS = 3
CRON = 'export_cron: "30 0 * * *"'
RUNS = """
{ runsOrError(filter: {tags: [{key: "dagster/schedule_name", value: "shop_export_schedule"}]}) {
    ... on Runs { results { status } } } }
"""
SALES = """
CREATE TABLE sales (id bigint PRIMARY KEY, sold_at timestamptz NOT NULL, price numeric(8, 2));
INSERT INTO sales SELECT i, '{since}'::timestamptz + i * interval '1 hour', i / 4.0
    FROM generate_series(0, {hours} - 1) AS i;
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_its_schedule_runs_without_being_turned_on_and_seals_and_tags_all_days(
    postgresql_server: PostgresqlServer,
    postgresql_database: str,
    s3_server: S3Server,
    backups: dict[str, str],
    tmp_path: Path,
) -> None:
    # No window closes while the test runs: days count from `start_time`.
    closed = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=12)
    since = time_text(closed - timedelta(days=DAYS))
    postgresql_server.psql_script(postgresql_database, SALES.format(since=since, hours=DAYS * 24))
    example = (ROOT / "examples" / "nightly.yaml").read_text()
    assert CRON in example
    (tmp_path / "nightly.yaml").write_text(example.replace(CRON, 'export_cron: "* * * * *"'))
    copier = s3_server.as_user("copier")
    environment = backups | {
        "SNAPSHOTS_CONFIG": str(tmp_path / "nightly.yaml"),
        "SHOP_DATABASE": postgresql_database,
        "SHOP_SINCE": since,
        "COPIER_KEY_ID": str(copier.access_key_id),
        "COPIER_SECRET": str(copier.secret_access_key),
    }
    with start_dagster(tmp_path, ["-m", "snapshot_assets.definitions"], environment) as servers:
        ended = until(
            lambda: [run["status"] for run in servers.graphql(RUNS)["runsOrError"]["results"]],
            lambda statuses: bool({"SUCCESS", "FAILURE"} & set(statuses)),
            explain=servers.output.read_text,
            seconds=400,
        )
        assert "FAILURE" not in ended, servers.output.read_text()

    def snapshots(*arguments: str) -> str:
        command = [str(SNAPSHOTS), *arguments]
        return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True).stdout

    for uri in (f"s3://{bucket}/shop" for bucket in BACKUPS):
        snapshots("export", "verify", "--snapshot", uri)
        [found] = json.loads(snapshots("export", "list", "--location", uri, "--json"))
        assert (found["status"], found["rows"], found["chunks_done"]) == ("complete", DAYS * 24, DAYS), found
        assert len(json.loads(snapshots("tag", "list", "--snapshot", uri, "--json"))) == 1
