"""`snapshots init`, `plan show` and `doctor`, before the first export."""

from __future__ import annotations

import json
import os
import platform
import re
import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.verify.comparisons import ComparisonRecord, record_comparison
from snapshot_assets.cli.setup import doctor
from snapshot_assets.cli.setup.checks import check_disk
from snapshot_assets.cli.setup.proposal import CHUNK_BYTES, propose_windows
from snapshot_assets.databases.duckdb import KIND
from snapshot_assets.format.windows import TimeRange, count_windows
from snapshot_assets.plan.read_configuration import load_configuration
from snapshot_assets_tests.cli.helpers import Snapshots, contents, export, in_own_process, make_source, store_of
from snapshot_assets_tests.databases.postgresql.helpers import execute
from snapshot_assets_tests.servers.mariadb import MariadbServer
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer

AT = datetime(2025, 1, 1, tzinfo=UTC)
DIFFICULT = """
CREATE TABLE orders (id BIGINT PRIMARY KEY, updated_at TIMESTAMP, created_at TIMESTAMP NOT NULL);
INSERT INTO orders SELECT i, now()::TIMESTAMP, TIMESTAMP '2024-01-01' + to_hours(i::INT) FROM range(500) t(i);
CREATE TABLE "null.${HOME}""x" (a INT, "when" TIMESTAMP);
INSERT INTO "null.${HOME}""x" VALUES (1, 'infinity'), (2, '2024-01-05');
CREATE TABLE days (day DATE);
CREATE TABLE empty (moment TIMESTAMPTZ)
"""


def make_only(path: Path, *statements: str) -> str:
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)
    return f"duckdb://{path}"


def test_init_writes_a_plan_that_exports_as_it_is(snapshots: Snapshots, tmp_path: Path) -> None:
    uri, to = make_only(tmp_path / "shop.duckdb", DIFFICULT), (tmp_path / "a" / "shop").as_uri()
    made = snapshots("init", "--source", uri, "--to", to)
    assert made.status == 0, made.err
    text = Path("snapshots.yaml").read_text()
    assert "main.orders: created_at  # " in text
    assert "chosen by its name among updated_at, created_at" in text
    configuration = load_configuration("snapshots.yaml")
    plan = configuration.plan("shop")
    assert (plan.start_time, plan.end_time) == (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 22, tzinfo=UTC))
    address = configuration.source(plan.source)
    outcomes = export(plan.changed(source=address.uri), store_of(to))
    assert sum(outcome.rows for outcome in outcomes) == 502
    shown = snapshots("plan", "show", "shop", "--json").json
    assert shown["windows"]["to_export"] == 0
    assert {table["table"] for table in shown["tables"]} >= {"main.orders", 'main."null.${HOME}""x"'}


@pytest.mark.parametrize("kind", ["once", "continuous"])
def test_init_leaves_a_few_rows_far_from_all_others_outside_and_says_so(
    kind: str, snapshots: Snapshots, tmp_path: Path
) -> None:
    uri = make_only(
        tmp_path / "shop.duckdb",
        "CREATE TABLE orders (id INT, made_at TIMESTAMP)",
        "INSERT INTO orders SELECT i, TIMESTAMP '2024-01-01' + to_hours(i::INT) FROM range(480) t(i)",
        "INSERT INTO orders VALUES (1001, '0001-01-01'), (1002, '9999-12-31'), (1003, '1900-01-01')",
    )
    call = ("init", "--source", uri, "--to", (tmp_path / "a" / "shop").as_uri(), "--kind", kind)
    made = snapshots(*call)
    assert made.status == 0, made.err
    plan = load_configuration("snapshots.yaml").plan("shop")
    assert (plan.start_time, plan.chunk_time_window <= timedelta(days=30)) == (datetime(2024, 1, 1, tzinfo=UTC), True)
    assert plan.end_time == (None if kind == "continuous" else datetime(2024, 1, 21, tzinfo=UTC))
    outside = r"3 rows have times outside 2024-01-01\S* … 2024-01-21\S*, far from all others \(main.orders 3\)"
    assert re.search(outside, made.out)
    comments = " ".join(Path("snapshots.yaml").read_text().replace("\n    # ", " ").split())
    assert re.search(outside, comments)


