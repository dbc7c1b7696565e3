"""The command line's parser. It imports nothing heavy, so that `--help` is fast."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from snapshot_assets import __version__
from snapshot_assets.cli.options import catalog_and_setup as own
from snapshot_assets.cli.options.call_parser import CallParser, PrintCompletion
from snapshot_assets.cli.options.common import add_common_options, add_location_options
from snapshot_assets.cli.options.export_and_import import VERSIONS, at, compact, copy, count, create, import_, tombstone

_SHARED: dict[str, dict[str, Any]] = {
    "--dry-run": {"action": "store_true", "help": "print what the command would do, change nothing"},
    "--yes": {"action": "store_true", "help": "do not ask for a confirmation"},
    "--single-writer": {
        "action": "store_true",
        "help": "promise that no other writer uses the location, for stores without conditional creates",
    },
    "--spark-master": {
        "metavar": "URL",
        "help": "Spark's master: local[4], spark://host:7077, yarn, … (default: the configuration's, else local[*,4])",
    },
    "--dagster-home": {
        "metavar": "FOLDER",
        "help": "folder of the Dagster instance that records the run (default: DAGSTER_HOME, else none records it)",
    },
    "--spark-remote": {"metavar": "URL", "help": "a Spark Connect server in place of a master: sc://host:15002"},
    "--json": {"action": "store_true", "help": "print one JSON document on stdout"},
}
"""Options that several commands have."""

_LOCATION = "--snapshot"
"""Stands for `--plan` and `--snapshot`."""
_JSON = ("--json",)
_SPARK = ("--spark-master", "--spark-remote")
_RECORDED = ("--dagster-home", *_SPARK)
_MOVES = (*_RECORDED, *_JSON)
_READS = (_LOCATION, *_JSON)
_WRITES = ("--single-writer", *_READS)
_PLANS = ("--dry-run", *_WRITES)
_ASKS = ("--yes", *_PLANS)


class _Command(NamedTuple):
    """A command.

    Attributes:
        runs: The module below `snapshot_assets.cli` and its function, such as `pins:rename`.
        shared: Its options of `_SHARED`.
        text: Its help.
        add_options: Adds its own options.
    """

    runs: str
    shared: tuple[str, ...]
    text: str
    add_options: Callable[[argparse.ArgumentParser], None] = lambda _: None

    def __call__(self, options: argparse.Namespace) -> int:
        """Run the command; its module is imported only now."""
        module, function = self.runs.split(":")
        status: int = getattr(import_module(f"snapshot_assets.cli.{module}"), function)(options)
        return status


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of `snapshots`; the chosen command is `options.run`."""
    parser = CallParser(prog="snapshots", description="Verified, versioned database snapshots on object storage.")
    parser.set_defaults(config=None)
    parser.add_argument("--version", action="version", version=f"snapshots {__version__}")
    script = "print a script for the shell that completes commands and options"
    parser.add_argument("--print-completion", action=PrintCompletion, choices=("bash", "zsh"), help=script)
    add_common_options(parser)
    groups: dict[str, Any] = {"": parser.add_subparsers(title="commands", required=True, metavar="COMMAND")}
    for name, command in _COMMANDS.items():
        group, _, last = name.rpartition(" ")
        if group not in groups:
            described = _described(groups[""], group, _GROUPS[group])
            groups[group] = described.add_subparsers(title="commands", required=True, metavar="COMMAND")
        added = _described(groups[group], last, command.text)
        command.add_options(added)
        for option in command.shared:
            if option == _LOCATION:
                add_location_options(added)
            else:
                added.add_argument(option, **_SHARED[option])
        add_common_options(added, name)
        added.set_defaults(run=command, spelling=added.spelling())
    return parser


def _described(commands: Any, name: str, text: str) -> CallParser:
    parser: CallParser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    return parser


def _list(parser: argparse.ArgumentParser) -> None:
    levels = "a location, or a folder one or two levels above several"
    add_location_options(parser, "--location", snapshot=levels)


