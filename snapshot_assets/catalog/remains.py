"""What a rebuild takes where nothing proves it: the newest complete receipts, and tags by their objects.

A receipt was written before its commit, so that it was committed, and not replaced or removed since, is not known.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from snapshot_assets.catalog.chunk_receipts import Held, age, held_by
from snapshot_assets.catalog.from_manifest import completed_chunk, header_in_receipts, schema_numbers
from snapshot_assets.catalog.proofs import Changes, Proof
from snapshot_assets.catalog.receipts import Receipt
from snapshot_assets.catalog.rules import SchemaContent
from snapshot_assets.catalog.state import State
from snapshot_assets.errors import PlanError
from snapshot_assets.format import actions as act
from snapshot_assets.format.files import DataFile


@dataclass
class Remains(Changes):
    """What is taken though it is not proved, as changes of a state.

    Attributes:
        snapshot_id: The snapshot that it is of.
        header: The header of that, as far as known.
        schemas: The schemas of that.
        taken: What each chunk rests on, by chunk.
        lost: What could not be taken, in words.
    """

    snapshot_id: str = ""
    taken: dict[int, str] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    header: act.Header | None = None
    schemas: dict[int, act.SchemaAdded] = field(default_factory=dict)


def take_receipts(proof: Proof, before: int | None = None) -> Remains:
    """Take the newest complete receipt of every chunk that may have been committed where the log says nothing.

    Args:
        proof: What is proved.
        before: Only those that may have been committed before this revision; None for all.
    """
    state, evidence = proof.state, proof.evidence
    if before is None and not proof.unsure:
        return Remains(snapshot_id=state.snapshot_id, header=state.header, schemas=dict(state.schemas))
    held = [each for each in _held(proof, before) if not _lacking(proof, each.files)]
    snapshot_id = _newest_snapshot(state, [each.receipt for each in held])
    same = snapshot_id == state.snapshot_id
    remains = Remains(snapshot_id=snapshot_id, schemas=dict(state.schemas) if same else {})
    remains.header = state.header if same else header_in_receipts(evidence, snapshot_id)
    if remains.header is None:
        return remains
    _begin(remains, proof, [each.receipt for each in held if each.receipt.snapshot_id == snapshot_id])
    by_chunk: dict[int, list[Held]] = defaultdict(list)
    for each in held:
        if each.receipt.snapshot_id == snapshot_id and _may_follow(state if same else State(), each):
            by_chunk[each.receipt.chunk].append(each)
    for chunk in sorted(by_chunk):
        newest = _newest(by_chunk[chunk], remains)
        if newest is not None:
            _take(remains, proof, newest, same)
    _note_lacking(remains, proof, same)
    return remains


def _held(proof: Proof, before: int | None = None) -> list[Held]:
    """Return what chunks have by the receipts that were made before a revision; None for all."""
    by_chunk: defaultdict[tuple[str, int], list[tuple[Receipt, act.ObjectRef]]] = defaultdict(list)
    for receipt, ref in proof.evidence.receipts:
        if before is None or receipt.base_revision < before:
            by_chunk[receipt.snapshot_id, receipt.chunk].append((receipt, ref))
    found: list[Held] = []
    for (snapshot_id, chunk), receipts in by_chunk.items():
        same = snapshot_id == proof.state.snapshot_id and proof.state.completed(chunk)
        refs = proof.state.chunks[chunk].chunk.receipts if same else ()
        found += held_by(receipts, (refs, [known.file for known in proof.state.live_files(chunk)] if same else []))
    return found


def _lacking(proof: Proof, files: Iterable[DataFile]) -> list[str]:
    """Return the files that are missing or have another size."""
    objects = proof.evidence.objects
    return [file.path for file in files if file.path not in objects or objects[file.path].size != file.bytes]


def _newest_snapshot(state: State, receipts: list[Receipt]) -> str:
    """Return the snapshot that was begun last: receipts of a later one have a base that the known one's begin lacks."""
    begun = [event.revision for event in state.events for action in event.actions if isinstance(action, act.Begin)]
    newest = max(receipts, key=age, default=None)
    if newest is None or (begun and newest.base_revision < begun[-1]):
        return state.snapshot_id
    return newest.snapshot_id


def _begin(remains: Remains, proof: Proof, receipts: list[Receipt]) -> None:
    """Add what the receipts need of their snapshot: its begin, its range's end, its schemas."""
    header = remains.header
    assert header is not None
    ends = [receipt.header.end for receipt in receipts if receipt.header and receipt.header.end]
    end = max(ends, default=header.end)
    extended = (end is not None and header.end is not None and end > header.end) or (header.end is None and bool(ends))
    if extended:
        remains.header = replace(header, end=end)
    if remains.snapshot_id != proof.state.snapshot_id:
        forced = proof.state.header is not None
        remains.actions.append(act.Begin(remains.snapshot_id, remains.header or header, force=forced))
    elif extended and end is not None:
        remains.actions.append(act.Extend(end))
    numbers = schema_numbers(proof.evidence, remains.snapshot_id)
    known = {added.sha256 for added in remains.schemas.values()}
    for receipt in receipts:  # those without files tell no number
        if receipt.schema_sha256 not in {*known, *numbers.values()}:
            numbers[max([*numbers, *remains.schemas], default=0) + 1] = receipt.schema_sha256
    for number, sha256 in sorted(numbers.items()):
        content = proof.evidence.schemas.get(sha256)
        if number not in remains.schemas and content is not None:
            add_schema(remains, number, content)


