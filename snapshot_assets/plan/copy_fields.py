"""The fields of a plan of kind `query` about the files of the copy."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from snapshot_assets.plan.range_fields import RangeFields, is_windowed


class CopyFields(RangeFields):
    """See `Plan`."""

    partition_by: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (),
        description="Columns of a query by whose values its files are divided among Hive folders, outermost first.",
        examples=["[country, year]"],
    )

    single_file: bool = Field(
        False, description="Whether one task writes all rows of a query to one file, of up to 4GiB; more rows fail."
    )

    manifest: tuple[Literal["redshift", "snowflake"], ...] = Field(
        (),
        description="Databases that load the copy of a query: each gets a list of the files, `redshift.manifest` or"
        " `snowflake.sql`.",
        examples=["[redshift]"],
    )

    @field_validator("partition_by", "manifest")
    @classmethod
    def _are_different(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"{twice[0]!r} is named twice; name each once")
        return names

    @field_validator("manifest")
    @classmethod
    def _can_be_loaded(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        to = str(info.data.get("to", ""))
        if "redshift" in names and to and not to.startswith("s3://"):
            raise ValueError(f"redshift loads from s3:// only, and the copy goes to {to}. Remove it, or copy to s3://")
        return tuple(sorted(names))

    @field_validator("single_file")
    @classmethod
    def _is_alone(cls, single_file: bool, info: ValidationInfo) -> bool:
        conflicts = {
            "partition_by": "puts each partition into files of its own",
            "split_by": "lets several tasks write files",
        }
        for name, what in conflicts.items():
            if single_file and info.data.get(name):
                raise ValueError(f"contradicts {name}, which {what}; remove one of the two")
        if single_file and info.data.get("query") and is_windowed(info.data["query"]):
            raise ValueError("contradicts :start and :end in the query: each window has files of its own. Remove it")
        return single_file

    @field_validator("partition_by", "single_file", "manifest")
    @classmethod
    def _is_of_a_copy(cls, value: Any, info: ValidationInfo) -> Any:
        if value and info.data.get("kind") not in ("query", None):
            raise ValueError("is a field of copies; write kind: query, or remove it")
        return value