def test_init_proposes_few_windows_that_hold_all_rows_where_many_are_far_away(
    snapshots: Snapshots, tmp_path: Path
) -> None:
    rows = "INSERT INTO terms VALUES ('0001-01-01'), ('2024-01-01'), ('2024-01-02'), ('9999-12-31')"
    uri = make_only(tmp_path / "shop.duckdb", "CREATE TABLE terms (since TIMESTAMP)", rows)
    made = snapshots("init", "--source", uri, "--to", (tmp_path / "a" / "shop").as_uri(), "--json")
    assert made.status == 0, made.err
    assert made.json["windows"] <= 3
    plan = load_configuration("snapshots.yaml").plan("shop")
    outcomes = export(plan.changed(source=uri), store_of((tmp_path / "a" / "shop").as_uri()))
    assert sum(outcome.rows for outcome in outcomes) == 4


def test_init_proposes_a_closed_window_where_no_row_has_a_time(snapshots: Snapshots, tmp_path: Path) -> None:
    uri = make_only(tmp_path / "shop.duckdb", "CREATE TABLE goods (id INT)", "INSERT INTO goods VALUES (1)")
    made = snapshots("init", "--source", uri, "--to", (tmp_path / "a" / "shop").as_uri())
    assert made.status == 0, made.err
    plan = load_configuration("snapshots.yaml").plan("shop")
    assert plan.end_time is not None
    assert plan.end_time <= datetime.now(UTC)
    note = "No row has a time, so the range divides nothing: all rows are in chunk 0."
    assert note in made.out
    assert f"# {note}" in Path("snapshots.yaml").read_text()


def test_init_proposes_no_column_that_changes_with_its_row(snapshots: Snapshots, tmp_path: Path) -> None:
    uri = make_source(
        tmp_path / "shop.duckdb",
        "CREATE TABLE stock (id INT, updated_at TIMESTAMP)",
        "CREATE TABLE visits (modified TIMESTAMP, last_seen TIMESTAMP)",
        "CREATE TABLE trades (exchanged_at TIMESTAMP)",
        "CREATE TABLE rates (changed TIMESTAMP, since TIMESTAMP)",
    )
    made = snapshots("init", "--source", uri, "--to", (tmp_path / "a" / "shop").as_uri(), "--json")
    assert made.status == 0, made.err
    times = {"main.stock": None, "main.visits": None, "main.trades": "exchanged_at", "main.rates": "since"}
    assert made.json["plan"]["time_columns"].items() >= times.items()
    text = Path("snapshots.yaml").read_text()
    assert re.search("main.stock: null  # .*its only timestamp column updated_at changes when a row is updated", text)
    assert re.search("main.visits: null  # .*modified, last_seen change when a row is updated", text)
    assert re.search("main.trades: exchanged_at  # [^;]*; its only timestamp column\n", text)


def test_init_names_commands_that_find_its_file(snapshots: Snapshots, source: str, tmp_path: Path) -> None:
    Path("sub").mkdir()
    call = ("init", "--source", source, "--to", (tmp_path / "a" / "b").as_uri())
    below = snapshots(*call, "--output", "sub/snapshots.yaml")
    assert "Next: snapshots --config sub/snapshots.yaml plan show" in below.out
    assert "Next: snapshots plan show" in snapshots(*call).out


