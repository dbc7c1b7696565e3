"""One export in this process, and ways to let its tasks fail."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import duckdb

from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.manifest import write_hints
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.export.tasks import Outcome, Task
from snapshot_assets.engine.retry import RetryPolicy
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.errors import SnapshotError
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.faults.source import CHUNKS, PLAN, differences, location


@dataclass
class FailingRunner(InlineRunner):
    """Runs tasks in this process, but raises or returns errors for some chunks first.

    Attributes:
        errors: By chunk, the errors that its next attempts end in.
        lost: Errors that the next calls raise, as when an executor dies.
        attempts: Chunks of every attempt, in order.
    """

    errors: dict[int, list[SnapshotError]] = field(default_factory=dict)
    lost: list[SnapshotError] = field(default_factory=list)
    attempts: list[list[int]] = field(default_factory=list)

    def map(self, function: Any, tasks: Sequence[Task]) -> Iterable[Outcome]:
        self.attempts.append([work.chunk for task in tasks for work in task.works])
        if self.lost:
            raise self.lost.pop(0)
        for result in super().map(function, tasks):
            errors = self.errors.get(result.chunk)
            yield Outcome(result.chunk, "failed", error=errors.pop(0)) if errors else result


def show_progress(catalog: Catalog) -> None:
    """Write the hints of the work in progress, as the IO manager does."""
    write_hints(catalog.store, catalog.state, catalog.refresh)


@dataclass
class Place:
    """A source and a location, and runs from one to the other."""

    source: str
    folder: Path

    @property
    def store(self) -> ObjectStore:
        return open_store(parse_location(location(self.folder)))

    def run(self, runner: Any = None, *, store: ObjectStore | None = None, **plan: Any) -> ExportRun:
        return ExportRun(
            Plan(**(PLAN | {"source": self.source, "to": location(self.folder)} | plan)),
            DatabaseAddress("source", self.source),
            store or self.store,
            runner or InlineRunner(),
            "run",
            retry=RetryPolicy(base=0),
        )

    def export(
        self,
        runner: Any = None,
        chunks: Sequence[int] = CHUNKS,
        *,
        replace: bool = False,
        seal: bool = True,
        settings: dict[str, Any] | None = None,
        **plan: Any,
    ) -> dict[int, Outcome]:
        """Start, export and seal; returns the outcomes by chunk."""
        with changed(self.run(runner, **plan), **(settings or {})).open() as export:
            try:
                outcomes = {each.chunk: each for each in export.export(chunks, replace_completed=replace)}
                if seal:
                    export.seal()
            finally:
                show_progress(export.catalog)
        return outcomes

    def sql(self, statement: str) -> None:
        with duckdb.connect(self.source.removeprefix("duckdb://")) as connection:
            connection.execute(f"SET TimeZone = 'UTC'; {statement}")

    def manifest(self) -> dict[str, Any]:
        return json.loads((self.folder / "manifest.json").read_text())

    def differences(self) -> dict[str, list[tuple]]:
        return differences(self.source, self.store, self.folder)
