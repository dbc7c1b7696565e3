"""Completes the commands and names of fields in messages, so that they can be pasted.

Commands get the location as the call named it, and fields of a plan are named as its options: `--start-time` in place
of `start_time`.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Mapping
from typing import Any

_COMMANDS = (
    *(f"catalog {name}" for name in ("checkpoint", "extend-locks", "promote", "rebuild", "recover", "repair")),
    *(f"export {name}" for name in ("create", "delete", "verify")),
    "compare",
    "copy",
    "sign",
    *(f"tag {name}" for name in ("release", "replace")),
)
"""Commands that remedies name without a location, and that act on the location of the call."""
_OF_PLANS = ("compare", "copy")
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
    plan, uri, run = (getattr(options, name, None) for name in ("plan", "snapshot", "run"))
    if not (plan or uri) or run is None or run.runs.startswith(_OF_SEVERAL):
        return text
    where = f"--plan {shlex.quote(plan)}" if plan else f"--snapshot {shlex.quote(str(uri))}"

    def completed(found: re.Match[str]) -> str:
        if _LOCATION.search(f"{found['rest']} ") or (found["command"] in _OF_PLANS and not plan):
            return found[0]
        config = f"--config {shlex.quote(options.config)} " if options.config else ""
        return f"`snapshots {config}{found['command']}{found['rest']} {where}`"

    return _NAMED.sub(completed, text)


_LISTED = r"(?:(?<=\n  )|(?<=: )|(?<=; ))(?:{names})(?=: | is )"
"""A field at the beginning of a mistake, or of one of several differences."""
_ANYWHERE = r"(?<![\w.`'\"/-])(?:{names})(?![\w`'\"/-])(?P<flag>: true)?"
"""A name with an underscore is a field's, unless it is quoted or a part of a path or name: those are a user's."""


def with_options(message: str, options: argparse.Namespace) -> str:
    """Return the message of an error with the options of a call in place of the plan's fields.

    Args:
        message: The message.
        options: The call. `options.spelling` has its options by the names of its arguments.
    """
    if getattr(options, "plan", None) is not None:
        return message
    spelling = spelling_of(options)
    pairs = {_ANYWHERE: [name for name in spelling if "_" in name], _LISTED: list(spelling)}

    def option(found: re.Match[str]) -> str:
        return spelling[found[0].removesuffix(": true")]

    for pattern, names in pairs.items():
        if names:
            message = re.sub(pattern.format(names="|".join(names)), option, message)
    return message


def spelling_of(options: argparse.Namespace) -> Mapping[str, str]:
    """Return the options of a call by the plan's fields that they give."""
    from snapshot_assets.plan.plan import Plan  # only here, because most calls need no plan

    known: dict[str, str] = getattr(options, "spelling", {})
    found = {field: option for field, option in known.items() if field in Plan.model_fields}
    given: dict[str, Any] = getattr(options, "format_options", None) or {}
    if given:
        found["format_options"] = " and ".join(f"--{name}" for name in given)
    return found
