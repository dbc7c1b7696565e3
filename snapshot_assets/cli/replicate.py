"""`snapshots replicate`, and `snapshots catalog promote`."""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bar

from snapshot_assets.catalog.replication.plan import ReplicationPlan, plan_replication, refuse_same
from snapshot_assets.catalog.replication.promote import PromotionPlan, execute_promotion, plan_promotion
from snapshot_assets.catalog.replication.replicate import Replication, replicate
from snapshot_assets.cli.confirm import execute_confirmed
from snapshot_assets.cli.location import open_catalog, open_log, place_of
from snapshot_assets.cli.output import counted, show, show_json, show_message
from snapshot_assets.cli.repeated import repeated
from snapshot_assets.errors import UsageError
from snapshot_assets.format.actions import ObjectRef
from snapshot_assets.format.units import human_bytes, time_text
from snapshot_assets.plan.read_configuration import load_configuration
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.open import open_store

_LINE_SECONDS, _JSON_SECONDS, _BAR_SECONDS = 30.0, 1.0, 0.5


def run(options: argparse.Namespace) -> int:
    """Replicate a location."""
    source, target, single_writer = _stores(options)
    open_log(options, source)
    choice = {"delete": options.delete, "only": options.only, "accept_loss": options.accept_loss}
    plan = plan_replication(source, target, **choice)
    if options.dry_run:
        _report_plan(options, plan)
        return 0
    with progress(plan, options.progress) as watch:
        done = replicate(source, target, **choice, single_writer=single_writer, progress=watch.finish)
    _report(options, done)
    return 0


def _stores(options: argparse.Namespace) -> tuple[ObjectStore, ObjectStore, bool]:
    """Return the source, the replica, and whether the replica has no other writer."""
    place = place_of(options)
    uri = options.to or (place.plan.replicate_to if place.plan is not None else None)
    if uri is None:
        where = "--snapshot" if place.plan is None else f"plan {place.plan.name!r} has no replicate_to, so --plan"
        raise UsageError(f"{where} needs --to, the location of the replica.")
    location = parse_location(uri)
    storage = load_configuration(options.config, storage_only=True).store_options_for(location)
    source, target = place.store(), open_store(location, storage)
    refuse_same(source, target, same_service=storage == place.storage)
    return source, target, options.single_writer or place.single_writer


@dataclass
class _Watch:
    """What a replication has finished, of what it was to copy at first.

    Attributes:
        objects: How many objects it copies.
        bytes: Their size.
    """

    objects: int
    bytes: int
    objects_done: int = 0
    bytes_done: int = 0
    _started: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def finish(self, ref: ObjectRef, copied: bool) -> None:
        """Count an object that is copied; others were there already."""
        if copied:
            with self._lock:
                self.objects_done += 1
                self.bytes_done += ref.bytes

    def totals(self) -> dict[str, Any]:
        """Return the counts, as JSON has them."""
        return {
            "doing": "replicating",
            "seconds": round(time.monotonic() - self._started, 1),
            "objects": self.objects,
            "objects_done": self.objects_done,
            "bytes": self.bytes,
            "bytes_done": self.bytes_done,
        }

    def line(self) -> str:
        """Return the counts as a sentence."""
        found = self.totals()
        return (
            f"replicating: {found['objects_done']:,} of {counted(found['objects'], 'object')},"
            f" {human_bytes(found['bytes_done'])} of {human_bytes(found['bytes'])} after {found['seconds']:.0f} s"
        )


@contextmanager
def progress(plan: ReplicationPlan, mode: str) -> Iterator[_Watch]:
    """Show progress on stderr until the context ends; see `snapshot_assets.cli.progress`."""
    watch = _Watch(len(plan.copied), plan.bytes)
    if mode == "none":
        yield watch
    elif mode == "json":
        with repeated(lambda: show_message(json.dumps(watch.totals())), _JSON_SECONDS, at_end=True):
            yield watch
    elif not Console(stderr=True).is_terminal:
        with repeated(lambda: show_message(watch.line()), _LINE_SECONDS):
            yield watch
    else:
        with _bar(watch) as update, repeated(update, _BAR_SECONDS):
            yield watch


@contextmanager
def _bar(watch: _Watch) -> Iterator[Callable[[], None]]:
    columns = (TextColumn("replicating"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("replicating", total=watch.bytes)
        yield lambda: bar.update(task, completed=watch.bytes_done)


def _report_plan(options: argparse.Namespace, plan: ReplicationPlan) -> None:
    facts = {
        "source": plan.source,
        "replica": plan.replica,
        "dry_run": True,
        "revision": plan.log.head,
        "previous": plan.log.last,
        "sealed": plan.state.sealed,
        "objects": len(plan.copied),
        "bytes": plan.bytes,
        "transactions": len(plan.log.transactions),
        "deleted": len(plan.deleted),
        "deleted_bytes": sum(info.size for info in plan.deleted),
    }
    if options.json:
        show_json(facts)
        return
    for ref in plan.copied:
        show(f"{ref.path}  {human_bytes(ref.bytes)}")
    _show_counts(facts, "would be")


def _report(options: argparse.Namespace, done: Replication) -> None:
    facts = asdict(done)
    if options.json:
        show_json(facts | {"dry_run": False})
    else:
        _show_counts(facts, "were")


def _show_counts(facts: dict[str, Any], verb: str) -> None:
    sealed = "sealed" if facts["sealed"] else "not sealed"
    if not facts["objects"] and not facts["transactions"]:
        show(f"{facts['replica']} has all of {facts['source']} up to revision {facts['revision']}, {sealed}")
    else:
        copied = f"{counted(facts['objects'], 'object')}, {human_bytes(facts['bytes'])}"
        log = counted(facts["transactions"], "transaction")
        show(f"{copied}, and {log} {verb} copied from {facts['source']} to {facts['replica']}")
        show(f"  revision {facts['revision']}, {sealed}; before: {facts['previous'] or 'none'}")
    if facts["deleted"]:
        gone = f"{counted(facts['deleted'], 'object')}, {human_bytes(facts['deleted_bytes'])}"
        show(f"  {gone}, that the source no longer has, {verb} deleted")


def promote(options: argparse.Namespace) -> int:
    """Make a replica a location of its own, after a confirmation."""
    catalog = open_catalog(options, writing=False)
    plan = plan_promotion(catalog, incomplete=options.incomplete)
    question = (
        f"it will no longer be a replica of {plan.replica.source}, and can be written to. Nothing may write to the"
        " source any more: both have the same log."
    )
    return execute_confirmed(
        options, catalog, plan, execute_promotion, _report_promotion, question=question, refusal="It stays a replica."
    )


def _report_promotion(options: argparse.Namespace, uri: str, plan: PromotionPlan, done: bool) -> None:
    if options.json:
        facts = {"source": plan.replica.source, "replicated_since": time_text(plan.replica.created_at)}
        show_json({"uri": uri, "dry_run": options.dry_run, "promoted": done, "revision": plan.revision} | facts)
    else:
        verb = "is no longer" if done else "would no longer be"
        sealed = "sealed" if plan.sealed else "not sealed"
        show(f"{uri} {verb} a replica of {plan.replica.source}; it goes on from revision {plan.revision}, {sealed}")
