"""Writes a proposed plan as the commented text of a configuration. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from snapshot_assets.cli.setup.estimates import EstimatedTable
from snapshot_assets.cli.setup.proposal import Proposal
from snapshot_assets.format.name_texts import yaml_key, yaml_value
from snapshot_assets.format.names import column_text, table_text
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import duration_text, human_bytes, time_text

_HEAD = """\
# Snapshots of {alias}, proposed by `snapshots init` on {day}. Every value can be changed before the first export.
# `snapshots plan show {name}` shows what it would export, and `snapshots doctor` whether all that it needs is well.

sources:
  # Only the alias is shown or stored. Write a password as a variable of the environment: ${{NAME}}.
  {alias}: {uri}

plans:
  {name}:
    source: {alias}
    to: {to}
"""
_ONCE = """
    # A fixed range: from the earliest row to the latest one. For a nightly export, write `kind: continuous`, remove
    # end_time, and let `lag` say how long after its end a window may still receive rows.
    kind: once
"""
_CONTINUOUS = """
    # All windows that have closed, counted from start_time. A later export adds those that closed since.
    kind: continuous
    # lag: 1h              # how long after its end a window may still receive rows
"""
_TAIL = """
    # Sizes and formats.
    # parallelism: 4       # chunks exported in parallel; by default as many as Spark has cores, at most 8
    # max_file_size: 256MiB
    # format: parquet      # or csv, json

    # Nothing expires without a rule.
    # retention:
    #   keep_for: 30d
    #   keep_monthly: 12
    #   tag: {create_time: 02:00, num_retained_max: 7}
"""


def plan_text(proposal: Proposal, uri: str, now: datetime) -> str:
    """Return the text of a configuration with one source and one plan.

    Args:
        proposal: The plan and its reasons.
        uri: The source's URI as it is written, without a password.
        now: The current time.
    """
    plan = proposal.plan
    alias = plan.source.alias
    names = {"alias": alias, "name": plan.name, "uri": yaml_key(uri), "to": yaml_key(plan.to)}
    head = _HEAD.format(**names, day=now.date().isoformat())
    kind = _CONTINUOUS if plan.kind == "continuous" else _ONCE
    return head + kind + "".join(f"{line}\n" for line in _fields(proposal)) + _TAIL


def _fields(proposal: Proposal) -> Iterator[str]:
    plan, windows = proposal.plan, proposal.windows
    assert windows is not None
    assert plan.start_time is not None
    yield f"    start_time: {time_text(plan.start_time)}"
    if plan.end_time is not None:
        yield f"    end_time: {time_text(plan.end_time)}"
    yield f"    # Timed rows: about {human_bytes(windows.bytes)} in the source. A window is retried as one."
    yield f"    chunk_time_window: {duration_text(plan.chunk_time_window)}"
    tables = {each.table.table_name: each for each in proposal.tables}
    yield ""
    yield "    # The column whose value decides a row's window: best one that never changes. null: whole in chunk 0."
    yield f"    time_columns:{'' if plan.time_columns else ' {}'}"
    for table, column in sorted(plan.time_columns.items()):
        reason = proposal.reasons["time_columns", table_text(table)]
        yield f"      {yaml_key(table_text(table))}: {_value(column)}{_comment(_size(tables, table), reason)}"
    carriers = {column_text(path): carrier.value for path, carrier in plan.carriers.items()}
    yield from _section(proposal, "carriers", carriers)
    yield from _section(proposal, "exclude_tables", dict.fromkeys(plan.exclude_tables))
    yield from _section(proposal, "exclude_columns", dict.fromkeys(map(column_text, plan.exclude_columns)))


def _section(proposal: Proposal, name: str, entries: dict[str, Any]) -> Iterator[str]:
    """Yield a field of the plan: a mapping, or a list if the entries have no values."""
    if not entries:
        return
    yield f"    {name}:"
    for key, value in sorted(entries.items()):
        reason = _comment(proposal.reasons.get((name, key), ""))
        yield f"      - {_value(key)}{reason}" if value is None else f"      {yaml_key(key)}: {_value(value)}{reason}"


def _size(tables: dict[TableName, EstimatedTable], table: TableName) -> str:
    found = tables.get(table)
    return "size unknown" if found is None or found.bytes is None else f"about {found.text}"


def _comment(*parts: Iterable[str]) -> str:
    text = "; ".join(str(part) for part in parts if part)
    return "  # " + " ".join(text.split()) if text else ""


def _value(value: str | None) -> str:
    return "null" if value is None else yaml_value(value)
