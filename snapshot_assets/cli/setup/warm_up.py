"""`snapshots warm-up`: makes the archive of Spark's classes, from which each later session starts sooner."""

from __future__ import annotations

import argparse

from snapshot_assets.cli.output import only_results_on_stdout, show, show_json
from snapshot_assets.format.units import human_bytes


def run(options: argparse.Namespace) -> int:
    """Make the archive and print its file."""
    from snapshot_assets.engine.class_archive import make_archive

    with only_results_on_stdout():
        file = make_archive()
    size = file.stat().st_size
    if options.json:
        show_json({"file": str(file), "bytes": size})
    else:
        show(f"archived Spark's classes in {file} ({human_bytes(size)}); sessions that start from now on use them")
    return 0
