"""Options that all or many commands have, those that name a location, and the examples at the end of each help.

Importing it imports nothing heavy. A test parses every example.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable
from importlib import import_module
from typing import Any

LOCATION_VARIABLE = "SNAPSHOTS_LOCATION"
"""Names the location of calls that give no option for it."""

_PLAN = "a plan of the configuration: its location, with its storage options"
_SNAPSHOT = "the snapshot's location"


Option = Callable[[argparse._ActionsContainer], object]
"""Adds an option to a command's parser, or to a group of its options."""


class Command:
    """A command.

    Attributes:
        runs: The module below `snapshot_assets.cli` and its function, such as `pins:rename`.
        text: Its help.
        options: Its options in the order of its help, without those of all commands.
    """

    def __init__(self, runs: str, text: str, *options: Option) -> None:
        self.runs, self.text, self.options = runs, text, options

    def __call__(self, options: argparse.Namespace) -> int:
        """Run the command; its module is imported only now."""
        module, function = self.runs.split(":")
        status: int = getattr(import_module(f"snapshot_assets.cli.{module}"), function)(options)
        return status


def option(name: str, metavar: str | None, text: str | None, **settings: Any) -> Option:
    """Return what adds an option; the settings are those of `add_argument`."""
    return lambda parser: parser.add_argument(name, metavar=metavar, help=text, **settings)


def flag(name: str, text: str) -> Option:
    """Return what adds an option without a value."""
    return lambda parser: parser.add_argument(name, action="store_true", help=text)


def location(*names: str, plan: str = _PLAN, snapshot: str = _SNAPSHOT) -> Option:
    """Return what adds the options of a command that takes a location; `cli.location` resolves them.

    Args:
        *names: Other names of `--snapshot` that this command has, such as `--to`.
        plan: Help of `--plan`.
        snapshot: Help of `--snapshot`.
    """

    def add(parser: argparse._ActionsContainer) -> None:
        where = parser.add_mutually_exclusive_group()
        where.add_argument("--plan", metavar="NAME", help=plan)
        help_ = f"{snapshot} (default: ${LOCATION_VARIABLE})"
        where.add_argument(*names, "--snapshot", dest="snapshot", action=_OneLocation, metavar="URI", help=help_)

    return add


def signers(parser: argparse._ActionsContainer) -> None:
    """Add the options of a command that verifies signatures; `cli.location` reads them."""
    text = "require that the newest seal is signed by a key of this file, as `ssh-keygen -Y verify` reads it"
    parser.add_argument("--signed-by", metavar="FILE", help=f"{text} (default: signing.allowed_signers)")
    text = "keys that count no more: an OpenSSH KRL, or public keys (default: signing.revoked_keys)"
    parser.add_argument("--revoked-keys", metavar="FILE", help=text)