def _verify(parser: argparse.ArgumentParser) -> None:
    at(parser)
    how = parser.add_mutually_exclusive_group()
    depth = "quick reads no data (default: full)"
    how.add_argument("--depth", choices=("quick", "full"), default="full", help=depth)
    sample = "hash this share of the data files, another part each day: with 5%%, daily runs read all within 39 days"
    how.add_argument("--sample", metavar="SHARE", help=sample)


def _status(parser: argparse.ArgumentParser) -> None:
    oldest = "exit with 3 if the newest sealed export is older than this: 26h, 8d, …"
    parser.add_argument("--max-age", metavar="D", help=oldest)
    formats = "openmetrics prints metrics for Prometheus (default: text)"
    parser.add_argument("--format", choices=("text", "openmetrics"), default="text", help=formats)


def _delete(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--with-tags", action="store_true", help="also if tags or savepoints pin it")


def _diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="first", required=True, metavar="VERSION", help=VERSIONS)
    parser.add_argument("--to", dest="second", required=True, metavar="VERSION", help=VERSIONS)


def _tag(parser: argparse.ArgumentParser, metavar: str = "NAME") -> None:
    parser.add_argument("name", metavar=metavar, help="the tag: a letter or _, then letters, digits, _ . -")


def _pinning(parser: argparse.ArgumentParser) -> None:
    _tag(parser)
    at(parser, "newest seal")
    life = "how long the tag lives from now: 12h, 90d, … (default: until it is deleted)"
    parser.add_argument("--time-retained", metavar="D", help=life)


def _rename(parser: argparse.ArgumentParser) -> None:
    _tag(parser, "OLD")
    parser.add_argument("new_name", metavar="NEW", help="a name that no tag has")


def _holding(parser: argparse.ArgumentParser) -> None:
    _tag(parser)
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why; the log keeps it")
    parser.add_argument("--by", metavar="WHO", help="who, if not this writer: package, user@host and process")


def _savepoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", type=count, metavar="ID", help="the savepoint's number")


_GROUPS = {
    "plan": "show plans of the configuration",
    "export": "create, list, verify and delete snapshots",
    "tag": "name sealed revisions; a tagged revision stays readable",
    "savepoint": "compact a snapshot and keep it under a number",
    "catalog": "inspect and maintain a location's log and storage",
}

