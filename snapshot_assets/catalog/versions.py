"""Names of versions: `rev:12`, `tag:x`, `savepoint:3`, `ts:2025-01-31T00:00:00Z`, or a bare one of them."""

from __future__ import annotations

import re
from difflib import get_close_matches

from snapshot_assets.catalog.state import State
from snapshot_assets.errors import PlanError, VersionNotFoundError
from snapshot_assets.format.units import parse_time, time_text

_SHOWN = 10
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ].*")


def resolve_version(text: str, state: State) -> int:
    """Return the sealed revision that a version means.

    Args:
        text: Bare digits are a revision, an RFC 3339 time a timestamp, anything else a tag.
        state: The head's state.

    Raises:
        VersionNotFoundError: There is no such version, or it is not sealed; says what there is.
    """
    kind, _, name = text.rpartition(":") if text.startswith(("rev:", "tag:", "savepoint:")) else ("", "", text)
    if text.startswith("ts:") or (not kind and _TIME.fullmatch(text)):
        return _at_time(text.removeprefix("ts:"), state)
    if kind == "rev" or (not kind and text.isdecimal()):
        return _at_revision(name, state)
    if kind == "savepoint":
        raise VersionNotFoundError(f"There is no savepoint {name!r}; {_what_there_is(state)}", version=text)
    return _of_tag(name, state)


def _of_tag(name: str, state: State) -> int:
    known = state.tags.get(name)
    if known is not None:
        return known.tag.revision
    near = tuple(get_close_matches(name, state.tags))
    raise VersionNotFoundError(
        f"There is no tag {name!r}; {_other_tags(near, state)}{_what_there_is(state)}", version=name, near=near
    )


def _other_tags(near: tuple[str, ...], state: State) -> str:
    if near:
        return f"did you mean {' or '.join(map(repr, near))}? "
    if state.tags:
        more = ", …" if len(state.tags) > _SHOWN else ""
        return f"tags are {', '.join(map(repr, sorted(state.tags)[:_SHOWN]))}{more}; "
    return ""


def _at_revision(digits: str, state: State) -> int:
    if not digits.isdecimal():
        raise VersionNotFoundError(
            f"'rev:{digits}' is no version: write a number, such as rev:12; {_what_there_is(state)}", version=digits
        )
    sealed = [seal.revision for seal in state.readable()]
    if int(digits) not in sealed:
        raise VersionNotFoundError(f"Revision {digits} is not sealed; {_what_there_is(state)}", version=digits)
    return int(digits)


def _at_time(text: str, state: State) -> int:
    try:
        moment = parse_time(text)
    except PlanError as cause:
        raise VersionNotFoundError(str(cause), version=text) from cause
    sealed = [seal.revision for seal in state.seals if seal.committed_at <= moment]
    if not sealed:
        raise VersionNotFoundError(f"Nothing was sealed by {time_text(moment)}; {_what_there_is(state)}", version=text)
    return max(sealed)


def _what_there_is(state: State) -> str:
    if not state.seals:
        return "nothing was sealed yet."
    first, last = (f"{each.revision} ({time_text(each.committed_at)})" for each in (state.seals[0], state.seals[-1]))
    if len(state.seals) == 1:
        return f"sealed is 1 revision, {first}."
    return f"sealed are {len(state.seals)} revisions, from {first} to {last}."
