"""The options of `snapshots tag`, `savepoint` and `catalog expire`; importing it imports nothing heavy."""

from __future__ import annotations

import argparse
from typing import Any

from snapshot_assets.cli.parser_parts import (
    VERSIONS,
    as_json,
    command,
    count,
    described,
    dry_run,
    single_writer,
    snapshot,
    yes,
)


def add_tag(parser: argparse.ArgumentParser) -> None:
    """Add the commands of `snapshots tag`."""
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    create = described(commands, "create", "name a sealed revision; an equal tag that exists stays as it is")
    _pinning(create, "how long the tag lives from now: 12h, 90d, … (default: until it is deleted)")
    _writing(create, "tag", "create")
    list_ = described(commands, "list", "list the tags by commit time of the revisions that they name")
    _reading(list_, "tag", "list_")
    delete = described(commands, "delete", "delete a tag; garbage collection deletes what nothing else needs")
    _name(delete)
    _ending(delete)
    _writing(delete, "tag", "delete")
    rename = described(commands, "rename", "give a tag another name; it lives as long as before")
    _name(rename, "OLD")
    rename.add_argument("new_name", metavar="NEW", help="a name that no tag has")
    _writing(rename, "tag", "rename")
    replace = described(commands, "replace", "let a tag name another revision, or give it a new time to live")
    _pinning(replace, "how long the tag lives from now: 12h, 90d, … (default: until it is deleted)")
    _ending(replace)
    _writing(replace, "tag", "replace")
    exists = described(commands, "exists", "print whether there is a tag; exit status 1 if not")
    _name(exists)
    _reading(exists, "tag", "exists")


def add_savepoint(parser: argparse.ArgumentParser) -> None:
    """Add the commands of `snapshots savepoint`."""
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    create = described(commands, "create", "compact everything, leave deleted rows out, and keep the result")
    dry_run(create, "print what would be compacted and pinned, change nothing")
    _writing(create, "savepoint_create", "run", interrupted="run the same command again to go on")
    list_ = described(commands, "list", "list the savepoints by commit time of the revisions that they keep")
    _reading(list_, "savepoint", "list_")
    delete = described(commands, "delete", "delete a savepoint; garbage collection deletes what nothing else needs")
    delete.add_argument("id", type=count, metavar="ID", help="the savepoint's number")
    _ending(delete)
    _writing(delete, "savepoint", "delete")


def _ending(parser: argparse.ArgumentParser) -> None:
    dry_run(parser, "list what nothing would need then, change nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask before a revision becomes unreadable for ever")


def add_expire(parser: argparse.ArgumentParser) -> None:
    """Add the options of `snapshots catalog expire`."""
    parser.add_argument("--keep-last", type=count, metavar="N", help="keep the newest N sealed revisions")
    parser.add_argument("--keep-for", metavar="D", help="keep what was sealed within this time: 12h, 30d, …")
    dry_run(parser, "list what would expire and what nothing would need then, change nothing")
    single_writer(parser)
    yes(parser)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--snapshot", metavar="URI", help="the snapshot's location; without a rule only tags end")
    where.add_argument("--plan", metavar="NAME", help="a plan of the configuration: its location and retention")
    as_json(parser)
    parser.set_defaults(run=command("catalog.expire"))


def _pinning(parser: argparse.ArgumentParser, life: str) -> None:
    _name(parser)
    parser.add_argument("--at", metavar="VERSION", help=f"{VERSIONS} (default: newest seal)")
    parser.add_argument("--time-retained", metavar="D", help=life)


def _name(parser: argparse.ArgumentParser, metavar: str = "NAME") -> None:
    parser.add_argument("name", metavar=metavar, help="the tag: a letter or _, then letters, digits, _ . -")


def _writing(parser: argparse.ArgumentParser, module: str, function: str, **defaults: Any) -> None:
    single_writer(parser)
    _reading(parser, module, function, **defaults)


def _reading(parser: argparse.ArgumentParser, module: str, function: str, **defaults: Any) -> None:
    snapshot(parser)
    as_json(parser)
    parser.set_defaults(run=command(module, function), **defaults)
