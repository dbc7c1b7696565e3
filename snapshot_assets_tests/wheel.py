"""Uses the built wheel, alone in a fresh environment: `make test-wheel`.

It builds the wheel, installs it with nothing but the pinned dependencies that it declares, and from a folder outside
the checkout exports, verifies and imports a DuckDB file with the command `snapshots`. Then it makes the project of
docs/how-to/dagster-project.md, "In your own Dagster project", and one with an asset that returns a DataFrame, and runs
both. With the extra `postgres` it also exports, verifies and imports a PostgreSQL database, and one with every type,
natively and as text. It runs the commands of docs/install.md.

With `--all` (`make test-wheel-all`) it also takes every type there and back with the newest versions that `pip install`
gives, and runs the section "In a project made by dg", with the pinned and the newest `create-dagster`.

Two parts run at a time: most of their time goes into starting Python and Java, one after the other.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from snapshot_assets_tests.databases.postgresql.values import TYPES, every_type_script
from snapshot_assets_tests.documents.blocks import blocks
from snapshot_assets_tests.servers.postgresql import QUOTED_PASSWORD, PostgresqlServer, start_postgresql

_ROOT = Path(__file__).parent.parent
_BIN = Path(sys.executable).parent
_ROWS = 1000
_TABLE = "CREATE TABLE readings (id INTEGER PRIMARY KEY, t TIMESTAMPTZ NOT NULL, value DOUBLE PRECISION, note TEXT)"
_FILL = (
    "INSERT INTO readings SELECT i, TIMESTAMPTZ '2025-01-01 00:00:00Z' + i * INTERVAL '5 minutes', i / 7.0, 'n' || i "
    f"FROM generate_series(1, {_ROWS}) AS s(i)"
)
_TEMPLATE = "${SHOP_PASSWORD}"
_DG = "1.13.27"
"""The release of `create-dagster` in the how-to."""
_DIGEST = "SELECT count(*), sum(id), min(t) = '2025-01-01 00:05:00Z', max(note) FROM readings"


_OWN_ASSET = """
import sys

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import DataFrame, functions

from snapshot_assets import build_definitions, load_configuration, partitions_of

configuration = load_configuration("snapshots.yaml")


@dg.asset(partitions_def=partitions_of(configuration.plan("shop")), io_manager_key="snapshot_io_manager")
def interpreters(pyspark: LazyPySparkResource) -> DataFrame:
    worker = functions.udf(lambda number: sys.executable)
    return pyspark.spark_session.range(3).select(worker("id").alias("python"))


pyspark = LazyPySparkResource(spark_config={"spark.sql.session.timeZone": "UTC", "spark.ui.enabled": "false"})
defs = dg.Definitions.merge(
    build_definitions(configuration), dg.Definitions(assets=[interpreters], resources={"pyspark": pyspark})
)
"""
"""A user's project with a Spark session of its own: the workers run the interpreter that `python` names."""


