"""The command line's parser. It imports nothing heavy, so that `--help` is fast."""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from snapshot_assets import __version__
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
from snapshot_assets.cli.parser_pins import add_expire, add_savepoint, add_tag
from snapshot_assets.format.scrub import scrub

_NAME = re.compile(r'(?:"(?:[^"]|"")*"|[^",]|"(?!.*"))+')
_QUOTED = re.compile(r'"(?:[^"]|"")+"')
_RANGE = "RFC 3339 with a zone, such as 2025-01-31T00:00:00Z"


class _Parser(argparse.ArgumentParser):
    """A parser that accepts only full option names, and whose errors repeat no password."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        super().error(scrub(message))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of `snapshots`; the chosen command is `options.run`."""
    parser = _Parser(prog="snapshots", description="Verified, versioned database snapshots on object storage.")
    parser.set_defaults(interrupted="")
    parser.add_argument("--version", action="version", version=f"snapshots {__version__}")
    parser.add_argument("--config", metavar="FILE", help="configuration (default: $SNAPSHOTS_CONFIG or snapshots.yaml)")
    groups = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    export = described(groups, "export", "create, list, verify and delete snapshots")
    commands = export.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _create(described(commands, "create", "export a database, or resume an unfinished snapshot"))
    _list(described(commands, "list", "list the snapshots at or below a location"))
    _verify(described(commands, "verify", "check a snapshot and name every fault"))
    _delete(described(commands, "delete", "delete a snapshot and everything it wrote"))
    _diff(described(commands, "diff", "show what changed from one version to another"))
    _import(described(groups, "import", "restore a snapshot into a database, or resume an interrupted import"))
    add_tag(described(groups, "tag", "name sealed revisions; a tagged revision stays readable"))
    add_savepoint(described(groups, "savepoint", "compact a snapshot and keep it under a number"))
    _catalog(described(groups, "catalog", "inspect and maintain a location's log and storage"))
    return parser


def _create(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what, by a plan of the configuration or ad hoc")
    what.add_argument("--plan", metavar="NAME", help="a plan of the configuration")
    what.add_argument(
        "--source", metavar="S", help="alias, or postgresql://…, duckdb:///abs/path.duckdb, spark:<catalog>"
    )
    what.add_argument("--to", metavar="URI", help="location: s3://bucket/prefix, file:///abs/path, …")
    what.add_argument("--name", help="name of an ad-hoc plan (default: last segment of the location)")
    what.add_argument("--catalog", help="catalog name recorded in the manifest")
    what.add_argument("--schemas", type=_schemas, metavar="a,b", help="schemas (default: all)")
    what.add_argument(
        "--tables",
        type=_tables,
        metavar="s.t,…",
        help="tables (default: all); quote a name that contains a dot, comma or quote as in SQL: "
        """'"my.schema"."my ""t"" table"'""",
    )
    what.add_argument("--start-time", metavar="T", help=f"range start, {_RANGE} (default: earliest row)")
    what.add_argument("--end-time", metavar="T", help="range end, exclusive (default: now)")
    what.add_argument("--chunk-time-window", metavar="D", help="window length: 90m, 6h, 1d (default), 7d, …")
    what.add_argument("--format", help="parquet (default)")
    what.add_argument("--schema-only", action="store_true", default=None, help="no data")
    how = parser.add_argument_group("how")
    how.add_argument("--parallelism", type=int, metavar="N", help="chunks exported in parallel (default: 1)")
    how.add_argument("--max-file-size", metavar="SIZE", help="256MB (default); units B kB MB GB TB, multiplier 1024")
    how.add_argument("--force", action="store_true", help="start a new snapshot in place of the existing one")
    how.add_argument("--replace", metavar="START/END", help="export completed windows in this range again")
    as_json(parser)
    parser.set_defaults(run=command("export.create"), interrupted="run the same command again to resume the snapshot")


def _list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--location", required=True, metavar="URI", help="a location, or a folder one or two levels above several"
    )
    as_json(parser)
    parser.set_defaults(run=command("export.list_"))


