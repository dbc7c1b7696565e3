"""Options of the commands that read or write rows, as `export create`, `copy` and `import`, and types of option values.

Importing it imports nothing heavy.
"""

from __future__ import annotations

import argparse
import os
import re
from typing import Any

from snapshot_assets.cli.options.common import location, signers

VERSIONS = "rev:12, tag:name, savepoint:3|latest|earliest, ts:2025-01-31 or ts:2025-01-31T12:00:00Z"
"""Values of options that name a version."""

_NAME = re.compile(r'(?:"(?:[^"]|"")*"|[^",]|"(?!.*"))+', re.DOTALL)
_QUOTED = re.compile(r'"(?:[^"]|"")+"')
_ENTRY = re.compile(r'(.+)=("(?:[^"]|"")+"|[^="]+)', re.DOTALL)
_RANGE = "2025-01-31, or RFC 3339 with a zone, such as 2025-01-31T12:00:00Z"
_VARIABLES = "with variables as ${NAME}"
_DATABASES = f"alias, or postgresql://…, mysql://…, duckdb:///abs/path.duckdb, spark:<catalog>, {_VARIABLES}"
_TARGETS = f"alias, or postgresql://…, mysql://…, duckdb:///abs/path.duckdb, {_VARIABLES} (default: the plan's)"

_QUOTING = """quote a name that contains a dot, comma or quote as in SQL: '"my.schema"."my ""t"" table"'"""
_EXCLUDED = "tables and views to leave out: public.audit, public.tmp_*, …"


class DatabaseOption(argparse.Action):
    """An option that takes a database: an alias, or a URI whose references `${NAME}` are replaced by variables."""

    def __call__(
        self, _parser: object, namespace: argparse.Namespace, values: object, option: str | None = None
    ) -> None:
        """Store the database with its references replaced.

        Raises:
            PlanError: A variable is not set, or a reference names none.
        """
        from snapshot_assets.plan.yaml_text import resolved_option  # heavy

        setattr(namespace, self.dest, resolved_option(str(option), str(values), os.environ))


def _plan(parser: argparse._ActionsContainer, *, with_tables: bool = True) -> None:
    """Add the options that name or describe what is exported; `--tables` may mean something else."""
    what = parser.add_argument_group("what, by a plan of the configuration or ad hoc")
    where = "location: s3://bucket/prefix, file:///abs/path, …"
    location("--to", plan="a plan of the configuration", snapshot=where)(what)
    what.add_argument("--source", action=DatabaseOption, metavar="S", help=_DATABASES)
    what.add_argument("--name", help="name of an ad-hoc plan (default: last segment of the location)")
    what.add_argument("--catalog", help="catalog name recorded in the manifest")
    what.add_argument("--schemas", type=names, metavar="a,b", help="schemas (default: all)")
    if with_tables:
        what.add_argument("--tables", type=tables, metavar="s.t,…", help=f"tables (default: all); {_QUOTING}")
    what.add_argument("--exclude-tables", type=tables, metavar="PATTERN,…", help=_EXCLUDED)
    time = "time index of a table, or null to export it untimed; may be given for several"
    what.add_argument(
        "--time-column", dest="time_columns", action=_Entries, type=time_column, metavar="s.t=c", help=time
    )
    carrier = "how a column's values travel: native, or as the database's own text; may be given for several"
    what.add_argument("--carrier", dest="carriers", action=_Entries, type=entry, metavar="s.t.c=text", help=carrier)
    what.add_argument("--start-time", metavar="T", help=f"range start, {_RANGE} (default: earliest row)")
    what.add_argument("--end-time", metavar="T", help="range end, exclusive (default: now)")
    what.add_argument("--chunk-time-window", metavar="D", help="window length: 90m, 6h, 1d (default), 7d, …")
    what.add_argument("--format", help="parquet (default), csv or json (one object a line)")
    format_options(what)
    what.add_argument("--schema-only", action="store_true", default=None, help="no data")
    skip = "leave PostgreSQL's large objects out"
    what.add_argument(
        "--skip-large-objects", dest="large_objects", action="store_const", const="skip", default=None, help=skip
    )


