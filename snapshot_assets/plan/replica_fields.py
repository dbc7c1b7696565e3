"""The fields of a plan about its replica in a second store."""

from __future__ import annotations

from pydantic import Field, ValidationInfo, field_validator

from snapshot_assets.plan.problems import raising_value_errors
from snapshot_assets.plan.restore_fields import RestoreFields
from snapshot_assets.storage.location import parse_location


class ReplicaFields(RestoreFields):
    """See `Plan`."""

    replicate_to: str | None = Field(
        None,
        description="Location in another store to which each export replicates the plan's location, byte for byte.",
        examples=["s3://second-bucket/prefix"],
    )
    replicate_delete: bool = Field(
        False,
        description="Whether a replication to `replicate_to` deletes there what the plan's location has deleted.",
    )

    @field_validator("replicate_to")
    @classmethod
    def _is_another_location(cls, replica: str | None, info: ValidationInfo) -> str | None:
        if replica is None:
            return None
        if info.data.get("kind") == "query":
            raise ValueError(
                "has no effect with kind: query; replicate a copy with `snapshots replicate`, or remove it"
            )
        one = raising_value_errors(parse_location)(replica).uri
        other = raising_value_errors(parse_location)(info.data["to"]).uri if "to" in info.data else None
        overlaps = other is not None and (f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/"))
        if overlaps and info.data.get("storage") is None:
            raise ValueError(f"{one} overlaps the plan's location {other}; write a location outside it")
        return replica

    @field_validator("replicate_delete")
    @classmethod
    def _has_a_replica(cls, deletes: bool, info: ValidationInfo) -> bool:
        if deletes and info.data.get("replicate_to", "") is None:
            raise ValueError("has no effect without replicate_to; write one, or remove it")
        return deletes
