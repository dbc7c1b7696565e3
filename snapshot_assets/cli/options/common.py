"""Options that all or many commands have, and the examples at the end of each command's help."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

from snapshot_assets.cli.options.examples import EXAMPLES

_WIDTH = 78
_LONG = (
    "export create",
    "export verify",
    "export delete",
    "import",
    "copy",
    "replicate",
    "savepoint create",
    "catalog compact",
    "catalog gc",
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
    if command in EXAMPLES:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        examples = "\n".join(("examples:", *(f"  snapshots {each}" for each in EXAMPLES[command])))
        parser.epilog = f"{examples}\n\n{textwrap.fill(parser.epilog or '', _WIDTH)}".rstrip()
