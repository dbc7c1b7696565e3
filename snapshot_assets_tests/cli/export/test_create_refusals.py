"""What `create` refuses: before Dagster starts, before anything is written, with status 2 and words that help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from snapshot_assets_tests.cli.helpers import RANGE, Result, Snapshots, contents, make_source

TOKEN = "kite-ladder-42"


def create(snapshots: Snapshots, *arguments: str) -> Result:
    return snapshots("export", "create", *arguments)


def assert_refused(result: Result, folder: Path, *messages: str, status: int = 2) -> None:
    """Refused in these words, and without a trace: no location, no Dagster instance."""
    assert (result.status, result.out) == (status, ""), result
    for text in messages:
        assert text in result.err
    assert "Traceback" not in result.err
    assert not (folder / "location").exists()
    assert not (folder / "dagster").exists()


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["--force", "--replace", "2025-01-01T00:00:00Z/2025-01-02T00:00:00Z"], ["--force", "--replace"]),
        (["--replace", "2025-01-01T00:00:00Z"], ["START/END"]),
        (["--replace", "2025-01-02T00:00:00Z/2025-01-01T00:00:00Z"], ["not after the start"]),
        (["--replace", "yesterday/today"], ["'yesterday'", "RFC 3339"]),
        (["--replace", "2025-01-01T00:00:00Z/2025-01-02T00:00:00Z"], ["there is no snapshot"]),
        (["--schema-only", "--replace", "2025-01-01T00:00:00Z/2025-01-02T00:00:00Z"], ["schema-only"]),
        (["--format", "orc"], ["orc", "parquet"]),
        (["--start-time", "2025-01-01T00:00:00"], ["2025-01-01T00:00:00", "zone"]),
        (["--start-time", "2025-01-02T00:00:00Z", "--end-time", "2025-01-01T00:00:00Z"], ["not after --start-time"]),
        (["--chunk-time-window", "1y"], ["'1y'", "90m"]),
        (["--max-file-size", "256mb"], ["256mb", "MiB"]),
        (["--max-file-size", "1kB"], ["1KiB", "16MiB"]),
        (["--parallelism", "0"], ["parallelism", "0"]),
        (["--parallelism", "many"], ["many"]),
        (["--tables", "readings"], ["'readings'", "public.trips"]),
        (["--tables", "main.reading"], ["'reading'", "'readings'"]),
        (["--tables", ""], ["--tables"]),
        (["--schemas", "mian"], ["'mian'", "'main'"]),
        (["--name", "a-b"], ["'a-b'"]),
        (["--schema-only", "--chunk-time-window", "7d"], ["--chunk-time-window: has no effect with --schema-only"]),
        (["--plan", "demo"], ["--plan"]),
        (["--frobnicate"], ["--frobnicate"]),
        (["--table", "main.readings"], ["--table"]),  # no abbreviations: a later option would change their meaning
    ],
)
def test_a_wrong_call_is_refused_without_a_trace(
    snapshots: Snapshots, source: str, location: Path, tmp_path: Path, arguments: list[str], messages: list[str]
) -> None:
    result = create(snapshots, "--source", source, "--to", location.as_uri(), *arguments)
    assert_refused(result, tmp_path, *messages)


@pytest.mark.parametrize(
    "call",
    [
        "export create --to {to} --source",
        "copy t --to {to} --source",
        "import --from {to} --target",
        "doctor --no-spark --source",
        "init --to {to} --source",
    ],
)
def test_variables_in_a_database_option_must_be_set(
    snapshots: Snapshots, location: Path, tmp_path: Path, call: str
) -> None:
    uri = "postgresql://me:${NO_SUCH_VARIABLE}@127.0.0.1:1/d"
    refused = snapshots(*call.format(to=location.as_uri()).split(), uri)
    message = "refers to the environment variable NO_SUCH_VARIABLE, which is not set; set NO_SUCH_VARIABLE"
    assert_refused(refused, tmp_path, f"{call.split()[-1]}: {message}")


def test_a_database_option_has_the_values_of_its_variables(
    snapshots: Snapshots, source: str, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_NAME", Path(source.removeprefix("duckdb://")).stem)
    written = source.replace("/source.", "/${SOURCE_NAME}.")
    assert written != source
    made = create(snapshots, "--source", written, "--to", location.as_uri(), "--schema-only")
    assert made.status == 0, made.err


@pytest.mark.parametrize("given", [[], ["--source", "duckdb:///a/b.duckdb"], ["--to", "file:///tmp/a/b"]])
def test_a_call_without_plan_needs_source_and_location(snapshots: Snapshots, tmp_path: Path, given: list[str]) -> None:
    assert_refused(create(snapshots, *given), tmp_path, "--plan NAME, or --source S --to URI")


def test_a_mistyped_option_is_refused_with_the_usage_of_its_command(snapshots: Snapshots) -> None:
    for command in ("catalog gc", "export create", "doctor"):
        refused = snapshots(*command.split(), "--no-such-option", "x")
        assert refused.status == 2
        assert refused.err.startswith(f"usage: snapshots {command} [")
        assert f"unrecognized arguments: --no-such-option x; see `snapshots {command} --help`" in refused.err
    refused = snapshots("--no-such-option", "doctor")
    assert (refused.status, "see `snapshots --help`" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        ("export create --sorce x", "--source"),
        ("export create --tabels=a.b", "--tables"),
        ("catalog gc --dry-rum", "--dry-run"),
        ("catalog expire --keep-dayly 3", "--keep-daily"),
        ("--log-formt=json doctor", "--log-format"),
        ("exprot create", "export"),
        ("catalog exprie", "expire"),
        ("verify", "export verify"),
        ("create", "export create or tag create or savepoint create"),
        ("export verify --depth quik", "quick"),
    ],
)
def test_what_a_mistyped_name_most_likely_means_is_asked(snapshots: Snapshots, call: str, meant: str) -> None:
    refused = snapshots(*call.split())
    assert refused.status == 2
    assert f"(did you mean {meant}?); see `snapshots" in refused.err


def test_a_field_that_only_a_plan_has_is_no_mistyped_option(snapshots: Snapshots) -> None:
    refused = snapshots("export", "create", "--exclude-columns", "public.t.secret")
    assert refused.status == 2
    assert "(only a plan in the configuration has exclude_columns); see `snapshots export create" in refused.err


def test_no_command_at_all_is_a_wrong_call(snapshots: Snapshots) -> None:
    assert snapshots().status == snapshots("export").status == 2
    assert snapshots("--help").status == snapshots("export", "create", "--help").status == 0


def test_a_refusal_as_json_is_one_document(snapshots: Snapshots, source: str, location: Path) -> None:
    result = create(snapshots, "--source", source, "--to", location.as_uri(), "--format", "orc", "--json")
    assert result.status == 2
    assert result.json["error"]["kind"] == "PlanError"
    assert "orc" in result.json["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        ((*RANGE[:3], "2025-01-05T00:00:00Z"), ["--end-time is", "2025-01-04T00:00:00Z", "2025-01-05T00:00:00Z"]),
        ((*RANGE, "--chunk-time-window", "2d"), ["--chunk-time-window is 1d there and 2d here"]),
        ((*RANGE, "--tables", "main.readings"), ["--tables is all there and main.readings here"]),
        (("--schema-only",), ["has data, and --schema-only is given"]),
    ],
)
def test_a_changed_plan_is_refused_naming_both_values(
    snapshots: Snapshots, source: str, exported: Path, tmp_path: Path, arguments: tuple[str, ...], messages: list[str]
) -> None:
    before = contents(exported)
    result = create(snapshots, "--source", source, "--to", exported.as_uri(), *arguments)
    assert result.status == 2
    for text in [*messages, "--force"]:
        assert text in result.err
    assert contents(exported) == before
    assert not (tmp_path / "dagster").exists()


def test_another_database_is_refused(snapshots: Snapshots, exported: Path, tmp_path: Path) -> None:
    other = make_source(tmp_path / "other.duckdb")
    result = create(snapshots, "--source", other, "--to", exported.as_uri(), *RANGE)
    assert result.status == 2
    assert "source is source there and other here" in result.err


def test_a_replace_outside_the_range_is_refused(snapshots: Snapshots, source: str, exported: Path) -> None:
    before = contents(exported)
    late = "2025-01-04T00:00:00Z/2025-01-05T00:00:00Z"
    result = create(snapshots, "--source", source, "--to", exported.as_uri(), *RANGE, "--replace", late)
    assert result.status == 2
    assert "[2025-01-01T00:00:00Z, 2025-01-04T00:00:00Z)" in result.err
    assert contents(exported) == before


def test_a_complete_snapshot_is_reported_without_reading_the_source(
    snapshots: Snapshots, source: str, exported: Path, tmp_path: Path
) -> None:
    (tmp_path / "source.duckdb").unlink()
    before = contents(exported)
    result = create(snapshots, "--source", source, "--to", exported.as_uri(), *RANGE, "--json")
    assert result.status == 0
    assert (result.json["run_id"], result.json["outcomes"], result.json["rows"]) == (None, {}, 74)
    assert contents(exported) == before
    assert not (tmp_path / "dagster").exists()


def test_a_missing_database_file(snapshots: Snapshots, location: Path, tmp_path: Path) -> None:
    result = create(snapshots, "--source", f"duckdb://{tmp_path}/no.duckdb", "--to", location.as_uri())
    assert_refused(result, tmp_path, "no.duckdb", status=1)
    assert not (tmp_path / "no.duckdb").exists()


def test_a_duckdb_file_that_another_process_writes(
    snapshots: Snapshots, source: str, location: Path, tmp_path: Path
) -> None:
    hold = "import duckdb, sys; held = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", hold, str(tmp_path / "source.duckdb")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        result = create(snapshots, "--source", source, "--to", location.as_uri())
        holder.stdin.close()
    assert_refused(result, tmp_path, f"PID {holder.pid}", "Stop that process", status=1)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--source", f"mysql://me:{TOKEN}@host/db", "--to", "file:///tmp/nowhere/location"],
        ["--source", "a", "--to", f"s3://me:{TOKEN}@bucket/prefix"],
        ["--source", "a", "--to", "file:///tmp/nowhere/location", f"postgresql://me:{TOKEN}@host/db"],
        [f"--sourc=postgresql://me:{TOKEN}@host/db", "--to", "file:///tmp/nowhere/location"],
        ["--source", f"postgresql://me:{TOKEN}@127.0.0.1:none/db", "--to", "file:///tmp/nowhere/location"],
        ["--source", f"postgresql://127.0.0.1:1/db?password={TOKEN}", "--to", "file:///tmp/nowhere/location"],
    ],
)
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_password_in_a_call_is_never_repeated(
    snapshots: Snapshots, tmp_path: Path, arguments: list[str], as_json: list[str]
) -> None:
    result = create(snapshots, *arguments, *as_json)
    assert result.status in {1, 2, 4}
    assert result.err
    assert TOKEN not in result.out + result.err
    assert not Path("/tmp/nowhere").exists()
    assert not (tmp_path / "dagster").exists()


def test_a_location_on_a_file_is_refused(snapshots: Snapshots, source: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    result = create(snapshots, "--source", source, "--to", f"{tmp_path.as_uri()}/file/location", *RANGE)
    assert_refused(result, tmp_path, "file", status=2)
    assert (tmp_path / "file").read_text() == "mine"
