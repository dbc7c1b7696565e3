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

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from snapshot_assets.errors import PlanError
from snapshot_assets.format.names import parse_table, table_text
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import parse_share
from snapshot_assets.plan.fields import PositiveDuration
from snapshot_assets.plan.problems import raising_value_errors

_NAME = re.compile(r"[A-Za-z0-9_]+", re.ASCII)
_CRON = (
    (0, 59, ""),
    (0, 23, ""),
    (1, 31, ""),
    (1, 12, "jan feb mar apr may jun jul aug sep oct nov dec"),
    (0, 7, "sun mon tue wed thu fri sat"),
)
"""Least and greatest value of each field of a cron expression, and names of values in order."""

_CRON_PART = re.compile(r"(\*|(\w+)(?:-(\w+))?)(?:/(\d+))?", re.ASCII)
_TAG_NAME = re.compile(r"([A-Za-z0-9_.-]{1,63}/)?[A-Za-z0-9_.-]{1,63}", re.ASCII)
_TAG_VALUE = re.compile(r"[A-Za-z0-9_.-]{0,63}", re.ASCII)
_KEY = re.compile(r"[^\s/]+(/[^\s/]+)*")
_OWNER = re.compile(r"team:[A-Za-z0-9_-]+|[^@\s]+@[^@\s]+\.[^@\s]+", re.ASCII)


def _matching(pattern: re.Pattern[str], otherwise: str) -> AfterValidator:
    """Return the annotation of a text that matches a pattern."""

    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(f"{text!r} {otherwise}")
        return text

    return AfterValidator(check)


def _fits_field(part: str, least: int, greatest: int, names: str) -> bool:
    match = _CRON_PART.fullmatch(part)
    if match is None or match[4] == "0":
        return False
    numbers = {name: least + index for index, name in enumerate(names.split())}
    values = [numbers.get(value, int(value) if value.isdigit() else -1) for value in (match[2], match[3]) if value]
    return all(least <= value <= greatest for value in values) and values == sorted(values)


def _is_tag(tags: dict[str, str]) -> dict[str, str]:
    for name, value in tags.items():
        if not _TAG_NAME.fullmatch(name) or not _TAG_VALUE.fullmatch(value):
            raise ValueError(
                f"{name!r}: {value!r} is no tag in Dagster; name and value have up to 63 letters, digits, `_`, `-`, `.`"
            )
    return tags


_NOT_OF_QUERIES = "has no effect with kind: query, which has only the asset copy; remove it"
_ONLY_SCHEDULED = (
    "has no effect: only a query that names :start and :end, and is copied to one location, has a schedule. Write one"
    " of your own for the plan's job, or remove it"
)


def _parse_table_assets(value: object) -> bool | tuple[TableName, ...] | None:
    if value is None or isinstance(value, bool):
        return value
    if not isinstance(value, list | tuple):
        raise PlanError(f"{value!r} is neither true nor false; write one of them, or a list such as [public.orders]")
    return tuple(sorted({parse_table(each) for each in value}))


def _as_texts(tables: bool | tuple[TableName, ...] | None) -> bool | list[str] | None:
    return [table_text(each) for each in tables] if isinstance(tables, tuple) else tables


_Name = Annotated[str, _matching(_NAME, "is not a name in Dagster; write letters, digits and _")]
_Owner = Annotated[str, _matching(_OWNER, "is no owner; write an email address, or team:NAME")]
_Key = Annotated[str, _matching(_KEY, "is no key of an asset; write sealed, or a key such as staging/ready")]
Tags = Annotated[dict[str, str], AfterValidator(_is_tag)]
TableAssets = Annotated[
    bool | tuple[TableName, ...] | None,
    PlainValidator(raising_value_errors(_parse_table_assets)),
    PlainSerializer(_as_texts, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "string"}}]}),
]


