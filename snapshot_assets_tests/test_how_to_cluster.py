"""docs/how-to/outgrow-one-machine.md, followed to the letter on this machine, with other addresses and folders."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from snapshot_assets import demo
from snapshot_assets_tests.cluster.tables import fill, live_ids, sums
from snapshot_assets_tests.servers.ports import free_port, listens
from snapshot_assets_tests.servers.postgresql import MakeDatabase, PostgresqlServer
from snapshot_assets_tests.servers.s3 import S3Server
from snapshot_assets_tests.waiting import until

PAGE = demo.ROOT / "docs/how-to/outgrow-one-machine.md"
_TESTED = ("Spark standalone", "Spark Connect")


@dataclass(frozen=True)
class HowTo:
    """The blocks of the tested sections, with this test's addresses and folders.

    Attributes:
        folder: The clone of the reader.
        environment: The reader's environment.
        replaced: What stands where the page has examples.
    """

    folder: Path
    environment: dict[str, str]
    replaced: dict[str, str]

    def blocks(self, kind: str) -> list[str]:
        """Return the blocks of a language, in order."""
        sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL))
        text = "".join(sections[name] for name in _TESTED)
        for example, ours in self.replaced.items():
            assert example in text
            text = text.replace(example, ours)
        return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)

    def run(self, block: str) -> None:
        """Run a block to its end."""
        done = subprocess.run(
            ["bash", "-euc", block], cwd=self.folder, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]

    @contextmanager
    def serving(self, block: str, ready: Callable[[str], bool]) -> Iterator[None]:
        """Run a block whose last command serves until the context ends, which presses Ctrl-C."""
        log = self.folder / f"log-{time.monotonic_ns()}"
        with log.open("wb") as out:
            shell = ["bash", "-euc", block]
            server = subprocess.Popen(
                shell, cwd=self.folder, env=self.environment, stdout=out, stderr=out, start_new_session=True
            )
        try:
            until(log.read_text, ready, process=server)
            yield
        finally:
            os.killpg(server.pid, signal.SIGINT)
            try:
                server.wait(60)
            finally:
                if server.poll() is None:
                    os.killpg(server.pid, signal.SIGKILL)


@pytest.fixture
def how_to(s3_server: S3Server, tmp_path: Path) -> HowTo:
    folder = tmp_path / "clone"
    folder.mkdir()
    for name, target in {"requirements": demo.ROOT / "requirements", ".venv": Path(sys.prefix)}.items():
        (folder / name).symlink_to(target)
    dropped = ("PYTHON", "PYSPARK", "SPARK", "AWS", "DAGSTER", "SNAPSHOTS", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(dropped)} | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "DAGSTER_HOME": str(tmp_path / "dagster"),
        "AWS_REGION": str(s3_server.options.region),
        "AWS_ACCESS_KEY_ID": str(s3_server.options.access_key_id),
        "AWS_SECRET_ACCESS_KEY": str(s3_server.options.secret_access_key),
        "AWS_ENDPOINT_URL_S3": str(s3_server.options.endpoint),
        "AWS_ALLOW_HTTP": "true",
    }
    replaced = {
        "10.0.0.1": "127.0.0.1",
        "7077": str(free_port()),
        "15002": str(free_port()),
        "/opt/": f"{tmp_path}/",
        "--cores 2 --memory 4g": "--cores 1 --memory 1g",
    }
    return HowTo(folder, environment, replaced)


def _registered(log: str) -> bool:
    return "Successfully registered with master" in log


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_new_user_sets_up_two_workers_exports_to_s3_and_imports_through_connect(
    how_to: HowTo,
    s3_server: S3Server,
    s3_location: str,
    postgresql_server: PostgresqlServer,
    make_postgresql_database: MakeDatabase,
) -> None:
    source, copy = make_postgresql_database(), make_postgresql_database()
    fill(postgresql_server, source, rows=4320)
    how_to.environment.update(SHOP_DATABASE=source, COPY_DATABASE=copy)
    how_to.replaced["s3://backups/shop"] = s3_location
    environment, master, worker, check, export, connect, restore = how_to.blocks("bash")
    [configuration] = how_to.blocks("yaml")
    (how_to.folder / "snapshots.yaml").write_text(configuration)

    how_to.run(environment)
    with (
        how_to.serving(master, lambda log: "I have been elected leader" in log),
        how_to.serving(worker, _registered),
        how_to.serving(worker, _registered),
    ):
        how_to.run(check)
        how_to.run(export)
        assert live_ids(s3_server, s3_location) == list(range(4320))
        port = int(how_to.replaced["15002"])
        with how_to.serving(connect, lambda _: listens(port)):
            how_to.run(restore)
    assert sums(postgresql_server, copy) == sums(postgresql_server, source)
