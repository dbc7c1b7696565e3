"""Two processes of the tests are not given the same port, though their servers bind it later."""

import subprocess
import sys

from snapshot_assets_tests.servers import ports

_GIVE = f"""
import sys
import {ports.__name__} as ports
ports._PORTS = [int(sys.argv[1])]
ports.free_port()
"""


def test_a_port_is_given_to_one_process() -> None:
    command = [sys.executable, "-c", _GIVE, str(ports.free_port())]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "OSError: no port is free" in second.stderr
