"""PostgreSQL 14 and later, read through ADBC, which takes COPY's binary stream straight into Arrow."""

from __future__ import annotations

from snapshot_assets.databases.base import Database, DatabaseAddress
from snapshot_assets.databases.postgresql.address import default_alias
from snapshot_assets.databases.postgresql.database import PostgresqlDatabase

__all__ = ["default_alias", "open"]


def open(address: DatabaseAddress) -> Database:
    """Connect to a server.

    Args:
        address: A `postgresql://` URI with any options that libpq takes, such as `sslmode`.

    Raises:
        DatabaseUnavailableError: It cannot be reached.
        DatabaseDeniedError: It refused the user, the password or the database.
        ConsistencyLostError: `address.consistency` names a snapshot that is no longer held.
    """
    return PostgresqlDatabase(address)
