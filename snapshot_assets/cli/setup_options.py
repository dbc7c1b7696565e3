"""Options of `init`, `doctor` and `plan show`; importing it imports nothing heavy."""

from __future__ import annotations

import argparse

from snapshot_assets.cli.location_options import add_location_options
from snapshot_assets.cli.parser_options import DatabaseOption

_SOURCE = "postgresql://…, duckdb:///abs/path.duckdb or spark:<catalog>"


def show_plan(parser: argparse.ArgumentParser) -> None:
    """Add the options of `snapshots plan show`."""
    parser.add_argument("name", metavar="NAME", help="a plan of the configuration")


def init(parser: argparse.ArgumentParser) -> None:
    """Add the options of `snapshots init`."""
    secrets = "write a password as a variable, such as ${SHOP_PASSWORD}, which the environment has"
    parser.add_argument("--source", required=True, metavar="URI", help=f"{_SOURCE}; {secrets}")
    parser.add_argument("--to", required=True, metavar="URI", help="location: s3://bucket/prefix, file:///abs/path, …")
    parser.add_argument("--name", help="name of the plan (default: last segment of the location)")
    kind = "once: a fixed range (default); continuous: all closed windows, as for a nightly export"
    parser.add_argument("--kind", choices=("once", "continuous"), default="once", help=kind)
    output = "file to write, which must not exist (default: that of --config, $SNAPSHOTS_CONFIG or snapshots.yaml)"
    parser.add_argument("--output", metavar="FILE", help=output)


def doctor(parser: argparse.ArgumentParser) -> None:
    """Add the options of `snapshots doctor`."""
    plan = "check what this plan needs (default: all plans)"
    add_location_options(parser, "--to", plan=plan, snapshot="check a location without a plan")
    parser.add_argument(
        "--source", action=DatabaseOption, metavar="URI", help=f"check a database without a plan: {_SOURCE}"
    )
    parser.add_argument("--no-spark", action="store_true", help="start no Spark session, which takes seconds")
