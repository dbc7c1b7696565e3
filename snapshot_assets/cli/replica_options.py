"""Options of the commands on replicas; importing it imports nothing heavy."""

from __future__ import annotations

import argparse

from snapshot_assets.cli.location_options import add_location_options
from snapshot_assets.cli.parser_options import VERSIONS


def replicate(parser: argparse.ArgumentParser) -> None:
    """Add the options of `snapshots replicate`."""
    plan = "a plan of the configuration: its location and its replicate_to"
    add_location_options(parser, plan=plan, snapshot="the location that is copied")
    to = (
        "the replica: an empty location, or an earlier replica (default: the plan's replicate_to); the section"
        " storage.locations of the configuration has credentials by bucket"
    )
    parser.add_argument("--to", metavar="URI", help=to)
    some = f"copy only the head and this version, and those chosen before; repeat it for more: {VERSIONS}"
    parser.add_argument("--only", action="append", default=[], metavar="VERSION", help=some)
    gone = "delete from the replica what the source has deleted (default: the plan's replicate_delete, else keep it)"
    parser.add_argument("--delete", action="store_true", help=gone)
    lost = "follow a source that lost what the replica still has, by a rebuild for example (default: refuse it)"
    parser.add_argument("--accept-loss", action="store_true", help=lost)


def promote(parser: argparse.ArgumentParser) -> None:
    """Add the options of `snapshots catalog promote`."""
    accepted = "accept a log that was not copied to its end; rebuild it then"
    parser.add_argument("--incomplete", action="store_true", help=accepted)
    given_up = "give up this held tag, which a replica of chosen versions lacks; repeat it for more"
    parser.add_argument("--release", action="append", default=[], metavar="NAME", help=given_up)
