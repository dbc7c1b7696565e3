"""`snapshots sql` as its users see it: formats, files, versions, refusals and the prompt."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins.tags import create_tag
from snapshot_assets.cli.location import spare_pandas
from snapshot_assets.cli.output import READER_GONE
from snapshot_assets.format.names import parse_table
from snapshot_assets_tests.catalog.execute import delete_rows
from snapshot_assets_tests.cli.helpers import Result, Snapshots, export, make_plan, store_of

SENSORS = "SELECT id, name, NULL AS nothing, '' AS empty FROM sensors ORDER BY id"


@pytest.fixture
def sql(snapshots: Snapshots, exported: Path) -> Snapshots:
    """Call `snapshots sql` on a sealed snapshot."""
    return lambda *arguments: snapshots("sql", "--snapshot", exported.as_uri(), *arguments)


def test_rows_are_shown_as_a_table_and_written_in_every_format(sql: Snapshots, tmp_path: Path) -> None:
    shown = sql(SENSORS)
    assert (shown.status, shown.err) == (0, "")
    assert [line.split() for line in shown.out.splitlines()] == [
        ["id", "name", "nothing", "empty"],
        ["1", "roof", "NULL"],
        ["2", "cellar", "NULL"],
    ]
    assert sql("--format", "csv", SENSORS).out == 'id,name,nothing,empty\n1,roof,,""\n2,cellar,,""\n'
    rows = [json.loads(line) for line in sql("--format", "json", SENSORS).out.splitlines()]
    assert rows == [{"id": n, "name": name, "nothing": None, "empty": ""} for n, name in ((1, "roof"), (2, "cellar"))]
    for form in ("csv", "json", "parquet"):
        output = tmp_path / f"it's {form}"
        done = sql("--format", form, "-o", str(output), "SELECT * FROM readings")
        assert (done.status, done.out, done.err) == (0, "", "")
        with duckdb.connect() as connection:
            query = f"SELECT count(*), sum(value) FROM read_{form}(?)"
            assert connection.execute(query, [str(output)]).fetchall() == [(72, 2556)]
    assert pq.read_schema(tmp_path / "it's parquet").names == ["moment", "value"]


def test_parquet_has_exact_values(sql: Snapshots, tmp_path: Path) -> None:
    query = "SELECT sum(9007199254740993) AS s, sum(-1) AS s, 'x' AS t, 2::UHUGEINT AS u FROM readings LIMIT 1"
    assert sql("--format", "parquet", "-o", str(tmp_path / "rows"), query).status == 0
    assert pq.read_table(tmp_path / "rows").to_pylist() == [
        {"s": Decimal(72 * 9007199254740993), "s_1": Decimal(-72), "t": "x", "u": Decimal(2)}
    ]
    query = "SELECT [sum(9007199254740993)] AS l, INTERVAL '0.000123s' AS i, '12:00:00+02'::TIMETZ AS z FROM readings"
    assert sql("--format", "parquet", "-o", str(tmp_path / "rows"), query).status == 0
    assert pq.read_table(tmp_path / "rows").to_pylist() == [
        {"l": f"[{72 * 9007199254740993}]", "i": "00:00:00.000123", "z": "12:00:00+02"}
    ]
    too_wide = sql(
        "--format", "parquet", "-o", str(tmp_path / "more"), "SELECT 170141183460469231731687303715884105727"
    )
    assert (too_wide.status, (tmp_path / "more").exists()) == (2, False)


def test_a_long_result_is_cut_in_the_table_only(sql: Snapshots) -> None:
    query = "SELECT a.value FROM readings a, readings b"
    shown = sql(query)
    assert len(shown.out.splitlines()) == 1001
    assert "The first 1,000 rows are shown; --format csv --output FILE writes all." in shown.err
    assert len(sql("--format", "csv", query).out.splitlines()) == 72 * 72 + 1


def test_an_output_file_appears_whole_or_stays_as_it_was(sql: Snapshots, tmp_path: Path) -> None:
    output = tmp_path / "new" / "rows.csv"
    output.parent.mkdir()
    output.write_text("before")
    failing = "SELECT CASE WHEN value = 71 THEN error('no') ELSE 'x' END FROM readings"
    done = sql("--format", "csv", "-o", str(output), failing)
    assert (done.status, output.read_text(), os.listdir(output.parent)) == (2, "before", ["rows.csv"])
    link = tmp_path / "link.csv"
    link.symlink_to(output)
    assert sql("--format", "csv", "-o", str(link), "SELECT 1 AS n").status == 0
    assert link.is_symlink()
    assert (output.read_text(), os.listdir(output.parent)) == ("n\n1\n", ["rows.csv"])


def test_a_device_and_a_pipe_are_written_and_stay(sql: Snapshots, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8") as reader:
        done = sql("--format", "csv", "-o", str(pipe), "SELECT 1 AS n")
        assert (done.status, done.out, reader.read(), pipe.is_fifo()) == (0, "", "n\n1\n", True)
    assert sql("--format", "parquet", "-o", "/dev/null", "SELECT 1").status == 0
    assert sql("--format", "csv", "-o", "/dev/stdout", "SELECT 1 AS n").out == "n\n1\n"
    full = sql("--format", "csv", "-o", "/dev/full", "SELECT 1 AS n")
    assert (full.status, "--output /dev/full cannot be written: No space left on device." in full.err) == (2, True)


def test_a_reader_that_leaves_ends_a_call_as_a_closed_stdout_does(sql: Snapshots, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["timeout", "60", "head", "-c", "1", str(pipe)], stdout=subprocess.DEVNULL):
        done = sql("--format", "csv", "-o", str(pipe), "SELECT repeat('x', 1000) FROM range(10000)")
    assert (done.status, done.err) == (READER_GONE, "")


def test_a_query_comes_from_a_file_or_stdin(sql: Snapshots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "query.sql"
    file.write_text("-- how many\nSELECT count(*) AS ü FROM readings;\n", encoding="utf-8")
    expected = sql("SELECT count(*) AS ü FROM readings").out
    assert sql("-f", str(file)).out == expected
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT count(*) AS ü FROM readings"))
    assert sql("-f", "-").out == expected
    file.write_bytes(b"\xff")
    for missing in (file, tmp_path / "none.sql"):
        assert (sql("-f", str(missing)).status, "cannot be read" in sql("-f", str(missing)).err) == (2, True)


WRONG = {
    "": "the query is missing",
    "--format csv": "the query is missing",
    "-f x.sql SELECT": "not both",
    "--format parquet SELECT": "Parquet is not text",
    "-o x.csv SELECT": "needs --format",
    "--format csv -o none/x.csv SELECT": "there is no folder",
    "--format csv -o / SELECT": "--output / is a folder",
    "--print SELECT": "--print runs no query",
    "--print --format csv": "--print runs no query",
    "--at tag:a --at tag:b SELECT": "each has a name",
    "--at main=tag:a SELECT": "main is taken",
    "--at a=1 --at A=2 SELECT": "A is taken",
    "--at a-b=tag:a SELECT": "letters, digits and _",
    'FROM "$diff"': "catalog table diff` shows it",
    "FROM view": "source's views are not among them",
    "PIVOT readings ON value": "PIVOT must list the values",
    "SELEC": "DuckDB refuses the query",
    "DROP": "DuckDB refuses the query",
    "--format csv EXPLAIN": "DuckDB refuses the query",
}


@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_call_is_refused(sql: Snapshots, call: str) -> None:
    done = sql(*([call] if call.startswith(("FROM", "PIVOT")) else call.split()))
    assert (done.status, done.out) == (2, "")
    assert WRONG[call] in done.err


def test_an_explanation_has_no_rows_to_write(sql: Snapshots) -> None:
    assert "READ_PARQUET" in sql("EXPLAIN FROM readings").out
    done = sql("--format", "csv", "EXPLAIN FROM readings")
    assert (done.status, "EXPLAIN has no rows to write" in done.err) == (2, True)


def test_what_is_missing_or_damaged_has_its_exit_status(snapshots: Snapshots, sql: Snapshots, exported: Path) -> None:
    nowhere = snapshots("sql", "--snapshot", (exported / "none").as_uri(), "SELECT 1")
    assert (nowhere.status, sql("--at", "tag:none", "SELECT 1").status) == (5, 5)
    assert sql("FROM nothing").status == 2
    [file] = exported.glob("data/2/*.parquet")
    file.write_bytes(b"damaged")
    for options in ((), ("--no-verify",)):
        for form in ((), ("--format", "csv")):
            done = sql(*options, *form, "FROM readings")
            assert (done.status, done.out, file.name in done.err) == (3, "", True)
    assert sql("--format", "csv", "SELECT count(*) AS n FROM sensors").out == "n\n2\n"


def test_versions_have_the_names_of_at(sql: Snapshots, source: str, exported: Path) -> None:
    catalog = Catalog.open_for_writing(store_of(exported))
    create_tag(catalog, "first", catalog.state.revision)
    delete_rows(Catalog.open_for_writing(store_of(exported)), parse_table("main.readings"), "value < 10")
    export(make_plan(source, exported.as_uri()), store_of(exported))
    query = "SELECT count(*) AS n FROM {}"
    assert sql("--format", "csv", query.format("readings")).out == "n\n62\n"
    assert sql("--format", "csv", "--at", "tag:first", query.format("readings")).out == "n\n72\n"
    both = (
        "--at",
        "New=rev:" + str(Catalog.open(store_of(exported)).state.seals[-1].revision),
        "--at",
        "old=tag:first",
    )
    gone = "(FROM old.main.readings EXCEPT ALL FROM new.main.readings)"
    assert sql("--format", "csv", *both, query.format(gone)).out == "n\n10\n"
    newest = ("--at", "new=", "--at", "old=tag:first")
    assert sql("--format", "csv", *newest, query.format(gone)).out == "n\n10\n"
    printed = sql(*both, "--print")
    assert printed.status == 0
    assert "new.main.readings is not here" in printed.err


def test_a_plan_keeps_its_lines(sql: Snapshots) -> None:
    explained = sql("EXPLAIN SELECT count(*) FROM readings")
    assert (explained.status, explained.err) == (0, "")
    assert len(explained.out.splitlines()) > 5
    assert "READ_PARQUET" in explained.out


def test_duckdb_alone_runs_what_is_printed(sql: Snapshots) -> None:
    printed = sql("--print")
    assert (printed.status, printed.err) == (0, "")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'; " + printed.out)
        assert connection.execute("SELECT count(*), max(moment)::VARCHAR FROM readings").fetchall() == [
            (72, "2025-01-03 23:00:00+00")
        ]
        assert connection.execute("FROM sensors").fetchall() == [(1, "roof"), (2, "cellar")]


def test_what_duckdb_alone_cannot_open_is_not_printed(snapshots: Snapshots, exported: Path) -> None:
    moved = exported.rename(exported.with_name("a[1]"))
    done = snapshots("sql", "--snapshot", moved.as_uri(), "--print")
    assert (done.status, done.out, "DuckDB alone opens no files of file://" in done.err) == (2, "", True)
    assert "72" in snapshots("sql", "--snapshot", moved.as_uri(), "SELECT count(*) FROM readings").out


def typed(location: Path, text: str) -> Result:
    """Type lines at a prompt."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "snapshot_assets", "sql", "--snapshot", location.as_uri()]
    environment = {**os.environ, "TERM": "dumb"}
    process = subprocess.Popen(
        command, stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    os.close(slave)
    os.write(master, text.encode())
    out, err = process.communicate(timeout=120)
    os.close(master)
    return Result(process.returncode, out, err)


@pytest.mark.parametrize("end", ["\x04", "exit\n", "\\q\n"])
def test_a_person_types_queries_at_a_prompt(exported: Path, end: str) -> None:
    lines = "SELECT count(*) AS many\nFROM readings;\nFROM nothing;\n\nSELECT name FROM sensors WHERE id = 2;\n"
    done = typed(exported, lines + end)
    assert done.status == 0
    assert "72" in done.out
    assert "cellar" in done.out
    assert "End a query with ;" in done.err
    assert "nothing does not exist" in done.err


def test_a_semicolon_in_a_text_or_a_comment_ends_no_query(exported: Path) -> None:
    done = typed(exported, "SELECT 'a;\nb' AS x, -- more;\n/* and; */ 7 * 6 AS y; -- done\n\x04")
    assert (done.status, "42" in done.out, "DuckDB refuses" in done.err) == (0, True, False)


def test_a_cancelled_query_says_so(exported: Path) -> None:
    query = "SELECT count(*) FROM readings"
    script = (
        "import signal, sys; from snapshot_assets.cli import main;"
        "from snapshot_assets.engine.reading import sql; run = sql.SqlSession._run;"
        "sql.SqlSession._run = lambda *call: (signal.raise_signal(signal.SIGINT), run(*call))[1];"
        f"sys.exit(main(['sql', '--snapshot', {exported.as_uri()!r}, {query!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "snapshots: The query was cancelled.\n")


def test_a_query_starts_without_pandas(exported: Path) -> None:
    call = ["sql", "--snapshot", exported.as_uri(), "--format", "csv", "FROM readings WHERE moment < '2025-01-02'"]
    script = f"import sys; from snapshot_assets.cli import main; print(main({call}), 'pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[::25] == ["moment,value", "0 False"]


@pytest.mark.parametrize(
    "command",
    [
        *("export verify --depth quick", "catalog expire --keep-last 1 --dry-run", "status", "export list"),
        "replicate --dry-run --to file://{0}/replica",
    ],
)
def test_commands_on_a_location_start_without_pandas(exported: Path, tmp_path: Path, command: str) -> None:
    call = [*command.format(tmp_path).split(), "--snapshot", exported.as_uri()]
    script = f"import sys; from snapshot_assets.cli import main; print(main({call}), 'pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 False"


def test_pandas_is_found_again_where_arrow_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("pyarrow.array", fail)
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    before = list(sys.meta_path)
    with pytest.raises(MemoryError):
        spare_pandas()
    assert sys.meta_path == before