_COMMANDS = {
    "init": _Command("setup.init:run", _JSON, "write a configuration with a plan that fits a database", own.init),
    "doctor": _Command("setup.doctor:run", _MOVES, "check all that an export needs; name each remedy", own.doctor),
    "warm-up": _Command("setup.warm_up:run", _JSON, "archive Spark's classes here, so that Spark starts sooner"),
    "plan show": _Command("setup.show_plan:run", _JSON, "show what a plan would export, where and how", own.show_plan),
    "copy": _Command("copy:run", _MOVES, "copy a query's rows to object storage as Parquet, CSV or JSON", copy),
    "export create": _Command(
        "export.create:run", _MOVES, "export a database, or resume an unfinished snapshot", create
    ),
    "export list": _Command("export.snapshots:list_", _JSON, "list the snapshots at or below a location", _list),
    "export verify": _Command("export.snapshots:verify", _READS, "check a snapshot and name every fault", _verify),
    "export delete": _Command(
        "export.snapshots:delete", ("--yes", *_WRITES), "delete a snapshot and everything it wrote", _delete
    ),
    "export diff": _Command("export.snapshots:diff", _READS, "show what changed from one version to another", _diff),
    "status": _Command(
        "status:run", _READS, "show the age of the newest backup and what it needs; reads no data", _status
    ),
    "import": _Command(
        "import_:run",
        _MOVES,
        "restore a snapshot into a database, or resume an interrupted import",
        import_,
    ),
    "replicate": _Command(
        "replicate:run",
        ("--dry-run", "--single-writer", *_JSON),
        "copy a location to a second store, or what it lacks there; verified, byte for byte",
        own.replicate,
    ),
    "tag create": _Command(
        "pins:create", _WRITES, "name a sealed revision; an equal tag that exists stays as it is", _pinning
    ),
    "tag list": _Command("pins:list_tags", _READS, "list the tags by commit time of the revisions that they name"),
    "tag delete": _Command(
        "pins:delete_tag", _ASKS, "delete a tag; garbage collection deletes what nothing else needs", _tag
    ),
    "tag rename": _Command("pins:rename", _WRITES, "give a tag another name; it lives as long as before", _rename),
    "tag replace": _Command(
        "pins:replace", _ASKS, "let a tag name another revision, or give it a new time to live", _pinning
    ),
    "tag hold": _Command(
        "pins:hold",
        _WRITES,
        "put a tag under legal hold: no rule and no command removes it until its release",
        _holding,
    ),
    "tag release": _Command("pins:release", _WRITES, "end the legal hold on a tag; the tag stays", _holding),
    "tag exists": _Command("pins:exists", _READS, "print whether there is a tag; exit status 5 if not", _tag),
    "savepoint create": _Command(
        "catalog.compact:create_savepoint",
        (*_RECORDED, *_PLANS),
        "compact everything, leave deleted rows out, and keep the result",
    ),
    "savepoint list": _Command(
        "pins:list_savepoints", _READS, "list the savepoints by commit time of the revisions that they keep"
    ),
    "savepoint delete": _Command(
        "pins:delete_savepoint",
        _ASKS,
        "delete a savepoint; garbage collection deletes what nothing else needs",
        _savepoint,
    ),
    "catalog log": _Command(
        "catalog.log:run", _READS, "list revisions, newest first: what changed, when and by whom", own.log
    ),
    "catalog show": _Command(
        "catalog.show:show_state",
        _READS,
        "show a state: chunks, tables, tags, seals, and the size of the log",
        own.show,
    ),
    "catalog table": _Command(
        "catalog.show:table", _READS, "show a metadata table, such as tags for Spark's $tags", own.table
    ),
    "catalog checkpoint": _Command(
        "catalog.maintain:checkpoint", _WRITES, "write a checkpoint of the newest state, to open it faster"
    ),
    "catalog gc": _Command(
        "catalog.retention:gc",
        _ASKS,
        "delete objects that no sealed revision, tag or writer needs",
        own.collecting,
    ),
    "catalog prune": _Command(
        "catalog.maintain:prune",
        _ASKS,
        "delete the oldest part of the log, which a checkpoint contains",
        own.collecting,
    ),
    "catalog expire": _Command(
        "catalog.retention:expire",
        tuple(option for option in _ASKS if option != _LOCATION),
        "expire old sealed revisions, and tags past their retention",
        own.expire,
    ),
    "catalog rollback": _Command(
        "catalog.changes:rollback",
        _ASKS,
        "restore the data of an older version as the newest state",
        own.rollback,
    ),
    "catalog tombstone": _Command(
        "catalog.changes:tombstone", _ASKS, "delete the rows of a predicate; older versions keep them", tombstone
    ),
    "catalog compact": _Command(
        "catalog.compact:run",
        (*_RECORDED, *_PLANS),
        "merge small files, and rewrite files without deleted rows",
        compact,
    ),
    "catalog promote": _Command("replicate:promote", _ASKS, "make a replica a location of its own", own.promote),
    "catalog rebuild": _Command(
        "catalog.maintain:rebuild",
        _PLANS,
        "rebuild a lost or damaged log, and report what is lost",
        own.rebuild,
    ),
    "catalog repair": _Command(
        "catalog.maintain:repair", _PLANS, "write damaged hints, receipts, checkpoints and pins again from the log"
    ),
    "catalog upgrade": _Command(
        "catalog.maintain:upgrade",
        _PLANS,
        "raise the format version; older releases cannot read it then",
        own.upgrade,
    ),
}