def add_schema(remains: Remains, number: int, content: SchemaContent) -> None:
    """Give schema documents a number."""
    remains.schemas[number] = act.SchemaAdded(number, content.folder, content.sha256, content.files)
    remains.actions.append(remains.schemas[number])


def _may_follow(state: State, held: Held) -> bool:
    """Tell whether a receipt may have been committed after what is known of its chunk."""
    receipt = held.receipt
    known = state.chunks.get(receipt.chunk)
    if known is None or not state.completed(receipt.chunk):
        return True
    live = state.files.chunk(receipt.chunk)
    if live.keys() == {file.path for file in held.files}:
        return False
    attempts, superseded = {each.file.attempt for each in live.values()}, set(receipt.supersedes)
    follows = superseded <= attempts if receipt.compaction else superseded == attempts
    return receipt.base_revision >= known.revision or (bool(attempts) and follows)


def _newest(found: list[Held], remains: Remains) -> Held | None:
    """Return the newest of a chunk's receipts; none, and that is noted, if two are equally new and differ."""
    best = max(found, key=lambda each: each.age)
    equal = [each for each in found if each.age == best.age]
    if len({tuple(sorted(file.path for file in each.files)) for each in equal}) > 1:
        names = " and ".join(sorted(each.path for each in equal))
        remains.lost.append(f"Chunk {best.receipt.chunk}: {names} are equally new and differ, so neither was taken.")
        return None
    return equal[0]


def _take(remains: Remains, proof: Proof, held: Held, same: bool) -> None:
    receipt, ref = held.receipt, held.refs[-1]
    header = remains.header
    assert header is not None
    unknown = {file.schema_id for file in held.files} - remains.schemas.keys()
    if unknown:
        remains.lost.append(
            f"Chunk {receipt.chunk}: the documents of schema {min(unknown)}, with which {ref.path} was made, are "
            "missing or damaged."
        )
        return
    files = {file.path: file for file in held.files}
    try:
        done = completed_chunk(header, receipt.chunk, files, proof.evidence, remains.snapshot_id, receipt.fence)
    except PlanError as error:
        remains.lost.append(f"Chunk {receipt.chunk}: {ref.path} does not fit the plan: {error}.")
        return
    remains.actions.append(replace(done, receipts=held.refs, run=receipt.run))
    live = proof.state.files.chunk(receipt.chunk) if same else {}
    remains.removed += [path for path in live if path not in files]
    remains.added += [file for path, file in files.items() if path not in live]
    remains.taken[receipt.chunk] = ref.path


def _note_lacking(remains: Remains, proof: Proof, same: bool) -> None:
    """Name the receipts that would have given a chunk which nothing else gives."""
    held = {each.path: each for each in _held(proof)}
    for receipt, ref in proof.evidence.receipts:
        done = receipt.chunk in remains.taken or (same and proof.state.completed(receipt.chunk))
        if receipt.snapshot_id != remains.snapshot_id or done:
            continue
        if ref.path not in held:
            remains.lost.append(
                f"Chunk {receipt.chunk}: {ref.path} is of a compaction, and no receipt tells what it was made of."
            )
        elif lacking := _lacking(proof, held[ref.path].files):
            remains.lost.append(
                f"Chunk {receipt.chunk}: {ref.path} is not complete: {', '.join(lacking)} missing or of another size."
            )


def undeleted(proof: Proof) -> list[str]:
    """Return in words which rows come back: a manifest names the tombstones of them, and the log lost these."""
    of_snapshot = [each for each in proof.evidence.manifests.values() if each.snapshot_id == proof.state.snapshot_id]
    newest = max(of_snapshot, key=lambda each: each.revision, default=None)
    return [
        f"Rows of {each['schema']}.{each['table']} that revision {each['revision']} deleted where "
        f"{json.dumps(each['predicate'], ensure_ascii=False)} come back: delete them again."
        for each in (newest.document["tombstones"] if newest else ())
        if each["revision"] not in proof.state.tombstones
    ]


def tags_to_keep(proof: Proof, state: State, lost: list[str]) -> Iterable[act.TagCreated]:
    """Yield the tags whose objects are there and which the log may have had; their objects are to be written anew.

    Args:
        proof: What is proved.
        state: The state that they are to be in.
        lost: Gets what could not be kept, in words.
    """
    if not proof.unsure and not proof.silent:
        return
    known = {tag.tag.object.path for tag in state.tags.values()}
    sealed = {seal.revision for seal in state.seals}
    newest = {}
    for tag in sorted(proof.evidence.tags, key=lambda tag: tag.created_at):
        if tag.path not in known and tag.name not in state.tags and tag.created_at > proof.since:
            newest[tag.name] = tag
    for tag in newest.values():
        if tag.revision not in sealed:
            lost.append(f"Tag {tag.name!r} ({tag.path}) pins revision {tag.revision}, of which nothing is proved.")
            continue
        lost.append(f"Tag {tag.name!r} is taken from {tag.path}; whether it was deleted is not proved.")
        yield act.TagCreated(tag.name, tag.revision, act.ObjectRef("", "", 0), tag.created_at, tag.ttl)
