"""`snapshots init`: connects to a database, and writes a commented configuration with a plan that fits it."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from textwrap import wrap
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from snapshot_assets.cli.output import show, show_json, show_message
from snapshot_assets.cli.setup.estimates import EstimatedTable, opened_source, window_count
from snapshot_assets.cli.setup.proposal import Proposal, propose
from snapshot_assets.databases.open import default_alias
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.errors import PlanError
from snapshot_assets.format.name_texts import shell_word, yaml_key, yaml_value
from snapshot_assets.format.names import column_text, table_text
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.units import counted, duration_text, human_bytes, time_text
from snapshot_assets.plan.configuration import CONFIG_VARIABLE, DEFAULT_FILE, Configuration
from snapshot_assets.plan.fields import ALIAS
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.read_configuration import FOLDER_VARIABLE, parse_configuration, plan_name
from snapshot_assets.plan.yaml_text import resolved_option

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
    # A fixed range: from the earliest row to the latest one. For a nightly export, write `kind: continuous` and
    # `chunk_time_window: 1d`, remove end_time, and let `lag` say how long after its end a window may still get rows.
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


def _plan_text(proposal: Proposal, uri: str, now: datetime) -> str:
    """Return the text of a configuration with one plan, and one source, whose URI is written without a password."""
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
    if proposal.note:
        yield from wrap(proposal.note, 120, initial_indent="    # ", subsequent_indent="    # ")
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


def run(options: argparse.Namespace) -> int:
    """Write a configuration with a plan for `--source`."""
    file = Path(options.output or options.config or os.environ.get(CONFIG_VARIABLE) or DEFAULT_FILE)
    if file.exists() or file.is_symlink():
        raise PlanError(f"{file} exists, and init overwrites nothing; name another file with --output, or remove it.")
    if not file.parent.is_dir():
        raise PlanError(f"There is no folder {file.parent} for {file.name}; make it, or name another file.")
    environment = {FOLDER_VARIABLE: str(file.resolve().parent), **os.environ}
    written, variable = _without_password(options.source)
    uri = resolved_option("--source", options.source, environment)
    if ALIAS.fullmatch(uri):
        raise PlanError(f"--source {uri} is an alias, and there is no configuration yet; write the database's URI.")
    alias = default_alias(uri)
    address = DatabaseAddress(alias if ALIAS.fullmatch(alias) else f"source_{alias}"[:100], uri)
    if variable:
        environment[variable] = str(urlsplit(options.source).password)
    now = datetime.now(UTC)
    fields = {"name": options.name or plan_name(options.to), "source": address.alias, "to": options.to}
    start = {"start_time": now} if options.kind == "continuous" else {}
    plan = Plan(**fields, kind=options.kind, **start)
    configuration = Configuration(sources={address.alias: address}, plans=(plan,), path=file)
    with opened_source(configuration, plan) as source:
        proposal = propose(source, plan, now)
    text = _plan_text(proposal, written, now)
    parse_configuration(text, file, environment)
    try:
        with open(file, "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise PlanError(f"{file} exists now, and init overwrites nothing; name another file with --output.") from None
    except OSError as error:
        raise PlanError(f"Cannot write {file}: {error.strerror}; name another file with --output.") from None
    _report(options, file, proposal, variable)
    return 0


def _without_password(uri: str) -> tuple[str, str | None]:
    """Return a URI with a variable in place of a password, and the variable's name if that is new."""
    if any("password" in name.lower() for name, value in parse_qsl(urlsplit(uri).query) if "${" not in value):
        raise PlanError("--source has a password among its parameters; write it as a variable: ?password=${PASSWORD}.")
    user, at, rest = urlsplit(uri).netloc.rpartition("@")
    name, colon, password = user.partition(":")
    if not at or not colon or not password or "${" in password:
        return uri, None
    database = re.sub(r"[^A-Za-z0-9]+", "_", default_alias(uri)).strip("_").upper()
    variable = f"{database}_PASSWORD" if re.match(r"[A-Z]", database) else "DATABASE_PASSWORD"
    return uri.replace(f"{user}@{rest}", f"{name}:${{{variable}}}@{rest}", 1), variable


def _report(options: argparse.Namespace, file: Path, proposal: Proposal, variable: str | None) -> None:
    plan, windows = proposal.plan, proposal.windows
    assert windows is not None
    count = window_count(plan, datetime.now(UTC))
    if variable:
        show_message(
            f"The password is not in the file: set {variable} in the environment of each command, with characters such"
            " as @, / and : percent-encoded (%40, %2F, %3A).",
            "warning",
        )
    if options.json:
        fields = plan.model_dump(mode="json", exclude_unset=True)
        tables = [
            {"table": table_text(each.table.table_name), "bytes": each.bytes, "analyzed": each.analyzed}
            for each in proposal.tables
        ]
        facts = {"path": str(file), "plan": fields, "windows": count, "note": proposal.note}
        show_json(facts | {"tables": tables, "variable": variable})
        return
    show(f"{file}: plan {plan.name}, {counted(len(proposal.tables), 'table')}")
    show(f"  {counted(count, 'window')} of {duration_text(windows.length)}; comments in the file say why")
    if proposal.note:
        show(f"  {proposal.note}")
    found = file.absolute() == Path(DEFAULT_FILE).absolute() and not options.config
    named = "" if found else f"--config {shell_word(str(file))} "
    show(f"Next: snapshots {named}plan show {plan.name}")
    show(f"      snapshots {named}doctor --plan {plan.name}")
    show(f"      snapshots {named}export create --plan {plan.name}")