class _OneLocation(argparse.Action):
    """Stores the location; a second one, perhaps by another name of the option, is refused."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        given = getattr(namespace, self.dest)
        if given not in (None, values):
            parser.error(f"{option} {values} names a second location, after {given}; name one")
        setattr(namespace, self.dest, values)


_AT = "--plan shop"

EXAMPLES: dict[str, tuple[str, ...]] = {
    "init": (
        "init --source 'postgresql://reader:${SHOP_PASSWORD}@db/shop' --to s3://backups/shop",
        "init --source duckdb:///data/flights.duckdb --to file:///srv/snapshots/flights --output flights.yaml",
    ),
    "doctor": ("doctor", "doctor --plan shop --json", "doctor --source duckdb:///data/flights.duckdb --no-spark"),
    "warm-up": ("warm-up",),
    "plan show": ("plan show shop", "plan show shop --json"),
    "copy": (
        "copy public.orders --source shop --to s3://lake/orders",
        "copy 'SELECT * FROM orders WHERE total > 10' --source shop --to file:///tmp/orders --format csv --header",
    ),
    "export create": (
        "export create --plan shop",
        "export create --source shop --to s3://backups/shop --start-time 2025-01-01T00:00:00Z --chunk-time-window 7d",
        "export create --plan shop --replace 2025-01-31T00:00:00Z/2025-02-01T00:00:00Z",
        "export create --plan shop --changed",
    ),
    "export changed": (f"export changed {_AT}", f"export changed {_AT} --check --json"),
    "export list": ("export list --location s3://backups",),
    "export verify": (
        f"export verify {_AT}",
        f"export verify {_AT} --sample 5%",
        f"export verify {_AT} --signed-by allowed_signers",
        "export verify --snapshot s3://backups/shop --depth quick --json",
    ),
    "sql": (
        f"sql 'SELECT count(*) FROM public.orders' {_AT}",
        f"sql --file report.sql {_AT} --at tag:friday --format csv --output report.csv",
        f"sql 'FROM new.public.orders EXCEPT FROM old.public.orders' {_AT} --at new=tag:friday --at old=rev:12",
    ),
    "export delete": (f"export delete {_AT}", f"export delete {_AT} --yes --with-tags"),
    "export diff": (f"export diff {_AT} --from tag:january --to tag:february",),
    "compare": (
        f"compare {_AT}",
        f"compare {_AT} --sample 5%",
        f"compare {_AT} --tables public.orders --time-range 2025-01-01/2025-02-01 --json",
    ),
    "status": (
        f"status {_AT}",
        "status --snapshot s3://second/shop --max-age 26h",
        f"status {_AT} --format openmetrics",
    ),
    "sign": (f"sign {_AT}", "sign --snapshot s3://backups/shop --key ~/.ssh/seals --all --records"),
    "iceberg": (f"iceberg {_AT}", "iceberg --snapshot s3://backups/shop --tables public.orders --at tag:january"),
    "replicate": (
        f"replicate {_AT} --to s3://second/shop",
        f"replicate {_AT} --to file:///mnt/shop --only tag:january",
    ),
    "catalog promote": ("catalog promote --snapshot s3://second/shop",),
    "import": (
        "import --plan shop --dry-run",
        "import --from s3://backups/shop --target 'postgresql://owner@db/restored' --verify-first",
        "import --from s3://backups/shop --target duckdb:///tmp/shop.duckdb --at tag:january --tables public.orders",
    ),
    "tag create": (f"tag create january {_AT}", f"tag create audit {_AT} --at rev:12 --time-retained 365d"),
    "tag list": (f"tag list {_AT}",),
    "tag delete": (f"tag delete january {_AT} --dry-run",),
    "tag rename": (f"tag rename january january-2025 {_AT}",),
    "tag replace": (f"tag replace latest-good {_AT} --at rev:14",),
    "tag hold": (f"tag hold january {_AT} --reason 'case 2025/17' --by legal@example.com",),
    "tag release": (f"tag release january {_AT} --reason 'case 2025/17 is closed'",),
    "tag exists": (f"tag exists january {_AT}",),
    "savepoint create": (f"savepoint create {_AT}",),
    "savepoint list": (f"savepoint list {_AT}",),
    "savepoint delete": (f"savepoint delete 3 {_AT}",),
    "catalog log": (f"catalog log {_AT} --limit 10",),
    "catalog show": (f"catalog show {_AT}", f"catalog show {_AT} --at tag:january --files"),
    "catalog table": (f"catalog table files {_AT} --json", f"catalog table diff {_AT} --since rev:3"),
    "catalog checkpoint": (f"catalog checkpoint {_AT}",),
    "catalog gc": (f"catalog gc {_AT} --dry-run", f"catalog gc {_AT} --yes --grace 7d", f"catalog gc {_AT} --versions"),
    "catalog prune": (f"catalog prune {_AT} --dry-run",),
    "catalog expire": (
        "catalog expire --plan shop --dry-run",
        "catalog expire --snapshot s3://backups/shop --keep-daily 7 --keep-monthly 12 --yes",
    ),
    "catalog rollback": (f"catalog rollback tag:january {_AT}",),
    "catalog tombstone": (f"catalog tombstone {_AT} --table public.users --where \"email = 'a@example.com'\"",),
    "catalog compact": (f"catalog compact {_AT} --dry-run", f"catalog compact {_AT} --table public.orders"),
    "catalog extend-locks": (f"catalog extend-locks {_AT} --dry-run",),
    "catalog rebuild": (f"catalog rebuild {_AT} --dry-run",),
    "catalog recover": (
        f"catalog recover {_AT} --before 2025-01-31T00:00:00Z --dry-run",
        "catalog recover --snapshot s3://backups/shop --before 2025-01-31T00:00:00Z --to s3://clean/shop",
    ),
    "catalog repair": (f"catalog repair {_AT} --dry-run",),
    "catalog upgrade": (f"catalog upgrade {_AT} --dry-run",),
}
"""Examples by command, without the program's name, as a shell reads them."""


_WIDTH = 78
_LONG = (
    "export create",
    "export verify",
    "export delete",
    "import",
    "copy",
    "compare",
    "replicate",
    "savepoint create",
    "catalog compact",
    "catalog extend-locks",
    "catalog gc",
    "catalog recover",
)
"""Commands that show progress."""
_ALSO = {
    "import": "; also name each object that is not carried over, or would be made, in place of counts by kind",
}
"""What `--verbose` does in single commands."""


def add_common_options(parser: argparse.ArgumentParser, command: str | None = None) -> None:
    """Add the options of messages and progress, before or after the command's name, and its examples.

    Args:
        parser: The parser of a command, or of all.
        command: The command's name, such as `export create`; None for the parser of all, which has the defaults.
    """

    def add(*names: str, default: Any, **settings: Any) -> None:
        output.add_argument(*names, default=default if command is None else argparse.SUPPRESS, **settings)

    output = parser.add_argument_group("messages and progress, on stderr")
    more = "log more: what Spark's JVM, Dagster and libraries report too; -vv: every detail" + _ALSO.get(
        command or "", ""
    )
    add("-v", "--verbose", action="count", default=0, help=more)
    text = "messages and log as text (default), or as one JSON object a line"
    add("--log-format", choices=("text", "json"), default="text", help=text)
    if command is None or command in _LONG:
        text = "a bar on a terminal, else a line every 30 s (auto, the default); a JSON object every second; none"
        only = "; " + ", ".join(_LONG) + " have it" if command is None else ""
        add("--progress", choices=("auto", "json", "none"), default="auto", help=text + only)
        quiet = {"action": "store_const", "const": "none", "dest": "progress"}
        add("--no-progress", default="auto", help="the same as --progress none", **quiet)
        text = "write where the time went as a trace, which https://ui.perfetto.dev opens; -v logs the sums"
        add("--profile", default=None, metavar="FILE", help=text + only)
    if command in EXAMPLES:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        examples = "\n".join(("examples:", *(f"  snapshots {each}" for each in EXAMPLES[command])))
        parser.epilog = f"{examples}\n\n{textwrap.fill(parser.epilog or '', _WIDTH)}".rstrip()
