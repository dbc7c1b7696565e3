"""A proxy in front of PostgreSQL that lacks some of its words: it stands for servers that speak only its protocol.

It changes words in what clients send, so that PostgreSQL itself refuses them where such a server would, with its own
SQLSTATE and the transaction that fails. In the answers the words are changed back. Both have equally many bytes.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from urllib.parse import urlsplit

COPY_BINARY = "(FORMAT binary)"
COPY = "COPY ("
SNAPSHOTS = "SET TRANSACTION SNAPSHOT"
"""Words of statements; others are names in `pg_catalog`."""

_ENCRYPTION = (80877103, 80877104)
"""Requests for TLS and GSSAPI in place of a start-up packet."""


@contextmanager
def lacking(uri: str, *words: str) -> Iterator[str]:
    """Yield the URI of a database behind a proxy that lacks words, such as the names of catalogs and functions."""
    parts = urlsplit(uri)
    assert parts.port is not None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        upstream = partial(socket.create_connection, ("127.0.0.1", parts.port))
        threading.Thread(target=_accept, args=(listener, upstream, words), daemon=True).start()
        yield uri.replace(f":{parts.port}/", f":{listener.getsockname()[1]}/")
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, upstream: Callable[[], socket.socket], words: Sequence[str]) -> None:
    with suppress(OSError):  # the listener is closed at the end
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_serve, args=(client, upstream, words), daemon=True).start()


def _serve(client: socket.socket, upstream: Callable[[], socket.socket], words: Sequence[str]) -> None:
    with client, upstream() as server, suppress(OSError):
        head = _exactly(client, 8)
        while struct.unpack("!II", head)[1] in _ENCRYPTION:
            client.sendall(b"N")
            head = _exactly(client, 8)
        server.sendall(head + _exactly(client, struct.unpack("!II", head)[0] - 8))
        pairs = [(word.encode(), _another(word).encode()) for word in words]
        back = threading.Thread(target=_forward, args=(server, client, [(b, a) for a, b in pairs]), daemon=True)
        back.start()
        _forward(client, server, pairs)
        back.join()


def _another(word: str) -> str:
    """Return a word of the same length that PostgreSQL does not know."""
    return f"no_{word[3:]}" if word.startswith("pg_") else f"{word[:-2]}~{word[-1]}"


def _forward(origin: socket.socket, into: socket.socket, pairs: Sequence[tuple[bytes, bytes]]) -> None:
    """Forward messages until either side closes the connection."""
    with suppress(OSError):
        while True:
            head = _exactly(origin, 5)
            message = head + _exactly(origin, struct.unpack("!I", head[1:])[0] - 4)
            for word, other in pairs:
                message = message.replace(word, other)
            into.sendall(message)
    for each in (origin, into):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _exactly(origin: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        if not (part := origin.recv(size - len(found))):
            raise ConnectionResetError
        found += part
    return bytes(found)
