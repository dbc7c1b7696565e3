"""Copies of queries in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.export.copy import Copied, copy
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.retry import RetryPolicy
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import StoreOptions, open_store

on_both = pytest.mark.parametrize("numbers", ["duckdb", "postgresql"], indirect=True)


def plan(source: str, query: str | None, to: Path | str, **fields: Any) -> Plan:
    """Return the plan of a copy to a folder, or to a URI."""
    location = f"file://{to}" if isinstance(to, Path) else to
    return Plan(**{"name": "copied", "kind": "query", "source": source, "to": location, "query": query, **fields})


def run_of(plan: Plan) -> ExportRun:
    address = DatabaseAddress("source", plan.source.uri or "")
    store = open_store(parse_location(plan.to), plan.storage or StoreOptions())
    return ExportRun(plan, address, store, InlineRunner(), "run", retry=RetryPolicy(base=0))


def copied(source: str, query: str, folder: Path, *, overwrite: bool = False, **fields: Any) -> Copied:
    return copy(run_of(plan(source, query, folder, **fields)), overwrite=overwrite)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("data/*/*") if not path.name.startswith("chunk-"))
