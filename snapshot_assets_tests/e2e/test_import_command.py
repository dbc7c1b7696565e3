"""The command `snapshots import`: what it restores, what it refuses before it touches anything, what it prints."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest

from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets_tests.cli.helpers import (
    Snapshots,
    differing,
    export,
    in_own_process,
    make_plan,
    make_source,
    store_of,
)
from snapshot_assets_tests.engine.exports import Place
from snapshot_assets_tests.engine.restore.imports import Into
from snapshot_assets_tests.faults.held import start_held
from snapshot_assets_tests.servers.postgresql import PASSWORD, MakeDatabase, PostgresqlServer


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A file that does not exist yet."""
    return tmp_path / "target.duckdb"


@pytest.fixture
def call(exported: Path, target: Path) -> tuple[str, ...]:
    """The arguments that import the exported snapshot into the target."""
    return ("import", "--from", exported.as_uri(), "--target", f"duckdb://{target}")


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.execute(query).fetchall()


def execute(path: Path, *statements: str) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for statement in statements:
            connection.execute(statement)


@pytest.mark.usefixtures("spark")
def test_an_import_reports_what_it_did_and_the_next_one_has_nothing_to_do(
    snapshots: Snapshots, call: tuple[str, ...], exported: Path, target: Path, tmp_path: Path
) -> None:
    first = snapshots(*call, "--json")
    assert first.status == 0, first.err
    seal = read_state(store_of(exported)).seals[-1]
    expected = {
        "location": exported.as_uri(),
        "revision": seal.revision,
        "checksum": seal.seal.checksum,
        "outcomes": {"loaded": 4},
        "rows_loaded": 74,
        "tables": {"main.readings": 72, "main.sensors": 2},
        "lost": [],
    }
    assert {name: first.json[name] for name in expected} == expected
    assert f"Runs are recorded in {tmp_path / 'dagster'}" in first.err
    assert differing(tmp_path / "source.duckdb", target, "main.readings", "main.sensors") == {}
    before = {path: path.stat().st_mtime_ns for path in exported.rglob("*")}

    again = snapshots(*call, "--json")
    assert (again.status, again.json["run_id"], again.json["rows_loaded"]) == (0, None, 0)
    assert again.json["import"] == first.json["import"]
    assert "was restored before; nothing was done" in snapshots(*call).out
    assert {path: path.stat().st_mtime_ns for path in exported.rglob("*")} == before
    assert differing(tmp_path / "source.duckdb", target, "main.readings", "main.sensors") == {}


@pytest.mark.slow
def test_a_second_import_reports_missing_rows_and_fails(
    snapshots: Snapshots, call: tuple[str, ...], exported: Path, target: Path
) -> None:
    assert Into(f"duckdb://{target}").restore(store_of(exported)).finished
    assert "was restored before; nothing was done" in snapshots(*call).out
    execute(target, "DELETE FROM sensors", "DELETE FROM readings WHERE value < 5")
    for option in ((), ("--dry-run",), ("--json",)):
        refused = snapshots(*call, *option)
        assert refused.status == 1
        message = refused.json["error"]["message"] if option == ("--json",) else refused.err
        assert "main.readings: 72 were loaded, 67 are there (other rows than loaded in chunk 1)" in message
        assert "main.sensors: 2 were loaded, 0 are there" in message
        assert "--forget-ledger" in message


