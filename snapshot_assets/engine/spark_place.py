"""Checks that the place of a Spark session answers, and can open the files of a run, before anything waits for it.

A client of Spark Connect repeats its first request for minutes, also where something else than such a server listens,
and a JVM without its master ends with Java's errors alone; neither names the address.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from snapshot_assets.databases.open import kind_of
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.session_settings import GATEWAY, is_local, session_settings, settings_of_environment
from snapshot_assets.errors import PlanError, SparkUnreachableError
from snapshot_assets.plan.spark_settings import EXAMPLES, MASTER, REMOTE, shown_place

_CONNECT_PORT = 15002
_PROXIES = {"grpc", "https", "http"}
_SECONDS = 10.0
"""Most seconds for one host, as for object storage."""
_PAUSE = 0.5
"""Seconds until a server that is unavailable is asked again."""
_FAILURES = {
    "DEADLINE_EXCEEDED": (
        "something listens there, and does not answer as a Spark Connect server, with TLS where the URI has it"
    ),
    "UNAVAILABLE": "what answers there is no Spark Connect server, or one that does not start",
    "UNIMPLEMENTED": "what answers there is no Spark Connect server",
}
"""By gRPC's status of the first request, why it has no answer."""


def refuse_local_files(name: str, to: str, database: DatabaseAddress | None, master: Callable[[], str | None]) -> None:
    """Refuse a plan whose location or database is a file of this machine, if Spark's tasks may run on others.

    `master` returns Spark's master, or None in a step that starts no tasks; it is called only if there are such files.

    Raises:
        PlanError: Tasks could not open the files.
    """
    files = [f"its location {to}"] if to.lower().startswith("file:") else []
    if database is not None and (kind := kind_of(database.uri)).local_file:
        files.append(f"the database {database.alias!r}, a {kind.title} file,")
    if not files or (found := master()) is None or is_local(found):
        return
    raise PlanError(
        f"plan {name!r}: {' and '.join(files)} can be on one machine only, and Spark's master is {found!r}, whose "
        "tasks run on others. Use object storage (s3, gs, azblob, oss) and a database server, or a local master.",
        master=found,
    )


def refuse_unreachable(chosen: Mapping[str, str]) -> None:
    """Refuse to start a session at a server or master that does not answer; of several masters, one is enough.

    Hosts behind a proxy of the environment are not tried, and neither is YARN, whose addresses Hadoop's files have.

    Raises:
        SparkUnreachableError: Nothing answers there.
        PlanError: The address has no host or no valid port.
    """
    name, place = place_of(chosen)
    try:
        addresses = _addresses(name, place)
    except ValueError as error:
        raise PlanError(f"{name} {shown_place(place)} is not {EXAMPLES[name]} ({error})") from None
    failures = []
    for host, port in addresses:
        try:
            socket.create_connection((host, port), timeout=_SECONDS).close()
            failure = _connect_failure(place) if name == REMOTE else None
        except OSError as error:
            failure = error.strerror or str(error)
        if failure is None:
            return
        failures.append(f"{host}:{port}: {failure}")
    if failures:
        raise _unreachable(name, place, "; ".join(failures))


def no_master(master: str) -> SparkUnreachableError:
    """Return the error of a master that accepts connections, and no application."""
    return _unreachable(MASTER, master, "what listens there is no Spark master, or accepts no application")


def _unreachable(name: str, place: str, why: str) -> SparkUnreachableError:
    what = "Spark Connect server" if name == REMOTE else "Spark master"
    return SparkUnreachableError(
        f"No {what} answers at {shown_place(place)} ({why}). Start it, or correct the address: in --spark-remote or"
        " --spark-master, else in the section `spark` of the plan or the configuration, else in SPARK_REMOTE or"
        " spark-defaults.conf.",
        place=shown_place(place),
    )


def _connect_failure(remote: str) -> str | None:
    """Return why what listens at an address is no Spark Connect server; None if it is one.

    Releasing a session that does not exist is a request that leaves nothing on the server. A server may refuse it, such
    as without a token: PySpark reports that itself. One that is starting may be unavailable, and is asked again.
    """
    try:
        from pyspark.sql.connect.client import DefaultChannelBuilder
        from pyspark.sql.connect.proto import ReleaseSessionRequest
        from pyspark.sql.connect.proto.base_pb2_grpc import SparkConnectServiceStub
    except ImportError:  # without the extra, no session starts
        return None
    builder = DefaultChannelBuilder(remote)
    request = ReleaseSessionRequest(session_id=str(uuid.uuid4()), client_type=builder.userAgent)
    if builder.userId:
        request.user_context.user_id = builder.userId
    deadline, answered = time.monotonic() + _SECONDS, False
    with builder.toChannel() as channel:
        stub = SparkConnectServiceStub(channel)  # type: ignore[no-untyped-call]
        while True:
            left = max(deadline - time.monotonic(), 0.0)
            try:
                stub.ReleaseSession(request, metadata=builder.metadata(), timeout=left, wait_for_ready=True)
            except Exception as error:  # of gRPC, which PySpark brings along
                status = getattr(error.code() if hasattr(error, "code") else None, "name", "")
                if status == "UNAVAILABLE" and left > _PAUSE:
                    answered = True
                    time.sleep(_PAUSE)
                    continue
                # The last request may have too little time left for an answer that earlier ones had.
                return _FAILURES.get("UNAVAILABLE" if status == "DEADLINE_EXCEEDED" and answered else status)
            return None


def place_of(chosen: Mapping[str, str]) -> tuple[str, str]:
    """Return which setting places a session that is about to start, and its value; empty if only Spark knows it."""
    settings, known = session_settings(chosen), settings_of_environment(os.environ)
    if REMOTE in chosen or (MASTER not in chosen and REMOTE in known):
        return REMOTE, chosen.get(REMOTE) or known[REMOTE]
    if GATEWAY in os.environ:
        return MASTER, ""
    return MASTER, settings.get(MASTER) or known.get(MASTER, "")


def _addresses(name: str, place: str) -> list[tuple[str, int]]:
    """Return the hosts and ports of a place on other machines.

    Raises:
        ValueError: One has no host or no valid port.
    """
    scheme, separator, rest = place.partition("://")
    if name == REMOTE and scheme == "sc":
        return _unless_proxied(*_address(place, _CONNECT_PORT))
    if name == MASTER and scheme == "k8s":
        server = rest if "://" in rest else f"https://{rest}"
        return _unless_proxied(*_address(server, 80 if server.startswith("http:") else 443))
    if name == MASTER and scheme == "spark" and separator:
        return [_address(f"spark://{each}", None) for each in rest.split(",")]
    return []


def _address(url: str, default: int | None) -> tuple[str, int]:
    parts = urlsplit(url)
    host, port = parts.hostname, parts.port or default
    if not host or port is None:
        raise ValueError(f"it has no {'port' if host else 'host'}")
    return host, port


def _unless_proxied(host: str, port: int) -> list[tuple[str, int]]:
    proxied = _PROXIES & getproxies_environment().keys() and not proxy_bypass(host)
    return [] if proxied else [(host, port)]
