"""Tags: names for sealed revisions, which keep these revisions readable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from snapshot_assets.catalog.catalog import Catalog, Prepare
from snapshot_assets.catalog.pins.objects import (
    NO_OBJECT,
    ChangedMeanwhileError,
    commit_pin,
    delete_pin,
    ttl_text,
    write_pin,
)
from snapshot_assets.catalog.rules import refuse_deleted, refuse_upgraded
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import TagState
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.errors import ConflictError, PlanError, TagExistsError
from snapshot_assets.format import actions as act
from snapshot_assets.format.names import check_tag_name
from snapshot_assets.format.units import parse_duration, time_text


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
    """Pin a sealed revision under a name. If an equal tag exists, return that one.

    Args:
        catalog: The location, opened for writing.
        name: A letter or `_`, then letters, digits, `_ . -`; at most 100 characters.
        revision: The revision to pin.
        ttl: Its time to live, whole seconds from now; None to keep it until it is deleted.
        automatic: Whether a rule creates it, and may delete it.

    Raises:
        PlanError: The name or the time to live is invalid.
        TagExistsError: The name is taken by another revision, time to live or kind.
        VersionNotFoundError: The revision is not sealed, or has expired.
        ConflictError: Writing took longer than half the grace period; run again.
        NoSnapshotError: There is no snapshot.
        LocationDeletedError: The snapshot was deleted.
        SupersededError: The location was upgraded meanwhile.
    """
    wanted = act.TagCreated(check_tag_name(name), revision, NO_OBJECT, catalog.now(), _checked_ttl(ttl), automatic)
    catalog.refresh()
    known = _adoptable(catalog.require_snapshot(), wanted)
    if known is not None:
        return Tag(known, new=False)
    version = catalog.state.format_version
    created = write_pin(catalog, wanted, version)
    committed = commit_pin(catalog, created.object, _create(created, version), wanted.created_at)
    if committed is None:
        return Tag(catalog.state.tags[name], new=False)
    return Tag(TagState(created, catalog.writer_id, committed, version), new=True)


def rename_tag(catalog: Catalog, name: str, new_name: str) -> Tag:
    """Rename a tag in one transaction; it keeps its revision, time of creation and time to live.

    Args:
        catalog: The location, opened for writing.
        name: The tag.
        new_name: Another name, as for `create_tag`. If it is the tag's own name, nothing is committed.

    Raises:
        PlanError: The new name is invalid.
        VersionNotFoundError: There is no such tag.
        TagExistsError: The new name is taken.
        NoSnapshotError: There is no snapshot.
        LocationDeletedError: The snapshot was deleted.
        SupersededError: The location was upgraded meanwhile.
    """
    check_tag_name(new_name)
    catalog.refresh()
    known = known_tag(catalog.require_snapshot(), name)
    if new_name == name:
        return Tag(known, new=False)

    def renamed(known: TagState) -> act.TagCreated:
        return replace(known.tag, name=new_name, automatic=False)  # rules must not delete a tag that a user named

    return _supersede(catalog, name, renamed, lambda tag: act.TagRenamed(name, tag))


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

    Args:
        catalog: The location, opened for writing.
        name: The tag.
        revision: The revision to pin.
        ttl: Its time to live, whole seconds from now; None to keep it until it is deleted.
        automatic: Whether a rule creates it, and may delete it.
        known: The tag to replace; None for whatever has the name.

    Raises:
        PlanError: The time to live is invalid.
        ConflictError: Another writer changed the tag `known`.
        VersionNotFoundError: There is no such tag, or the revision is not sealed or has expired.
        NoSnapshotError: There is no snapshot.
        LocationDeletedError: The snapshot was deleted.
        SupersededError: The location was upgraded meanwhile.
    """
    wanted = act.TagCreated(name, revision, NO_OBJECT, catalog.now(), _checked_ttl(ttl), automatic)
    catalog.refresh()
    catalog.require_snapshot()
    return _supersede(catalog, name, lambda _: wanted, act.TagReplaced, only=known)