def test_a_plan_with_a_target_can_be_imported_and_one_without_is_refused(
    snapshots: Snapshots, exported: Path, source: str, target: Path, tmp_path: Path
) -> None:
    config = tmp_path / "snapshots.yaml"
    plan = f"{{source: live, to: '{exported.as_uri()}', start_time: 2025-01-01T00:00:00Z, parallelism: 2"
    config.write_text(
        f"sources: {{live: '{source}', copy: 'duckdb://{target}', other: 'duckdb://{tmp_path / 'other.duckdb'}'}}\n"
        f"plans:\n  good: {plan}, target: copy}}\n  none: {plan}}}\n"
    )
    call = ("--config", str(config), "import", "--dry-run", "--plan")
    refused = snapshots(*call, "none")
    assert (refused.status, refused.out) == (2, "")
    assert "plan 'none' has no target" in refused.err
    assert "give --target T" in refused.err
    both = snapshots(*call, "good", "--from", exported.as_uri())
    assert (both.status, "not allowed with argument --plan" in both.err) == (2, True)
    good = snapshots(*call, "good", "--json")
    assert (good.status, good.json["target"], good.json["rows_of_files"]) == (0, "copy", 74)
    for plan, given in (("none", "copy"), ("good", "other"), ("none", f"duckdb://{tmp_path / 'other.duckdb'}")):
        other = snapshots(*call, plan, "--target", given, "--json")
        assert (other.status, other.json["target"]) == (0, "copy" if given == "copy" else "other"), other.err
    assert not target.exists()


def test_a_target_that_is_no_target_is_the_calls_mistake(
    snapshots: Snapshots, exported: Path, source: str, tmp_path: Path
) -> None:
    config = tmp_path / "snapshots.yaml"
    plan = f"{{source: live, to: '{exported.as_uri()}'}}"
    config.write_text(f"sources: {{live: '{source}', lake: 'spark:lake'}}\nplans:\n  shop: {plan}\n")
    call = ("--config", str(config), "import", "--dry-run", "--plan", "shop", "--target")
    same = snapshots(*call, "live")
    assert same.status == 2
    assert "the call beside plan 'shop' has 1 mistake:\n  --target: live is the source itself" in same.err
    for catalog in ("lake", "spark:spark_catalog.shop"):
        refused = snapshots(*call, catalog)
        assert (refused.status, refused.out) == (2, "")
        named = f"target {catalog.removeprefix('spark:')} is a Spark catalog, into which nothing can be restored."
        assert named in refused.err
        assert "write postgresql://host/database or duckdb:///absolute/path.duckdb" in refused.err
        assert "docs/how-to/into-spark.md" in refused.err
    unknown = snapshots(*call, "lvie")
    assert (unknown.status, "Did you mean 'live'?" in unknown.err) == (2, True)


@pytest.mark.usefixtures("spark")
@pytest.mark.slow
def test_quoted_tables_a_time_range_and_no_expressions_are_selected(
    snapshots: Snapshots, location: Path, target: Path, tmp_path: Path
) -> None:
    quoted = '"od.d"."a ""b"", c"'
    source = make_source(
        tmp_path / "odd.duckdb",
        'CREATE SCHEMA "od.d"',
        f"CREATE TABLE {quoted} AS SELECT moment, value FROM readings",
        f"ALTER TABLE {quoted} ALTER value SET DEFAULT 1 + 1",
        f"CREATE VIEW seen AS SELECT * FROM {quoted}",
    )
    export(make_plan(source, location.as_uri()), store_of(location))
    call = ("import", "--from", location.as_uri(), "--target", f"duckdb://{target}")
    chosen = ("--tables", f"{quoted},main.sensors", "--time-range", "2025-01-02T06:00:00Z/2025-01-03T12:00:00Z")
    done = snapshots(*call, *chosen, "--no-expressions", "--json")
    assert done.status == 0, done.err
    assert done.json["tables"] == {'"od.d"."a ""b"", c"': 30, "main.sensors": 2}
    assert done.json["outcomes"] == {"loaded": 3}  # chunk 0 and two of three windows
    assert any("default" in sentence.lower() for sentence in done.json["lost"])
    moments = rows(target, f"SELECT min(moment)::VARCHAR, max(moment)::VARCHAR, count(*) FROM {quoted}")
    assert moments == [("2025-01-02 06:00:00+00", "2025-01-03 11:00:00+00", 30)]
    other = snapshots(*call, "--schemas", "main")
    assert other.status == 2
    assert "; asked for is schemas main" in other.err
    fresh = f"duckdb://{tmp_path}/main.duckdb"
    main = snapshots(*call[:-1], fresh, "--schemas", "main", "--dry-run", "--json")
    assert main.status == 0, main.err
    assert main.json["types"].keys() == {"main.readings", "main.sensors"}
    assert any("seen" in sentence for sentence in main.json["lost"])
    fresh = f"duckdb://{tmp_path}/untimed.duckdb"
    untimed = snapshots(*call[:-1], fresh, "--time-range", "2030-01-01T00:00:00Z/2031-01-01T00:00:00Z", "--json")
    assert untimed.status == 0, untimed.err
    assert set(untimed.json["tables"].values()) == {0, 2}


