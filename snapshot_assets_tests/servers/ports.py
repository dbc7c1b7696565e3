"""Ports of the loopback interface for servers that bind them later."""

from __future__ import annotations

import atexit
import random
import socket
from contextlib import ExitStack

_PORTS = range(20_000, 32_000)
"""Below the ports that systems give to connections that go out, which could take one before its server does."""

_RESERVED = ExitStack()
"""UDP sockets on the ports that this process gave out: another process of the tests does not give out the same one."""
atexit.register(_RESERVED.close)


def free_port() -> int:
    """Return a port on which nothing listens, and which no process of the tests gives out while this one runs.

    Raises:
        OSError: All are taken.
    """
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        with ExitStack() as taken:
            try:
                taken.enter_context(socket.socket(type=socket.SOCK_DGRAM)).bind(("127.0.0.1", port))
                socket.create_server(("127.0.0.1", port)).close()
            except OSError:
                continue
            _RESERVED.push(taken.pop_all())
            return port
    raise OSError("no port is free")


def listens(port: int) -> bool:
    """Return whether something listens on a port of the loopback interface."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
