"""Tags: names for sealed revisions, which stay readable for as long as a tag names them.

The tag's object is written first, with the whole manifest of the revision; then the commit names it with its SHA-256.
The log decides what exists: an object that no transaction names is an orphan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from snapshot_assets.catalog.catalog import Catalog, Prepare
from snapshot_assets.catalog.manifest import manifest_of
from snapshot_assets.catalog.pin_set import TagState
from snapshot_assets.catalog.replay import read_state
from snapshot_assets.catalog.rules import refuse_deleted, refuse_upgraded
from snapshot_assets.catalog.state import State
from snapshot_assets.catalog.versions import resolve_version
from snapshot_assets.errors import (
    LocationDeletedError,
    PlanError,
    SupersededError,
    TagExistsError,
    VersionNotFoundError,
)
from snapshot_assets.format import actions as act
from snapshot_assets.format.checksums import sha256_hex
from snapshot_assets.format.documents import pretty_json
from snapshot_assets.format.layout import new_attempt, tag_path
from snapshot_assets.format.names import check_tag_name
from snapshot_assets.format.units import duration_text, parse_duration, time_text
from snapshot_assets.storage.create import create_own


@dataclass(frozen=True)
class Tag:
    """What creating a tag gave.

    Attributes:
        known: The tag as the log has it.
        new: Whether this call committed it; False if exactly this tag was there.
    """

    known: TagState
    new: bool


def create_tag(catalog: Catalog, name: str, revision: int, ttl: timedelta | None = None) -> Tag:
    """Pin a sealed revision under a name; a tag that is there and equal is adopted.

    Args:
        catalog: The location, opened for writing.
        name: A letter or `_`, then letters, digits, `_ . -`; at most 100 characters.
        revision: The revision to pin.
        ttl: Its time to live, whole seconds from now; None for ever.

    Raises:
        PlanError: The name or the time to live is none.
        TagExistsError: The name is taken by another revision or time to live.
        VersionNotFoundError: The revision is not sealed.
        NoSnapshotError: There is no snapshot.
        LocationDeletedError: The snapshot was deleted.
        SupersededError: The location was upgraded meanwhile.
    """
    wanted = act.TagCreated(check_tag_name(name), revision, _NO_OBJECT, catalog.now(), _checked_ttl(ttl))
    catalog.refresh()
    known = _adoptable(catalog.begun(), wanted)
    if known is not None:
        return Tag(known, new=False)
    version = catalog.state.format_version
    created = _write_object(catalog, wanted, version)
    try:
        committed = catalog.commit(_create(created, version))
    except (TagExistsError, VersionNotFoundError, LocationDeletedError, SupersededError):
        catalog.store.delete(created.object.path)  # refused before anything was committed, so nobody knows it
        raise
    if committed is None:
        catalog.store.delete(created.object.path)
        return Tag(catalog.state.tags[name], new=False)
    return Tag(TagState(created, catalog.writer_id, committed, version), new=True)


def delete_tag(catalog: Catalog, name: str) -> bool:
    """Delete a tag: first in the log, then its object, which may be gone already.

    Args:
        catalog: The location, opened for writing.
        name: The tag's name.

    Returns:
        Whether there was such a tag.
    """
    deleted: list[str] = []

    def prepare(state: State) -> Sequence[act.Action] | None:
        known = state.tags.get(name)
        if known is None or state.deleted:
            return None
        deleted.append(known.tag.object.path)
        return [act.TagDeleted(name)]

    catalog.refresh()
    if catalog.commit(prepare) is None:
        return False
    catalog.store.delete(deleted[-1])
    return True


def tag_document(tag: act.TagCreated, created_by: str, version: int, manifest: Mapping[str, Any]) -> bytes:
    """Return the bytes of a tag's object: a pure function of the log, so verify can compare them.

    Args:
        tag: The tag, whose `object` is not looked at.
        created_by: The writer of its transaction.
        version: Format version when it was created.
        manifest: The manifest of the revision it pins.
    """
    return pretty_json(
        {
            "version": version,
            "name": tag.name,
            "created_at": time_text(tag.created_at),
            "created_by": created_by,
            "ttl": _ttl_text(tag.ttl),
            "manifest": manifest,
        }
    )


_NO_OBJECT = act.ObjectRef("", "", 0)


def _checked_ttl(ttl: timedelta | None) -> timedelta | None:
    if ttl is None:
        return None
    if not parse_duration(ttl):
        raise PlanError("A tag's time to live is at least 1s; leave it out for a tag that lives until it is deleted.")
    return ttl


def _ttl_text(ttl: timedelta | None) -> str | None:
    return None if ttl is None else duration_text(ttl)


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
    if (tag.revision, tag.ttl) != (wanted.revision, wanted.ttl):
        raise TagExistsError(
            f"Tag {tag.name!r} is there already: it pins {_pinned(tag)} since {time_text(tag.created_at)}, and asked "
            f"for is {_pinned(wanted)}. Choose another name, or delete that tag first.",
            name=tag.name,
            revision=tag.revision,
        )
    return known


def _pinned(tag: act.TagCreated) -> str:
    ttl = _ttl_text(tag.ttl)
    return f"revision {tag.revision} {f'for {ttl}' if ttl else 'without time to live'}"


def _write_object(catalog: Catalog, wanted: act.TagCreated, version: int) -> act.TagCreated:
    """Write the object and return the tag with it. The state is read anew: others may be changing the catalog's."""
    manifest = manifest_of(read_state(catalog.store, through=wanted.revision))
    data = tag_document(wanted, catalog.writer_id, version, manifest)
    path = tag_path(wanted.name, new_attempt())
    create_own(catalog.store, path, data)
    return replace(wanted, object=act.ObjectRef(path, sha256_hex(data), len(data)))
