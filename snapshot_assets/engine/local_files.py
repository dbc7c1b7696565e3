"""Refuses files of this machine where Spark's tasks run on others."""

from __future__ import annotations

from collections.abc import Callable

from snapshot_assets.databases.open import kind_of
from snapshot_assets.databases.source import DatabaseAddress
from snapshot_assets.engine.session_settings import is_local
from snapshot_assets.errors import PlanError
from snapshot_assets.plan.plan import Plan


def refuse_local_files(plan: Plan, database: DatabaseAddress | None, master: Callable[[], str | None]) -> None:
    """Refuse a plan whose location or database is a file of this machine, if Spark's tasks may run on others.

    Args:
        plan: The plan.
        database: A database that tasks open.
        master: Returns Spark's master; None if no tasks run. Called only for a plan with such files.

    Raises:
        PlanError: A file is on this machine, and the tasks run on others.
    """
    files = [f"its location {plan.to}"] if plan.to.lower().startswith("file:") else []
    if database is not None and kind_of(database.uri) == "duckdb":
        files.append(f"the database {database.alias!r}, a DuckDB file,")
    if not files or (found := master()) is None or is_local(found):
        return
    raise PlanError(
        f"plan {plan.name!r}: {' and '.join(files)} can be on one machine only, and Spark's master is {found!r}, whose "
        "tasks run on others. Use object storage (s3, gs, azblob, oss) and a database server, or a local master.",
        master=found,
    )
