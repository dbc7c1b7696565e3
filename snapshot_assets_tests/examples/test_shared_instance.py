"""`examples/dagster-s3-postgresql.yaml`: a run leaves its record in PostgreSQL and what it printed on S3."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from snapshot_assets_tests.pipeline.project import ROOT, write_project
from snapshot_assets_tests.servers.postgresql import PostgresqlServer
from snapshot_assets_tests.servers.s3 import S3Server

BIN = Path(sys.executable).parent


@pytest.mark.slow
def test_a_run_is_recorded_in_postgresql_and_its_output_is_on_s3(
    postgresql_server: PostgresqlServer, postgresql_database: str, s3_server: S3Server, tmp_path: Path
) -> None:
    home = write_project(tmp_path, days=1)
    files = ("dagster.yaml", "examples/dagster-s3-postgresql.yaml")
    (home / "dagster.yaml").write_text("".join((ROOT / name).read_text() for name in files))
    environment = os.environ | {
        "DAGSTER_HOME": str(home),
        "DAGSTER_POSTGRES_URL": postgresql_database.replace("postgresql:", "postgresql+psycopg2:"),
        "DAGSTER_LOGS_BUCKET": s3_server.bucket,
        "AWS_REGION": str(s3_server.options.region),
        "AWS_ACCESS_KEY_ID": str(s3_server.options.access_key_id),
        "AWS_SECRET_ACCESS_KEY": str(s3_server.options.secret_access_key),
        "AWS_ENDPOINT_URL_S3": str(s3_server.options.endpoint),
        "PYTHONPATH": str(ROOT),
    }
    command = [str(BIN / "dagster"), "asset", "materialize", "-m", "snapshot_assets.definitions"]
    command += ["--select", 'key:"demo/schema" or key:"demo/chunks"', "--partition", "2013-01-01T00:00"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]

    [run] = postgresql_server.psql(postgresql_database, "SELECT run_id FROM runs WHERE status = 'SUCCESS'").split()
    materialized = "SELECT DISTINCT asset_key FROM event_logs WHERE dagster_event_type = 'ASSET_MATERIALIZATION'"
    found = postgresql_server.psql(postgresql_database, f"{materialized} AND run_id = '{run}' ORDER BY 1").splitlines()
    assert found == ['["demo", "chunks"]', '["demo", "schema"]']
    assert list(home.rglob("*.db")) == []

    client = s3_server.client()
    listed = client.list_objects_v2(Bucket=s3_server.bucket, Prefix=f"dagster/storage/{run}/compute_logs/")["Contents"]
    [printed] = [entry["Key"] for entry in listed if entry["Key"].endswith(".err")]
    text = client.get_object(Bucket=s3_server.bucket, Key=printed)["Body"].read().decode()
    assert 'Finished execution of step "demo__chunks"' in text
