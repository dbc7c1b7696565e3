"""A real MariaDB server, from Debian's package `mariadb-server`, on a free port of the loopback interface.

Its own settings differ from those that a session must pin: time zone, SQL mode, character set. It syncs nothing to
disk. Databases of one server are schemas, so a copy under the same names needs a second server.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import pytest

from snapshot_assets_tests.servers.ports import free_port
from snapshot_assets_tests.waiting import until

PASSWORD = "correct horse/battery@staple"
QUOTED_PASSWORD = quote(PASSWORD, safe="")

_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"
_READY = b"ready for connections"
_SYSTEM = ("information_schema", "mysql", "performance_schema", "sys")
_SETTINGS = {
    "bind-address": "127.0.0.1",
    "character-set-server": "latin1",
    "default-time-zone": "-03:30",
    "innodb-buffer-pool-size": "64M",
    "innodb-fast-shutdown": "2",
    "innodb-flush-log-at-trx-commit": "0",
    "skip-name-resolve": "1",
    "sql-mode": "ANSI",
}
_OF_MARIADB = {"innodb-log-file-size": "16M"}
_OF_MYSQL = {"cte-max-recursion-depth": "1000000", "mysqlx": "OFF", "secure-file-priv": ""}


@dataclass
class MariadbServer:
    """A running server.

    Attributes:
        port: Its port on 127.0.0.1.
        folder: Folder of its data, its socket and its log.
    """

    port: int
    folder: Path
    _command: Sequence[str] = ()
    _process: subprocess.Popen[bytes] | None = None
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def socket(self) -> Path:
        """Its Unix socket."""
        return self.folder / "socket"

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        log = self.folder / "log"
        before = log.read_bytes().count(_READY)
        environment = {"PATH": _PATH, "TMPDIR": str(self.folder)}  # a starting server deletes temporary tables of all
        with log.open("ab") as written:
            self._process = subprocess.Popen(self._command, stdout=written, stderr=subprocess.STDOUT, env=environment)
        until(lambda: log.read_bytes().count(_READY) > before, explain=log.read_text, process=self._process)

    def stop(self) -> None:
        """Stop the server."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)

    def restart(self) -> None:
        """Stop the server and start it again: all its connections are lost."""
        self.stop()
        self.start()

    def uri(self, database: str = "", user: str = "root", password: str = QUOTED_PASSWORD) -> str:
        """Return a URI of the server, or of one of its databases; `password` is percent-encoded."""
        return f"mysql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str = "", options: str = "") -> str:
        """Create an empty database, with options such as `CHARACTER SET latin1`, and return its URI."""
        name = name or f"test_{os.getpid()}_{next(self._numbers)}"
        self.sql(f"CREATE DATABASE `{name}` {options or 'CHARACTER SET utf8mb4'}")
        return self.uri(name)

    def sql(self, *statements: str, database: str = "") -> str:
        """Run statements in one session in UTC, and return what they print: tabs between values, and no names."""
        command = ["mariadb", "--no-defaults", f"--socket={self.socket}", "--user=root", "--batch", "--raw"]
        command += ["--skip-column-names", "--default-character-set=utf8mb4", database]
        script = "SET time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES';\n" + ";\n".join(statements)
        environment = {"PATH": _PATH, "MYSQL_PWD": PASSWORD}
        done = subprocess.run(command, input=script.encode(), capture_output=True, env=environment)
        assert done.returncode == 0, f"mariadb failed: {done.stderr.decode(errors='replace')}"
        return done.stdout.decode().rstrip("\n")

    def databases(self) -> list[str]:
        """Return the names of all databases but the server's own."""
        return [name for name in self.sql("SHOW DATABASES").split("\n") if name and name not in _SYSTEM]

    def drop_databases(self) -> None:
        """Drop all databases but the server's own."""
        if names := self.databases():
            self.sql("SET foreign_key_checks = 0", *(f"DROP DATABASE `{name}`" for name in names))


