"""What the catalog queries found, before it is put together into documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from snapshot_assets.databases.postgresql.introspect.columns import SourceColumn
from snapshot_assets.databases.postgresql.introspect.constraints import Rows
from snapshot_assets.databases.postgresql.introspect.extensions import Extensions
from snapshot_assets.databases.postgresql.introspect.relations import Relation
from snapshot_assets.databases.postgresql.introspect.sequences import SourceSequence
from snapshot_assets.databases.postgresql.introspect.user_types import UsedTypes
from snapshot_assets.format.relations import TableName


@dataclass(frozen=True)
class Facts:
    """All that was read, each by the relation's oid unless a name is its key."""

    relations: Mapping[int, Relation]
    partitions: Mapping[TableName, Sequence[Relation]]
    columns: Mapping[int, list[SourceColumn]]
    constraints: Rows
    indexes: Rows
    statistics: Rows
    not_carried: Rows
    sequences: Mapping[int, list[SourceSequence]]
    types: Mapping[int, UsedTypes]
    extensions: Extensions
    views: Mapping[int, dict[str, Any]]
    dimensions: Mapping[TableName, str]
