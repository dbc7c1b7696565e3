"""Options of `snapshots catalog`; importing it imports nothing heavy."""

from __future__ import annotations

import argparse

from snapshot_assets.cli.location_options import add_location_options
from snapshot_assets.cli.parser_options import VERSIONS, at, count


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
