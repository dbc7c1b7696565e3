"""The fields of a plan about how `restored` and the restore drill restore it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator

from snapshot_assets.databases.convert.renaming import Renaming
from snapshot_assets.format.relations import TableName
from snapshot_assets.plan.copy_fields import CopyFields
from snapshot_assets.plan.fields import Table, TablePattern
from snapshot_assets.plan.problems import raising_value_errors

_Name = Annotated[str, Field(min_length=1)]


class RestoreFields(CopyFields):
    """See `Plan`."""

    restore_exclude_tables: tuple[TablePattern, ...] = Field(
        (),
        description="Tables and views of the snapshot that a restore leaves out: patterns, as in `exclude_tables`.",
        examples=["[public.audit, '*.tmp_*']"],
    )
    map_schemas: dict[_Name, _Name] = Field(
        default_factory=dict,
        description="New names of schemas in the target, by those of the snapshot.",
        examples=["{public: restored}"],
    )
    map_tables: dict[Table, Table] = Field(
        default_factory=dict,
        description="New names of tables and views in the target, by those of the snapshot; precede `map_schemas`.",
        examples=["{public.orders: public.orders_of_may}"],
    )
    verify_first: bool = Field(
        False, description="Whether a restore hashes the whole snapshot before it loads the first row."
    )

    @property
    def renaming(self) -> Renaming:
        """The new names in the target."""
        return Renaming.of(self.map_schemas.items(), self.map_tables.items())

    @field_validator("map_schemas")
    @classmethod
    def _gives_schemas_names(cls, names: dict[str, str]) -> dict[str, str]:
        raising_value_errors(lambda given: Renaming.of(given.items()))(names)
        return names

    @field_validator("map_tables")
    @classmethod
    def _gives_tables_names(cls, names: dict[TableName, TableName]) -> dict[TableName, TableName]:
        raising_value_errors(lambda given: Renaming.of((), given.items()))(names)
        return names

    @field_validator("restore_exclude_tables", "map_schemas", "map_tables", "verify_first")
    @classmethod
    def _has_a_database_to_act_on(cls, value: Any, info: ValidationInfo) -> Any:
        if value and info.data.get("target") is None and info.data.get("scratch") is None:
            raise ValueError("has no effect without a target or scratch to restore into; write one, or remove it")
        return value