def _verify(parser: argparse.ArgumentParser) -> None:
    snapshot(parser)
    parser.add_argument("--at", metavar="VERSION", help=f"{VERSIONS} (default: head)")
    parser.add_argument(
        "--depth", choices=("quick", "full"), default="full", help="quick reads no data (default: full)"
    )
    as_json(parser)
    parser.set_defaults(run=command("export.verify"))


def _delete(parser: argparse.ArgumentParser) -> None:
    snapshot(parser)
    yes(parser)
    parser.add_argument("--with-tags", action="store_true", help="also if tags or savepoints pin it")
    as_json(parser)
    parser.set_defaults(run=command("export.delete"), interrupted="run the same command again to finish the deletion")


def _diff(parser: argparse.ArgumentParser) -> None:
    snapshot(parser)
    parser.add_argument("--from", dest="first", required=True, metavar="VERSION", help=VERSIONS)
    parser.add_argument("--to", dest="second", required=True, metavar="VERSION", help=VERSIONS)
    as_json(parser)
    parser.set_defaults(run=command("export.diff"))


def _import(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what, by a plan of the configuration or ad hoc")
    what.add_argument("--plan", metavar="NAME", help="a plan of the configuration that has a target")
    what.add_argument("--from", dest="location", metavar="URI", help="the snapshot's location")
    what.add_argument(
        "--target", metavar="T", help="alias, or postgresql://…, duckdb:///abs/path.duckdb, spark:<catalog>"
    )
    what.add_argument("--at", metavar="VERSION", help=f"{VERSIONS} (default: newest seal)")
    what.add_argument("--schemas", type=_schemas, metavar="a,b", default=[], help="schemas (default: all)")
    what.add_argument("--tables", type=_tables, metavar="s.t,…", default=[], help="tables (default: all)")
    what.add_argument(
        "--time-range", metavar="START/END", help=f"rows of timed tables in this half-open range only; each {_RANGE}"
    )
    how = parser.add_argument_group("how")
    how.add_argument("--parallelism", type=int, metavar="N", help="chunks restored in parallel (default: 1)")
    how.add_argument("--dry-run", action="store_true", help="verify everything and print the plan; change nothing")
    how.add_argument(
        "--replace", action="store_true", help="delete and reload chunks that changed in the snapshot since"
    )
    how.add_argument(
        "--into-nonempty",
        action="store_true",
        help="load into tables that contain other rows: equal rows are then duplicated, or violate keys",
    )
    how.add_argument(
        "--no-expressions",
        action="store_true",
        help="run no SQL text of the snapshot: omit defaults, checks, generated columns and views",
    )
    how.add_argument(
        "--forget-ledger",
        action="store_true",
        help="only delete the target's records of imports, and their tags; tables stay",
    )
    as_json(parser)
    parser.set_defaults(run=command("import_"), interrupted="run the same command again to resume the import")


def _catalog(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    log = described(commands, "log", "list revisions, newest first: what changed, when and by whom")
    log.add_argument("--limit", type=count, metavar="N", help="most revisions to list (default: all)")
    log.add_argument("--since", type=count, default=1, metavar="REV", help="this revision and later ones")
    _catalog_command(log, "log")
    show = described(commands, "show", "show a state: chunks, tables, tags, seals, and the size of the log")
    show.add_argument("--at", metavar="VERSION", help=f"{VERSIONS} (default: head)")
    show.add_argument("--files", action="store_true", help="list the data files too")
    _catalog_command(show, "show", "show_state")
    table = described(commands, "table", "show a metadata table, such as tags for Spark's $tags")
    table.add_argument("table", choices=("snapshots", "tags", "savepoints", "chunks", "files", "diff"))
    table.add_argument("--at", metavar="VERSION", help=f"of chunks, files and diff; {VERSIONS} (default: head)")
    table.add_argument("--since", metavar="VERSION", help="of diff: the first version")
    _catalog_command(table, "show", "table")
    checkpoint = described(commands, "checkpoint", "write a checkpoint of the newest state, to open it faster")
    single_writer(checkpoint)
    _catalog_command(checkpoint, "maintain", "checkpoint")
    _collecting(described(commands, "gc", "delete objects that no sealed revision, tag or writer needs"), "gc", "run")
    prune = described(commands, "prune", "delete the oldest part of the log, which a checkpoint contains")
    _collecting(prune, "maintain", "prune")
    add_expire(described(commands, "expire", "expire old sealed revisions, and tags past their retention"))
    _rollback(described(commands, "rollback", "restore the data of an older version as the newest state"))
    _tombstone(described(commands, "tombstone", "delete the rows of a predicate; older versions keep them"))
    _compact(described(commands, "compact", "merge small files, and rewrite files without deleted rows"))
    rebuild = described(commands, "rebuild", "rebuild a lost or damaged log, and report what is lost")
    rebuild.add_argument(
        "--accept-undeleted",
        action="store_true",
        help="accept that deleted rows and replaced chunks may come back",
    )
    rebuild.add_argument("--from-files", action="store_true", help="use data files in place of lost receipts")
    dry_run(rebuild, "print the plan, change nothing")
    single_writer(rebuild)
    _catalog_command(rebuild, "maintain", "rebuild")
    upgrade = described(commands, "upgrade", "raise the format version; older releases cannot read it then")
    upgrade.add_argument("--to", type=count, metavar="N", help="format version (default: the newest)")
    dry_run(upgrade, "print the plan, change nothing")
    single_writer(upgrade)
    _catalog_command(upgrade, "maintain", "upgrade")


def _catalog_command(parser: argparse.ArgumentParser, module: str, function: str = "run", **defaults: Any) -> None:
    snapshot(parser)
    as_json(parser)
    parser.set_defaults(run=command(f"catalog.{module}", function), **defaults)


def _collecting(parser: argparse.ArgumentParser, module: str, function: str) -> None:
    parser.add_argument(
        "--grace", metavar="D", help="delete only objects older than this: 24h, 7d, … (default: the plan's grace)"
    )
    parser.add_argument(
        "--unsafe", action="store_true", help="accept a shorter grace than the plan's: no writer may be active"
    )
    dry_run(parser, "list what would be deleted, change nothing")
    single_writer(parser)
    yes(parser)
    _catalog_command(parser, module, function, interrupted="run the same command again to finish")


def _rollback(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("version", metavar="VERSION", help=VERSIONS)
    parser.add_argument("--undelete", action="store_true", help="also if deleted rows come back")
    parser.add_argument("--discard-newer", action="store_true", help="also expire all newer revisions")
    dry_run(parser, "print what would change, change nothing")
    single_writer(parser)
    yes(parser)
    _catalog_command(parser, "rollback")


def _tombstone(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--table", required=True, metavar="s.t", help="the table")
    parser.add_argument(
        "--where",
        required=True,
        metavar="PREDICATE",
        help="""which rows: "level < 3 and (name = 'x' or name is null)"; = != < <= > >= in, is null, and, or, not""",
    )
    dry_run(parser, "list the files that may contain such rows, change nothing")
    single_writer(parser)
    yes(parser)
    _catalog_command(parser, "tombstone")


def _compact(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--table",
        type=_tables,
        default=[],
        metavar="s.t,…",
        help="compact only these tables, whole (default: what needs it)",
    )
    parser.add_argument(
        "--chunk",
        type=_chunks,
        default=[],
        metavar="N,…",
        help="compact only these chunks, whole (default: those that need it)",
    )
    parser.add_argument("--target-size", metavar="SIZE", help="size of a merged file (default: 256MB)")
    parser.add_argument(
        "--dedupe", choices=("primary_key",), default="", help="keep only the newest of the rows with one primary key"
    )
    dry_run(parser, "list what would be merged, change nothing")
    single_writer(parser)
    _catalog_command(parser, "compact", interrupted="run the same command again to resume")


def _chunks(text: str) -> list[int]:
    numbers = text.split(",")
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of chunk ids such as 1,2")
    return [int(number) for number in numbers]


def _tables(text: str) -> list[str]:
    """Split at commas outside quotes."""
    names = [name.strip() for name in _NAME.findall(text)]
    if not names or "" in names:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of names such as a,b")
    return names


def _schemas(text: str) -> list[str]:
    """Split as `_tables` does, and remove the quotes."""
    names = _tables(text)
    return [name[1:-1].replace('""', '"') if _QUOTED.fullmatch(name) else name for name in names]