def delete_tag(catalog: Catalog, name: str) -> bool:
    """Delete the tag of a name; see `delete_pin`.

    Returns:
        Whether there was such a tag, and this call deleted it.
    """
    return delete_pin(catalog, catalog.refresh().tags.get(name))


def known_tag(state: State, name: str) -> TagState:
    """Return a tag.

    Raises:
        VersionNotFoundError: There is no tag of that name; the error names similar ones.
    """
    resolve_version(f"tag:{name}", state)
    return state.tags[name]


def _checked_ttl(ttl: timedelta | None) -> timedelta | None:
    if ttl is None:
        return None
    if not parse_duration(ttl):
        raise PlanError("A tag's time to live is at least 1s; leave it out for a tag that lives until it is deleted.")
    return ttl


def _create(created: act.TagCreated, version: int) -> Prepare:
    def prepare(state: State) -> Sequence[act.Action] | None:
        refuse_deleted(state)
        refuse_upgraded(state, version)
        return None if _adoptable(state, created) else [created]

    return prepare


def _adoptable(state: State, wanted: act.TagCreated) -> TagState | None:
    """Return the tag if exactly this one exists, None if it can be created.

    Another snapshot may have begun since the writer read the state; sealed revisions are kept.
    """
    known = state.tags.get(wanted.name)
    if known is None:
        resolve_version(f"rev:{wanted.revision}", state)
        return None
    tag = known.tag
    if (tag.revision, tag.ttl, tag.automatic) != (wanted.revision, wanted.ttl, wanted.automatic):
        _refuse_taken(
            tag,
            f", and asked for is {_pinned(wanted)}. Choose another name, or let that tag pin this from now on: "
            f"`snapshots tag replace {tag.name} --at rev:{wanted.revision}`.",
        )
    return known


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


def _supersede(
    catalog: Catalog,
    name: str,
    successor: Callable[[TagState], act.TagCreated],
    action: Callable[[act.TagCreated], act.Action],
    only: TagState | None = None,
) -> Tag:
    """Replace a tag by another one, and delete the old object after the commit.

    If another writer changed the old tag meanwhile, start again from the changed one; refuse it if it is not `only`.
    """
    while True:
        known = known_tag(catalog.state, name)
        if only not in (None, known):
            raise ConflictError(f"Tag {name!r} was changed by another writer meanwhile; nothing was replaced.")
        wanted, version = successor(known), catalog.state.format_version
        _check_successor(catalog.state, known, wanted)
        since, created = catalog.now(), write_pin(catalog, wanted, version)
        put = _put_in_place(known, created, version, action(created))
        try:
            committed = commit_pin(catalog, created.object, put, since)
        except ChangedMeanwhileError:
            continue
        assert committed is not None
        catalog.store.delete(known.tag.object.path)
        return Tag(TagState(created, catalog.writer_id, committed, version), new=True)


def _put_in_place(known: TagState, created: act.TagCreated, version: int, action: act.Action) -> Prepare:
    def prepare(state: State) -> Sequence[act.Action]:
        refuse_deleted(state)
        refuse_upgraded(state, version)
        name = known.tag.name
        _check_successor(state, known_tag(state, name), created)
        if state.tags[name] != known:
            raise ChangedMeanwhileError(f"Tag {name!r} was changed by another writer meanwhile.")
        return [action]

    return prepare


def _check_successor(state: State, known: TagState, wanted: act.TagCreated) -> None:
    """Refuse a name that another tag has, and a revision that cannot be read."""
    if wanted.name != known.tag.name and wanted.name in state.tags:
        _refuse_taken(
            state.tags[wanted.name].tag,
            f", so that tag {known.tag.name!r} cannot be renamed to it. Choose another name, or delete tag "
            f"{wanted.name!r} first.",
        )
    resolve_version(f"rev:{wanted.revision}", state)