def test_a_dry_run_reports_everything_and_touches_nothing(
    snapshots: Snapshots, call: tuple[str, ...], exported: Path, target: Path, tmp_path: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    printed = snapshots(*call, "--dry-run", "--json")
    assert printed.status == 0, printed.err
    assert (printed.json["files"], printed.json["rows_of_files"], printed.json["finished"]) == (4, 74, False)
    assert printed.json["types"]["main.sensors"] == {"id": "INTEGER", "name": "VARCHAR"}
    made = " ".join(printed.json["makes"])
    assert "main.readings" in made
    assert "primary key" in made.lower()
    text = snapshots(*call, "--dry-run")
    assert text.status == 0
    assert "nothing was changed" in text.out
    assert "would load 4 files, 74 rows" in text.out
    assert "would make 2 tables, 1 primary key; --verbose names them" in text.out
    assert printed.json["makes_by_kind"] == {"table": 2, "primary key": 1}
    verbose = snapshots(*call, "--dry-run", "--verbose")
    assert all(f"would make {each}" in verbose.out for each in printed.json["makes"])
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert not target.exists()
    assert not (tmp_path / "dagster").exists()

    [victim] = exported.glob("data/2/*.parquet")
    victim.write_bytes(victim.read_bytes()[::-1])  # of the same size, so only reading the data shows it
    damaged = snapshots(*call, "--dry-run")
    assert damaged.status == 3
    assert str(victim.relative_to(exported)) in damaged.err


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ("", 2, "--from and --target missing"),
        ("--from {here} --target nowhere", 2, "nowhere"),
        ("--from {here} --target oracle://u@h/d", 2, "oracle"),
        ("--from {here}/none --target {target}", 5, "There is no snapshot"),
        ("--from {here} --target {target} --at rev:99", 5, "99"),
        ("--from {here} --target {target} --tables main.reading", 2, "Did you mean"),
        ("--from {here} --target {target} --time-range 2025-01-02T00:00:00Z", 2, "START/END"),
        ("--from {here} --target {target} --parallelism 0", 2, "--parallelism is 0; expected a number from 1 to 64"),
        ("--plan nope", 2, "nope"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_touched(
    snapshots: Snapshots, exported: Path, target: Path, tmp_path: Path, arguments: str, status: int, words: str
) -> None:
    call = arguments.format(here=exported.as_uri(), target=f"duckdb://{target}").split()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    refused = snapshots("import", *call)
    assert (refused.status, refused.out) == (status, ""), refused.err
    assert words in refused.err
    as_json = snapshots("import", *call, "--json")
    assert as_json.status == status
    assert words in as_json.json["error"]["message"]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_late_rows_are_replaced_when_asked(
    snapshots: Snapshots, call: tuple[str, ...], exported: Path, source: str, target: Path, tmp_path: Path
) -> None:
    first = read_state(store_of(exported)).seals[-1].revision
    execute(tmp_path / "source.duckdb", "INSERT INTO readings VALUES ('2025-01-02 00:30:00Z', -1)")
    export(make_plan(source, exported.as_uri()), store_of(exported), chunks=[2], replace=True)
    before = snapshots(*call, "--at", f"rev:{first}", "--dry-run", "--json")
    assert (before.status, before.json["revision"], before.json["rows_of_files"]) == (0, first, 74), before.err
    assert Into(f"duckdb://{target}").restore(store_of(exported), version=f"rev:{first}").finished
    for option in ((), ("--dry-run",)):
        refused = snapshots(*call, *option)
        assert refused.status == 1
        assert "Give --replace" in refused.err
    assert read_state(store_of(exported)).tags == {}
    printed = snapshots(*call, "--replace", "--dry-run")
    assert printed.status == 0, printed.err
    assert "would delete the rows of chunk 2 first" in printed.out
    assert rows(target, "SELECT count(*) FROM readings") == [(72,)]
    replaced = snapshots(*call, "--replace", "--json")
    assert replaced.status == 0, replaced.err
    assert (replaced.json["outcomes"], replaced.json["rows_loaded"]) == ({"present": 3, "replaced": 1}, 25)
    assert differing(tmp_path / "source.duckdb", target, "main.readings", "main.sensors") == {}


@pytest.mark.usefixtures("spark")
@pytest.mark.slow
def test_rows_of_others_are_kept_when_allowed_and_the_ledger_can_be_forgotten(
    snapshots: Snapshots, call: tuple[str, ...], target: Path, tmp_path: Path
) -> None:
    execute(target, "CREATE TABLE sensors (id INTEGER, name VARCHAR)", "INSERT INTO sensors VALUES (9, 'theirs')")
    for option in ((), ("--dry-run",)):
        refused = snapshots(*call, *option)
        assert refused.status == 2
        assert "main.sensors" in refused.err
        assert "--into-nonempty" in refused.err
    assert rows(target, "SELECT table_name FROM duckdb_tables()") == [("sensors",)]
    assert not (tmp_path / "dagster").exists()
    done = snapshots(*call, "--into-nonempty")
    assert done.status == 0, done.err
    assert "  2 tables hold 75 rows, rows of others among them\n" in done.out

    shown = snapshots(*call, "--forget-ledger", "--dry-run")
    assert shown.out.startswith("target: 1 import would be forgotten; nothing was changed\n")
    assert len(snapshots(*call, "--forget-ledger", "--dry-run", "--json").json["would_forget"]) == 1
    forgotten = snapshots(*call, "--forget-ledger")
    assert forgotten.out == "target: 1 import forgotten; tables and rows were left as they are\n"
    assert snapshots(*call, "--forget-ledger", "--json").json["forgotten"] == 0
    assert rows(target, "SELECT (SELECT count(*) FROM sensors), (SELECT count(*) FROM readings)") == [(3, 72)]
    assert rows(target, "SELECT table_name FROM duckdb_tables() ORDER BY 1") == [("readings",), ("sensors",)]
    assert snapshots(*call).status == 2  # now all of it is another user's


def test_forgetting_the_ledger_deletes_the_tags_of_unfinished_imports(
    snapshots: Snapshots, call: tuple[str, ...], exported: Path, target: Path, tmp_path: Path
) -> None:
    record = Into(f"duckdb://{target}").run(store_of(exported)).begin().record
    assert list(read_state(store_of(exported)).tags) == [record.tag]
    elsewhere = ("import", "--from", (tmp_path / "gone").as_uri(), *call[3:])
    shutil.copy(target, tmp_path / "other.duckdb")
    printed = snapshots(*elsewhere[:-1], f"duckdb://{tmp_path}/other.duckdb", "--forget-ledger")
    assert printed.status == 0, printed.err
    assert f"  still pinned: {record.tag} of {record.location}\n" in printed.out
    assert snapshots(*call, "--forget-ledger", "--json").json == {"target": "target", "forgotten": 1, "tags_left": []}
    assert read_state(store_of(exported)).tags == {}


@pytest.mark.usefixtures("spark")
def test_a_targets_password_is_printed_and_stored_nowhere(
    snapshots: Snapshots, exported: Path, postgresql_server: PostgresqlServer, postgresql_database: str, tmp_path: Path
) -> None:
    call = ("import", "--from", exported.as_uri(), "--target")
    wrong = "hunter2-open-sesame"
    refused = snapshots(*call, postgresql_server.uri(password=wrong))
    assert refused.status == 1
    done = snapshots(*call, postgresql_database)
    assert done.status == 0, done.err
    assert "4 chunks, 74 rows loaded now" in done.out
    assert "2 tables hold 74 rows, as many as were loaded" in done.out
    assert postgresql_server.psql(postgresql_database, "SELECT count(*) FROM main.readings") == "72"
    execute_late = ("DROP TABLE main.readings", "DELETE FROM main.sensors")
    postgresql_server.psql(postgresql_database, *execute_late)
    failed = snapshots(*call, postgresql_database, "--json")
    output = "".join((*refused[1:], *done[1:], *failed[1:]))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.is_relative_to(tmp_path / "dagster") for path in files)
    for secret in (wrong, PASSWORD, postgresql_database.split(":")[2].split("@")[0]):
        assert secret not in output
        assert [path for path in files if secret.encode() in path.read_bytes()] == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_import_is_finished_by_the_next_command_with_no_row_missing_or_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    execute(
        tmp_path / "source.duckdb",
        "CREATE TABLE m AS SELECT i, timestamptz '2025-01-01 00:00:00Z' + to_seconds(i * 86) AS t,"
        " repeat('x', 500) || i AS s FROM range(40000) r(i)",
        "CREATE TABLE untimed AS SELECT 1 AS a FROM range(3)",
    )
    location = tmp_path / "snapshots"
    plan = make_plan(f"duckdb://{tmp_path}/source.duckdb", location.as_uri(), end_time="2025-02-10T00:00:00Z")
    export(plan, store_of(location))
    target, log = tmp_path / "target.duckdb", tmp_path / "target.duckdb.wal"
    call = ("import", "--json", "--from", location.as_uri(), "--target", f"duckdb://{target}")
    start_held(tmp_path, log, *call, least=100_000).kill()  # rows are written

    done = in_own_process(*call)
    assert done.status == 0, done.err
    assert differing(tmp_path / "source.duckdb", target, "main.m", "main.untimed") == {}
    assert read_state(store_of(location)).tags == {}


@pytest.fixture
def with_views(snapshots: Snapshots, location: Path, tmp_path: Path) -> Path:
    """A snapshot of views that use a macro, which no snapshot carries, and of things that DuckDB cannot restore."""
    source = make_source(
        tmp_path / "source.duckdb",
        "CREATE MACRO twice(n) AS TABLE SELECT n * 2 AS n",
        "CREATE SCHEMA s",
        "CREATE TABLE s.tree (id INTEGER PRIMARY KEY, up INTEGER)",
        *(f"CREATE VIEW v{number} AS SELECT n FROM twice({number})" for number in range(12)),
        "CREATE VIEW good AS SELECT id FROM sensors",
    )
    export(make_plan(source, location.as_uri()), store_of(location))
    return location


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_steps_that_fail_are_listed_with_their_statements_and_end_the_command_with_status_1(
    snapshots: Snapshots, with_views: Path, target: Path
) -> None:
    call = ("import", "--from", with_views.as_uri(), "--target", f"duckdb://{target}")
    first = snapshots(*call)
    assert first.status == 1
    assert first.out.count("could not be made: view main.v") == 12
    assert '  run by hand: CREATE VIEW "main"."v3" ("n") AS SELECT n FROM twice(3);\n' in first.out
    assert "Table Function with name twice does not exist" in first.out
    verdict = first.out[first.out.index("target: revision") :].splitlines()
    assert len(verdict) <= 10
    assert "  could not be made: 12 views; see above" in verdict
    assert "Correct in the target what the messages name first, or run the statements by hand; then" in first.err
    assert "un again" not in first.out + first.err
    assert any(line.startswith("  made: ") and "3 tables" in line for line in verdict)
    assert "12 schema steps failed" in first.err
    assert rows(target, "SELECT count(*) FROM good") == [(2,)]

    again = snapshots(*call, "--json")
    assert (again.status, again.json["run_id"], again.json["rows_loaded"]) == (1, None, 0)
    assert again.json["error"]["kind"] == "SchemaIncompleteError"
    assert [each["object"] for each in again.json["failed"]][:2] == ["view main.v0", "view main.v1"]
    [failed] = [each for each in again.json["failed"] if each["object"] == "view main.v3"]
    assert (failed["kind"], failed["violated"]) == ("view", False)
    assert failed["statements"] == ['CREATE VIEW "main"."v3" ("n") AS SELECT n FROM twice(3)']

    execute(target, "CREATE MACRO twice(n) AS TABLE SELECT n * 2 AS n")
    mended = snapshots(*call)
    assert mended.status == 0, mended.err
    assert "was restored before; all rows are there" in mended.out
    assert rows(target, "SELECT n FROM v3") == [(6,)]
    last = snapshots(*call, "--json")
    assert (last.status, last.json["failed"]) == (0, [])


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_expressions_may_be_left_out_later_and_what_is_lost_is_counted_by_kind(
    snapshots: Snapshots, with_views: Path, target: Path
) -> None:
    call = ("import", "--from", with_views.as_uri(), "--target", f"duckdb://{target}")
    assert snapshots(*call).status == 1
    dry = snapshots(*call, "--no-expressions", "--dry-run")
    assert (dry.status, dry.out.count("\n")) == (0, 3), dry.err
    assert "  not carried over: 13 views, 1 table macro; --verbose names them\n" in dry.out
    plain = snapshots(*call, "--no-expressions", "--json")
    assert plain.status == 0, plain.err
    assert plain.json["lost_by_kind"] == {"view": 13, "table macro": 1}
    assert len(plain.json["lost"]) == 14
    verbose = snapshots(*call, "--no-expressions", "--dry-run", "--verbose")
    assert verbose.out.count("  not carried over: View main.") == 13
    assert snapshots(*call).status == 1  # with expressions, the views are tried again


REFUSES_BROKEN = (
    """CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
        IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands() WHERE object_identity = 'public.broken') THEN
            RAISE 'not now';
        END IF; END $$""",
    "CREATE EVENT TRIGGER refuse ON ddl_command_end WHEN tag IN ('CREATE TABLE') EXECUTE FUNCTION refuse()",
)
"""A rule of the target that no rehearsal foresees: none runs where event triggers would run too."""


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_a_table_that_cannot_be_created_is_named_and_filled_by_the_run_that_creates_it(
    snapshots: Snapshots, make_postgresql_database: MakeDatabase, postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    place, into = Place(make_postgresql_database(), tmp_path / "location"), make_postgresql_database()
    broken = "CREATE TABLE broken (t timestamptz, n integer DEFAULT 1)"
    filled = "INSERT INTO broken SELECT '2025-01-02 00:00:00Z' FROM generate_series(1, 3)"
    good = "CREATE TABLE good AS SELECT '2025-01-03 00:00:00Z'::timestamptz AS t"
    postgresql_server.psql(place.source, broken, filled, good)
    place.export()
    call = ("import", "--from", place.folder.as_uri(), "--target", into)
    postgresql_server.psql(into, *REFUSES_BROKEN)
    first = snapshots(*call, "--json")
    assert first.status == 1, first.err
    assert first.json.get("tables") == {"public.broken": 0, "public.good": 1}, first.out
    assert first.json["tables_not_made"] == ["public.broken"]
    assert [(each["object"], each["kind"]) for each in first.json["failed"]] == [("table public.broken", "table")]
    assert "All rows are loaded but those of public.broken" in first.json["error"]["message"]
    again = snapshots(*call)
    assert again.status == 1
    assert "  rows are not loaded of tables that could not be made: public.broken\n" in again.out
    assert "  1 table holds 1 row, as many as were loaded\n" in again.out
    postgresql_server.psql(into, "DROP EVENT TRIGGER refuse")
    dry = snapshots(*call, "--dry-run")
    assert "would make 1 table; --verbose names them" in dry.out
    done = snapshots(*call, "--json")
    assert (done.status, done.json["rows_loaded"], done.json["failed"]) == (0, 3, []), done.err
    assert done.json["tables"] == {"public.broken": 3, "public.good": 1}
    assert postgresql_server.psql(into, "SELECT count(*), sum(n) FROM broken") == "3|3"
