"""Commands refuse a Spark that they cannot use before they change anything."""

from __future__ import annotations

import socket
from pathlib import Path

import duckdb
import pytest

from snapshot_assets_tests.cli.helpers import RANGE, Snapshots, in_own_process


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def closed() -> str:
    """Host and port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("create", "--spark-remote=sc://{}"),
        ("import", "--spark-master=spark://{}"),
        pytest.param("copy", "--spark-remote=sc://{}", marks=pytest.mark.slow),
    ],
)
def test_a_place_that_does_not_answer(
    source: str, exported: Path, tmp_path: Path, closed: str, command: str, option: str
) -> None:
    new, target = tmp_path / "new", tmp_path / "target.duckdb"
    calls = {
        "create": ("export", "create", "--source", source, "--to", new.as_uri(), *RANGE),
        "copy": ("copy", "SELECT * FROM sensors", "--source", source, "--to", new.as_uri()),
        "import": ("import", "--from", exported.as_uri(), "--target", target.as_uri().replace("file:", "duckdb:")),
    }
    result = in_own_process(*calls[command], option.format(closed))
    assert result.status == 4, result.err
    assert f"answers at {option.partition('=')[2].format(closed)} ({closed}: Connection refused)" in result.err
    assert "Start it, or correct the address: in --spark-remote or --spark-master" in result.err
    assert not new.exists()
    if target.exists():  # the import has looked into it
        with duckdb.connect(target) as database:
            assert database.execute("SHOW ALL TABLES").fetchall() == []


@pytest.mark.slow
@pytest.mark.parametrize("command", ["create", "copy", "import"])
def test_workers_whose_python_lacks_packages(
    command: str, source: str, exported: Path, tmp_path: Path, bare_python: Path
) -> None:
    config, new, target = tmp_path / "config.yaml", tmp_path / "new", tmp_path / "target.duckdb"
    config.write_text(f"spark: {{master: 'local[2]', spark.pyspark.python: {bare_python}}}\n")
    calls = {
        "create": ("export", "create", "--source", source, "--to", new.as_uri(), *RANGE),
        "copy": ("copy", "SELECT * FROM sensors", "--source", source, "--to", new.as_uri()),
        "import": ("import", "--from", exported.as_uri(), "--target", target.as_uri().replace("file:", "duckdb:")),
    }
    result = in_own_process("--config", str(config), *calls[command])
    assert result.status == 1
    assert f"cannot run the tasks of this package: {bare_python} (Python 3." in result.err
    assert "lacks google.protobuf.message, numpy, pandas, pyarrow, pydantic, duckdb." in result.err
    assert "spark.pyspark.python in the configuration's section `spark`" in result.err
    assert "Traceback" not in result.err
    assert not list(new.glob("**/*.*"))
    if target.exists():  # the import has looked into it
        with duckdb.connect(target) as database:
            assert database.execute("SHOW ALL TABLES").fetchall() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--spark-master=x", "--spark-remote=sc://127.0.0.1:1/;token=abc"),
            "--spark-master x and --spark-remote sc://127.0.0.1:1/ exclude each other",
        ),
        (("--spark-master=nonsense",), "--spark-master: spark.master 'nonsense' is not a master; write local[4]"),
        (("--spark-remote=host:1;token=abc",), "--spark-remote: spark.remote 'host:1' is not the address"),
    ],
)
def test_an_option_that_is_wrong_is_shown_without_its_token(
    snapshots: Snapshots, source: str, location: Path, options: tuple[str, ...], message: str
) -> None:
    result = snapshots("export", "create", "--source", source, "--to", location.as_uri(), *options)
    assert result.status == 2
    assert message in result.err
    assert "abc" not in result.err


@pytest.mark.parametrize("option", ["--spark-remote=sc://{}", "--spark-master=spark://{}"])
def test_doctor_checks_the_place_of_the_call(option: str, closed: str, snapshots: Snapshots, source: str) -> None:
    found = snapshots("doctor", "--source", source, option.format(closed), "--json").json
    [spark] = [check for check in found["checks"] if check["check"] == "spark"]
    assert not spark["ok"]
    assert option.partition("=")[2].format(closed) in spark["subject"]
    assert f"({closed}: Connection refused)" in spark["detail"]
