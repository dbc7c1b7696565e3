"""`snapshots status`: the condition of a location, for people and for monitoring."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from snapshot_assets.catalog.operations.locks import Locks
from snapshot_assets.catalog.status import Aged, Moment, Size, Status, location_status
from snapshot_assets.catalog.verify.records import Verification
from snapshot_assets.cli.exit_status import ExitStatus
from snapshot_assets.cli.location import duration_of, open_log, place_of, signing_of
from snapshot_assets.cli.open_metrics import metrics_of, unreadable
from snapshot_assets.cli.output import plain, show, show_json
from snapshot_assets.errors import PlanError, SnapshotError
from snapshot_assets.format.units import counted, duration_text, human_bytes, human_seconds, time_text

_SHOWN = 5
_SCOPES = {"all": "all readable revisions", "newest": "the newest state"}


def run(options: argparse.Namespace) -> int:
    """Show the status; exit status 3 if damage is known, or the newest sealed export is too old."""
    max_age, metrics = duration_of(options.max_age), options.format == "openmetrics"
    if metrics and options.json:
        raise PlanError("--json and --format openmetrics are two formats; give one of them.")
    place = place_of(options)
    store = place.store()
    try:
        signing = signing_of(options, place.signing)
        status = location_status(open_log(options, store), datetime.now(UTC), signing)
    except SnapshotError:
        if metrics:
            show(unreadable(store.uri))
        raise
    stale = max_age is not None and status.is_older(max_age)
    healthy = not (stale or status.is_damaged or status.unlocked) and status.export is not None
    if options.json:
        facts = asdict(status)
        facts |= {name: [each.pop("record") | each for each in facts[name]] for name in ("verified", "compared")}
        facts["garbage"] = {name: facts.pop(name) for name in ("collectable", "waiting")}
        facts["log"] = {name: facts.pop(name) for name in ("transactions", "checkpoints")}
        show_json(plain(facts | {"max_age": max_age, "stale": stale, "healthy": healthy}))
    elif metrics:
        show(metrics_of(status, max_age))
    else:
        _show(status, max_age, stale=stale)
    return ExitStatus.DONE if healthy else ExitStatus.DAMAGED


def _show(status: Status, max_age: timedelta | None, *, stale: bool) -> None:
    unsealed = "OK" if status.export else "UNSEALED"
    verdict = "DAMAGED" if status.is_damaged else "UNLOCKED" if status.unlocked else "STALE" if stale else unsealed
    show(f"{verdict}: {status.uri} at revision {status.revision}")
    for name, text in _lines(status):
        show(f"  {name + ':':<16}{text}")
    if stale and max_age is not None:
        found = "nothing is sealed" if status.export is None else f"it is {human_seconds(status.export.age_seconds)}"
        show(f"The newest sealed export must not be older than {duration_text(max_age)}: {found}.")


def _lines(status: Status) -> Iterator[tuple[str, str]]:
    """Yield what is shown of a status: names and texts."""
    if status.replica_of is not None:
        promotion = "; its promotion was begun: run `snapshots catalog promote` again" if status.promoting else ""
        yield "replica of", f"{status.replica_of}{promotion}"
    yield "newest seal", _moment(status.seal)
    if status.export != status.seal:
        yield "newest export", _moment(status.export)
    if status.signed is not None or status.unsigned:
        yield "signed", status.unsigned or f"by {_moment(status.signed)}"
    yield "newest tag", _moment(status.tag)
    if status.held:
        yield "legal hold", ", ".join(status.held)
    work = status.unsealed
    missing = f"{counted(work.chunks, 'chunk')} not exported, {counted(work.files, 'file')} not sealed"
    yield "unsealed", "nothing" if status.sealed else f"{missing} ({human_bytes(work.bytes)})"
    for each in status.verified:
        yield "verified", _verified(each)
    if not status.verified:
        yield "verified", "never; run `snapshots export verify`"
    for compared in status.compared:
        yield "compared", f"{_ago(compared)}, {compared.record}"
    if not status.compared:
        yield "compared", "never with its source"
    yield from _first("damaged", status.damaged, "`snapshots export verify` names all and their remedy")
    yield from _first("different", status.different, "`snapshots compare` names all and their rows")
    if status.damage:
        yield "damaged", status.damage
    if status.locks is not None:
        yield "locked", _locked(status.locks)
    if status.collectable is not None and status.waiting is not None:
        yield "garbage", _garbage(status.collectable, status.waiting, replica=status.replica_of is not None)
    yield "log", f"{_size(status.transactions, 'transaction')}; {_size(status.checkpoints, 'checkpoint')}"


def _locked(locks: Locks) -> str:
    """Return until when objects are locked, and what to do if that is less than half of what it may be."""
    if locks.earliest_end is None:
        return "unknown; grant the right s3:GetObjectRetention, so that the store can be asked"
    left, extended = locks.earliest_end - datetime.now(UTC), "never extended"
    if locks.extended_at is not None:
        extended = f"extended at {time_text(locks.extended_at)}"
    verb = "ended" if left <= timedelta(0) else "ends"
    advice = "" if left > locks.period / 2 else "; run `snapshots catalog extend-locks`"
    return f"{extended}; the earliest lock {verb} at {time_text(locks.earliest_end)}, of {locks.object}{advice}"


def _first(name: str, found: Sequence[str], advice: str) -> Iterator[tuple[str, str]]:
    for each in found[:_SHOWN]:
        yield name, each
    if len(found) > _SHOWN:
        yield name, f"and {len(found) - _SHOWN:,} more; {advice}"


def _garbage(collectable: Size, waiting: Size, *, replica: bool) -> str:
    if replica:  # garbage collection refuses it
        total = Size(collectable.objects + waiting.objects, collectable.bytes + waiting.bytes)
        return f"{_size(total, 'object')}; `snapshots replicate --delete` deletes what the source no longer has"
    deleted = f"{_size(collectable, 'object')} that `snapshots catalog gc` deletes"
    return f"{deleted}, and {_size(waiting, 'object')} younger than the grace period"


def _moment(moment: Moment | None) -> str:
    if moment is None:
        return "none"
    name = f"{moment.name}, " if moment.name else ""
    return f"{name}revision {moment.revision}, {human_seconds(moment.age_seconds)} old ({time_text(moment.at)})"


def _ago(each: Aged[Any]) -> str:
    return f"{human_seconds(each.age_seconds)} ago at revision {each.record.revision}"


def _verified(each: Aged[Verification]) -> str:
    done = each.record
    read = f"{done.hashed:,} of {counted(done.files, 'file')} read ({human_bytes(done.bytes)})"
    result = f"{counted(len(done.damaged), 'damaged object')}" if done.damaged else "no damage"
    return f"{_ago(each)}, {done.depth}, {_SCOPES[done.scope]}, {read}: {result}"


def _size(size: Size, thing: str) -> str:
    return f"{counted(size.objects, thing)} ({human_bytes(size.bytes)})"