class Installation:
    """A fresh environment in a folder; nothing of the checkout can be imported in it."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self._folder = folder
        self._wheel = wheel
        _run([_BIN / "uv", "venv", "--quiet", "--python", sys.executable, folder / "venv"], folder)

    def install_newest(self) -> None:
        """Install the wheel as `pip install` does: with the newest versions of what it declares."""
        wanted = f"snapshot-assets[postgres] @ {self._wheel.as_uri()}"
        python = self._folder / "venv" / "bin" / "python"
        _run([_BIN / "uv", "pip", "install", "--quiet", "--python", python, wanted], self._folder)

    def install(self, extras: str = "") -> None:
        """Install the wheel with its declared dependencies, at the pinned versions and hashes."""
        digest = hashlib.sha256(self._wheel.read_bytes()).hexdigest()
        wanted = self._folder / "wanted.txt"
        wanted.write_text(f"snapshot-assets{extras} @ {self._wheel.as_uri()} --hash=sha256:{digest}\n")
        pins = ("--require-hashes", "--constraints", _ROOT / "requirements" / "dev.txt")
        python = self._folder / "venv" / "bin" / "python"
        _run([_BIN / "uv", "pip", "install", "--quiet", "--python", python, *pins, "-r", wanted], self._folder)

    def python(self, script: str) -> str:
        """Return the output of a script."""
        return self._tool("python", "-c", script)

    def snapshots(self, *arguments: str) -> None:
        """Run a command as a user does."""
        print("$ snapshots", *arguments, flush=True)  # noqa: T201
        print(self._tool("snapshots", *arguments), flush=True)  # noqa: T201

    def materialise(self, project: Path, module: str, selection: str, *partitions: str, **variables: str) -> None:
        """Materialise assets of a project, as its user does, in an environment that is not activated."""
        print("$ dagster asset materialize", selection, flush=True)  # noqa: T201
        dagster = self._folder / "venv" / "bin" / "dagster"
        command = [dagster, "asset", "materialize", "-m", module, "--select", selection, *partitions]
        _run(command, project, **variables)

    def _tool(self, name: str, *arguments: str) -> str:
        return _run([self._folder / "venv" / "bin" / name, *arguments], self._folder)


def _run(command: list[str | Path], folder: Path, **variables: str) -> str:
    kept = ("HOME", "LANG", "JAVA_HOME", "TMPDIR", "SSL_CERT_FILE")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {name: value for name, value in os.environ.items() if name.startswith(("UV_", "PIP_"))}
    environment |= {"PATH": os.defpath, "DAGSTER_HOME": str(folder / "dagster")} | variables
    if "JAVA_HOME" in os.environ:
        environment["PATH"] = f"{os.environ['JAVA_HOME']}/bin:{os.defpath}"
    done = subprocess.run(list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def build(folder: Path) -> Path:
    """Build the wheel with the pinned build backend, and check that every file of the package is in it."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.DEVNULL)
    [wheel] = folder.glob("*.whl")
    tracked = subprocess.run(
        ["git", "ls-files", "snapshot_assets"], cwd=_ROOT, check=True, capture_output=True, text=True
    )
    missing = set(tracked.stdout.split()) - set(zipfile.ZipFile(wheel).namelist())
    assert not missing, f"the wheel lacks {sorted(missing)}"
    return wheel


def duckdb(installed: Installation, folder: Path) -> None:
    """Export, verify and import a DuckDB file."""
    source, target, location = folder / "source.duckdb", folder / "target.duckdb", f"file://{folder}/snapshots/duckdb"
    statement = "import duckdb; c = duckdb.connect({!r}); c.execute(\"SET TimeZone = 'UTC'\"); {}"
    installed.python(statement.format(str(source), f"c.execute({_TABLE!r}); c.execute({_FILL!r})"))
    _there_and_back(installed, f"duckdb://{source}", location, f"duckdb://{target}")
    found = [
        installed.python(statement.format(str(file), f"print(c.execute({_DIGEST!r}).fetchall())"))
        for file in (source, target)
    ]
    assert found[0] == found[1], found


def own_project(installed: Installation, folder: Path) -> None:
    """Run the section "In your own Dagster project": its Python module."""
    (_, module), *_ = _blocks("dagster-project.md", "In your own Dagster project")
    _write_project(folder, module)
    keys = ("--partition-range", "2025-01-01T00:00...2025-01-04T00:00")
    installed.materialise(folder, "shop.definitions", 'key:"shop/*" and not key:"shop/tag"', *keys)
    installed.snapshots("export", "verify", "--snapshot", f"file://{folder}/snapshots")


def own_asset(installed: Installation, folder: Path) -> None:
    """Run a user's own asset, whose rows Spark's workers compute; `python3` on the path is another interpreter."""
    _write_project(folder, _OWN_ASSET, "asset:interpreters")
    installed.materialise(folder, "shop.definitions", "interpreters", "--partition", "2025-01-01T00:00")
    query = f"SELECT DISTINCT python FROM '{folder}/snapshots/data/*/shop.interpreters-*.parquet'"
    found = installed.python(f"import duckdb, sys; print(duckdb.sql({query!r}).fetchall() == [(sys.executable,)])")
    assert found == "True", found


def _write_project(folder: Path, module: str, source: str = "shop") -> None:
    (folder / "dagster").mkdir(parents=True)
    (folder / "shop").mkdir()
    (folder / "shop" / "definitions.py").write_text(module)
    (folder / "snapshots.yaml").write_text(
        f"sources: {{shop: 'duckdb://{folder.parent}/source.duckdb'}}\n"  # as `duckdb` left it
        f"plans:\n  shop:\n    source: {source}\n    to: file://{folder}/snapshots\n"
        "    start_time: 2025-01-01T00:00:00Z\n    end_time: 2025-01-05T00:00:00Z\n"
    )


def postgresql(installed: Installation, server: PostgresqlServer, folder: Path) -> str:
    """Export, verify and import a PostgreSQL database; returns its URI."""
    source, target = server.create_database(), server.create_database()
    server.psql(source, _TABLE, _FILL)
    _there_and_back(installed, source, f"file://{folder}/snapshots/postgresql", target)
    found = [server.psql(uri, _DIGEST) for uri in (source, target)]
    assert found[0] == found[1], found
    return source


