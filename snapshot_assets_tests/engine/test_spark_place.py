"""A Spark session is refused at once where nothing answers at its place, by the address and with a remedy."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from snapshot_assets.engine import session_start, spark_place
from snapshot_assets.engine.session_start import start_session
from snapshot_assets.engine.spark_place import refuse_unreachable
from snapshot_assets.errors import PlanError, SparkUnreachableError
from snapshot_assets.pipeline.dagster.spark_session import spark_resource

VARIABLES = ("SPARK_REMOTE", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "MASTER")
PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
REMEDY = "Start it, or correct the address: in --spark-remote or --spark-master"


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    for name in (*VARIABLES, *PROXIES, *map(str.upper, PROXIES)):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def closed() -> str:
    """Host and port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def listening() -> Iterator[str]:
    """Host and port of a server that never accepts."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("setting", ["remote=sc://{}/;token=abc", "master=spark://{}", "master=k8s://https://{}"])
def test_a_place_that_does_not_answer_is_named(setting: str, closed: str) -> None:
    name, _, place = setting.format(closed).partition("=")
    with pytest.raises(SparkUnreachableError) as caught:
        refuse_unreachable({f"spark.{name}": place})
    text = str(caught.value)
    assert place.partition(";")[0] in text
    assert f"{closed}: Connection refused" in text
    assert REMEDY in text
    assert "abc" not in text


def test_a_host_without_an_address_is_named() -> None:
    with pytest.raises(
        SparkUnreachableError, match=r"spark://no-such-host\.invalid:7077 \(no-such-host\.invalid:7077: "
    ):
        refuse_unreachable({"spark.master": "spark://no-such-host.invalid:7077"})


def test_the_place_counts_wherever_it_is_written(closed: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"spark.master spark://{closed}\n")
    with pytest.raises(SparkUnreachableError, match="No Spark master answers"):
        refuse_unreachable({})
    monkeypatch.setenv("SPARK_REMOTE", f"sc://{closed}")
    with pytest.raises(SparkUnreachableError, match="No Spark Connect server answers"):
        refuse_unreachable({})
    refuse_unreachable({"spark.master": "local[2]"})  # wins over both


def test_one_master_that_answers_is_enough(closed: str, listening: str) -> None:
    refuse_unreachable({"spark.master": f"spark://{closed},{listening}"})
    with pytest.raises(SparkUnreachableError, match=f"{closed}: .*; localhost:1: "):
        refuse_unreachable({"spark.master": f"spark://{closed},localhost:1"})


@pytest.fixture
def other_grpc_server() -> Iterator[str]:
    """Host and port of a server of gRPC that knows no method."""
    grpc = pytest.importorskip("grpc")
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.fixture
def web_server() -> Iterator[str]:
    """Host and port of a server of HTTP/1."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class _Refusing(BaseHTTPRequestHandler):
    """Refuses every request, and prints nothing."""

    def log_message(self, *_: Any) -> None:
        """Do nothing."""


@pytest.mark.parametrize("kind", ["listening", "web_server", "other_grpc_server"])
def test_what_is_no_connect_server_is_refused_in_seconds(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind != "other_grpc_server":  # which answers at once
        monkeypatch.setattr(spark_place, "_SECONDS", 1.0)
    address = request.getfixturevalue(kind)
    with pytest.raises(SparkUnreachableError) as caught:
        refuse_unreachable({"spark.remote": f"sc://{address}/;user_id=me"})
    text = str(caught.value)
    assert f"No Spark Connect server answers at sc://{address}" in text
    assert REMEDY in text
    reason = "what answers there is no" if kind == "other_grpc_server" else "does not answer as a"
    assert f"{address}: " in text
    assert f"{reason} Spark Connect server" in text


@pytest.mark.parametrize("times", [1, 1_000_000])
def test_a_connect_server_that_is_starting_is_asked_again(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    grpc = pytest.importorskip("grpc")
    left = [times]

    def answer(_: bytes, context: Any) -> bytes:
        left[0] -= 1
        if left[0] >= 0:
            context.abort(grpc.StatusCode.UNAVAILABLE, "starting")
        return b""

    monkeypatch.setattr(spark_place, "_PAUSE", 0.01)
    if times > 1:
        monkeypatch.setattr(spark_place, "_SECONDS", 1.0)
    server = grpc.server(ThreadPoolExecutor(1))
    methods = {"ReleaseSession": grpc.unary_unary_rpc_method_handler(answer)}
    service = grpc.method_handlers_generic_handler("spark.connect.SparkConnectService", methods)
    server.add_generic_rpc_handlers([service])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with pytest.raises(SparkUnreachableError, match="or one that does not start") if times > 1 else nullcontext():
        refuse_unreachable({"spark.remote": f"sc://127.0.0.1:{port}"})
    server.stop(None).wait()
    assert left[0] < times - 1


def test_a_server_behind_a_proxy_is_left_to_its_client(closed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    refuse_unreachable({"spark.remote": f"sc://{closed}"})
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(SparkUnreachableError):
        refuse_unreachable({"spark.remote": f"sc://{closed}"})


@pytest.mark.parametrize("place", ["master=spark://host", "remote=sc://host:99999/;token=abc"])
def test_an_address_without_a_valid_port_is_refused(place: str) -> None:
    name, _, value = place.partition("=")
    with pytest.raises(PlanError, match=rf"spark\.{name} {value.partition(';')[0]} is not .*; write .*:") as caught:
        refuse_unreachable({f"spark.{name}": value})
    assert "abc" not in str(caught.value)


def test_no_session_starts_there(closed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snapshot_assets.engine.session_start.running_session", lambda: None)
    for place in ({"spark.remote": f"sc://{closed}"}, {"spark.master": f"spark://{closed}"}):
        with pytest.raises(SparkUnreachableError):
            start_session(place)
        with pytest.raises(SparkUnreachableError):
            _ = spark_resource(**place).spark_session


def test_a_master_that_registers_no_application_is_named(monkeypatch: pytest.MonkeyPatch, listening: str) -> None:
    """Spark gives up after a minute and a half, which this test does not wait for."""
    stopped = type("Py4JJavaError", (Exception,), {"__module__": "py4j.protocol"})

    def refused(*_: Any, **__: Any) -> None:
        raise stopped("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.")

    monkeypatch.setattr(session_start, "start_jvm", lambda _: None)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", refused)
    with pytest.raises(
        SparkUnreachableError, match=f"No Spark master answers at spark://{listening} .* is no Spark master"
    ):
        session_start._started({"spark.master": f"spark://{listening}"})
    with pytest.raises(stopped):
        session_start._started({"spark.master": "local[2]"})
