"""What a rebuild takes where nothing proves it: the newest complete receipts.

A receipt was written before its commit, so that it was committed, and not replaced or removed since, is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from snapshot_assets.catalog.rebuild.damaged_log import Changes, Proof
from snapshot_assets.catalog.rebuild.headers import header_in_receipts, schema_numbers
from snapshot_assets.catalog.rebuild.manifests import completed_chunk
from snapshot_assets.catalog.rebuild.objects import Evidence
from snapshot_assets.catalog.receipts.receipts import Receipt
from snapshot_assets.catalog.receipts.selection import (
    Base,
    Found,
    World,
    age_of,
    compacted_tables,
    covering,
    rivals,
    speaks_for,
    table_of,
    worlds,
)
from snapshot_assets.catalog.rules import SchemaContent
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.errors import PlanError
from snapshot_assets.format import actions as act
from snapshot_assets.format.files import DataFile
from snapshot_assets.format.layout import attempt_of, chunk_of, data_file_stem


@dataclass
class Remains(Changes):
    """What is taken though it is not proved, as changes of a state.

    Attributes:
        snapshot_id: The snapshot that it is of.
        header: The header of that, as far as known.
        schemas: The schemas of that.
        taken: What each chunk rests on, by chunk.
        rivals: By path, receipts that were taken though another may have been committed instead.
        lost: What could not be taken, in words.
    """

    snapshot_id: str = ""
    taken: dict[int, str] = field(default_factory=dict)
    rivals: dict[str, str] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    header: act.Header | None = None
    schemas: dict[int, act.SchemaAdded] = field(default_factory=dict)


def guesses(proof: Proof, before: int) -> Iterator[Remains]:
    """Yield what may have been committed before a revision: the newest receipts, then those that rival with them."""
    newest = take_receipts(proof, before)
    yield newest
    if newest.rivals:
        yield take_receipts(proof, before, without=newest.rivals)


def take_receipts(proof: Proof, before: int | None = None, without: Collection[str] = ()) -> Remains:
    """Take the newest complete receipt of every chunk that may have been committed where the log says nothing.

    Args:
        proof: What is proved.
        before: Only those that may have been committed before this revision; None for all.
        without: Paths of receipts to leave out.
    """
    state, evidence = proof.state, proof.evidence
    if before is None and not proof.unsure:
        return Remains(snapshot_id=state.snapshot_id, header=state.header, schemas=dict(state.schemas))
    receipts = [found for found in _not_given_up(proof) if before is None or found[0].base_revision < before]
    receipts = [found for found in receipts if found[1].path not in without]
    snapshot_id = _newest_snapshot(state, [receipt for receipt, _ in receipts if not _lacking(proof, receipt)])
    same = snapshot_id == state.snapshot_id
    remains = Remains(snapshot_id=snapshot_id, schemas=dict(state.schemas) if same else {})
    remains.header = state.header if same else header_in_receipts(evidence, snapshot_id)
    if remains.header is None:
        return remains
    receipts = [found for found in receipts if found[0].snapshot_id == snapshot_id]
    _begin(remains, proof, [receipt for receipt, _ in receipts])
    by_chunk: dict[int, list[Found]] = defaultdict(list)
    for found in receipts:
        by_chunk[found[0].chunk].append(found)
    for chunk in sorted(by_chunk):
        _take(remains, proof, chunk, by_chunk[chunk], same)
    _note_lacking(remains, proof, same)
    return remains


def _not_given_up(proof: Proof) -> list[Found]:
    """Return the receipts but those that are based on a revision before a rollback, or before a rebuild that is known.

    None of them was committed after it, and a rebuild took what may have been before it.
    """
    events = proof.state.events
    rebuilt = [event.revision for event in events for action in event.actions if isinstance(action, act.Rebuilt)]
    since = max([proof.state.rolled_back, *rebuilt])
    return [found for found in proof.evidence.receipts if found[0].base_revision >= since]


def is_there(evidence: Evidence, file: DataFile) -> bool:
    """Tell whether a data file is there with its size."""
    return file.path in evidence.objects and evidence.objects[file.path].size == file.bytes


def _lacking(proof: Proof, receipt: Receipt) -> list[str]:
    """Return the files of a receipt that are missing or have another size."""
    return [file.path for file in receipt.files if not is_there(proof.evidence, file)]


def _newest_snapshot(state: State, receipts: list[Receipt]) -> str:
    """Return the snapshot that was begun last: receipts of a later one have a base that the known one's begin lacks."""
    begun = [event.revision for event in state.events for action in event.actions if isinstance(action, act.Begin)]
    newest = max(receipts, key=age_of, default=None)
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
    numbers = schema_numbers(proof.evidence, remains.snapshot_id, proof.state.rolled_back)
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
    """Tell whether a receipt may have been committed after what is known of its chunk: of its tables, for a compaction.

    A later word on the chunk, such as a manifest's, may be of the same files; then what it supersedes tells.
    """
    known = state.chunks.get(receipt.chunk)
    if known is None or not state.completed(receipt.chunk):
        return True
    files = [each.file for each in state.files.chunk(receipt.chunk).values()]
    live = {file.path: file.attempt for file in files if speaks_for(receipt, table_of(file))}
    named = {file.path for file in receipt.files}
    if live.keys() == named:  # it is known already, unless both are empty: what was added since may be gone again
        return not named and receipt.base_revision >= known.revision
    gone = {attempt for path, attempt in live.items() if path not in named or receipt.compaction is None}
    return receipt.base_revision >= known.revision or (bool(gone) and gone == set(receipt.supersedes))