def every_type(installed: Installation, server: PostgresqlServer, folder: Path) -> None:
    """Export and import a column of each type of PostgreSQL, natively and as text; the server prints equal values."""
    folder.mkdir(exist_ok=True)
    driver = installed.python("from importlib.metadata import version as v; print(v('adbc-driver-postgresql'))")
    print(f"every type with adbc-driver-postgresql {driver}", flush=True)  # noqa: T201
    source, target = server.create_database(), server.create_database()
    server.psql_script(source, f"{every_type_script()}\nCREATE TABLE texts AS TABLE t;")
    carriers = "".join(f"      public.texts.c{number}: text\n" for number in range(len(TYPES)))
    (folder / "snapshots.yaml").write_text(
        f"plans:\n  types:\n    source: {source}\n    to: file://{folder}/{driver}\n"
        f"    time_columns: {{public.t: null, public.texts: null}}\n    carriers:\n{carriers}"
    )
    configured = ("--config", str(folder / "snapshots.yaml"))
    installed.snapshots(*configured, "export", "create", "--plan", "types")
    installed.snapshots("import", "--from", f"file://{folder}/{driver}", "--target", target)
    for table in ("t", "texts"):
        found = [server.psql(uri, f"SELECT t::text FROM public.{table} t ORDER BY n") for uri in (source, target)]
        assert found[0] == found[1], f"{table} with driver {driver}:\n{found[0]}\n{found[1]}"


def newest(wheel: Path, server: PostgresqlServer, folder: Path) -> None:
    """Do the same with what `pip install` gives."""
    folder.mkdir()
    installed = Installation(folder, wheel)
    installed.install_newest()
    every_type(installed, server, folder / "types")


def check_pinned_driver() -> None:
    """Fail if the pinned driver is not the oldest that is allowed: then that one needs a run of its own."""
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    allowed = next(each for each in settings["project"]["optional-dependencies"]["postgres"] if "postgresql" in each)
    pinned = next(each for each in settings["dependency-groups"]["dev"] if "adbc-driver-postgresql" in each)
    assert pinned.replace("==", ">=") == allowed.partition(",")[0], f"{pinned} is not the oldest of {allowed}"


