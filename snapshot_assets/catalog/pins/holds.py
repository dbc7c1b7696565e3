"""Legal holds: `snapshots tag hold` and `snapshots tag release`.

A held tag stays as it is, and its revision readable, whatever rules, deletions and rebuilds do. The tag's object
records the hold too, so that it survives the loss of the log.
"""

from __future__ import annotations

import unicodedata

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins.tags import Tag, known_tag, supersede
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import held_text, refuse_held
from snapshot_assets.errors import ConflictError, PlanError
from snapshot_assets.format import actions as act

_LONGEST = 1000
_FORBIDDEN = ("Cc", "Cs")
"""Unicode categories of control characters, such as line ends, and of lone surrogates, which UTF-8 lacks."""


def hold_tag(catalog: Catalog, name: str, reason: str, by: str | None = None) -> Tag:
    """Put a tag under legal hold. If it is held for the same reason and by the same person, return it as it is.

    Args:
        catalog: The location, opened for writing.
        name: The tag.
        reason: Why.
        by: Who; None for the writer, as the log names it.

    Raises:
        PlanError: The reason or the person is empty, too long, or has control characters.
        VersionNotFoundError: There is no such tag.
        TagHeldError: It is held for another reason, or by somebody else.
    """
    note = _note(catalog, reason, by)

    def held(state: State) -> act.TagCreated | None:
        known = state.tags[name]
        if (hold := known.hold) is not None and hold.reason == note.reason and (by is None or hold.by == note.by):
            return None
        refuse_held([known])
        return known.pin

    return supersede(catalog, name, held, lambda tag: act.TagHeld(tag, note), hold=note)


def release_tag(catalog: Catalog, name: str, reason: str, by: str | None = None) -> Tag:
    """End the legal hold on a tag; the tag stays until a rule or somebody deletes it.

    Args:
        catalog: The location, opened for writing.
        name: The tag.
        reason: Why.
        by: Who; None for the writer, as the log names it.

    Raises:
        PlanError: The tag is not held, or an argument is invalid as for `hold_tag`.
        ConflictError: Another writer changed the hold meanwhile.
        VersionNotFoundError: There is no such tag.
    """
    note = _note(catalog, reason, by)
    hold = known_tag(catalog.refresh(), name).hold

    def released(state: State) -> act.TagCreated:
        known = state.tags[name]
        if known.hold is None:
            raise PlanError(f"Tag {name!r} is not held; nothing was changed.")
        if known.hold != hold:
            raise ConflictError(f"Another writer changed the hold meanwhile: {held_text(known)}; nothing was changed.")
        return known.pin

    return supersede(catalog, name, released, lambda tag: act.TagReleased(tag, note))


def _note(catalog: Catalog, reason: str, by: str | None) -> act.HoldNote:
    person = catalog.writer_id if by is None else _checked(by, "--by")
    return act.HoldNote(catalog.now(), person, _checked(reason, "--reason"))


def _checked(text: str, option: str) -> str:
    """Return a text without the white space around it, if it is one line that can be stored."""
    text = text.strip()
    if not text:
        raise PlanError(f"{option} is empty; write a text, which the log keeps.")
    if len(text) > _LONGEST:
        raise PlanError(f"{option} has {len(text):,} characters; write at most {_LONGEST:,}.")
    for character in text:
        if unicodedata.category(character) in _FORBIDDEN:
            raise PlanError(f"{option} contains the control character {character!r}; write one line of text.")
    return text
