"""Tags: names for sealed revisions, which stay readable for as long as a tag names them; see `pin_objects`."""

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
    tag_document,
    ttl_text,
    write_pin,
)
from snapshot_assets.catalog.rules import refuse_deleted, refuse_upgraded
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.pins import TagState
from snapshot_assets.catalog.state.versions import resolve_version
from snapshot_assets.errors import PlanError, TagExistsError
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import new_attempt, tag_path
from snapshot_assets.format.names import check_tag_name
from snapshot_assets.format.units import parse_duration, time_text

__all__ = ["Tag", "create_tag", "delete_tag", "rename_tag", "replace_tag", "tag_document"]


@dataclass(frozen=True)
class Tag:
    """What creating, renaming or replacing a tag gave.

    Attributes:
        known: The tag as the log has it.
        new: Whether this call committed it; False if exactly this tag was there.
    """

    known: TagState
    new: bool


def create_tag(
    catalog: Catalog, name: str, revision: int, ttl: timedelta | None = None, *, automatic: bool = False
) -> Tag:
    """Pin a sealed revision under a name; a tag that is there and equal is adopted.

    Args:
        catalog: The location, opened for writing.
        name: A letter or `_`, then letters, digits, `_ . -`; at most 100 characters.
        revision: The revision to pin.
        ttl: Its time to live, whole seconds from now; None for ever.
        automatic: Whether a rule makes it, and may delete it.

    Raises:
        PlanError: The name or the time to live is none.
        TagExistsError: The name is taken by another revision, time to live or kind.
        VersionNotFoundError: The revision is not sealed, or has expired.
        ConflictError: Half a grace period went by since; run again.
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
    created = _write_object(catalog, wanted, version)
    committed = commit_pin(catalog, created.object, _create(created, version), wanted.created_at)
    if committed is None:
        return Tag(catalog.state.tags[name], new=False)
    return Tag(TagState(created, catalog.writer_id, committed, version), new=True)


def rename_tag(catalog: Catalog, name: str, new_name: str) -> Tag:
    """Give a tag another name, in one transaction; it keeps its revision, time of creation and time to live.

    Args:
        catalog: The location, opened for writing.
        name: The tag.
        new_name: As for `create_tag`; the tag's own name changes nothing.

    Raises:
        PlanError: The new name is none.
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
        return replace(known.tag, name=new_name, automatic=False)  # a name given by hand is no rule's to delete

    return _supersede(catalog, name, renamed, lambda tag: act.TagRenamed(name, tag))


def replace_tag(
    catalog: Catalog, name: str, revision: int, ttl: timedelta | None = None, *, automatic: bool = False
) -> Tag:
    """Let a tag pin another revision, or live for another time, in one transaction; its time of creation is now.

    Args:
        catalog: The location, opened for writing.
        name: The tag.
        revision: The revision to pin from here on.
        ttl: Its time to live, whole seconds from now; None for ever.
        automatic: Whether a rule makes it, and may delete it.

    Raises:
        PlanError: The time to live is none.
        VersionNotFoundError: There is no such tag, or the revision is not sealed or has expired.
        NoSnapshotError: There is no snapshot.
        LocationDeletedError: The snapshot was deleted.
        SupersededError: The location was upgraded meanwhile.
    """
    wanted = act.TagCreated(name, revision, NO_OBJECT, catalog.now(), _checked_ttl(ttl), automatic)
    catalog.refresh()
    catalog.require_snapshot()
    return _supersede(catalog, name, lambda _: wanted, act.TagReplaced)


def delete_tag(catalog: Catalog, name: str) -> bool:
    """Delete the tag of a name; see `delete_pin`.

    Returns:
        Whether there was such a tag, and this call deleted it.
    """
    return delete_pin(catalog, catalog.refresh().tags.get(name))


def known_tag(state: State, name: str) -> TagState:
    """Return a tag.

    Raises:
        VersionNotFoundError: There is none of that name; says which are near.
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
    """Return the tag if exactly this one is there, None if it can be created.

    The snapshot that was begun last may be another than the writer saw: sealed revisions outlive it.
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
) -> Tag:
    """Put a tag in the place of one that is there; the old object goes when the new one is committed.

    Where others changed the old one meanwhile, it is planned anew on what they left.
    """
    while True:
        known = known_tag(catalog.state, name)
        wanted, version = successor(known), catalog.state.format_version
        _check_successor(catalog.state, known, wanted)
        since, created = catalog.now(), _write_object(catalog, wanted, version)
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


def _write_object(catalog: Catalog, wanted: act.TagCreated, version: int) -> act.TagCreated:
    """Write the object and return the tag with it."""
    path = tag_path(wanted.name, new_attempt())
    ref = write_pin(
        catalog, path, wanted.revision, lambda manifest: tag_document(wanted, catalog.writer_id, version, manifest)
    )
    return replace(wanted, object=ref)
