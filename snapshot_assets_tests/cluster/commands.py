"""Runs commands of `snapshots` in one process, and so with one Spark session; stops at the first failure.

Run as `python -m snapshot_assets_tests.cluster.commands COMMANDS`, in JSON.
"""

from __future__ import annotations

import json
import sys

from snapshot_assets.cli import main

if __name__ == "__main__":
    for command in json.loads(sys.argv[1]):
        if status := main(command):
            sys.exit(status)
