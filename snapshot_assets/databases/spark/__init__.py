"""Tables of any Spark catalog as a source: their rows come as DataFrames, not over a connection of a task's own."""

from __future__ import annotations

from snapshot_assets.databases.base import Database, DatabaseAddress
from snapshot_assets.databases.spark.address import default_alias
from snapshot_assets.errors import UnknownSourceError

__all__ = ["default_alias", "open"]


def open(address: DatabaseAddress) -> Database:
    """Refuse: a Spark catalog is reached through a session, which no address carries.

    Raises:
        UnknownSourceError: Always.
    """
    raise UnknownSourceError(
        f"Source {address.alias!r} is a Spark catalog, which cannot be opened without a Spark session. Here a database"
        " is needed: postgresql://… or duckdb:///….",
        alias=address.alias,
    )
