"""PostgreSQL 14 and later, through ADBC, which takes COPY's binary stream straight into Arrow and back."""

from __future__ import annotations

from snapshot_assets.databases.postgresql.address import default_alias
from snapshot_assets.databases.postgresql.ddl import define, type_for
from snapshot_assets.databases.postgresql.source import PostgresqlDatabase
from snapshot_assets.databases.source import Database, DatabaseAddress
from snapshot_assets.databases.target import Target

__all__ = ["ONE_WRITER", "default_alias", "define", "open", "open_target", "type_for"]

ONE_WRITER = False


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


def open_target(address: DatabaseAddress) -> Target:
    """Connect to a server for writing.

    Raises:
        DatabaseUnavailableError: It cannot be reached.
        DatabaseDeniedError: It refused the user, the password or the database.
    """
    # Not at the top: an export has no target.
    from snapshot_assets.databases.postgresql.target import PostgresqlTarget

    return PostgresqlTarget(address)