def changed(parser: argparse._ActionsContainer) -> None:
    """Add the options of `snapshots export changed`."""
    _plan(parser)
    parser.set_defaults(force=False, replace=None, changed=False)
    status = "exit with 3 if anything changed"
    parser.add_argument("--check", action="store_true", help=status)


def compare(parser: argparse._ActionsContainer) -> None:
    """Add the options of `snapshots compare`."""
    _plan(parser, with_tables=False)
    parser.set_defaults(force=False, replace=None, changed=False)
    which = parser.add_argument_group("what is compared")
    text = f"only these tables (default: all of the snapshot); {_QUOTING}"
    which.add_argument("--at", metavar="VERSION", help=f"{VERSIONS} (default: head)")
    which.add_argument("--tables", dest="compared", type=tables, default=[], metavar="s.t,…", help=text)
    windows = f"only windows that overlap this range, without untimed tables; each {_RANGE}"
    which.add_argument("--time-range", metavar="START/END", help=windows)
    sample = "compare this share of the tables of windows, another part each day: with 5%%, daily runs compare all"
    which.add_argument("--sample", metavar="SHARE", help=f"{sample} within 39 days")


def create(parser: argparse._ActionsContainer) -> None:
    """Add the options of `snapshots export create`."""
    _plan(parser)
    how = parser.add_argument_group("how")
    parallelism = "chunks exported in parallel (default: Spark's cores, at most 8)"
    how.add_argument("--parallelism", type=int, metavar="N", help=parallelism)
    how.add_argument("--max-file-size", metavar="SIZE", help="256MiB (default); units B KiB MiB GiB TiB")
    outside = "fail, before anything is written, if the source has rows outside the range"
    how.add_argument("--fail-on-rows-outside", action="store_true", default=None, help=outside)
    how.add_argument("--force", action="store_true", help="start a new snapshot in place of the existing one")
    how.add_argument("--replace", metavar="START/END", help="export completed windows in this range again")
    again = "export again the tables of completed windows, and untimed tables, whose rows changed in the source"
    how.add_argument("--changed", action="store_true", help=again)


def copy(parser: argparse._ActionsContainer) -> None:
    """Add the options of `snapshots copy`."""
    what = parser.add_argument_group("what, by a plan of the configuration or ad hoc")
    what.add_argument("query", nargs="?", metavar="QUERY", help="schema.table, or SQL that reads, without ORDER BY")
    where = "an empty location; {now:%%Y%%m%%dT%%H%%M%%SZ}, {date}, {plan} and {run_id} are filled in"
    location("--to", plan="a plan of kind: query of the configuration", snapshot=where)(what)
    what.add_argument("--source", action=DatabaseOption, metavar="S", help=_DATABASES)
    what.add_argument("--name", help="name of the copy (default: last segment of the location)")
    what.add_argument("--start-time", metavar="T", help=f"start of the windows of :start and :end, {_RANGE}")
    what.add_argument("--end-time", metavar="T", help="end of the windows, exclusive (default: the last closed one)")
    what.add_argument("--chunk-time-window", metavar="D", help="window length: 90m, 6h, 1d (default), 7d, …")
    what.add_argument("--format", help="parquet (default), csv or json (one object a line)")
    format_options(what)
    how = parser.add_argument_group("how")
    how.add_argument("--max-file-size", metavar="SIZE", help="256MiB (default); units B KiB MiB GiB TiB")
    how.add_argument("--split-by", metavar="COLUMN", help="several tasks read ranges of this column of the query")
    folders = "divide the files among Hive folders, such as country=DE, by the values of these columns"
    how.add_argument("--partition-by", type=names, metavar="a,b", help=folders)
    single = "write all rows to one file of up to 4GiB, and print its path"
    how.add_argument("--single-file", action="store_true", default=None, help=single)
    lists = "write a list of the files that this database loads; may be given for each"
    how.add_argument("--manifest", action="append", metavar="redshift|snowflake", help=lists)
    how.add_argument("--overwrite", action="store_true", help="delete the copy that is there first")


