"""`snapshots doctor`, before the first export."""

from __future__ import annotations

import os
import platform
import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.verify.comparisons import ComparisonRecord, record_comparison
from snapshot_assets.cli.setup import doctor
from snapshot_assets.cli.setup.checks import check_disk
from snapshot_assets.databases.duckdb import KIND
from snapshot_assets_tests.cli.helpers import Snapshots, contents, in_own_process, store_of
from snapshot_assets_tests.databases.postgresql.helpers import execute
from snapshot_assets_tests.servers.mariadb import MariadbServer
from snapshot_assets_tests.servers.postgresql import MakeDatabase


def test_folders_of_one_device_need_their_space_together(tmp_path: Path) -> None:
    [check] = check_disk({tmp_path / "spark": 0, tmp_path / "data": 1 << 60})
    assert (check.ok, check.subject) == (False, str(tmp_path))
    [check] = check_disk({tmp_path / "spark": 0, tmp_path / "data": 0})
    assert check.ok


def test_doctor_reports_all_that_is_wrong_with_its_remedy_and_leaves_nothing(tmp_path: Path) -> None:
    there = tmp_path / "new" / "place"
    (tmp_path / "snapshots.yaml").write_text(
        f"plans: {{a: {{source: 'duckdb://{tmp_path}/none.duckdb', to: '{there.as_uri()}'}}}}"
    )
    environment = {"JAVA_HOME": str(tmp_path / "no-java"), "DAGSTER_HOME": str(tmp_path / "dagster")}
    before = contents(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        done = in_own_process("--config", str(tmp_path / "snapshots.yaml"), "doctor", "--json")
    assert done.status == 1, done.err
    checks = {check["check"]: check for check in done.json["checks"]}
    assert [name for name, check in checks.items() if not check["ok"]] == ["java", "spark", "source"]
    assert all(bool(check["remedy"]) is not check["ok"] for check in checks.values())
    assert checks.keys() >= {"configuration", "store", "conditional create", "clock", "dagster", "disk"}
    assert contents(tmp_path) == before
    assert sorted(os.listdir(tmp_path)) == ["snapshots.yaml"]


@pytest.mark.slow
def test_doctor_finds_executors_without_an_interpreter(tmp_path: Path) -> None:
    config = tmp_path / "snapshots.yaml"
    config.write_text("spark: {master: 'local[1]', spark.pyspark.python: /nonexistent/python}\n")
    done = in_own_process("--config", str(config), "doctor", "--json")
    [spark] = [check for check in done.json["checks"] if check["check"] == "spark"]
    assert (done.status, spark["ok"]) == (1, False)
    assert "packages of requirements/run.txt" in spark["remedy"]
    assert "spark.pyspark.python" in spark["remedy"]
    assert spark["remedy"] not in spark["detail"]


@pytest.mark.slow
def test_doctor_names_what_executors_lack_of_what_the_plans_need(bare_python: Path, tmp_path: Path) -> None:
    config = tmp_path / "snapshots.yaml"
    config.write_text(
        f"spark: {{master: 'local[1]', spark.pyspark.python: {bare_python}}}\n"
        f"plans: {{a: {{source: 'duckdb://{tmp_path}/none.duckdb', to: 's3://bucket/a'}}}}\n"
    )
    done = in_own_process("--config", str(config), "doctor", "--json", "--plan", "a")
    [spark] = [check for check in done.json["checks"] if check["check"] == "spark"]
    assert f"{bare_python} (Python {platform.python_version()}) on {socket.gethostname()} lacks " in spark["detail"]
    lacking = spark["detail"].partition(" lacks ")[2].rstrip(".").split(", ")
    assert {"pyarrow", "pydantic", "obstore", "duckdb"} <= set(lacking)
    assert "adbc_driver_manager" not in lacking  # no plan reads PostgreSQL


def test_doctor_goes_on_after_a_wrong_configuration_and_a_store_that_refuses(
    snapshots: Snapshots, source: str, tmp_path: Path
) -> None:
    Path("snapshots.yaml").write_text("plans: {a: {to: nowhere}}")
    wrong = snapshots("doctor", "--no-spark", "--json")
    assert wrong.status == 1
    [check] = [check for check in wrong.json["checks"] if not check["ok"]]
    assert (check["check"], check["subject"]) == ("configuration", "snapshots.yaml")
    assert check["detail"].startswith("has 2 mistakes:")
    Path("snapshots.yaml").unlink()
    (tmp_path / "file").write_text("")
    refused = snapshots("doctor", "--no-spark", "--source", source, "--to", (tmp_path / "file" / "x").as_uri())
    assert refused.status == 1
    assert [line.split()[1] for line in refused.out.splitlines() if line.startswith("FAILED")] == ["store:"]
    assert snapshots("doctor", "--no-spark", "--source", source, "--to", tmp_path.as_uri()).status == 0


def test_doctor_takes_a_location_in_three_ways(
    snapshots: Snapshots, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = (tmp_path / "mine").as_uri(), (tmp_path / "other").as_uri()
    Path("snapshots.yaml").write_text(f"plans: {{mine: {{source: '{source}', to: '{mine}'}}}}\n")

    def stores(*arguments: str) -> list[str]:
        checks = snapshots("doctor", "--no-spark", "--json", *arguments).json["checks"]
        clocks = [each["detail"] for each in checks if each["check"] == "clock"]
        assert all(detail.endswith("; at most 5m is accepted") for detail in clocks)
        return [each["subject"] for each in checks if each["check"] == "store"]

    assert stores() == stores("--plan", "mine") == [mine]
    assert stores("--snapshot", other) == stores("--to", other) == [other]
    monkeypatch.setenv("SNAPSHOTS_LOCATION", other)
    assert (stores(), stores("--plan", "mine")) == ([mine, other], [mine])
    assert stores("--source", source) == [other]


@pytest.mark.parametrize(
    ("drivers", "requirement", "text"),
    [
        (("pymysql.cursors",), "x", f", with PyMySQL {version('PyMySQL')}"),
        (("pymysql",), "", ""),
        (("sqlite3",), "x", ""),
        ((), "x", ""),
    ],
)
def test_a_driver_is_named_by_the_package_that_has_it_if_one_does(
    drivers: tuple[str, ...], requirement: str, text: str
) -> None:
    assert doctor._driver(replace(KIND, drivers=drivers, requirement=requirement)) == text


def test_doctor_names_the_driver_of_postgresql_and_what_it_writes_slowly(
    snapshots: Snapshots, postgresql_database: str, make_postgresql_database: MakeDatabase, tmp_path: Path
) -> None:
    execute(postgresql_database, "CREATE TABLE t (id int)")
    wrong = postgresql_database.replace("postgres:", "nobody:")
    databases = {"shop": postgresql_database, "there": make_postgresql_database(), "wrong": wrong, "lake": "spark:lake"}
    targets = ("there", "wrong", "lake")
    plans = {name: f"{{source: shop, to: '{tmp_path.as_uri()}/{name}', target: {name}}}" for name in targets}
    listed = [f"{name}: {text}" for name, text in plans.items()]
    sources = [f"{name}: '{uri}'" for name, uri in databases.items()]
    Path("snapshots.yaml").write_text(f"sources: {{{', '.join(sources)}}}\nplans: {{{', '.join(listed)}}}\n")
    postgresql = f"postgresql, with adbc-driver-postgresql {version('adbc-driver-postgresql')}"
    checks = snapshots("doctor", "--no-spark", "--json").json["checks"]
    found = {(each["check"], each["subject"]): each for each in checks}
    assert found["source", "shop"]["detail"].endswith(postgresql.removeprefix("postgresql"))
    assert found["target", "there"]["detail"].removesuffix(", which loads numeric slowly, as text") == postgresql
    assert not found["target", "wrong"]["ok"]
    assert "password" in found["target", "wrong"]["detail"]
    assert not found["target", "lake"]["ok"]
    assert "is a Spark catalog, into which nothing can be restored" in found["target", "lake"]["detail"]


def test_doctor_names_the_rights_that_a_user_of_mysql_lacks(
    snapshots: Snapshots, mariadb_server: MariadbServer, mariadb_database: str
) -> None:
    mariadb_server.sql("CREATE TABLE t (id int)", "CREATE OR REPLACE USER clerk IDENTIFIED BY 'x'", database="shop")
    mariadb_server.sql("GRANT SELECT ON shop.* TO clerk")
    call = ("doctor", "--no-spark", "--snapshot", Path("a").absolute().as_uri(), "--source")
    lacking = snapshots(*call, mariadb_server.uri("shop", "clerk", "x"))
    assert lacking.status == 0, lacking.out
    assert "An export would have `consistency: chunk`." in lacking.out
    for grant in ("Grant RELOAD", "GRANT TRIGGER ON `shop`.*", "GRANT EVENT ON `shop`.*"):
        assert grant in lacking.out
    assert "All is well" not in lacking.out
    whole = snapshots(*call, mariadb_database)
    assert whole.out.endswith("All is well.\n"), whole.out
    mariadb_server.sql("DROP USER clerk")


@pytest.mark.parametrize(
    ("fields", "chunk"), [("spark: {master: 'spark://host:7077'}", True), ("spark: {master: 'local[2]'}", False)]
)
def test_doctor_says_where_tasks_of_a_cluster_would_read_states_of_their_own(
    snapshots: Snapshots, mariadb_server: MariadbServer, mariadb_database: str, fields: str, chunk: bool
) -> None:
    mariadb_server.sql("CREATE TABLE t (id int)", database="shop")
    place = Path("a").absolute().as_uri()
    for more, expected in (("", chunk), (", schema_only: true", False)):
        plan = f"{{source: '{mariadb_database}', to: '{place}', {fields}{more}}}"
        Path("snapshots.yaml").write_text(f"plans: {{a: {plan}}}")
        checks = snapshots("doctor", "--no-spark", "--plan", "a", "--json").json["checks"]
        [found] = [each for each in checks if each["check"] == "source"]
        assert found["ok"], found
        assert ("An export would have `consistency: chunk`." in found["remedy"]) is expected, found


def test_doctor_reports_when_a_snapshot_was_last_compared(
    snapshots: Snapshots, source: str, location: Path, exported: Path
) -> None:
    def found() -> list[str]:
        checks = snapshots("doctor", "--no-spark", "--json", "--snapshot", exported.as_uri()).json["checks"]
        return [each["detail"] for each in checks if each["check"] == "comparison"]

    assert found() == ["never compared with its source"]
    catalog = Catalog.open(store_of(location))
    at = datetime.now(UTC) - timedelta(hours=30)
    for scope in ("all", "part"):
        record_comparison(catalog.store, catalog.state, ComparisonRecord(scope, "", at, at, parts=2, equal=2))
    revision = catalog.state.revision
    assert found() == [f"30 h 0 min ago at revision {revision}, everything, 2 parts: 2 equal"]


def test_doctor_checks_the_location_of_the_replica(snapshots: Snapshots, source: str, tmp_path: Path) -> None:
    places = [(tmp_path / name).as_uri() for name in ("first", "file/second")]
    Path("snapshots.yaml").write_text(
        f"plans: {{a: {{source: '{source}', to: '{places[0]}', replicate_to: '{places[1]}',"
        " start_time: 2025-01-01T00:00:00Z, end_time: 2025-01-04T00:00:00Z}}"
    )
    (tmp_path / "file").write_text("")
    checks = snapshots("doctor", "--no-spark", "--json").json["checks"]
    assert [(each["subject"], each["ok"]) for each in checks if each["check"] == "store"] == [
        (places[0], True),
        (places[1], False),
    ]
