"""The part of a plan about how Dagster shows and automates it.

dagster:
group: finance
key_prefix: [warehouse, snapshots]
owners: [team:data, ada@example.com]
tags: {tier: gold}
default_status: running
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from snapshot_assets.plan.fields import Duration

_NAME = re.compile(r"[A-Za-z0-9_]+", re.ASCII)
_CRON = re.compile(r"\S+( +\S+){4}", re.ASCII)
_KEY = re.compile(r"[^\s/]+(/[^\s/]+)*")
_OWNER = re.compile(r"team:[A-Za-z0-9_-]+|[^@\s]+@[^@\s]+\.[^@\s]+", re.ASCII)


def _is_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text!r} is not a name in Dagster; write letters, digits and _")
    return text


def _is_owner(text: str) -> str:
    if not _OWNER.fullmatch(text):
        raise ValueError(f"{text!r} is no owner; write an email address, or team:NAME")
    return text


Name = Annotated[str, AfterValidator(_is_name)]
Owner = Annotated[str, AfterValidator(_is_owner)]


class DagsterFields(BaseModel):
    """See `Plan`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    group: Name | None = Field(None, description="Group of the assets; by default the plan's name.")
    key_prefix: tuple[Name, ...] = Field((), description="Parts of the assets' keys before the plan's name.")
    owners: tuple[Owner, ...] = Field((), description="Owners of the assets: email addresses, or `team:NAME`.")
    tags: dict[str, str] = Field(default_factory=dict, description="Tags of the assets.")
    default_status: Literal["stopped", "running"] = Field(
        "stopped", description="Whether schedules and sensors run without being turned on."
    )
    export_cron: str | None = Field(
        None, description="When the export schedule runs, UTC; by default when windows close, hourly for `once`."
    )
    drill_cron: str | None = Field(
        None, description="When a plan with `scratch` has its restore drill, UTC; by default on the 1st of each month."
    )
    restore_on: str | None = Field(
        None,
        description="What starts `restored`: `sealed`, a new seal at the location, by whomever; or the key of an asset,"
        " such as `staging/ready`.",
    )
    automation: bool = Field(False, description="Whether the assets have automation conditions.")
    table_assets: bool = Field(True, description="Whether each table that the plan lists has an asset.")
    fresh_for: Duration | None = Field(
        None, description="Age of the newest seal at which `manifest` counts as stale; by default it never does."
    )

    @field_validator("export_cron", "drill_cron")
    @classmethod
    def _is_cron(cls, text: str | None) -> str | None:
        if text is not None and not _CRON.fullmatch(text):
            raise ValueError(f"{text!r} is no cron expression; write its five fields, such as '15 2 * * *'")
        return text

    @field_validator("restore_on")
    @classmethod
    def _is_key(cls, text: str | None) -> str | None:
        if text is not None and not _KEY.fullmatch(text):
            raise ValueError(f"{text!r} is no key of an asset; write sealed, or a key such as staging/ready")
        return text
