"""Names of versions: `rev:12`, `tag:x`, `savepoint:3`, `ts:2025-01-31T00:00:00Z`, or the same without its prefix.

Only sealed revisions can be read. An expired revision can be read while a tag or savepoint pins it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import PlanError, VersionNotFoundError
from snapshot_assets.format.units import counted, noun, parse_given_time, time_text

_LOG = logging.getLogger(__name__)
_SHOWN = 10
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}.*")
_ENDS = {"earliest": min, "latest": max}


def resolve_version(text: str, state: State) -> int:
    """Return the sealed revision of a version.

    Bare digits are a revision, a date or an RFC 3339 time is a timestamp, anything else a tag. `savepoint:` takes an
    id, `earliest` or `latest`. A timestamp means the newest readable revision that was sealed by then; a warning names
    it if a later one has expired.

    Raises:
        VersionNotFoundError: The version does not exist, is not sealed, or has expired. Names what exists.
        PlanError: Its number or time is none.
    """
    kind, _, name = text.partition(":") if text.startswith(("rev:", "tag:", "savepoint:")) else ("", "", text)
    if text.startswith("ts:") or (not kind and _TIME.fullmatch(text)):
        return _at_time(text.removeprefix("ts:"), state)
    if kind == "rev" or (not kind and text.isdecimal()):
        return _at_revision(name, state)
    if kind == "savepoint":
        savepoints = state.pins.savepoints
        number = _ENDS[name](savepoints, default=0) if name in _ENDS else int(name) if name.isdecimal() else 0
        if number in savepoints:
            return savepoints[number].pin.revision
        others = _first("savepoints", map(str, sorted(savepoints)))
        raise VersionNotFoundError(f"There is no savepoint {name!r}; {others}{_sealed_text(state)}", version=name)
    if name in state.tags:
        return state.tags[name].pin.revision
    near = tuple(get_close_matches(name, state.tags))
    tags = _first("tags", map(repr, sorted(state.tags)))
    if near:
        tags = f"did you mean {' or '.join(map(repr, near))}? "
    raise VersionNotFoundError(f"There is no tag {name!r}; {tags}{_sealed_text(state)}", version=name, near=near)


def version_to_pin(text: str | None, state: State) -> int:
    """Return the sealed revision of a version; for None, the newest seal of the snapshot. See `resolve_version`."""
    if text is not None:
        return resolve_version(text, state)
    if state.newest_seal is None:
        raise VersionNotFoundError(
            "The snapshot has no seal yet, so there is nothing to pin. Export what is missing, which seals it, or name "
            f"an older version; {_sealed_text(state)}",
        )
    return state.newest_seal.revision


def _first(things: str, names: Iterable[str]) -> str:
    """Return a sentence part with the first of some names, "" without names."""
    first = list(islice(names, _SHOWN + 1))
    more = ", …" if len(first) > _SHOWN else ""
    return f"{things} are {', '.join(first[:_SHOWN])}{more}; " if first else ""


def _at_revision(digits: str, state: State) -> int:
    if not digits.isdecimal():
        raise PlanError(f"'rev:{digits}' is no version: write a number, such as rev:12; {_sealed_text(state)}")
    revision = int(digits)
    readable = [seal.revision for seal in state.readable()]
    if revision in readable:
        return revision
    if revision in state.expired:
        reason = "has expired, and no tag or savepoint pins it"
    elif state.expired and revision < max(readable, default=0):
        reason = "is not sealed, or expired long ago"
    else:
        reason = "is not sealed"
    raise VersionNotFoundError(f"Revision {digits} {reason}; {_sealed_text(state)}", version=digits)


def _at_time(text: str, state: State) -> int:
    moment = parse_given_time(text)
    by_then = [seal for seal in state.readable() if seal.committed_at <= moment]
    if not by_then:
        nothing = "Nothing that can still be read" if state.expired else "Nothing"
        raise VersionNotFoundError(f"{nothing} was sealed by {time_text(moment)}; {_sealed_text(state)}", version=text)
    taken = by_then[-1]
    if taken.committed_at == moment:
        return taken.revision
    # Warn if a later revision was sealed by then, as far as is known, and can no longer be read.
    times = {seal.revision: seal.committed_at for seal in state.seals}
    following = min((each.revision for each in state.readable() if each.committed_at > moment), default=state.revision)
    expired = state.expired - state.pins.revisions()
    if any(taken.revision < each < following and times.get(each, moment) <= moment for each in expired):
        _LOG.warning(
            "%s means revision %d, sealed at %s: what was sealed between these times has expired.",
            text,
            taken.revision,
            time_text(taken.committed_at),
        )
    return taken.revision


def _sealed_text(state: State) -> str:
    seals = state.readable()
    if not seals:
        return "nothing was sealed yet."
    first, last = (f"{seal.revision} ({time_text(seal.committed_at)})" for seal in (seals[0], seals[-1]))
    which = first if len(seals) == 1 else f"from {first} to {last}"
    return f"sealed {noun(len(seals), 'is', 'are')} {counted(len(seals), 'revision')}, {which}."
