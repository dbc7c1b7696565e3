"""A plan without an end: tables may be added to its source, and dropped from it, between exports."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

FIRST = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=6)
PLAN = {"kind": "continuous", "start_time": FIRST.isoformat(), "end_time": None}
