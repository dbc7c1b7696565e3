"""Refuses files of one machine in a run whose tasks may run on others."""

from __future__ import annotations

from collections.abc import Callable

from snapshot_assets.databases.open import kind_of
from snapshot_assets.databases.source import DatabaseAddress
from snapshot_assets.engine.session import is_local
from snapshot_assets.errors import PlanError
from snapshot_assets.plan.plan import Plan


def refuse_local_files(plan: Plan, source: DatabaseAddress | None, master: Callable[[], str]) -> None:
    """Refuse a plan that uses this machine's disk, if Spark's tasks may run on other machines.

    Args:
        plan: The plan.
        source: The database that tasks read or write; None if they use only the location.
        master: Returns Spark's master; called only if there is a file.

    Raises:
        PlanError: The location is a folder, or the source a DuckDB file, and the master is not local.
    """
    files = [f"its location {plan.to}"] if plan.to.lower().startswith("file:") else []
    if source is not None and kind_of(source.uri) == "duckdb":
        files.append(f"its source {source.alias!r}, a DuckDB file,")
    if not files or is_local(found := master()):
        return
    raise PlanError(
        f"plan {plan.name!r}: {' and '.join(files)} can be on one machine only, and Spark's master is {found!r}, whose "
        "tasks run on others. Use object storage (s3, gs, azblob, oss) and a database server, or a local master.",
        master=found,
    )
