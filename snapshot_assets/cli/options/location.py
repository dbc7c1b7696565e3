"""The options that name a command's location: `--plan NAME` or `--snapshot URI`. Importing it imports nothing heavy."""

from __future__ import annotations

import argparse
from typing import Any

LOCATION_VARIABLE = "SNAPSHOTS_LOCATION"
"""Names the location of calls that give no option for it."""

_PLAN = "a plan of the configuration: its location, with its storage options"
_SNAPSHOT = "the snapshot's location"


def add_location_options(
    parser: argparse._ActionsContainer, *names: str, plan: str = _PLAN, snapshot: str = _SNAPSHOT
) -> None:
    """Add the options of a command that takes a location; `cli.location` resolves them.

    Args:
        parser: The command's parser, or a group of its options.
        *names: Other names of `--snapshot` that this command has, such as `--to`.
        plan: Help of `--plan`.
        snapshot: Help of `--snapshot`.
    """
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--plan", metavar="NAME", help=plan)
    help_ = f"{snapshot} (default: ${LOCATION_VARIABLE})"
    where.add_argument(*names, "--snapshot", dest="snapshot", action=_OneLocation, metavar="URI", help=help_)


class _OneLocation(argparse.Action):
    """Stores the location; a second one, perhaps by another name of the option, is refused."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        given = getattr(namespace, self.dest)
        if given not in (None, values):
            parser.error(f"{option} {values} names a second location, after {given}; name one")
        setattr(namespace, self.dest, values)
