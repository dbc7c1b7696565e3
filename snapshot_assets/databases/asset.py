"""A Dagster asset as the source of a plan: its DataFrames are the rows, which the IO manager writes as chunks.

There is no database to open: the asset's own runs write its partitions. Its URI is `asset:` and the asset's key, with
`/` between the parts.
"""

from __future__ import annotations

from typing import NoReturn

from snapshot_assets.databases.contract import Access, DatabaseKind
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.errors import PlanError
from snapshot_assets.format.header import ASSET_SOURCE
from snapshot_assets.format.names import NameRule

KIND = DatabaseKind(
    contract=1,
    name="asset",
    title="Dagster asset",
    form="asset:key of a Dagster asset, as a plan's source",
    access=Access.ASSET,
    names=NameRule.CASE_IGNORED,  # its documents are those of Spark's DataFrames
)


def key_of(uri: str) -> tuple[str, ...]:
    """Return the parts of the key that a URI names.

    Raises:
        PlanError: It names none.
    """
    parts = tuple(uri.partition(":")[2].split("/"))
    if not all(parts):
        raise PlanError(
            f"{uri!r} names no Dagster asset; write asset:<key>, with / between the parts of the key, such as"
            " asset:reports/daily"
        )
    return parts


def default_alias(uri: str) -> str:
    """Return a public name from a URI: the URI itself, by which a location's header names an asset as its source."""
    return ASSET_SOURCE + "/".join(key_of(uri))


def open(address: DatabaseAddress) -> NoReturn:
    """Refuse to open a source that is no database.

    Raises:
        PlanError: Always.
    """
    raise PlanError(
        f"The rows come from the Dagster asset {'/'.join(key_of(address.uri))}, not from a database. Materialise its"
        " partitions in Dagster; the asset manifest then seals the snapshot."
    )
