"""Options of the commands on locations, replicas and plans; importing it imports nothing heavy.

`parser_options` has those of the commands that move rows.
"""

from __future__ import annotations

import argparse

from snapshot_assets.cli.options.common import add_location_options
from snapshot_assets.cli.options.export_and_import import VERSIONS, DatabaseOption, at, count

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


def log(parser: argparse.ArgumentParser) -> None:
    """Add the options of `catalog log`."""
    parser.add_argument("--limit", type=count, metavar="N", help="most revisions to list (default: all)")
    parser.add_argument("--since", type=count, default=1, metavar="REV", help="this revision and later ones")


def show(parser: argparse.ArgumentParser) -> None:
    """Add the options of `catalog show`."""
    at(parser)
    parser.add_argument("--files", action="store_true", help="list the data files too")


def table(parser: argparse.ArgumentParser) -> None:
    """Add the options of `catalog table`."""
    parser.add_argument("table", choices=("snapshots", "tags", "savepoints", "chunks", "files", "diff"))
    parser.add_argument("--at", metavar="VERSION", help=f"of chunks, files and diff; {VERSIONS} (default: head)")
    parser.add_argument("--since", metavar="VERSION", help="of diff: the first version")


def collecting(parser: argparse.ArgumentParser) -> None:
    """Add the options of `catalog gc` and `catalog prune`."""
    grace = "delete only objects older than this: 24h, 7d, … (default: the plan's grace)"
    parser.add_argument("--grace", metavar="D", help=grace)
    unsafe = "accept a shorter grace than the plan's: no writer may be active"
    parser.add_argument("--unsafe", action="store_true", help=unsafe)


def expire(parser: argparse.ArgumentParser) -> None:
    """Add the options of `catalog expire`."""
    plan = "a plan of the configuration: its location, and its rules of revisions and of automatic tags"
    add_location_options(parser, plan=plan, snapshot="the snapshot's location; without a rule only tags end")
    last = "keep the newest N sealed revisions; an option takes the place of the plan's rules of revisions"
    parser.add_argument("--keep-last", type=count, metavar="N", help=last)
    parser.add_argument("--keep-for", metavar="D", help="keep what was sealed within this time: 12h, 30d, …")
    for period, name in (("daily", "days"), ("weekly", "ISO weeks"), ("monthly", "months"), ("yearly", "years")):
        help_ = f"keep the newest sealed revision of each of the newest N {name}, in UTC"
        parser.add_argument(f"--keep-{period}", type=count, metavar="N", help=help_)
    unsafe = "with --yes, accept a --keep-for that is shorter than the plan's grace, so that nearly everything expires"
    parser.add_argument("--unsafe", action="store_true", help=unsafe)


def rollback(parser: argparse.ArgumentParser) -> None:
    """Add the options of `catalog rollback`."""
    parser.add_argument("version", metavar="VERSION", help=VERSIONS)
    parser.add_argument("--undelete", action="store_true", help="also if deleted rows come back")
    parser.add_argument("--discard-newer", action="store_true", help="also expire all newer revisions")


def rebuild(parser: argparse.ArgumentParser) -> None:
    """Add the options of `catalog rebuild`."""
    accepted = "accept that deleted rows and replaced chunks may come back"
    parser.add_argument("--accept-undeleted", action="store_true", help=accepted)
    parser.add_argument("--from-files", action="store_true", help="use data files in place of lost receipts")


def upgrade(parser: argparse.ArgumentParser) -> None:
    """Add the options of `catalog upgrade`."""
    parser.add_argument("--to", type=count, metavar="N", help="format version (default: the newest)")
