"""The location of a plan of kind `query`, which may have names in braces, such as `{date}`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from string import Formatter
from typing import Any

from snapshot_assets.errors import PlanError
from snapshot_assets.storage.location import parse_location

_VALUES = ("now", "date", "plan", "run_id")
_DATE = "%Y-%m-%d"
_MOMENT = "%Y%m%dT%H%M%SZ"


def resolve_location(template: str, *, now: datetime, plan: str, run_id: str) -> str:
    """Return a location with values in place of `{now:%Y%m%dT%H%M%SZ}`, `{date}`, `{plan}` and `{run_id}`.

    Args:
        template: The plan's location.
        now: The start of the run, in UTC.
        plan: The plan's name.
        run_id: The run.

    Raises:
        PlanError: A name is unknown, or a brace has no partner.
    """
    values: Mapping[str, Any] = {"now": now, "date": format(now, _DATE), "plan": plan, "run_id": run_id}
    parts = []
    for text, name, spec, conversion in _fields(template):
        parts.append(text)
        if name is None:
            continue
        if name not in _VALUES or conversion or (spec and name != "now"):
            written = f"{{{name}{'!' + conversion if conversion else ''}{':' + spec if spec else ''}}}"
            raise PlanError(
                f"{template!r}: {written} is unknown; known are {{now:{_MOMENT}}}, {{date}}, {{plan}} and {{run_id}}"
            )
        parts.append(format(values[name], spec or (_MOMENT if name == "now" else "")))
    return "".join(parts)


def check_location(template: str) -> None:
    """Check a location, or a template of one.

    Raises:
        PlanError: See `resolve_location`.
        LocationUriError: It is no location.
    """
    parse_location(resolve_location(template, now=datetime(2013, 1, 1, tzinfo=UTC), plan="plan", run_id="run"))


def is_template(location: str) -> bool:
    """Return whether a location has names in braces."""
    return any(name is not None for _, name, _, _ in _fields(location))


def changes_with_time(location: str) -> bool:
    """Return whether each run of a plan has another location."""
    return any(name in ("now", "date", "run_id") for _, name, _, _ in _fields(location))


def _fields(template: str) -> list[tuple[str, str | None, str | None, str | None]]:
    try:
        return list(Formatter().parse(template))
    except ValueError as error:
        raise PlanError(f"{template!r}: {error}; write {{{{ and }}}} for braces") from None
