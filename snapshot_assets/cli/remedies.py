"""Completes the commands that messages name, so that they can be pasted: they get the location as the call named it."""

from __future__ import annotations

import argparse
import re
import shlex

_COMMANDS = (
    *(f"catalog {name}" for name in ("checkpoint", "promote", "rebuild", "repair")),
    *(f"export {name}" for name in ("create", "delete", "verify")),
    "copy",
    *(f"tag {name}" for name in ("release", "replace")),
)
"""Commands that remedies name without a location, and that act on the location of the call."""
_OF_PLANS = ("copy",)
"""Those that need more than the location, such as a query, which a plan has."""
_NAMED = re.compile(rf"`snapshots (?P<command>{'|'.join(_COMMANDS)})(?P<rest>(?: [^`\n]*)?)`")
_LOCATION = re.compile(r" --(?:plan|snapshot|to) ")
_OF_SEVERAL = ("replicate:", "export.snapshots:list_")
"""Commands that have several locations, so that a message may mean any of them."""


def with_location(text: str, options: argparse.Namespace) -> str:
    """Return a text whose commands name the location and the configuration that a call names by options.

    Args:
        text: The text. A command stands between backticks.
        options: The call; one that has not been parsed, or finds its location elsewhere, adds nothing.
    """
    where, run = _location_of(options), getattr(options, "run", None)
    if not where or run is None or run.runs.startswith(_OF_SEVERAL):
        return text

    def completed(found: re.Match[str]) -> str:
        if _LOCATION.search(f"{found['rest']} ") or (found["command"] in _OF_PLANS and not where.startswith("--plan")):
            return found[0]
        config = f"--config {shlex.quote(options.config)} " if options.config else ""
        return f"`snapshots {config}{found['command']}{found['rest']} {where}`"

    return _NAMED.sub(completed, text)


def _location_of(options: argparse.Namespace) -> str:
    """Return the option of a call that names its location; "" if the environment does."""
    if getattr(options, "plan", None):
        return f"--plan {shlex.quote(options.plan)}"
    uri = getattr(options, "snapshot", None)
    return f"--snapshot {shlex.quote(uri)}" if uri else ""
