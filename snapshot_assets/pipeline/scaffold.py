"""The `defs.yaml` that `dg scaffold defs snapshot_assets.SnapshotPlan` writes: a plan that loads, with comments."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from dagster.components.component.component_scaffolder import DefaultComponentScaffolder

_DEFS = """\
type: {type}

# `dg check defs` checks this file; docs/reference/plan.md of snapshot_assets has all fields.
attributes:
  sources:
    # postgresql://user:password@host/database, or duckdb:///path/of/a/file. Only runs need its variables ${{NAME}}.
    {name}: "postgresql://reader:${{DATABASE_PASSWORD}}@localhost/postgres"
  plan:
    name: {name}
    source: {name}
    to: "file://${{HOME}}/snapshots/{name}"   # or s3://, gs://, azblob://, oss://
    # All windows that have closed since. For a fixed range, remove kind and write end_time.
    kind: continuous
    start_time: {start:%Y-%m-%dT%H:%M:%SZ}
    chunk_time_window: 1d                # 90m, 6h, 7d, …: aim at 100 MiB to 1 GiB a chunk
    # tables: [public.orders]            # by default all; listed tables have an asset each
    # retention: {{keep_daily: 7, keep_weekly: 5, keep_monthly: 12}}
    # dagster: {{default_status: running}} # turns the plan's schedules on
"""


class SnapshotPlanScaffolder(DefaultComponentScaffolder):
    """Writes a plan named after its folder."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write the component's file, or append to it."""
        if request.scaffold_format != "yaml":
            super().scaffold(request)
            return
        file = request.target_path if request.append else request.target_path / "defs.yaml"
        before = f"{file.read_text(encoding='utf-8')}---\n" if request.append else ""
        name = re.sub(r"\W", "_", file.parent.name, flags=re.ASCII) + f"_{before.count('---') + 1}" * request.append
        start = datetime.now(UTC).replace(month=1, day=1, hour=0, minute=0, second=0)
        file.write_text(before + _DEFS.format(type=request.type_name, name=name, start=start), encoding="utf-8")
