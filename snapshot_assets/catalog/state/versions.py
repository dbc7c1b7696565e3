"""Names of versions: `rev:12`, `tag:x`, `savepoint:3`, `ts:2025-01-31T00:00:00Z`, or a bare one of them.

Only sealed revisions can be read, and expired ones only while a tag or savepoint pins
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

from snapshot_assets.catalog.state.fold import SealState, State
from snapshot_assets.errors import PlanError, VersionNotFoundError
from snapshot_assets.format.units import parse_time, time_text

_SHOWN = 10
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}.*")
_ENDS = {"earliest": min, "latest": max}


def resolve_version(text: str, state: State) -> int:
    """Return the sealed revision that a version means.

    Args:
        text: Bare digits are a revision, an RFC 3339 time a timestamp, anything else a tag. `savepoint:` takes an id,
            `earliest` or `latest`. A timestamp means the newest revision not later than it that can be read.
        state: The head's state.

    Raises:
        VersionNotFoundError: There is no such version, it is not sealed, or it has expired; says what there is.
    """
    kind, _, name = text.partition(":") if text.startswith(("rev:", "tag:", "savepoint:")) else ("", "", text)
    if text.startswith("ts:") or (not kind and _TIME.fullmatch(text)):
        return _at_time(text.removeprefix("ts:"), state)
    if kind == "rev" or (not kind and text.isdecimal()):
        return _at_revision(name, state)
    if kind == "savepoint":
        return _of_savepoint(name, state)
    return _of_tag(name, state)


def version_to_pin(text: str | None, state: State) -> int:
    """Return the sealed revision that a version means, the newest seal of the snapshot for None.

    Raises:
        VersionNotFoundError: See `resolve_version`; or the snapshot has no seal yet.
    """
    if text is not None:
        return resolve_version(text, state)
    if state.newest_seal is None:
        raise VersionNotFoundError(
            "Nothing of the snapshot was sealed yet, so that there is nothing to pin. Export what is missing, which "
            f"seals it, or name an older version; {_what_there_is(state)}",
        )
    return state.newest_seal.revision


def _of_tag(name: str, state: State) -> int:
    known = state.tags.get(name)
    if known is not None:
        return known.tag.revision
    near = tuple(get_close_matches(name, state.tags))
    raise VersionNotFoundError(
        f"There is no tag {name!r}; {_other_tags(near, state)}{_what_there_is(state)}", version=name, near=near
    )


def _other_tags(near: tuple[str, ...], state: State) -> str:
    return f"did you mean {' or '.join(map(repr, near))}? " if near else _some("tags", map(repr, sorted(state.tags)))


def _of_savepoint(name: str, state: State) -> int:
    savepoints = state.pins.savepoints
    number = _ENDS[name](savepoints, default=0) if name in _ENDS else int(name) if name.isdecimal() else 0
    if number in savepoints:
        return savepoints[number].savepoint.revision
    there = _some("savepoints", map(str, sorted(savepoints)))
    raise VersionNotFoundError(f"There is no savepoint {name!r}; {there}{_what_there_is(state)}", version=name)


def _some(things: str, names: Iterable[str]) -> str:
    """Return which there are, the first of them by name; nothing if there are none."""
    first = list(islice(names, _SHOWN + 1))
    more = ", …" if len(first) > _SHOWN else ""
    return f"{things} are {', '.join(first[:_SHOWN])}{more}; " if first else ""


def _at_revision(digits: str, state: State) -> int:
    if not digits.isdecimal():
        raise VersionNotFoundError(
            f"'rev:{digits}' is no version: write a number, such as rev:12; {_what_there_is(state)}", version=digits
        )
    revision = int(digits)
    readable = [seal.revision for seal in state.readable()]
    if revision in readable:
        return revision
    if revision in state.expired:
        said = "has expired, and no tag or savepoint pins it"
    elif state.expired and revision < max(readable, default=0):
        said = "is not sealed, or expired long ago"
    else:
        said = "is not sealed"
    raise VersionNotFoundError(f"Revision {digits} {said}; {_what_there_is(state)}", version=digits)


def _at_time(text: str, state: State) -> int:
    try:
        moment = parse_time(text)
    except PlanError as cause:
        raise VersionNotFoundError(str(cause), version=text) from cause
    found = [seal.revision for seal in state.readable() if seal.committed_at <= moment]
    if found:
        return found[-1]
    left = "Nothing that can still be read" if state.expired else "Nothing"
    raise VersionNotFoundError(f"{left} was sealed by {time_text(moment)}; {_what_there_is(state)}", version=text)


def _what_there_is(state: State) -> str:
    seals = state.readable()
    if not seals:
        return "nothing was sealed yet."
    first, last = map(_of, (seals[0], seals[-1]))
    if len(seals) == 1:
        return f"sealed is 1 revision, {first}."
    return f"sealed are {len(seals)} revisions, from {first} to {last}."


def _of(seal: SealState) -> str:
    return f"{seal.revision} ({time_text(seal.committed_at)})"