def _take(remains: Remains, proof: Proof, chunk: int, found: list[Found], same: bool) -> None:
    """Take what the newest receipts of a chunk give it."""
    header, state = remains.header, proof.state if same else State()
    assert header is not None
    known, live = None, state.files.chunk(chunk)
    if state.completed(chunk):
        known = Base(tuple(each.file for each in live.values()), state.chunks[chunk].chunk.fence, known=True)
    follows, there = partial(_may_follow, state), partial(is_there, proof.evidence)
    world = _newest(chunk, worlds([receipt for receipt, _ in found], known, follows, there), remains)
    if world is None or not (_is_known(remains, world, found) and _is_whole(remains, proof, chunk, world)):
        return
    resting = covering(found, world.files.values())
    try:
        done = completed_chunk(header, chunk, world.files, resting, world.base.fence)
    except PlanError as error:
        remains.lost.append(f"Chunk {chunk}: {' and '.join(world.names)} does not fit the plan: {error}.")
        return
    remains.actions.append(done)
    remains.removed += [path for path in live if path not in world.files]
    remains.added += [file for path, file in world.files.items() if path not in live]
    remains.taken[chunk] = ", ".join(ref.path for _, ref in resting)
    for one, other in rivals(
        [receipt for receipt, _ in found], world.names, lambda each: _may_be(proof, each, follows)
    ):
        remains.rivals[one] = other
        remains.lost.append(
            f"Chunk {chunk}: {one} and {other} replaced some of the same files, so only one of them was committed, and "
            "which is not proved; the first was taken, which was begun later."
        )


def _may_be(proof: Proof, receipt: Receipt, follows: Callable[[Receipt], bool]) -> bool:
    """Tell whether a receipt that was not taken could be."""
    return follows(receipt) and not _lacking(proof, receipt)


def _newest(chunk: int, made: list[World], remains: Remains) -> World | None:
    """Return the newest of what a chunk may be; none, and that is noted, if two are equally new and differ."""
    best = max((world.age for world in made), default=None)
    equal = [world for world in made if world.age == best]
    if len({tuple(sorted(world.files)) for world in equal}) > 1:
        names = " and ".join(sorted({name for world in equal for name in world.names}))
        remains.lost.append(f"Chunk {chunk}: {names} are equally new and differ, so neither was taken.")
        return None
    return equal[0] if equal else None


def _is_known(remains: Remains, world: World, found: list[Found]) -> bool:
    """Tell whether the schemas are known that files were written with; else that is noted."""
    unknown = {file.schema_id for file in world.files.values()} - remains.schemas.keys()
    if unknown:
        lacking = {path for path, file in world.files.items() if file.schema_id in unknown}
        named = sorted(
            (receipt.chunk, ref.path) for receipt, ref in found if any(file.path in lacking for file in receipt.files)
        )
        chunk, path = named[0]
        remains.lost.append(
            f"Chunk {chunk}: the documents of schema {min(unknown)}, with which {path} was made, are missing or "
            "damaged."
        )
    return not unknown


def _is_whole(remains: Remains, proof: Proof, chunk: int, world: World) -> bool:
    """Tell whether what compactions alone give is all that a chunk has; else that is noted.

    It is if nothing of what an export gave the chunk was left, so that its receipt was collected. Files of other tables
    that no receipt names say that a receipt was lost.
    """
    if world.base.known or world.base.receipt is not None:
        return True
    receipts = [receipt for receipt, _ in proof.evidence.receipts if receipt.chunk == chunk]
    named = {file.path for receipt in receipts for file in receipt.files}
    stems = tuple(data_file_stem(chunk, table, "") for receipt in receipts for table in compacted_tables(receipt))
    strays = sorted(
        path
        for path in proof.evidence.objects
        if attempt_of(path) and chunk_of(path) == chunk and path not in named and not path.startswith(stems)
    )
    if strays:
        remains.lost.append(
            f"Chunk {chunk}: {' and '.join(world.names)} tells only of compacted tables, and no receipt names "
            f"{', '.join(strays)}; so it was not taken."
        )
    return not strays


def _note_lacking(remains: Remains, proof: Proof, same: bool) -> None:
    """Name the receipts that would have given a chunk which nothing else gives."""
    for receipt, ref in _not_given_up(proof):
        done = receipt.chunk in remains.taken or (same and proof.state.completed(receipt.chunk))
        lacking = _lacking(proof, receipt)
        if receipt.snapshot_id == remains.snapshot_id and not done and lacking:
            remains.lost.append(
                f"Chunk {receipt.chunk}: {ref.path} is not complete: {', '.join(lacking)} missing or of another size."
            )
