"""`snapshots catalog log`: describes each revision, with a short phrase for each action, and as plain data."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from snapshot_assets.catalog.log.history import History, Revision
from snapshot_assets.cli.exit_status import ExitStatus
from snapshot_assets.cli.location import open_log
from snapshot_assets.cli.output import plain, show, show_json, show_message
from snapshot_assets.format import actions as act
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import table_text
from snapshot_assets.format.predicate_text import predicate_text
from snapshot_assets.format.predicates import predicate_json
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import counted, duration_text, human_bytes, noun, time_text

_SHOWN_ERROR = 100
_OF_FILES = (act.AddFile, act.RemoveFile, act.ReturnedFiles)


def run(options: argparse.Namespace) -> int:
    """Show the revisions of a log, newest first; exit status 3 if one of them cannot be read."""
    store = open_log(options)
    history = History(store)
    documents, from_checkpoints, faults = [], 0, 0
    for each in history.revisions(since=options.since, limit=options.limit):
        faults += bool(each.error)
        from_checkpoints += bool(each.checkpoint)
        if not options.json:
            show(_line(each))
            continue
        document = {
            "revision": each.revision,
            "committed_at": time_text(each.committed_at) if each.committed_at else None,
            "writer_id": each.writer_id,
            "what": _in_words(each.actions),
            "actions": _as_data(each.actions),
            **({} if each.checkpoint else _file_changes(each.actions)),
            "pruned": bool(each.checkpoint),
            "checkpoint": each.checkpoint or None,
            "error": each.error or None,
        }
        documents.append(document)
    pruned = f"{counted(history.pruned, 'revision')} of this log {noun(history.pruned, 'is', 'are')} pruned"
    if options.json:
        show_json({"uri": store.uri, "head": history.head, "pruned": history.pruned, "revisions": documents})
    elif options.since > history.head:
        show_message(f"nothing since revision {options.since}; the newest is {history.head}")
    elif from_checkpoints:
        show_message(f"* pruned, read from a checkpoint, without files; {pruned}")
    elif history.pruned and options.limit is None:
        show_message(pruned)
    if faults:
        show_message(
            f"{counted(faults, 'revision')} of {store.uri} cannot be read; `snapshots export verify` names all faults"
        )
    return ExitStatus.DAMAGED if faults else ExitStatus.DONE


def _line(revision: Revision) -> str:
    number = f"{revision.revision:>6}{'*' if revision.checkpoint else ' '}"
    if revision.committed_at is None:
        return f"{number} UNREADABLE: {revision.error}"
    what = "; ".join(_in_words(revision.actions))
    line = f"{number} {time_text(revision.committed_at):<24}  {revision.writer_id}  {what}"
    return "".join(character if character.isprintable() else "?" for character in line)


def _in_words(actions: Iterable[act.Action]) -> list[str]:
    """Return a phrase for each action of a revision; the last ones count its files.

    The schemas and chunks that a rollback repeats get no phrases.
    """
    actions = list(actions)
    repeated = (act.SchemaAdded, act.Chunk) if any(isinstance(action, act.Rollback) for action in actions) else ()
    phrases = [_phrase(action) for action in actions if not isinstance(action, (*_OF_FILES, *repeated))]
    files = _file_changes(actions)
    if files["files_added"]:
        size = human_bytes(files["bytes_added"])
        phrases.append(f"+{counted(files['files_added'], 'file')} ({counted(files['rows_added'], 'row')}, {size})")
    if files["files_removed"]:
        phrases.append(f"-{counted(files['files_removed'], 'file')}")
    if files["files_returned"]:
        phrases.append(f"{counted(files['files_returned'], 'file')} returned")
    return phrases


def _file_changes(actions: Iterable[act.Action]) -> dict[str, int]:
    """Return how many files a revision added, removed and returned."""
    added = [action.file for action in actions if isinstance(action, act.AddFile)]
    return {
        "files_added": len(added),
        "rows_added": sum(file.rows for file in added),
        "bytes_added": sum(file.bytes for file in added),
        "files_removed": sum(isinstance(action, act.RemoveFile) for action in actions),
        "files_returned": sum(len(action.paths) for action in actions if isinstance(action, act.ReturnedFiles)),
    }


def _as_data(actions: Iterable[act.Action]) -> list[dict[str, Any]]:
    """Return a revision's actions, each with its `kind`, except those on single files."""
    return [{"kind": _kind(action)} | plain(_fields(action)) for action in actions if not isinstance(action, _OF_FILES)]


