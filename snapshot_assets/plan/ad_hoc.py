"""A plan made from the arguments of a call, beside those of `snapshots.yaml`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from snapshot_assets.plan.configuration import Configuration
from snapshot_assets.plan.file_parts import Needed
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.read_configuration import load_configuration
from snapshot_assets.plan.rules import NAME
from snapshot_assets.storage.location import parse_location

_FILLED_IN = "~"
"""Stands for a name in braces in a location."""
_LONGEST_NAME = 100


def ad_hoc_configuration(path: str | os.PathLike[str] | None, fields: Mapping[str, Any]) -> Configuration:
    """Return the configuration with one plan, made from a call's arguments.

    Of the file's sources, only those that the call uses need the variables that they refer to.

    Args:
        path: The configuration file; None as in `load_configuration`.
        fields: Fields of the plan. The default `name` is the last segment of its location.

    Raises:
        PlanError: The file or a field is wrong.
        LocationUriError: `to` is not a valid location.
    """
    named = {"name": plan_name(fields["to"])} | dict(fields) if "to" in fields else fields
    plan = Plan(**named)
    used = [each.alias for each in (plan.source, plan.target) if each is not None and each.uri is None]
    return load_configuration(path, needed=Needed(aliases=used)).with_plan(plan)


def plan_name(to: str) -> str:
    """Return the last segment of a location as a plan's name, which starts with a letter."""
    written = parse_location(re.sub(r"\{[^{}]*\}", _FILLED_IN, to)).segments
    segments = [segment for segment in written if _FILLED_IN not in segment]
    name = re.sub(r"[^A-Za-z0-9_]", "_", segments[-1] if segments else "copy")[:_LONGEST_NAME]
    return name if NAME.fullmatch(name) else f"plan_{name}"[:_LONGEST_NAME]
