"""`snapshots init`: connects to a database, and writes a commented configuration with a plan that fits it."""

from __future__ import annotations

import argparse
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from snapshot_assets.cli.output import show, show_json, show_message
from snapshot_assets.cli.setup.estimates import opened_source, window_count
from snapshot_assets.cli.setup.plan_text import plan_text
from snapshot_assets.cli.setup.proposal import Proposal, propose
from snapshot_assets.databases.open import default_alias
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.errors import PlanError
from snapshot_assets.format.name_texts import shell_word
from snapshot_assets.format.names import table_text
from snapshot_assets.format.units import counted, duration_text
from snapshot_assets.plan.configuration import CONFIG_VARIABLE, DEFAULT_FILE, Configuration
from snapshot_assets.plan.fields import ALIAS
from snapshot_assets.plan.plan import Plan
from snapshot_assets.plan.read_configuration import FOLDER_VARIABLE, parse_configuration, plan_name
from snapshot_assets.plan.references import resolved_option


def run(options: argparse.Namespace) -> int:
    """Write a configuration with a plan for `--source`."""
    file = _new_file(options)
    environment = {FOLDER_VARIABLE: str(file.resolve().parent), **os.environ}
    written, variable = _without_password(options.source)
    address = _address(resolved_option("--source", options.source, environment))
    if variable:
        environment[variable] = str(urlsplit(options.source).password)
    now = datetime.now(UTC)
    fields = {"name": options.name or plan_name(options.to), "source": address.alias, "to": options.to}
    start = {"start_time": now} if options.kind == "continuous" else {}
    plan = Plan(**fields, kind=options.kind, **start)
    configuration = Configuration(sources={address.alias: address}, plans=(plan,), path=file)
    with opened_source(configuration, plan) as source:
        proposal = propose(source, plan, now)
    text = plan_text(proposal, written, now)
    parse_configuration(text, file, environment)
    _write(file, text)
    _report(options, file, proposal, variable)
    return 0


def _new_file(options: argparse.Namespace) -> Path:
    file = Path(options.output or options.config or os.environ.get(CONFIG_VARIABLE) or DEFAULT_FILE)
    if file.exists() or file.is_symlink():
        raise PlanError(f"{file} exists, and init overwrites nothing; name another file with --output, or remove it.")
    if not file.parent.is_dir():
        raise PlanError(f"There is no folder {file.parent} for {file.name}; make it, or name another file.")
    return file


def _address(uri: str) -> DatabaseAddress:
    if ALIAS.fullmatch(uri):
        raise PlanError(f"--source {uri} is an alias, and there is no configuration yet; write the database's URI.")
    alias = default_alias(uri)
    return DatabaseAddress(alias if ALIAS.fullmatch(alias) else f"source_{alias}"[:100], uri)


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


def _write(file: Path, text: str) -> None:
    try:
        with open(file, "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise PlanError(f"{file} exists now, and init overwrites nothing; name another file with --output.") from None
    except OSError as error:
        raise PlanError(f"Cannot write {file}: {error.strerror}; name another file with --output.") from None


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
        show_json({"path": str(file), "plan": fields, "windows": count, "tables": tables, "variable": variable})
        return
    show(f"{file}: plan {plan.name}, {counted(len(proposal.tables), 'table')}")
    show(f"  {counted(count, 'window')} of {duration_text(windows.length)}; comments in the file say why")
    found = file.absolute() == Path(DEFAULT_FILE).absolute() and not options.config
    named = "" if found else f"--config {shell_word(str(file))} "
    show(f"Next: snapshots {named}plan show {plan.name}")
    show(f"      snapshots {named}doctor --plan {plan.name}")
    show(f"      snapshots {named}export create --plan {plan.name}")