def dg_project(wheel: Path, source: str, folder: Path, *, latest: bool = False) -> None:
    """Run the section "In a project made by dg": its commands, with a PostgreSQL database that is there.

    With `latest`, the newest `create-dagster` makes the project, which overrides the pins as docs/install.md has it.
    """
    text = [text for _, text in _blocks("dagster-project.md", "In a project made by dg")]
    for written, ours in (
        ("~/dagster", f"{folder}/dagster"),
        ("/path/to/snapshot_assets", str(wheel)),
        (f"postgresql://reader:{_TEMPLATE}@db.example.com/shop", source.replace(QUOTED_PASSWORD, _TEMPLATE)),
        ("SHOP_PASSWORD=…", f"SHOP_PASSWORD={QUOTED_PASSWORD}"),
        ("s3://backups/shop", f"file://{folder}/snapshots"),
        ("2025-07-01", "2025-01-05"),
    ):
        assert any(written in each for each in text), f"the section lacks {written}"
        text = [each.replace(written, ours) for each in text]
    make, component, executor, export = text
    if latest:
        make = make.replace(f"create-dagster@{_DG}", "create-dagster@latest")
        make = make.replace("cd shop\n", f"cd shop\n{_override()}")
    files = ((component, "src/shop/defs/backups/defs.yaml"), (executor, "src/shop/defs/executor.py"))
    write = "".join(f"cat > {path} <<'END'\n{content}END\n" for content, path in files)
    (folder / "dagster").mkdir(parents=True)
    (folder / "dagster" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (folder / "pins").write_text(_pins())
    (folder / "bin").mkdir()
    for program in ("uv", "uvx"):  # no other program of this environment
        (folder / "bin" / program).symlink_to(_BIN / program)
    variables = {"UV_PYTHON": sys.executable} | ({} if latest else {"UV_CONSTRAINT": f"{folder}/pins"})
    script = f"set -e\nexec 2>&1\nPATH={folder}/bin:$PATH\n{make}{write}{export}"
    print(make, export, sep="", flush=True)  # noqa: T201
    printed = _run(["bash", "-c", script], folder, **variables)
    assert printed.count("Finished steps in process") == 2, printed
    print(printed.splitlines()[-1], flush=True)  # noqa: T201


def _override() -> str:
    """Return the commands that add the lines of docs/install.md to a project, for the Dagster that it has."""
    [lines] = [block.text for block in blocks("docs/install.md") if block.language == "toml"]
    found = re.findall(r"dagster==([\d.]+)", lines)
    assert found, lines
    dagster = "$(sed -n 's/.*\"dagster==\\(.*\\)\".*/\\1/p' pyproject.toml)"
    return f"cat >> pyproject.toml <<END\n{lines.replace(found[0], dagster)}END\ngrep override pyproject.toml\n"


def install_page(wheel: Path, folder: Path) -> None:
    """Run the commands of docs/install.md, with uv in place of pip, whose cache has the dependencies."""
    folder.mkdir()
    [commands] = [block.text for block in blocks("docs/install.md") if block.heading == "With pip"]
    assert "/path/to/snapshot_assets" in commands
    (folder / "pins").write_text(_pins())
    script = commands.replace("/path/to/snapshot_assets", str(wheel)).replace("python3 -m venv", "uv venv")
    script = script.replace("~/snapshots/bin/pip install", "uv pip install --python ~/snapshots/bin/python")
    variables = {"UV_CONSTRAINT": f"{folder}/pins", "UV_PYTHON": sys.executable, "HOME": str(folder)}
    variables["UV_CACHE_DIR"] = _run([_BIN / "uv", "cache", "dir"], folder)
    printed = _run(["bash", "-c", f"set -e\nPATH={_BIN}:$PATH\n{script}"], folder, **variables)
    print(commands, printed, sep="", flush=True)  # noqa: T201


def _pins() -> str:
    """Return the pinned versions as constraints of a project that also allows a Python without them."""
    locked = (_ROOT / "requirements" / "dev.txt").read_text()
    found = re.findall(r"^([\w.-]+==\S+)(?: ; (.*?))? \\$", locked, re.MULTILINE)
    return "".join(f"{pin} ; python_version >= '3.11'{f' and ({where})' if where else ''}\n" for pin, where in found)


def _blocks(page: str, heading: str) -> list[tuple[str, str]]:
    """Return the language and text of each block of code below a heading of a how-to."""
    return [(each.language, each.text) for each in blocks(f"docs/how-to/{page}") if each.heading == heading]


def _there_and_back(installed: Installation, source: str, location: str, target: str) -> None:
    installed.snapshots("export", "create", "--source", source, "--to", location, "--end-time", "2025-01-05T00:00:00Z")
    installed.snapshots("export", "verify", "--snapshot", location)
    installed.snapshots("import", "--from", location, "--target", target)


def without_extras(wheel: Path, folder: Path) -> None:
    """Run what needs no extra of the package."""
    installed = Installation(folder, wheel)
    installed.install()
    place = installed.python("import snapshot_assets; print(snapshot_assets.__file__)")
    assert Path(place).is_relative_to(folder / "venv"), place
    duckdb(installed, folder)
    own_project(installed, folder / "python")
    own_asset(installed, folder / "own")


def with_postgresql(wheel: Path, server: PostgresqlServer, folder: Path) -> str:
    """Run what needs the extra `postgres`; returns the URI of a database with a table."""
    installed = Installation(folder, wheel)
    installed.install("[postgres]")
    every_type(installed, server, folder / "types")
    return postgresql(installed, server, folder)


def main() -> None:
    """Run all checks; the first failure ends the program with a status other than 0."""
    check_pinned_driver()
    with tempfile.TemporaryDirectory(prefix="snapshot-assets-wheel-") as temporary:
        folder = Path(temporary)
        wheel = build(folder)
        for name in ("plain", "postgres"):
            (folder / name).mkdir()
        with start_postgresql() as server, ThreadPoolExecutor(2) as pool:
            source = pool.submit(with_postgresql, wheel, server, folder / "postgres")
            others: list[Future[None]] = [
                pool.submit(without_extras, wheel, folder / "plain"),
                pool.submit(install_page, wheel, folder / "install"),
            ]
            if "--all" in sys.argv[1:]:
                others += [
                    pool.submit(newest, wheel, server, folder / "newest"),
                    pool.submit(dg_project, wheel, source.result(), folder / "component"),
                    pool.submit(dg_project, wheel, source.result(), folder / "latest", latest=True),
                ]
            source.result()
            for each in others:
                each.result()


if __name__ == "__main__":
    main()
