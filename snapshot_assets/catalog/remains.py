"""What a rebuild takes where nothing proves it: the newest complete receipts, and tags by their objects.

A receipt was written before its commit, so that it was committed, and not replaced or removed since, is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from snapshot_assets.catalog.from_manifest import Found, completed_chunk, header_in_receipts, schema_numbers
from snapshot_assets.catalog.proofs import Changes, Proof
from snapshot_assets.catalog.receipts import Receipt
from snapshot_assets.catalog.rules import SchemaContent
from snapshot_assets.catalog.state import State
from snapshot_assets.errors import PlanError
from snapshot_assets.format import actions as act
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import attempt_of, chunk_of
from snapshot_assets.format.relations import TableName


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


@dataclass
class _Cover:
    """Receipts that together tell what a chunk has: of compactions, and at last one of the whole chunk.

    Attributes:
        used: The receipts, newest first.
        files: What they tell, by path; of a table the newest tells.
        told: Tables that compactions tell of.
        whole: Whether nothing else can be in the chunk.
    """

    used: list[Found] = field(default_factory=list)
    files: dict[str, DataFile] = field(default_factory=dict)
    told: set[TableName] = field(default_factory=set)
    whole: bool = False

    def wanted(self, receipt: Receipt) -> dict[str, DataFile]:
        """Return the files of an older receipt that newer ones say nothing of."""
        return {file.path: file for file in receipt.files if _table(file) not in self.told}

    def covers(self, file: DataFile) -> bool:
        """Tell whether these receipts decide on a file of the chunk."""
        return self.whole or _table(file) in self.told


def take_receipts(proof: Proof, before: int | None = None) -> Remains:
    """Take the newest complete receipt of every chunk and table that may have been committed where the log is silent.

    Args:
        proof: What is proved.
        before: Only those that may have been committed before this revision; None for all.
    """
    state, evidence = proof.state, proof.evidence
    if before is None and not proof.unsure:
        return Remains(snapshot_id=state.snapshot_id, header=state.header, schemas=dict(state.schemas))
    asked = [found for found in evidence.receipts if before is None or found[0].base_revision < before]
    receipts = [found for found in asked if not _lacking(proof, found[0].files)]
    snapshot_id = _newest_snapshot(state, receipts)
    same = snapshot_id == state.snapshot_id
    remains = Remains(snapshot_id=snapshot_id, schemas=dict(state.schemas) if same else {})
    remains.header = state.header if same else header_in_receipts(evidence, snapshot_id)
    if remains.header is None:
        return remains
    _begin(remains, proof, [receipt for receipt, _ in receipts if receipt.snapshot_id == snapshot_id])
    by_chunk: dict[int, list[Found]] = defaultdict(list)
    for found in asked:
        if found[0].snapshot_id == snapshot_id and _may_follow(state if same else State(), found[0]):
            by_chunk[found[0].chunk].append(found)
    for chunk in sorted(by_chunk):
        cover = _newest(by_chunk[chunk], proof, remains)
        if cover is not None and cover.used:
            _take(remains, proof, cover, same)
    _note_lacking(remains, proof, same)
    return remains


def _age(receipt: Receipt) -> tuple[int, object]:
    return receipt.base_revision, receipt.opened_at


def _lacking(proof: Proof, files: Iterable[DataFile]) -> list[str]:
    """Return the paths of the files that are missing or have another size."""
    objects = proof.evidence.objects
    return [file.path for file in files if file.path not in objects or objects[file.path].size != file.bytes]


def _table(file: DataFile) -> TableName:
    return TableName(file.schema, file.table)


def _told(receipt: Receipt) -> set[TableName] | None:
    """Return the tables that a receipt tells of; None for all of its chunk."""
    if receipt.compaction is None:
        return None
    return {TableName(each.schema, each.table) for each in receipt.compaction.tables}


def _newest_snapshot(state: State, receipts: list[Found]) -> str:
    """Return the snapshot that was begun last: receipts of a later one have a base that the known one's begin lacks."""
    begun = [event.revision for event in state.events for action in event.actions if isinstance(action, act.Begin)]
    newest = max((receipt for receipt, _ in receipts), key=_age, default=None)
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


