"""A Spark standalone cluster from PySpark's wheel: a master and two workers, each a process of its own on loopback."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import psutil
import pyspark
import pytest

from snapshot_assets_tests.servers.ports import free_port, listens
from snapshot_assets_tests.waiting import until

_DEPLOY = "org.apache.spark.deploy"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


@dataclass
class SparkCluster:
    """A running master and its workers; each worker has one core, and runs one executor for each application.

    Attributes:
        port: The master's port on 127.0.0.1.
        page: The port of the master's web page.
        folder: Folder of logs and of the executors' working folders.
        python: The interpreter that executors run.
        workers: The processes of the workers.
    """

    port: int
    page: int
    folder: Path
    python: Path
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def master(self) -> str:
        """The URL of the master."""
        return f"spark://127.0.0.1:{self.port}"

    @property
    def settings(self) -> dict[str, str]:
        """The settings of an application."""
        return {
            "spark.master": self.master,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # they start sooner
            "spark.pyspark.python": str(self.python),
        }

    def state(self) -> dict[str, Any]:
        """Return what the master reports; empty while it does not answer."""
        try:
            with urlopen(f"http://127.0.0.1:{self.page}/json/", timeout=5) as answer:
                state: dict[str, Any] = json.load(answer)
                return state
        except (URLError, OSError):
            return {}

    def free_cores(self) -> int:
        """Return how many cores no application holds."""
        state = self.state()
        return int(state.get("cores", 1)) - int(state.get("coresused", 0))

    def add_workers(self, count: int) -> None:
        """Start workers, and wait until the master counts them."""
        for number in range(len(self.workers), len(self.workers) + count):
            options = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0")
            work = ("--work-dir", str(self.folder / f"work-{number}"))
            worker = self._start(f"worker-{number}", f"{_DEPLOY}.worker.Worker", *options, *work, self.master)
            self.workers.append(worker)
        wanted = sum(each.poll() is None for each in self.workers)  # the master counts a killed one for a while
        self._wait(lambda: self.state().get("aliveworkers", 0) >= wanted, worker, f"worker-{number}")

    def executors(self) -> list[psutil.Process]:
        """Return the executors of all running workers."""
        found = []
        for worker in self.workers:
            if worker.poll() is None:
                for child in psutil.Process(worker.pid).children():
                    with suppress(psutil.NoSuchProcess):  # the script that starts an executor ends meanwhile
                        found += [child] if _EXECUTOR in " ".join(child.cmdline()) else []
        return found

    @contextmanager
    def connect_server(self, python: Path | None = None) -> Iterator[str]:
        """Run a Spark Connect server as an application of this cluster; yields its URL.

        Args:
            python: The interpreter that its executors run; None for that of the cluster.
        """
        python = python or self.python
        port = free_port()
        settings = self.settings | {
            "spark.connect.grpc.binding.port": str(port),
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.pyspark.python": str(python),
        }
        options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        submit = (f"{_DEPLOY}.SparkSubmit", *options, "--class", _CONNECT, "spark-internal")
        server = self._start("connect", *submit, PYSPARK_PYTHON=str(python), SPARK_DAEMON_MEMORY="1g")
        try:
            self._wait(lambda: listens(port), server, "connect")
            yield f"sc://127.0.0.1:{port}"
        finally:
            _end(server)

    def start_master(self) -> subprocess.Popen[bytes]:
        """Start the master, and wait until it answers."""
        options = ("--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self.page))
        master = self._start("master", f"{_DEPLOY}.master.Master", *options)
        self._wait(lambda: self.state().get("status") == "ALIVE", master, "master")
        return master

    def _start(self, name: str, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        home = self.folder / "spark"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # they start sooner
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
        }
        kept = {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [str(home / "bin/spark-class"), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=environment | kept | variables,
            )

    def _wait(self, ready: Any, process: subprocess.Popen[bytes], name: str) -> None:
        log = self.folder / f"{name}.log"
        until(ready, explain=lambda: log.read_text()[-4000:], process=process)


@contextmanager
def start_cluster(folder: Path, python: Path, workers: int = 2) -> Iterator[SparkCluster]:
    """Run a cluster until the context ends.

    Args:
        folder: An existing folder for logs and working folders.
        python: The interpreter that executors run.
        workers: The number of workers.
    """
    home = folder / "spark"  # executors find Python modules below Spark's home, which must not be this environment
    home.mkdir()
    for entry in Path(pyspark.__path__[0]).iterdir():
        (home / entry.name).symlink_to(entry)
    cluster = SparkCluster(free_port(), free_port(), folder, python)
    master = cluster.start_master()
    try:
        cluster.add_workers(workers)
        yield cluster
    finally:
        for process in (*cluster.workers, master):
            _end(process)


@pytest.fixture
def spark_cluster(executors_python: Path, tmp_path: Path) -> Iterator[SparkCluster]:
    """A cluster with two workers for one test, whose executors have the dependencies and not this package."""
    with start_cluster(tmp_path, executors_python) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def module_cluster(executors_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A cluster like `spark_cluster`, for all tests of a module."""
    with start_cluster(tmp_path_factory.mktemp("cluster"), executors_python) as cluster:
        yield cluster


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