def _fields(action: act.Action) -> dict[str, Any]:
    if isinstance(action, act.Tombstone):
        return {"schema": action.schema, "table": action.table, "where": predicate_json(action.predicate)}
    if isinstance(action, act.Rollback):
        older = [{"revision": revision} | _fields(each) for revision, each in sorted(action.tombstones.items())]
        return asdict(replace(action, tombstones={})) | {"tombstones": older}
    return asdict(action)


def _kind(action: act.Action) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(action).__name__).lower()


def _phrase(action: act.Action) -> str:
    match action:
        case act.Begin():
            again = ", in place of the one before" if action.force else ""
            return f"snapshot {action.snapshot_id[:8]} of {action.header.name!r} begins{again}"
        case act.Extend():
            return f"range extends to {time_text(action.end)}"
        case act.SchemaAdded():
            return f"schema {action.schema_id}"
        case act.ChunksInProgress():
            return f"{counted(len(action.chunks), 'chunk')} in progress by run {action.run}"
        case act.Chunk():
            untimed = " (untimed tables)" if action.id == UNTIMED_CHUNK else ""
            if action.status is not act.ChunkStatus.COMPLETED:
                return f"chunk {action.id}{untimed} failed: {' '.join(action.error.split())[:_SHOWN_ERROR]}"
            rows = counted(action.rows, "row") if action.rows else "empty"
            return f"chunk {action.id}{untimed} {'compacted' if action.exported else 'completed'}, {rows}"
        case act.Seal():
            return f"sealed as of {action.verified_revision}, checksum {action.checksum[:8]}"
        case act.Deleted():
            return "snapshot deleted"
        case act.Rollback():
            return f"rolled back to {action.revision}"
        case act.Expired():
            return f"{counted(len(action.revisions), 'revision')} expired: {', '.join(map(str, action.revisions))}"
        case act.Purged():
            return f"{counted(len(action.paths), 'file')} released to garbage collection"
        case act.Tombstone():
            table = table_text(TableName(action.schema, action.table))
            return f"rows of {table} deleted where {predicate_text(action.predicate)}"
        case act.Upgraded():
            return f"format version {action.previous} becomes {action.version}"
        case act.Rebuilt():
            lost = f", {counted(len(action.lost), 'thing')} lost" if action.lost else ""
            return f"the log was rebuilt{lost}" if action.snapshot_id else "a hole, closed by a rebuild"
        case act.TagCreated():
            return _tag_phrase(action)
        case act.TagDeleted():
            return f"tag {action.name!r} deleted"
        case act.TagRenamed():
            return f"tag {action.name!r} renamed: {_tag_phrase(action.tag)}"
        case act.TagReplaced():
            return f"tag replaced: {_tag_phrase(action.tag)}"
        case act.TagHeld():
            return f"{action.tag} held by {action.note.by}: {action.note.reason}"
        case act.TagReleased():
            return f"{action.tag} released by {action.note.by}: {action.note.reason}"
        case act.SavepointCreated():
            return f"savepoint {action.id} pins {action.revision}"
        case act.SavepointDeleted():
            return f"savepoint {action.id} deleted"
    return _kind(action).replace("_", " ")


def _tag_phrase(tag: act.TagCreated) -> str:
    ttl = f" for {duration_text(tag.ttl)}" if tag.ttl else ""
    return f"tag {tag.name!r} pins {tag.revision}{ttl}"
