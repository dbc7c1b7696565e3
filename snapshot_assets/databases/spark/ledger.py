"""The ledger of imports into a Spark catalog: an append-only table of events.

Spark catalogs have no transactions. So a load is claimed before its first row and noted after its last one. A claim
without a note means a load that is running, or was cut off.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from pyspark.sql import SparkSession

from snapshot_assets.databases.spark.failures import translated
from snapshot_assets.databases.spark.sql import literal, qualified
from snapshot_assets.databases.steps import StepResult
from snapshot_assets.databases.target import LoadedFile, RestoreRecord
from snapshot_assets.format.relations import TableName

_COLUMNS = "number BIGINT, event STRING, subject STRING, facts STRING"
_PROCESS = uuid.uuid4().hex
"""Distinguishes this process from an earlier one with the same number."""


@dataclass(frozen=True)
class Claim:
    """A table's rows of a chunk that a run loads.

    Attributes:
        files: The files that it loads, with the number of rows of each.
        replace: Whether the chunk's earlier rows are deleted first.
        owner: The process: host, number, and a unique name.
        erased: Whether the earlier rows may be deleted already.
        done: Whether all rows are loaded.
    """

    id: str
    location_id: str
    table: TableName
    chunk: int
    files: tuple[LoadedFile, ...]
    replace: bool = False
    owner: tuple[str, int, str] = field(default_factory=lambda: (socket.gethostname(), os.getpid(), _PROCESS))
    erased: bool = False
    done: bool = False

    @property
    def part(self) -> tuple[TableName, int]:
        """The table and chunk of its rows."""
        return self.table, self.chunk

    def may_run(self, running: Iterable[str]) -> bool:
        """Return whether the load may still be running.

        Args:
            running: Claims that are being loaded in this process.
        """
        host, number, name = self.owner
        if name == _PROCESS:
            return self.id in running
        if host != socket.gethostname():
            return True  # a process of another machine cannot be checked
        return number != os.getpid() and Path(f"/proc/{number}").exists()


@dataclass(frozen=True)
class LedgerEvent:
    """One row of the ledger.

    Attributes:
        event: `begun`, `withdrawn`, `finished` or `reopened`, of an import; `trying` or `tried`, of steps of an import;
            `claimed`, `erased`, `loaded` or `undone`, of a claim.
        subject: Id of the import or claim.
    """

    event: str
    subject: str
    facts: str = ""

    @classmethod
    def of(cls, event: str, subject: RestoreRecord | Claim) -> Self:
        """Return the event that begins an import, or that makes a claim."""
        return cls(event, subject.id, json.dumps(asdict(subject)))

    @classmethod
    def of_steps(cls, record: RestoreRecord, results: Iterable[StepResult]) -> Self:
        """Return the event that records how tries of an import's steps ended."""
        return cls("tried", record.id, json.dumps([asdict(each) for each in results]))


@dataclass
class Contents:
    """The state of the ledger after its events.

    Attributes:
        imports: Imports, oldest first.
        claims: Claims that are open or loaded, oldest first.
        steps: How the latest try of each step ended, by import and name.
        tries: How often each step was to be tried, by import and name.
    """

    imports: dict[str, RestoreRecord] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    steps: dict[tuple[str, str], StepResult] = field(default_factory=dict)
    tries: Counter[tuple[str, str]] = field(default_factory=Counter)

    def apply(self, event: LedgerEvent) -> None:
        """Apply an event."""
        subject = event.subject
        match event.event:
            case "begun":
                self.imports[subject] = _record(json.loads(event.facts))
            case "withdrawn":
                self.imports.pop(subject, None)
            case "finished" | "reopened" if subject in self.imports:
                self.imports[subject] = replace(self.imports[subject], finished=event.event == "finished")
            case "trying":
                self.tries.update((subject, name) for name in json.loads(event.facts))
            case "tried":
                for facts in json.loads(event.facts):
                    self.steps[subject, facts["name"]] = StepResult(**facts)
            case "claimed":
                self.claims[subject] = _claim(json.loads(event.facts))
            case "undone":
                self.claims.pop(subject, None)
            case "loaded" if subject in self.claims:
                self.claims[subject] = replace(self.claims[subject], done=True)
            case "erased" if subject in self.claims:
                self._erase(subject)

    def _erase(self, subject: str) -> None:
        erasing = replace(self.claims[subject], erased=True)
        kept = {key: claim for key, claim in self.claims.items() if not claim.done or claim.part != erasing.part}
        self.claims = kept | {subject: erasing}

    def loaded(self, location_id: str) -> list[LoadedFile]:
        """Return the files of a location whose rows are in."""
        done = (claim for claim in self.claims.values() if claim.done and claim.location_id == location_id)
        return [file for claim in done for file in claim.files]

    def steps_of(self, location_id: str) -> dict[str, StepResult]:
        """Return how the latest tries of steps ended in imports of a location, by name."""
        own = [key for key, record in self.imports.items() if record.location_id == location_id]
        return {name: result for key in own for (of, name), result in self.steps.items() if of == key}

    def of_part(self, part: tuple[TableName, int]) -> list[Claim]:
        """Return the claims of the same rows."""
        return [claim for claim in self.claims.values() if claim.part == part]


class Ledger:
    """The table of events; `path` is its name with its catalog."""

    def __init__(self, spark: SparkSession, alias: str, path: Sequence[str]) -> None:
        self._spark = spark
        self._doing = f"Spark catalog {alias!r}: the ledger of imports"
        self._path = tuple(path)
        self._name = qualified(path)

    def create(self) -> None:
        """Create the ledger if it does not exist."""
        with translated(self._doing):
            self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {qualified(self._path[:-1])}")
            self._spark.sql(f"CREATE TABLE IF NOT EXISTS {self._name} ({_COLUMNS})")

    def read(self) -> Contents:
        """Return the ledger's state, with the events of other sessions."""
        contents = Contents()
        with translated(self._doing):
            if not self._spark.catalog.tableExists(self._name):
                return contents
            self._spark.sql(f"REFRESH TABLE {self._name}")
            rows = self._spark.sql(f"SELECT * FROM {self._name}").collect()
        for row in sorted(rows, key=lambda each: each["number"]):
            contents.apply(LedgerEvent(row["event"], row["subject"], row["facts"]))
        return contents

    def append(self, events: Sequence[LedgerEvent]) -> None:
        """Append events, all in one file."""
        first = time.time_ns()
        rows = ", ".join(
            f"({first + number}, {literal(each.event)}, {literal(each.subject)}, {literal(each.facts)})"
            for number, each in enumerate(events)
        )
        if rows:
            with translated(self._doing):
                self._spark.sql(f"INSERT INTO {self._name} VALUES {rows}")

    def drop(self) -> None:
        """Drop the ledger."""
        with translated(self._doing):
            self._spark.sql(f"DROP TABLE IF EXISTS {self._name}")


def _record(facts: dict[str, Any]) -> RestoreRecord:
    names = {key: tuple(TableName(*name) for name in facts[key]) for key in ("tables", "made")}
    return RestoreRecord(**{**facts, **names})


def _claim(facts: dict[str, Any]) -> Claim:
    files = tuple(LoadedFile(**{**file, "table": TableName(*file["table"])}) for file in facts["files"])
    owner = (facts["owner"][0], facts["owner"][1], facts["owner"][2])
    return Claim(**{**facts, "table": TableName(*facts["table"]), "files": files, "owner": owner})