@contextmanager
def start_mariadb(folder: Path, **settings: str) -> Iterator[MariadbServer]:
    """Start a server in a new folder, with settings such as `read_only="1"`; at the end, stop it and delete the folder.

    Skips the test where no server is installed.
    """
    programs = [shutil.which(name, path=_PATH) for name in ("mariadbd", "mariadb-install-db", "mariadb")]
    if None in programs:
        pytest.skip("needs MariaDB's server and client: apt-get install mariadb-server")
    install = ("--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")
    make_data = [str(programs[1]), "--no-defaults", *install, "--innodb-log-file-size=16M"]
    with started(folder, [str(programs[0]), "--no-defaults"], make_data, _SETTINGS | _OF_MARIADB | settings) as server:
        yield server


@contextmanager
def start_mysql(folder: Path, **settings: str) -> Iterator[MariadbServer]:
    """Start a server of MySQL, as `start_mariadb` does; skips the test unless the variable MYSQLD names its program."""
    program, client = os.environ.get("MYSQLD"), shutil.which("mariadb", path=_PATH)
    if program is None or client is None:
        pytest.skip("needs a MySQL server, which MYSQLD names, and MariaDB's client")
    make_data = [program, "--no-defaults", "--initialize-insecure"]
    with started(folder, [program, "--no-defaults"], make_data, _SETTINGS | _OF_MYSQL | settings) as server:
        yield server


@contextmanager
def started(
    folder: Path, program: Sequence[str], make_data: Sequence[str], settings: Mapping[str, str]
) -> Iterator[MariadbServer]:
    """Start a server whose data one command makes; at the end, stop it and delete the folder."""
    folder.mkdir(parents=True)
    log, setup, port = folder / "log", folder / "setup.sql", free_port()
    setup.write_text(
        f"CREATE USER IF NOT EXISTS root@127.0.0.1;\nGRANT ALL ON *.* TO root@127.0.0.1 WITH GRANT OPTION;\n"
        f"ALTER USER root@localhost IDENTIFIED BY '{PASSWORD}';\n"
        f"ALTER USER root@127.0.0.1 IDENTIFIED BY '{PASSWORD}';\n"
    )
    common = [f"--datadir={folder / 'data'}", *(("--user=root",) if os.geteuid() == 0 else ())]
    options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    places = [f"--socket={folder / 'socket'}", f"--pid-file={folder / 'pid'}", f"--port={port}"]
    server = MariadbServer(port, folder, [*program, *common, *places, f"--init-file={setup}", *options])
    environment = {"PATH": _PATH, "TMPDIR": str(folder)}
    try:
        with log.open("wb") as written:
            done = subprocess.run([*make_data, *common], stdout=written, stderr=subprocess.STDOUT, env=environment)
        assert done.returncode == 0, log.read_text(errors="replace")[-4000:]
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariadbServer]:
    with start_mariadb(tmp_path_factory.mktemp("mariadb") / "server") as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariadbServer]:
    """The server of the whole test run; skips where none is installed."""
    yield from _server(tmp_path_factory)


@pytest.fixture(scope="session")
def second_mariadb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariadbServer]:
    """Another server of the whole test run."""
    yield from _server(tmp_path_factory)


@pytest.fixture(scope="session")
def mysql_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MariadbServer, MariadbServer]]:
    """Two servers of MySQL for the whole test run; skips where there is none."""
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("mysql")
        yield tuple(stack.enter_context(start_mysql(folder / name)) for name in ("first", "second"))


@pytest.fixture
def mariadb_database(mariadb_server: MariadbServer) -> Iterator[str]:
    """The URI of a new database `shop`; after the test, the server has no database."""
    yield mariadb_server.create_database("shop")
    mariadb_server.drop_databases()


@pytest.fixture
def second_mariadb_database(second_mariadb_server: MariadbServer) -> Iterator[str]:
    """The URI of a new database `shop` of another server; after the test, that one has no database."""
    yield second_mariadb_server.create_database("shop")
    second_mariadb_server.drop_databases()