class DagsterFields(BaseModel):
    """See `Plan`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    group: _Name | None = Field(None, description="Group of the assets; by default the plan's name.")
    key_prefix: tuple[_Name, ...] = Field((), description="Parts of the assets' keys before the plan's name.")
    owners: tuple[_Owner, ...] = Field((), description="Owners of the assets: email addresses, or `team:NAME`.")
    tags: Tags = Field(default_factory=dict, description="Tags of the assets.")
    pool: Annotated[str, Field(pattern=r"^\S+$")] = Field(
        "snapshots", description="Concurrency pool of the assets, such as one for all plans of a database."
    )
    default_status: Annotated[Literal["stopped", "running"], _ONLY_SCHEDULED] = Field(
        "stopped", description="Whether schedules and sensors run without being turned on."
    )
    export_cron: Annotated[str | None, _ONLY_SCHEDULED] = Field(
        None,
        description="When exports or copies are scheduled, UTC; by default when windows close, hourly if they end.",
    )
    verify_cron: Annotated[str | None, _NOT_OF_QUERIES] = Field(
        None, description="When the location is verified, UTC; by default daily at 03:30."
    )
    verify_depth: Annotated[Literal["quick", "sample", "full"], _NOT_OF_QUERIES] = Field(
        "sample",
        description="What that verification reads. `quick`: existence and size of the newest state's objects. `sample`:"
        " up to 1 GiB of its files, too, another part each day. `full`: all of all readable revisions.",
    )
    compare_cron: Annotated[str | None, _NOT_OF_QUERIES] = Field(
        None,
        description="When all rows are compared with the source, UTC, as `snapshots compare` does; by default never.",
    )
    extend_locks_cron: Annotated[str | None, _NOT_OF_QUERIES] = Field(
        None,
        description="When the locks of a location with the storage option `lock` are extended, UTC; by default never.",
    )
    drill_cron: str | None = Field(
        None, description="When a plan with `scratch` has its restore drill, UTC; by default on the 1st of each month."
    )
    verify_sample: Annotated[str | None, _NOT_OF_QUERIES] = Field(
        None,
        description="Share of the data files that `<plan>_verify` hashes, another one each day, such as `5%`; by"
        " default up to 1 GiB of the newest state.",
    )
    restore_on: _Key | None = Field(
        None,
        description="What starts `restored`: `sealed`, a new seal at the location, whoever made it; or the key of an"
        " asset, such as `staging/ready`.",
    )
    automation: Annotated[bool, _NOT_OF_QUERIES] = Field(
        False, description="Whether the assets have automation conditions, and a sensor that evaluates them."
    )
    table_assets: Annotated[TableAssets, _NOT_OF_QUERIES] = Field(
        None,
        description="Tables that have an asset each: a list, or `false` for none; by default those in `tables`.",
        examples=["[public.orders]"],
    )
    fresh_for: PositiveDuration | None = Field(
        None,
        description="Age of the newest seal at which `manifest`, or the `copy` of a query, is stale; by default never.",
    )

    @field_validator("export_cron", "verify_cron", "compare_cron", "extend_locks_cron", "drill_cron")
    @classmethod
    def _is_cron(cls, text: str | None) -> str | None:
        if text is None:
            return None
        fields = text.lower().split()
        parts = [(part, bounds) for field, bounds in zip(fields, _CRON, strict=False) for part in field.split(",")]
        if len(fields) != len(_CRON) or not all(_fits_field(part, *bounds) for part, bounds in parts):
            raise ValueError(f"{text!r} is no cron expression; write its five fields, such as '15 2 * * *'")
        return text

    @field_validator("verify_sample")
    @classmethod
    def _is_share(cls, text: str | None, info: ValidationInfo) -> str | None:
        if text is not None:
            raising_value_errors(parse_share)(text)
            if (depth := info.data.get("verify_depth", "sample")) != "sample":
                raise ValueError(f"verify_sample has no effect with verify_depth: {depth}; remove one of them")
        return text

    def check_for_query(self, *, scheduled: bool) -> None:
        """Refuse a field that has no effect for a plan of kind `query`.

        Args:
            scheduled: Whether it has a schedule: it is copied by windows, to one location.

        Raises:
            ValueError: Names a field that has another value than its default.
        """
        for name, field in type(self).model_fields.items():
            if getattr(self, name) != field.get_default(call_default_factory=True):
                for mark in (_NOT_OF_QUERIES, *(() if scheduled else (_ONLY_SCHEDULED,))):
                    if mark in field.metadata:
                        raise ValueError(f"{name} {mark}")
