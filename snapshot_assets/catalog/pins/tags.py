"""Tags: names for sealed revisions, which keep these revisions readable; and legal holds on them.

A held tag stays as it is, and its revision readable, whatever rules, deletions and rebuilds do. The tag's object
records the hold too, so that it survives the loss of the log.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.pins.automatic import TagRule, due
from snapshot_assets.catalog.pins.legal_holds import end_holds, holding_bucket, set_holds
from snapshot_assets.catalog.pins.objects import NO_OBJECT, create_pin, delete_pin, ttl_text
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import TagState, held_text, refuse_held
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.errors import ConflictError, PlanError, TagExistsError
from snapshot_assets.format import actions as act
from snapshot_assets.format.names import check_tag_name
from snapshot_assets.format.units import parse_duration, time_text
from snapshot_assets.storage.base import delete_unless_retained


@dataclass(frozen=True)
class Tag:
    """A tag that was created, renamed or replaced.

    Attributes:
        known: The tag as the log has it.
        new: Whether this call committed it; False if exactly this tag existed.
    """

    known: TagState
    new: bool


def create_tag(
    catalog: Catalog, name: str, revision: int, ttl: timedelta | None = None, *, automatic: bool = False
) -> Tag:
    """Pin a sealed revision under a name. If an equal tag exists, return that one; see `create_pin`.

    The time to live is in whole seconds from now; None keeps the tag until it is deleted. Rules may delete `automatic`
    tags.

    Raises:
        PlanError: The name or the time to live is invalid.
        TagExistsError: The name is taken by another revision, time to live or kind.
        VersionNotFoundError: The revision is not sealed, or has expired.
    """
    wanted = act.TagCreated(check_tag_name(name), revision, NO_OBJECT, catalog.now(), _check_ttl(ttl), automatic)

    def on(state: State) -> act.TagCreated | None:
        known = state.tags.get(name)
        if known is None:
            # Another snapshot may have begun since the writer read the state; sealed revisions are kept.
            resolve_version(f"rev:{revision}", state)
            return wanted
        tag = known.pin
        if (tag.revision, tag.ttl, tag.automatic) != (revision, wanted.ttl, automatic):
            _refuse_taken(
                tag,
                f", and asked for is {_pinned(wanted)}. Choose another name, or let that tag pin this from now on: "
                f"`snapshots tag replace {name} --at rev:{revision}`.",
            )
        return None

    made = create_pin(catalog, on)
    return Tag(made or catalog.state.tags[name], new=made is not None)


def create_due_tag(catalog: Catalog, rule: TagRule) -> bool:
    """Create the tag that a rule has due; returns whether one was."""
    wanted = due(catalog.require_snapshot(), catalog.now(), tag=rule).tag
    if wanted is None:
        return False
    create_tag(catalog, wanted.name, wanted.revision, wanted.ttl, automatic=True)
    catalog.refresh()
    return True


def rename_tag(catalog: Catalog, name: str, new_name: str) -> Tag:
    """Rename a tag in one transaction; it keeps its revision, time of creation and time to live.

    Raises:
        PlanError: The new name is invalid.
        TagHeldError: The tag is held.
        VersionNotFoundError: There is no such tag.
        TagExistsError: The new name is taken.
    """
    check_tag_name(new_name)

    def renamed(state: State) -> act.TagCreated:
        refuse_held([state.tags[name]])
        if new_name == name and name in state.tags:
            raise TagExistsError(f"Tag {name!r} has that name already; nothing was changed.", name=name)
        if new_name in state.tags:
            _refuse_taken(
                state.tags[new_name].pin,
                f", so that tag {name!r} cannot be renamed to it. Choose another name, or delete tag {new_name!r} "
                "first.",
            )
        return replace(state.tags[name].pin, name=new_name, automatic=False)  # rules must not delete it from now on

    return supersede(catalog, name, renamed, partial(act.TagRenamed, name))


def replace_tag(
    catalog: Catalog,
    name: str,
    revision: int,
    ttl: timedelta | None = None,
    *,
    automatic: bool = False,
    known: TagState | None = None,
) -> Tag:
    """Let a tag pin another revision, or give it another time to live, in one transaction. It counts as created now.

    `known` is the tag to replace; None for whatever has the name.

    Raises:
        PlanError: The time to live is invalid.
        TagHeldError: The tag is held.
        ConflictError: Another writer changed the tag `known`.
        VersionNotFoundError: There is no such tag, or the revision is not sealed or has expired.
    """
    wanted = act.TagCreated(name, revision, NO_OBJECT, catalog.now(), _check_ttl(ttl), automatic)

    def replaced(state: State) -> act.TagCreated:
        refuse_held([state.tags[name]])
        if known not in (None, state.tags[name]):
            raise ConflictError(f"Tag {name!r} was changed by another writer meanwhile; nothing was replaced.")
        resolve_version(f"rev:{revision}", state)
        return wanted

    return supersede(catalog, name, replaced, act.TagReplaced)


def delete_tag(catalog: Catalog, name: str) -> bool:
    """Delete a tag, and return whether this call deleted it; see `delete_pin`.

    Raises:
        TagHeldError: The tag is held.
    """
    return delete_pin(catalog, catalog.refresh().tags.get(name))


def known_tag(state: State, name: str) -> TagState:
    """Return a tag.

    Raises:
        VersionNotFoundError: There is no tag of that name; the error names similar ones.
    """
    resolve_version(f"tag:{name}", state)
    return state.tags[name]


def _check_ttl(ttl: timedelta | None) -> timedelta | None:
    if ttl is not None and not parse_duration(ttl):
        raise PlanError("A tag's time to live is at least 1s; leave it out for a tag that lives until it is deleted.")
    return ttl


def _refuse_taken(tag: act.TagCreated, otherwise: str) -> None:
    raise TagExistsError(
        f"Tag {tag.name!r} is there already: it pins {_pinned(tag)} since {time_text(tag.created_at)}{otherwise}",
        name=tag.name,
        revision=tag.revision,
    )


def _pinned(tag: act.TagCreated) -> str:
    ttl = ttl_text(tag.ttl)
    life = f"for {ttl}" if ttl else "without time to live"
    return f"revision {tag.revision} {life}{', made by a rule' * tag.automatic}"


def supersede(
    catalog: Catalog,
    name: str,
    successor: Callable[[State], act.TagCreated | None],
    action: Callable[[act.TagCreated], act.Action],
    *,
    hold: act.HoldNote | None = None,
) -> Tag:
    """Replace a tag by another one, and delete the old object after the commit.

    `successor` returns the new tag for a head, without its object; None if nothing is to be committed. `action` returns
    the action that names it, and that puts `hold` on it.

    Raises:
        VersionNotFoundError: There is no such tag.
    """
    superseded: list[TagState] = []

    def wanted(state: State) -> act.TagCreated | None:
        superseded.append(known_tag(state, name))
        return successor(state)

    made = create_pin(catalog, wanted, action, hold)
    if made is None:
        return Tag(superseded[-1], new=False)
    delete_unless_retained(catalog.store, superseded[-1].pin.object.path)
    return Tag(made, new=True)


_LONGEST = 1000
_FORBIDDEN = ("Cc", "Cs")
"""Unicode categories of control characters, such as line ends, and of lone surrogates, which UTF-8 lacks."""


def hold_tag(catalog: Catalog, name: str, reason: str, by: str | None = None) -> Tag:
    """Put a tag under legal hold. If it is held for the same reason and by the same person, return it as it is.

    With the storage option `lock.legal_holds`, the store holds what the tag needs, too.

    `by` is who; None for the writer, as the log names it.

    Raises:
        PlanError: The reason or the person is empty, too long, or has control characters.
        VersionNotFoundError: There is no such tag.
        TagHeldError: It is held for another reason, or by somebody else.
        StorageError: The tag is held, but not all of its objects; call again.
    """
    note, bucket = _note(catalog, reason, by), holding_bucket(catalog.store)

    def held(state: State) -> act.TagCreated | None:
        known = state.tags[name]
        if (hold := known.hold) is not None and hold.reason == note.reason and (by is None or hold.by == note.by):
            return None
        refuse_held([known])
        return known.pin

    tag = supersede(catalog, name, held, lambda tag: act.TagHeld(tag, note), hold=note)
    if bucket is not None:
        set_holds(catalog.store, bucket, catalog.refresh(), tag.known)
    return tag


def release_tag(catalog: Catalog, name: str, reason: str, by: str | None = None) -> Tag:
    """End the legal hold on a tag; the tag stays until a rule or somebody deletes it.

    Raises:
        PlanError: The tag is not held, or an argument is invalid as for `hold_tag`.
        ConflictError: Another writer changed the hold meanwhile.
        VersionNotFoundError: There is no such tag.
        StorageError: The tag is still held, but not all of its objects; call again.
    """
    note, bucket = _note(catalog, reason, by), holding_bucket(catalog.store)
    before = known_tag(catalog.refresh(), name)
    hold = before.hold
    if bucket is not None and hold is not None:
        end_holds(catalog.store, bucket, catalog.state, before)

    def released(state: State) -> act.TagCreated:
        known = state.tags[name]
        if known.hold is None:
            raise PlanError(f"Tag {name!r} is not held; nothing was changed.")
        if known.hold != hold:
            raise ConflictError(f"Another writer changed the hold meanwhile: {held_text(known)}; nothing was changed.")
        return known.pin

    return supersede(catalog, name, released, lambda tag: act.TagReleased(tag, note))


def _note(catalog: Catalog, reason: str, by: str | None) -> act.HoldNote:
    person = catalog.writer_id if by is None else _check_line(by, "--by")
    return act.HoldNote(catalog.now(), person, _check_line(reason, "--reason"))


def _check_line(text: str, option: str) -> str:
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