def test_init_overwrites_nothing_and_writes_no_password(snapshots: Snapshots, source: str, tmp_path: Path) -> None:
    (tmp_path / "taken.yaml").write_text("# mine\n")
    to = (tmp_path / "a" / "b").as_uri()
    taken = snapshots("init", "--source", source, "--to", to, "--output", str(tmp_path / "taken.yaml"))
    unset = snapshots("init", "--source", "postgresql://me:${NO_SUCH_VARIABLE}@h/d", "--to", to)
    gone = snapshots("init", "--source", source.replace("source.", "gone."), "--to", to)
    query = snapshots("init", "--source", "postgresql://h/d?user=a&password=geheim", "--to", to)
    assert [each.status for each in (taken, unset, query)] == [2, 2, 2]
    assert gone.status != 0
    assert "NO_SUCH_VARIABLE" in unset.err
    assert "geheim" not in query.err
    assert (tmp_path / "taken.yaml").read_text() == "# mine\n"
    assert list(Path().iterdir()) == []


def test_init_settles_what_postgresql_would_refuse(
    snapshots: Snapshots,
    postgresql_server: PostgresqlServer,
    postgresql_database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    postgresql_server.psql_script(
        postgresql_database,
        """
        CREATE TABLE events (id bigint PRIMARY KEY, updated timestamptz, created timestamptz NOT NULL, amount numeric);
        INSERT INTO events SELECT i, now(), timestamptz '2024-03-01Z' + i * interval '1 hour', 'NaN'
        FROM generate_series(1, 100) i;
        CREATE TABLE forever (until date, at timestamp);
        INSERT INTO forever VALUES ('infinity', 'infinity');
        CREATE TABLE rowless ();
        INSERT INTO rowless DEFAULT VALUES;
        SELECT lo_from_bytea(0, 'x');
        """,
    )
    to = (tmp_path / "a" / "b").as_uri()
    made = snapshots("init", "--source", postgresql_database, "--to", to, "--kind", "continuous", "--json")
    assert made.status == 0, made.err
    assert made.json["plan"]["exclude_tables"] == ["public.rowless"]
    assert made.json["plan"]["time_columns"]["public.events"] == "created"
    password = urlsplit(postgresql_database).password
    assert password
    assert password not in Path("snapshots.yaml").read_text()
    monkeypatch.setenv(made.json["variable"], password)
    checked = snapshots("doctor", "--no-spark", "--json")
    assert checked.status == 0, checked.out
    assert snapshots("plan", "show", "b").status == 0


def test_the_size_of_a_table_that_was_never_analyzed_is_that_of_its_pages(
    snapshots: Snapshots,
    postgresql_server: PostgresqlServer,
    postgresql_database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without statistics, the planner takes each range for half a percent of a table."""
    postgresql_server.psql_script(
        postgresql_database,
        """
        CREATE TABLE events (at timestamptz NOT NULL, text text) WITH (autovacuum_enabled = false);
        INSERT INTO events SELECT timestamptz '2024-03-01Z' + i * interval '1 hour', repeat('x', 500)
        FROM generate_series(1, 2000) i;
        CREATE TABLE parts (at timestamptz NOT NULL) PARTITION BY RANGE (at);
        CREATE TABLE part PARTITION OF parts DEFAULT WITH (autovacuum_enabled = false);
        INSERT INTO parts SELECT at FROM events;
        CREATE TABLE known AS SELECT at FROM events;
        ANALYZE known;
        """,
    )
    made = snapshots("init", "--source", postgresql_database, "--to", (tmp_path / "b").as_uri(), "--json")
    assert made.status == 0, made.err
    sizes = {each["table"]: (each["analyzed"], each["bytes"]) for each in made.json["tables"]}
    assert {table: analyzed for table, (analyzed, _) in sizes.items()} == {
        "public.events": False,
        "public.known": True,
        "public.parts": False,
    }
    assert sizes["public.events"][1] > 2000 * 500
    assert sizes["public.parts"][1] > 2000 * 8
    text = Path("snapshots.yaml").read_text()
    assert text.count(" in all, never analyzed") == 2
    assert "# Timed rows: about 1." in text
    monkeypatch.setenv(made.json["variable"], str(urlsplit(postgresql_database).password))
    shown = snapshots("plan", "show", "b")
    assert shown.status == 0, shown.err
    assert shown.out.count(" in all, never analyzed") == 2


def test_partitions_without_statistics_count_only_where_a_range_reads_them(
    snapshots: Snapshots,
    postgresql_server: PostgresqlServer,
    postgresql_database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    postgresql_server.psql_script(
        postgresql_database,
        """
        CREATE TABLE parts (at timestamptz NOT NULL, text text) PARTITION BY RANGE (at);
        CREATE TABLE march PARTITION OF parts FOR VALUES FROM ('2024-03-01Z') TO ('2024-04-01Z');
        CREATE TABLE april PARTITION OF parts FOR VALUES FROM ('2024-04-01Z') TO ('2024-05-01Z')
            WITH (autovacuum_enabled = false);
        CREATE TABLE may PARTITION OF parts FOR VALUES FROM ('2024-05-01Z') TO ('2024-06-01Z');
        CREATE TABLE other PARTITION OF parts DEFAULT;
        INSERT INTO parts SELECT timestamptz '2024-03-01Z' + i * interval '1 minute', repeat('x', 100)
        FROM generate_series(1, 43200) i;
        ANALYZE march;
        INSERT INTO parts SELECT timestamptz '2024-04-01Z' + i * interval '1 minute', repeat('x', 100)
        FROM generate_series(1, 20000) i;
        """,
    )
    made = snapshots("init", "--source", postgresql_database, "--to", (tmp_path / "b").as_uri(), "--json")
    assert made.status == 0, made.err
    monkeypatch.setenv(made.json["variable"], str(urlsplit(postgresql_database).password))
    plans, sizes = Path("snapshots.yaml").read_text(), {}
    for day in ("2024-03-02", "2024-04-02"):
        dated = re.sub("start_time: .*", f"start_time: {day}T00:00:00Z", plans)
        Path("snapshots.yaml").write_text(re.sub("end_time: .*", f"end_time: {day}T12:00:00Z", dated))
        shown = snapshots("plan", "show", "b", "--json")
        assert shown.status == 0, shown.err
        [table] = shown.json["tables"]
        assert table["analyzed"]
        sizes[day] = table["bytes"]
    assert 500 * 100 < sizes["2024-03-02"] < 2000 * 108
    assert 20000 * 100 < sizes["2024-04-02"] < 43200 * 100


def test_plan_show_names_windows_tables_place_and_rules(snapshots: Snapshots, source: str, location: Path) -> None:
    Path("snapshots.yaml").write_text(
        f"plans: {{daily: {{source: '{source}', to: '{location.as_uri()}', start_time: 2025-01-01T00:00:00Z,"
        " end_time: 2025-01-04T00:00:00Z, retention: {keep_for: 30d}}}"
    )
    shown, told = snapshots("plan", "show", "daily", "--json").json, snapshots("plan", "show", "daily")
    assert shown["windows"] | {"bytes_each": 0} == {
        "count": 3,
        "exported": 0,
        "to_export": 3,
        "length": "1d",
        "start": "2025-01-01T00:00:00Z",
        "end": "2025-01-04T00:00:00Z",
        "bytes_each": 0,
    }
    assert [(table["table"], table["time_index"]) for table in shown["tables"]] == [
        ("main.readings", "moment"),
        ("main.sensors", None),
    ]
    assert shown["bytes"] == sum(table["bytes"] for table in shown["tables"]) > 0
    assert shown["rules"]["retention"]["keep_for"] == "30d"
    assert "3 windows of 1d" in told.out
    assert '  retention: {"keep_for": "30d"}\n' in told.out
    assert not location.exists()
    assert snapshots("plan", "show", "dayly").status == 2


def test_plan_show_of_an_assets_plan_names_the_asset_and_the_windows(snapshots: Snapshots, location: Path) -> None:
    written = "plans: {{delays: {{source: 'asset:reports/delays', to: '{to}', start_time: 2025-01-01T00:00:00Z{end}}}}}"
    ends = ", end_time: 2025-01-04T00:00:00Z, chunk_time_window: 1d"
    Path("snapshots.yaml").write_text(written.format(to=location.as_uri(), end=ends))
    facts, shown = snapshots("plan", "show", "delays", "--json").json, snapshots("plan", "show", "delays")
    assert (facts["source"], facts["windows"]["count"], facts["tables"]) == ("asset:reports/delays", 3, [])
    assert (facts["bytes"], facts["windows"]["bytes_each"]) == (None, None)
    assert shown.out.startswith("delays: exports asset:reports/delays to ")
    assert "  3 windows of 1d\n" in shown.out
    assert "  a run of the Dagster asset reports/delays exports each; no size is known before\n" in shown.out
    assert "table" not in shown.out
    Path("snapshots.yaml").write_text(written.format(to=location.as_uri(), end=""))
    refused = snapshots("plan", "show", "delays")
    assert (refused.status, "has no end_time, which its Dagster partitions need" in refused.err) == (2, True)
    assert refused.err.endswith("give the range, or kind: continuous with a start_time\n")


def test_plan_show_refuses_the_location_of_another_plan(snapshots: Snapshots, source: str, exported: Path) -> None:
    Path("snapshots.yaml").write_text(
        f"plans: {{daily: {{source: '{source}', to: '{exported.as_uri()}', start_time: 2025-01-01,"
        " end_time: 2025-01-04, chunk_time_window: 12h}}"
    )
    refused = snapshots("plan", "show", "daily")
    assert (refused.status, "chunk_time_window" in refused.err) == (2, True)


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


@given(
    st.integers(0, 3_000_000).map(lambda hours: timedelta(hours=hours)),
    st.integers(0, 1 << 50),
    st.booleans(),
)
def test_proposed_windows_hold_all_rows_and_are_not_too_many(span: timedelta, size: int, continuous: bool) -> None:
    bounds = TimeRange(AT, AT + span)

    def estimate(start: datetime, end: datetime) -> int:
        return int(size * ((end - start) / max(span, timedelta(microseconds=1))))

    found = propose_windows(bounds, estimate, AT + span, continuous=continuous)
    assert found.start <= bounds.start
    assert found.end > bounds.end
    assert 1 <= count_windows(found.start, found.end, found.length) <= 2002
    if continuous and span < timedelta(days=1000):
        assert found.length <= timedelta(days=1)


def test_a_window_fits_the_bulk_of_the_rows_though_one_row_has_a_time_far_away() -> None:
    year = timedelta(days=365)

    def estimate(start: datetime, end: datetime) -> int:
        overlap = min(end, AT + year) - max(start, AT)
        return int(365 * CHUNK_BYTES * max(overlap / year, 0))

    near = propose_windows(TimeRange(AT, AT + year), estimate, AT + year, continuous=False)
    far = propose_windows(TimeRange(AT, AT + 5 * year), estimate, AT + year, continuous=False)
    assert near.length == far.length == timedelta(days=1)


def test_the_plan_of_init_passes_dagsters_validation(snapshots: Snapshots, source: str, tmp_path: Path) -> None:
    import dagster as dg

    from snapshot_assets.pipeline.build import build_definitions
    from snapshot_assets.pipeline.dagster.resources import SPARK
    from snapshot_assets.pipeline.dagster.spark_session import spark_resource

    made = snapshots("init", "--source", source, "--to", (tmp_path / "a" / "b").as_uri(), "--json")
    assert made.status == 0, made.err
    configuration = load_configuration("snapshots.yaml")
    dg.Definitions.validate_loadable(build_definitions(configuration, resources={SPARK: spark_resource()}))
    assert json.loads(made.out)["windows"] == 3


def test_init_counts_the_windows_that_plan_show_counts(snapshots: Snapshots, source: str, location: Path) -> None:
    """The source's rows end long before now, and a continuous plan has all windows that have closed."""
    call = ("init", "--source", source, "--to", location.as_uri(), "--kind", "continuous", "--json")
    made = snapshots(*call).json
    shown = snapshots("plan", "show", "location", "--json").json
    assert made["windows"] == shown["windows"]["count"] > 600
