"""Names the fields of a plan in errors as the call wrote them: `--start-time` in place of `start_time`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import Any

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
    for pattern, names in pairs.items():
        if names:
            message = re.sub(pattern.format(names="|".join(names)), lambda found: _option(found, spelling), message)
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


def _option(found: re.Match[str], spelling: Mapping[str, str]) -> str:
    return spelling[found[0].removesuffix(": true")]