def format_options(group: argparse._ArgumentGroup) -> None:
    """Add the options of csv and json files, which become one field of the plan."""
    group.set_defaults(format_options=None)
    options = {
        "--compression": ("C", "of csv and json: none (default), gzip or zstd"),
        "--delimiter": ("CHAR", "of csv: what separates values (default: ,)"),
        "--quote": ("CHAR", 'of csv: quotation mark (default: ")'),
        "--escape": ("CHAR", "of csv: what precedes a quotation mark in a quoted value (default: that of --quote)"),
        "--null": ("TEXT", "of csv: what stands for NULL, unquoted (default: nothing)"),
    }
    for name, (metavar, text) in options.items():
        group.add_argument(name, metavar=metavar, help=text, action=_FormatOption, dest="format_options")
    group.add_argument(
        "--header",
        help="of csv: the first line of each file names the columns",
        action=_FormatOption,
        dest="format_options",
        nargs=0,
    )


class _Entries(argparse.Action):
    """Collects pairs of a name and a value; a name that is given twice is refused."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: object) -> None:
        given, (name, value) = getattr(namespace, self.dest) or {}, values
        if name in given:
            parser.error(f"{self.option_strings[0]} names {name} twice; name it once")
        setattr(namespace, self.dest, {**given, name: value})


def entry(text: str) -> tuple[str, str]:
    """Split at the last equals sign that no quotes enclose."""
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a name, =, and a value")
    return match[1], match[2]


def time_column(text: str) -> tuple[str, str | None]:
    """Split at the equals sign; `null` means no column, and a quoted name is a column's."""
    name, value = entry(text)
    return name, None if value == "null" else unquoted(value)


class _FormatOption(argparse.Action):
    """Collects the options that were given, by name."""

    def __call__(
        self, _parser: object, namespace: argparse.Namespace, values: object, option: str | None = None
    ) -> None:
        given = getattr(namespace, self.dest) or {}
        values = "\t" if values == r"\t" else values  # a shell passes the two characters on
        setattr(namespace, self.dest, given | {str(option).lstrip("-"): True if values == [] else values})


def depth(parser: argparse._ActionsContainer) -> None:
    """Add the options of how deeply a snapshot is verified."""
    how = parser.add_mutually_exclusive_group()
    text = "quick reads no data (default: full)"
    how.add_argument("--depth", choices=("quick", "full"), default="full", help=text)
    sample = "hash this share of the data files, another part each day: with 5%%, daily runs read all within 39 days"
    how.add_argument("--sample", metavar="SHARE", help=sample)


def sign(parser: argparse._ActionsContainer) -> None:
    """Add the options of `snapshots sign`."""
    key = "a key, as signing.key names it: a path, or agent (default: signing.key)"
    parser.add_argument("--key", metavar="KEY", help=key)
    parser.add_argument("--all", action="store_true", help="sign all readable sealed revisions")
    again = "after a rebuild: sign again all readable sealed revisions whose statements the log contradicts"
    parser.add_argument("--again", action="store_true", help=again)
    records = "sign the records of verifications and comparisons, too"
    parser.add_argument("--records", action="store_true", help=records)
    statement = "write an in-toto statement about the newest seal, signed in a DSSE envelope, to this file"
    parser.add_argument("--attestation", metavar="FILE", help=statement)


