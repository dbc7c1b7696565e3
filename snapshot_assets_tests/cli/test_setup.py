"""`snapshots init` and `plan show`, before the first export."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_assets.cli.setup.proposal import CHUNK_BYTES, propose_windows
from snapshot_assets.format.windows import TimeRange, count_windows
from snapshot_assets.plan.read_configuration import load_configuration
from snapshot_assets_tests.cli.helpers import Snapshots, export, make_source, store_of
from snapshot_assets_tests.servers.postgresql import PostgresqlServer

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
