"""Stores that never answer: they are given up soon, and Ctrl-C and SIGTERM end the wait for them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from snapshot_assets.errors import StoreUnavailableError
from snapshot_assets.storage import retry
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import StoreOptions, open_store
from snapshot_assets.storage.retry import interruptible
from snapshot_assets_tests.cli.helpers import make_source

OPTIONS = StoreOptions(
    region="here", access_key_id="key", secret_access_key="secret", allow_http=True, retry_timeout="10s"
)
CALLS: dict[str, Callable[[ObjectStore], object]] = {
    "get": lambda store: store.get("a"),
    "head": lambda store: store.head("a"),
    "list": lambda store: list(store.list()),
    "folders": lambda store: store.folders(),
    "put": lambda store: store.put("a", b"x"),
    "create": lambda store: store.create("a", b"x"),
}
COMMANDS = {
    "create": ["export", "create", "--plan", "shop"],
    "copy": ["copy", "--plan", "rows"],
    "import": ["import", "--from", "s3://bucket/shop", "--target", "duckdb:///target.duckdb"],
    "verify": ["export", "verify", "--snapshot", "s3://bucket/shop"],
}
PLANS = """
sources: {{shop: "{source}"}}
storage:
  s3: {{endpoint: "{endpoint}", allow_http: true, region: here, access_key_id: key, secret_access_key: secret}}
plans:
  shop: {{source: shop, to: s3://bucket/shop, start_time: 2025-01-01T00:00:00Z, end_time: 2025-01-04T00:00:00Z}}
  rows: {{kind: query, source: shop, to: s3://bucket/rows, query: SELECT * FROM sensors}}
"""


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that accepts connections and never answers a request."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(120)
        yield server


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_store_that_never_answered_is_given_up_before_the_limit(
    call: Callable[[ObjectStore], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "FIRST_CONTACT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    store = open_store(parse_location("s3://bucket/shop"), replace(OPTIONS, endpoint=f"http://127.0.0.1:{port}"))
    with pytest.raises(StoreUnavailableError, match=r"\b\d+ tries in"):  # one try would be the client's own, for 10 s
        call(store)


def test_a_signal_ends_the_wait_for_a_request(silent: socket.socket) -> None:
    client = socket.create_connection(silent.getsockname())

    def request() -> bytes:
        signal.raise_signal(signal.SIGINT)
        return client.recv(1)

    with client, pytest.raises(KeyboardInterrupt):
        interruptible(request)


@pytest.mark.parametrize(
    "command", [name if name == "create" else pytest.param(name, marks=pytest.mark.slow) for name in COMMANDS]
)
def test_a_command_ends_on_sigterm(silent: socket.socket, tmp_path: Path, command: str) -> None:
    endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
    source = make_source(tmp_path / "source.duckdb")
    (tmp_path / "snapshots.yaml").write_text(PLANS.format(source=source, endpoint=endpoint))
    process = subprocess.Popen(
        [sys.executable, "-m", "snapshot_assets.cli", *COMMANDS[command]],
        env=os.environ | {"DAGSTER_HOME": str(tmp_path / "dagster")},
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with silent.accept()[0]:
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=25)  # a request is given up after 30 s
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "interrupted" in err