def import_(parser: argparse._ActionsContainer) -> None:
    """Add the options of `snapshots import`."""
    what = parser.add_argument_group("what, by a plan of the configuration or ad hoc")
    location("--from", plan="a plan of the configuration: its location, target and new names")(what)
    what.add_argument("--target", action=DatabaseOption, metavar="T", help=_TARGETS)
    what.add_argument("--at", metavar="VERSION", help=f"{VERSIONS} (default: newest seal)")
    what.add_argument("--schemas", type=names, metavar="a,b", default=[], help="schemas (default: all)")
    what.add_argument("--tables", type=tables, metavar="s.t,…", default=[], help="tables (default: all)")
    excluded = f"{_EXCLUDED} May be given later, for tables that could not be loaded"
    what.add_argument("--exclude-tables", type=tables, metavar="PATTERN,…", default=[], help=excluded)
    rows = f"rows of timed tables in this half-open range only; each {_RANGE}"
    what.add_argument("--time-range", metavar="START/END", help=rows)
    renamed = {"--map-schema": ("OLD=NEW", "a schema"), "--map-table": ("s.t=s.u", "a table or view")}
    for name, (metavar, what_it_is) in renamed.items():
        text = f"restore {what_it_is} under another name; may be given several times"
        what.add_argument(name, action="append", default=[], metavar=metavar, help=text)
    how = parser.add_argument_group("how")
    signers(how)
    parallelism = "chunks restored in parallel (default: Spark's cores, at most 8)"
    how.add_argument("--parallelism", type=int, metavar="N", help=parallelism)
    flags = {
        "--dry-run": "print what the import would do, change nothing. PostgreSQL rehearses the schema in a transaction"
        " that is rolled back: functions of the target that its defaults, checks, indexes and views call may run",
        "--verify-first": "hash the whole snapshot before the first row is loaded",
        "--keep-going": "leave out the windows of tables whose files are damaged, restore all else, and exit with 3",
        "--replace": "delete and reload chunks that changed in the snapshot since",
        "--into-nonempty": "load into tables that contain other rows: equal rows are then duplicated, or violate keys",
        "--no-expressions": "run no SQL text of the snapshot: omit defaults, checks, generated columns and views; may"
        " be given later, for what could not be made",
        "--with-code": "also create functions, triggers, rules, policies and other code of the snapshot: SQL that runs",
        "--forget-ledger": "only delete the target's records of imports, and their tags; tables stay",
    }
    for name, text in flags.items():
        how.add_argument(name, action="store_true", help=text)


def count(text: str) -> int:
    """Parse a whole number from 1 up."""
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def chunks(text: str) -> list[int]:
    """Parse chunk ids between commas."""
    numbers = text.split(",")
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of chunk ids such as 1,2")
    return [int(number) for number in numbers]


def tables(text: str) -> list[str]:
    """Split at commas outside quotes."""
    names = [name.strip() for name in _NAME.findall(text)]
    if not names or "" in names:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of names such as a,b")
    return names


def names(text: str) -> list[str]:
    """Split as `tables` does, and remove the quotes."""
    return [unquoted(name) for name in tables(text)]


def unquoted(name: str) -> str:
    """Return a name without its double quotes, if it has them."""
    return name[1:-1].replace('""', '"') if _QUOTED.fullmatch(name) else name


def query(parser: argparse._ActionsContainer) -> None:
    """Add the options of `sql`."""
    parser.add_argument("query", nargs="?", metavar="QUERY", help="one SELECT of DuckDB's SQL (default: type them)")
    parser.add_argument("-f", "--file", metavar="FILE", help="file with the query; - reads stdin")
    several = "repeat it with names for several, as in --at new= --at old=tag:a, where new.public.orders is a table"
    at = f"{VERSIONS} (default: newest seal); {several}"
    parser.add_argument("--at", metavar="[NAME=]VERSION", action="append", default=[], help=at)
    kinds = "write all rows, json as one object a line (default: show the first 1,000 in a table)"
    parser.add_argument("--format", choices=("csv", "json", "parquet"), help=kinds)
    parser.add_argument("-o", "--output", metavar="FILE", help="file for the rows (default: stdout)")
    verify = "read files without hashing them first: only what the query needs is fetched"
    parser.add_argument("--no-verify", dest="verify", action="store_false", help=verify)
    views = "print views by which DuckDB alone reads the snapshot's files, unverified"
    parser.add_argument("--print", action="store_true", help=views)
