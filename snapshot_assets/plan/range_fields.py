"""The fields of a plan about its range of time, and the windows that divide it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from snapshot_assets.format.units import time_text
from snapshot_assets.format.windows import count_windows
from snapshot_assets.plan.fields import Duration, Time
from snapshot_assets.plan.problems import raising_value_errors
from snapshot_assets.plan.query_fields import changes_with_time, query_of
from snapshot_assets.plan.selection_fields import SelectionFields


class RangeFields(SelectionFields):
    """See `Plan`."""

    start_time: Time | None = Field(None, description="First instant of the range.", validate_default=True)
    end_time: Time | None = Field(None, description="First instant after the range.")
    chunk_time_window: Duration = Field(timedelta(days=1), description="Length of a window.", validate_default=True)
    lag: Duration = Field(
        timedelta(0), description="How long after its end a window of a continuous plan may still receive rows."
    )
    late_windows: int = Field(
        0, ge=0, description="How many windows the schedule exports or copies again with each new one, for late rows."
    )
    fail_on_rows_outside: bool = Field(
        False, description="Fail, and do not seal, if the source has rows outside the range."
    )
    chunks_per_run: int | None = Field(None, ge=1, description="Chunks of one Dagster run; null for all in one run.")

    @property
    def windowed(self) -> bool:
        """Whether the rows are exported by windows."""
        return self.query is None or is_windowed(self.query)

    @property
    def range_kind(self) -> Literal["once", "continuous"]:
        """Whether the range is fixed, or grows with time: that of a query does if it has windows and no end."""
        if self.kind == "query":
            return "continuous" if self.windowed and self.end_time is None else "once"
        return self.kind

    @property
    def scheduled(self) -> bool:
        """Whether a schedule catches up with the plan's windows: not where each copy has another location."""
        return self.kind != "query" or (self.windowed and not changes_with_time(self.to))

    @field_validator("end_time", "chunk_time_window", "lag", "late_windows", "chunks_per_run")
    @classmethod
    def _has_windows_to_act_on(cls, value: Any, info: ValidationInfo) -> Any:
        default = cls.model_fields[str(info.field_name)].get_default(call_default_factory=True)
        query = info.data.get("query")
        if query is not None and value != default and not is_windowed(query):
            raise ValueError("has no effect: the query does not name :start and :end. Name them, or remove it")
        return value

    @field_validator("start_time")
    @classmethod
    def _start_if_continuous(cls, start: datetime | None, info: ValidationInfo) -> datetime | None:
        kind, query = info.data.get("kind"), info.data.get("query")
        if kind == "query" and query is not None:
            return _start_of_query(start, query)
        if start is None and kind == "continuous" and not info.data.get("schema_only"):
            raise ValueError("is missing; a continuous plan counts its chunks from it, such as 2013-01-01T00:00:00Z")
        return start

    @field_validator("end_time")
    @classmethod
    def _end_after_start(cls, end: datetime | None, info: ValidationInfo) -> datetime | None:
        if end is not None and info.data.get("kind") == "continuous":
            raise ValueError("a continuous plan has no end; remove end_time, or write kind: once")
        start = info.data.get("start_time")
        if end is not None and start is not None and end <= start:
            raise ValueError(f"{time_text(end)} is not after start_time {time_text(start)}")
        return end

    @field_validator("chunk_time_window")
    @classmethod
    def _cuts_the_range(cls, length: timedelta, info: ValidationInfo) -> timedelta:
        if not length:
            raise ValueError("0s is no length; write one such as 6h or 1d")
        start, end = info.data.get("start_time"), info.data.get("end_time")
        if start is not None and end is not None:
            raising_value_errors(lambda window: count_windows(start, end, window))(length)
        return length

    @field_validator("lag", "late_windows")
    @classmethod
    def _only_if_continuous(cls, value: Any, info: ValidationInfo) -> Any:
        if value and info.data.get("kind") == "once":
            name = info.field_name
            raise ValueError(f"only a continuous plan waits for late rows; remove {name}, or write kind: continuous")
        if value and info.data.get("kind") == "query" and info.data.get("end_time") is not None:
            raise ValueError(f"only windows without an end wait for late rows; remove {info.field_name}, or end_time")
        return value


def is_windowed(query: str) -> bool:
    """Return whether a query names the bounds of a window."""
    parsed = query_of("query", query)
    return parsed is not None and parsed.windowed


def _start_of_query(start: datetime | None, query: str) -> datetime | None:
    """Refuse a range of a query without windows, and windows without a start."""
    windowed = is_windowed(query)
    if windowed and start is None:
        raise ValueError("is missing; the windows of :start and :end are counted from it")
    if start is not None and not windowed:
        raise ValueError("has no effect: the query does not name :start and :end. Name them, or remove it")
    return start