def _may_follow(state: State, receipt: Receipt) -> bool:
    """Tell whether a receipt may have been committed after what is known of its chunk."""
    known = state.chunks.get(receipt.chunk)
    if known is None or not state.completed(receipt.chunk):
        return True
    told = _told(receipt)
    live = {
        path: each
        for path, each in state.files.chunk(receipt.chunk).items()
        if told is None or _table(each.file) in told
    }
    if live.keys() == {file.path for file in receipt.files}:
        return False
    attempts = {each.file.attempt for each in live.values()}
    return receipt.base_revision >= known.revision or (bool(attempts) and attempts == set(receipt.supersedes))


def _newest(found: list[Found], proof: Proof, remains: Remains) -> _Cover | None:
    """Return the newest of a chunk's receipts; none, and that is noted, if two are equally new and differ.

    One of a compaction says nothing of the tables that it left alone: older ones tell of them.
    """
    cover = _Cover()
    for receipt, ref in sorted(found, key=lambda each: _age(each[0]), reverse=True):
        wanted, told = cover.wanted(receipt), _told(receipt)
        if _lacking(proof, wanted.values()) or (told is not None and told <= cover.told):
            continue
        rivals = [
            each.path for each, _ in found if _age(each) == _age(receipt) and _differs(proof, cover, each, wanted)
        ]
        if rivals:
            names = " and ".join(sorted([*rivals, ref.path]))
            remains.lost.append(f"Chunk {receipt.chunk}: {names} are equally new and differ, so neither was taken.")
            return None
        if wanted or not cover.used:
            cover.used.append((receipt, ref))
        cover.files |= wanted
        cover.told |= told or set()
        cover.whole = told is None
        if cover.whole:
            break
    return cover


def _differs(proof: Proof, cover: _Cover, receipt: Receipt, wanted: Mapping[str, DataFile]) -> bool:
    """Tell whether a complete receipt has other files than the wanted ones."""
    found = cover.wanted(receipt)
    return found.keys() != wanted.keys() and not _lacking(proof, found.values())


def _take(remains: Remains, proof: Proof, cover: _Cover, same: bool) -> None:
    receipt, refs = cover.used[0][0], tuple(ref for _, ref in reversed(cover.used))
    chunk, names = receipt.chunk, ", ".join(ref.path for ref in refs)
    header = remains.header
    assert header is not None
    unknown = {file.schema_id for file in cover.files.values()} - remains.schemas.keys()
    if unknown:
        remains.lost.append(
            f"Chunk {chunk}: the documents of schema {min(unknown)}, with which {names} was made, are missing or "
            "damaged."
        )
        return
    live = {path: each.file for path, each in proof.state.files.chunk(chunk).items()} if same else {}
    rest = {path: file for path, file in live.items() if not cover.covers(file)}
    others = [] if cover.whole or (same and proof.state.completed(chunk)) else _unnamed(proof, chunk)
    if others:
        remains.lost.append(
            f"Chunk {chunk}: {names} tell of compacted tables only, and no receipt names {', '.join(others)}; whether "
            "they are its other tables is not proved, so it was not taken."
        )
        return
    files = rest | cover.files
    try:
        done = completed_chunk(header, chunk, files, proof.evidence, remains.snapshot_id, receipt.fence)
    except PlanError as error:
        remains.lost.append(f"Chunk {chunk}: {names} does not fit the plan: {error}.")
        return
    remains.actions.append(replace(done, receipts=done.receipts if rest else refs, run=receipt.run))
    remains.removed += [path for path in live if path not in files]
    remains.added += [file for path, file in cover.files.items() if path not in live]
    remains.taken[chunk] = names


def _unnamed(proof: Proof, chunk: int) -> list[str]:
    """Return the data files of a chunk that no receipt names."""
    named = {file.path for receipt, _ in proof.evidence.receipts for file in receipt.files}
    return sorted(
        path for path in proof.evidence.objects if chunk_of(path) == chunk and attempt_of(path) and path not in named
    )


def _note_lacking(remains: Remains, proof: Proof, same: bool) -> None:
    """Name the receipts that would have given a chunk which nothing else gives."""
    for receipt, ref in proof.evidence.receipts:
        done = receipt.chunk in remains.taken or (same and proof.state.completed(receipt.chunk))
        lacking = _lacking(proof, receipt.files)
        if receipt.snapshot_id == remains.snapshot_id and not done and lacking:
            remains.lost.append(
                f"Chunk {receipt.chunk}: {ref.path} is not complete: {', '.join(lacking)} missing or of another size."
            )


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
