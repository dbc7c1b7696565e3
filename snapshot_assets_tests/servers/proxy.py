"""An HTTP proxy in front of the S3 server that answers some requests itself, or breaks connections.

It is a separate process, `python -m snapshot_assets_tests.servers.proxy UPSTREAM`, because some clients hold Python's
lock while they wait for an answer.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from snapshot_assets.storage.options import StoreOptions

_CONTROL = "/-/control"
_CUTS = ("request", "answer", "middle")
_OWN_HEADERS = {"connection", "transfer-encoding", "content-length", "keep-alive"}


@dataclass
class Fault:
    """A fault for matching requests.

    Attributes:
        request: Pattern searched in "METHOD /bucket/key?query".
        status: The status to answer instead of the server's; 0 to break the connection without an answer.
        code: S3's error code in that answer.
        times: Number of matching requests that fail.
        forwarded: Whether the server still receives the request, so that it takes effect.
        each: Whether to count `times` separately for each text that the pattern's groups match.
        every: Strike only one of this many matching requests.
        held: Whether the request never gets an answer, so that the client waits until it is killed.
    """

    request: str
    status: int = 409
    code: str = "OperationAborted"
    times: int = 1
    forwarded: bool = False
    each: bool = False
    every: int = 1
    held: bool = False


@dataclass
class Weather:
    """What a bad network does to every request.

    Attributes:
        busy: Share of the requests that are answered with 503.
        delay: Seconds before each answer.
        cut: Share of the connections that break: in the middle of the request's body, before the answer to a request
            that took effect, or in the middle of the answer's body.
    """

    busy: float = 0.0
    delay: float = 0.0
    cut: float = 0.0


@dataclass(frozen=True)
class Proxy:
    """A running proxy.

    Attributes:
        options: Options for the S3 server through the proxy.
    """

    options: StoreOptions

    def strike(self, *faults: Fault) -> None:
        """Replace the faults, and forget the requests so far."""
        self._ask(json.dumps({"faults": [asdict(fault) for fault in faults]}).encode())

    def weather(self, weather: Weather) -> None:
        """Replace the weather."""
        self._ask(json.dumps({"weather": asdict(weather)}).encode())

    def statuses(self, pattern: str) -> list[int]:
        """Return the status of each matching request since the last `strike`, 0 for a broken connection."""
        return [status for request, status in self._ask(None) if re.search(pattern, request)]

    def _ask(self, body: bytes | None) -> Any:
        with urlopen(Request(f"{self.options.endpoint}{_CONTROL}", body), timeout=30) as answer:
            return json.load(answer)


@contextmanager
def proxy_of(options: StoreOptions) -> Iterator[Proxy]:
    """Run a proxy in front of the server of the options."""
    command = [sys.executable, "-m", __name__, urlsplit(str(options.endpoint)).netloc]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Proxy(replace(options, endpoint=f"http://127.0.0.1:{int(process.stdout.readline())}"))
        finally:
            process.kill()


@dataclass
class _Record:
    faults: list[Fault] = field(default_factory=list)
    struck: dict[tuple[int, Any], int] = field(default_factory=dict)
    seen: list[tuple[str, int]] = field(default_factory=list)
    weather: Weather = field(default_factory=Weather)
    chance: random.Random = field(default_factory=lambda: random.Random(16))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next_fault(self, request: str) -> Fault | None:
        with self.lock:
            for number, fault in enumerate(self.faults):
                if (match := re.search(fault.request, request)) is not None:
                    kind = number, match.groups() if fault.each else ()
                    self.struck[kind] = self.struck.get(kind, 0) + 1
                    if self.struck[kind] % fault.every == 0 and self.struck[kind] <= fault.times * fault.every:
                        return fault
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    upstream: str
    record: _Record

    def _answer(self) -> None:
        length = int(self.headers.get("content-length", 0))
        if self.path == _CONTROL:
            self._control(self.rfile.read(length))
            return
        request, weather = f"{self.command} {self.path}", self.record.weather
        cut = self.record.chance.choice(_CUTS) if self.record.chance.random() < weather.cut else ""
        if cut == "request":
            self.rfile.read(length // 2)
            self._cut(request)
            return
        body = self.rfile.read(length)
        time.sleep(weather.delay)
        if cut:
            status, headers, answer = self._forward(body)
            if cut == "middle" and self.command != "HEAD":
                self._send(status, headers, answer, len(answer) // 2)
            self._cut(request)
            return
        if self.record.chance.random() < weather.busy:
            self.record.seen.append((request, 503))
            self._send(503, [("Content-Type", "application/xml")], _error("SlowDown"))
            return
        fault = self.record.next_fault(request)
        if fault is not None and fault.held:
            self.record.seen.append((request, 0))
            threading.Event().wait()
        answer = self._forward(body) if fault is None or fault.forwarded else None
        self.record.seen.append((request, fault.status if fault else answer[0] if answer else 0))
        if fault is None:
            assert answer is not None
            self._send(*answer)
        elif fault.status:
            self._send(fault.status, [("Content-Type", "application/xml")], _error(fault.code))
        else:
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer

    def _cut(self, request: str) -> None:
        self.record.seen.append((request, 0))
        self.close_connection = True

    def _control(self, body: bytes) -> None:
        asked = json.loads(body) if self.command == "POST" else {}
        if "faults" in asked:
            self.record.faults = [Fault(**each) for each in asked["faults"]]
            self.record.struck, self.record.seen = {}, []
        if "weather" in asked:
            self.record.weather = Weather(**asked["weather"])
        self._send(200, [], json.dumps(self.record.seen).encode())

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = HTTPConnection(self.upstream, timeout=60)
        try:
            # Keep the client's Host header, which its signature covers.
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _send(self, status: int, headers: list[tuple[str, str]], body: bytes, sent: int | None = None) -> None:
        """Send an answer; with `sent`, only so many bytes of its body."""
        self.send_response_only(status)
        length = str(len(body))
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif name.lower() not in _OWN_HEADERS:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            with suppress(ConnectionError):  # a client that was killed, or has given up
                self.wfile.write(body[:sent])

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>A fault of the test.</Message></Error>".encode()


def main(upstream: str) -> None:
    """Serve until killed; the first line of output is the port."""
    handler = type("Handler", (_Handler,), {"upstream": upstream, "record": _Record()})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        print(server.server_port, flush=True)  # noqa: T201
        server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
